"""Tables beside the source: made ahead, read without the tuner, chosen from by sizes, held against the source."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import torch
from click.testing import CliRunner

from tests.meta.sources import ROOT
from tilewright import hl
from tilewright.hl.tune import ahead, tables
from tilewright.hl.tune.tables import Row, Table
from tilewright.tools.cli import main

KERNEL = """
import torch
from tilewright import hl

SHAPES = ((4, 64), (64, 64))


@hl.aot_kernel(
    shapes=lambda: [(torch.ones(rows, columns), 2.0) for rows, columns in SHAPES],
    configs=[hl.Config(block_sizes=[block]) for block in (1, 4)],
    static_shapes=False,
    autotune_log_level=0,
)
def scaled(x, factor):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * factor
    return out
"""
CALL = """
import sys
import torch
from kernels import scaled

for rows in (4, 64, 3):
    x = torch.randn(rows, 64)
    assert torch.equal(scaled(x, 2.0), x * 2)
bound = scaled.bind((x, 2.0))
print(sorted(config["block_sizes"][0] for config in bound._compiled))
print([name for name in ("driver", "rounds", "workers", "strategies") if f"tilewright.hl.tune.{name}" in sys.modules])
"""


def row(rows, *ms, default=1.0):
    return Row({"x.size(0)": rows, "x.size(1)": 64, "n": 3}, default, ms)


def table(*measured, machine="cpu:any", count=2):
    configs = tuple(hl.Config(block_sizes=[2**at]) for at in range(count))
    return Table(machine, "x: float32[2], n: int", "", configs, 0, tuple(measured))


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return path


def written(module, tree, machine=None, sizes=((4, 64), (64, 64))):
    """Write a table for the kernel of `module` by hand."""
    from tilewright.tools.modules import load_file

    kernel = load_file(module).scaled
    names = dict(zip(kernel.signature.parameters, (torch.ones(4, 64), 2.0), strict=True))
    ms = [[1.0, 2.0], [2.0, 1.0]]
    rows = tuple(Row({"x.size(0)": a, "x.size(1)": b}, 1.0, times) for (a, b), times in zip(sizes, ms, strict=True))
    configs = tuple(map(kernel.bind((torch.ones(4, 64), 2.0)).config_spec.normalize, kernel.configs))
    here = machine or tables.machine_name(torch.device("cpu"))
    made = Table(here, tables.kind_of(names), "", configs, tree, rows)
    tables.write(kernel.tables, "scaled", tables.source_hash(kernel.source), [made])
    kernel.reset()
    return kernel


def check(module, *more):
    done = CliRunner().invoke(main, ["tuned", "check", str(module), *more])
    return done.exit_code, done.output


TREE = {"if": "x.size(0) <= 16", "then": 0, "else": 1}


# --- the tree ---------------------------------------------------------------------------------------------


def test_one_configuration_that_is_near_the_best_everywhere_is_the_whole_tree():
    made = ahead.pruned(table(row(1, 1.0, 1.02), row(64, 5.0, 1.0)))
    assert made.tree == 0 and made.configs == (hl.Config(block_sizes=[2]),)
    assert made.measured[1].ms == [1.0]


def test_sizes_between_measured_ones_go_to_the_nearer_by_factors():
    made = ahead.pruned(table(row(1, 1.0, 2.0), row(4, 1.0, 2.0), row(1024, 2.0, 1.0)))
    assert made.tree == {"if": "x.size(0) <= 64", "then": 0, "else": 1}
    assert made.choose({"x.size(0)": 64}) == 0 and made.choose({"x.size(0)": 65}) == 1


def test_what_does_not_work_is_never_chosen():
    made = ahead.pruned(table(row(1, None, 9.0), row(2, 1.0, 9.0), row(8, 1.0, None)))
    assert [made.choose({"x.size(0)": size}) for size in (1, 2, 8)] == [1, 0, 0]
    with pytest.raises(hl.exc.NoConfigFound, match=r"x.size\(0\)"):
        ahead.grown([row(1, None, None)])


def test_configurations_in_turns_need_a_leaf_each():
    rows = [row(2**at, *(1.0 if at % 2 == choice else 2.0 for choice in range(2))) for at in range(6)]
    tree = ahead.grown(rows)
    made = tables.chooser(tree, ["x", "n"], [lambda x, n: 0, lambda x, n: 1])
    assert [made(torch.empty(2**at, 1), 3) for at in range(6)] == [0, 1, 0, 1, 0, 1]


def test_equal_sizes_of_which_one_wants_another_configuration_share_the_cheaper():
    assert ahead.grown([row(4, 1.0, 1.1), row(4, 2.0, 1.0)]) == 1


def test_trees_of_several_sizes_choose_as_the_table_does():
    rows = [
        Row({"x.size(0)": a, "n": n}, 1.0, [1 + abs(math.log2(a * n) - best) for best in (0, 4, 8)])
        for a in (1, 8, 32)
        for n in (1, 4, 9)
    ]
    made = ahead.pruned(
        Table("cpu:any", "", "", tuple(hl.Config(block_sizes=[at]) for at in (1, 2, 3)), 0, tuple(rows))
    )
    choose = tables.chooser(made.tree, ["x", "n"], [lambda x, n, at=at: at for at in range(3)])
    for one in rows:
        number = made.choose(one.sizes)
        assert number == choose(torch.empty(one.sizes["x.size(0)"]), one.sizes["n"])
        assert one.ms[number] <= ahead.TOLERANCE * min(one.ms)


@pytest.mark.parametrize("test", ["x.size(0) < 4", "__import__('os') <= 4", "x.size(0) <= 4 or True"])
def test_a_tree_holds_tests_of_sizes_and_no_other_code(test):
    with pytest.raises(hl.exc.InvalidConfig, match="no test of a tree"):
        tables.chooser({"if": test, "then": 0, "else": 1}, ["x"], [])
    with pytest.raises(hl.exc.InvalidConfig, match=r"asks for y.size\(0\)"):
        tables.chooser({"if": "y.size(0) <= 4", "then": 0, "else": 1}, ["x"], [])


# --- files and calls ----------------------------------------------------------------------------------------


def test_a_kernel_is_tuned_ahead_and_runs_elsewhere_without_the_tuner(module):
    done = CliRunner().invoke(main, ["tuned", "ahead", str(module)])
    assert done.exit_code == 0, done.output
    held = json.loads((module.parent / "kernels.tuned.json").read_text())["scaled"]
    (made,) = held["tables"]
    assert made["kind"] == "x: float32[2], factor: float"
    assert [one["sizes"]["x.size(0)"] for one in made["measured"]] == [4, 64]
    assert check(module) == (0, "the tables fit\n")
    wanted = sorted(choices["block_sizes"][0] for choices in made["configs"])
    assert run(module) == [str(wanted), "[]"]


def run(module):
    """What `CALL` prints in a process of its own."""
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(module.parent)])}
    done = subprocess.run([sys.executable, "-c", CALL], env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_each_call_has_the_configuration_for_its_sizes(module):
    kernel = written(module, TREE)
    x = torch.randn(4, 64)
    bound = kernel.bind((x, 2.0))
    assert torch.equal(kernel(x, 2.0), x * 2)
    assert [config["block_sizes"] for config in bound._compiled] == [[1]] and bound.config["block_sizes"] == [1]
    large = torch.randn(64, 64)
    assert torch.equal(kernel(large, 2.0), large * 2) and kernel.bind((large, 2.0)) is bound
    assert [config["block_sizes"] for config in bound._compiled] == [[1], [4]]
    bound.set_config({"block_sizes": [2]})  # what a user sets, holds
    assert torch.equal(kernel(large, 2.0), large * 2) and len(bound._compiled) == 3


def test_static_shapes_take_theirs_when_they_are_bound(module):
    module.write_text(KERNEL.replace("static_shapes=False", "static_shapes=True"))
    kernel = written(module, TREE)
    for rows, block in ((4, 1), (64, 4)):
        x = torch.randn(rows, 64)
        assert torch.equal(kernel(x, 2.0), x * 2)
        assert kernel.bind((x, 2.0)).config["block_sizes"] == [block]


@pytest.mark.parametrize("spoiled", ["other machine", "other kind", "other kernel", "no file"])
def test_without_a_table_that_fits_a_kernel_is_as_without_one(module, spoiled):
    kernel = written(module, TREE, machine="cpu:of-somebody" if spoiled == "other machine" else None)
    held = json.loads(kernel.tables.read_text())
    if spoiled == "other kind":
        held["scaled"]["tables"][0]["kind"] = "x: float64[2], factor: float"
    if spoiled == "other kernel":
        held["scaled"]["tables"][0]["configs"][0]["block_sizes"] = [1, 1, 1]
    kernel.tables.write_text(json.dumps(held))
    if spoiled == "no file":
        kernel.tables.unlink()
    kernel.configs = []
    x = torch.randn(64, 64)
    assert torch.equal(kernel(x, 2.0), x * 2)
    bound = kernel.bind((x, 2.0))
    assert bound.config == bound.config_spec.default_config()


@pytest.mark.parametrize("text", ["{", "[]", '{"scaled": {"tables": [{}]}}', '{"scaled": {"tables": [3]}}'])
def test_a_damaged_file_says_so(module, text):
    kernel = written(module, TREE)
    kernel.tables.write_text(text)
    with pytest.raises(hl.exc.InvalidConfig, match="tuned ahead"):
        kernel(torch.ones(4, 64), 2.0)


def test_a_gpu_takes_the_table_of_an_older_one(tmp_path, monkeypatch):
    path = tmp_path / "k.tuned.json"
    made = [table(row(1, 1.0, 1.0), machine=machine) for machine in ("cuda:75", "cuda:80", "cuda:100", "cpu:znver5")]
    tables.write(path, "k", "s", made)
    args = {"x": torch.ones(1, 64), "n": 3}

    def found(machine):
        monkeypatch.setattr(tables, "machine_name", lambda device: machine)
        chosen = tables.table_for(path, "k", args)
        return chosen and chosen.machine

    machines = ["cuda:80", "cuda:90", "cuda:120", "cuda:70", "cpu:znver5", "cpu:znver4"]
    assert [found(machine) for machine in machines] == ["cuda:80", "cuda:80", "cuda:100", None, "cpu:znver5", None]


def test_tables_of_other_machines_stay_until_the_kernel_changes(tmp_path):
    path = tmp_path / "k.tuned.json"
    for machine, source in (("cpu:a", "s"), ("cpu:b", "s"), ("cpu:a", "s")):
        tables.write(path, "k", source, [table(row(1, 1.0, 1.0), machine=machine)])
    tables.write(path, "other", "s", [table(row(1, 1.0, 1.0))])
    assert [one.machine for one in tables.tables_of(path, "k")] == ["cpu:a", "cpu:b"]
    tables.write(path, "k", "t", [table(row(1, 1.0, 1.0), machine="cpu:c")])
    assert [one.machine for one in tables.tables_of(path, "k")] == ["cpu:c"]
    assert len(tables.tables_of(path, "other")) == 1


# --- the check ----------------------------------------------------------------------------------------------


def test_the_check_says_what_does_not_fit(module):
    code, said = check(module)
    assert code == 1 and "kernels.tuned.json has no table" in said
    kernel = written(module, TREE)
    assert check(module) == (0, "the tables fit\n")
    written(module, {"if": "x.size(0) <= 16", "then": 1, "else": 0})
    assert "the tree is not what the measurements say" in check(module)[1]
    written(module, TREE, sizes=((4, 64), (65, 64)))
    assert "other sizes than are declared" in check(module)[1]
    written(module, TREE)
    held = json.loads(kernel.tables.read_text())
    held["scaled"]["tables"][0]["configs"][1]["block_sizes"] = [1, 1, 1]
    kernel.tables.write_text(json.dumps(held))
    assert "configuration 1 is none of the kernel's" in check(module)[1]
    written(module, TREE)
    module.write_text(KERNEL.replace("* factor", "* factor + 1"))
    assert "scaled: the kernel has changed since" in check(module)[1]
    module.write_text("from tilewright import hl")
    assert "no kernel with a table" in check(module)[1]


def test_a_choice_that_has_become_slow_is_found(module, monkeypatch):
    written(module, TREE)
    times = {1: 1.0, 4: 1.2}
    monkeypatch.setattr(
        ahead, "raced", lambda pairs, configs: [(1.0, [times[config["block_sizes"][0]] for config in configs])]
    )
    code, said = check(module, "--time")
    assert code == 1 and "'x.size(0)': 64" in said and "1.2 ms, the default 1 ms" in said
    assert "'x.size(0)': 4" not in said
    assert check(module)[0] == 0


def test_nothing_declared_is_an_error():
    @hl.kernel
    def plain(x):
        for rows in hl.tile(x.size(0)):
            x[rows] = x[rows] + 1

    with pytest.raises(hl.exc.InvalidAPIUsage, match="shapes=lambda"):
        plain.aot()
