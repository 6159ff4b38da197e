"""Choosing configurations: given ones, searches, files of results, settings."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import Executor, Future

import pytest
import torch

from tests.meta.sources import ROOT
from tilewright import hl, knobs, testing


def scaled(x, factor):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * factor
    return out


def add_to(total, x):
    for rows in hl.tile(x.size(0)):
        total[rows, :] += x[rows, :]
    return total


CONFIGS = [hl.Config(block_sizes=[4]), hl.Config(block_sizes=[8])]


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(knobs.cache, "dir", tmp_path)


def test_the_fastest_of_given_configurations_is_kept_and_found_again(tmp_path, capsys):
    x = torch.randn(20, 30)
    kernel = hl.kernel(scaled, configs=CONFIGS)
    torch.testing.assert_close(kernel(x, 2), x * 2)
    bound = kernel.bind((x, 2))
    assert bound.config in map(bound.config_spec.normalize, CONFIGS)
    assert "@hl.kernel(config=hl.Config(block_sizes=" in capsys.readouterr().err
    (path,) = (tmp_path / "hl").glob("*.best_config")
    assert path == bound.get_cached_path()
    again = hl.kernel(scaled, configs=CONFIGS)
    again(x, 2)
    assert again.bind((x, 2)).config == bound.config
    assert capsys.readouterr().err == ""  # nothing was timed


def test_a_corrupt_file_counts_as_none(tmp_path, capsys):
    x = torch.randn(20, 30)
    kernel = hl.kernel(scaled, configs=CONFIGS)
    kernel(x, 2)
    path = kernel.bind((x, 2)).get_cached_path()
    path.write_text("{")
    again = hl.kernel(scaled, configs=CONFIGS)
    torch.testing.assert_close(again(x, 2), x * 2)
    assert capsys.readouterr().err.count("Best:") == 2


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(knobs.cache, "dir", tmp_path / "file")
    x = torch.randn(20, 30)
    with pytest.warns(UserWarning, match="could not be kept"):
        hl.kernel(scaled, configs=CONFIGS).autotune((x, 2))


def test_tuning_puts_changed_arguments_back():
    total, x = torch.zeros(16, 16), torch.ones(16, 16)
    kernel = hl.kernel(add_to, configs=CONFIGS)
    kernel.autotune((total, x))
    assert not total.any()
    kernel(total, x)
    assert torch.equal(total, x)


def test_search_finds_something_that_works():
    x = torch.randn(64, 64)
    kernel = hl.kernel(scaled, autotune_budget_seconds=0.5, autotune_max_generations=1)
    config = kernel.autotune((x, 3))
    bound = kernel.bind((x, 3))
    assert bound.config == config
    torch.testing.assert_close(kernel(x, 3), x * 3)
    assert bound.format_kernel_decorator() == f"@hl.kernel(config={config!r})"


class Pickling(Executor):
    """Runs tasks here, as another process would get them."""

    def __init__(self):
        self.tasks = 0

    def submit(self, fn, /, *args):
        self.tasks += 1
        fn, args = pickle.loads(pickle.dumps((fn, args)))
        future = Future()
        future.set_result(fn(*args))
        return future


def test_an_executor_gets_a_task_for_each_candidate(monkeypatch):
    executor = Pickling()
    monkeypatch.setattr(knobs.autotuning, "executor", executor)
    total, x = torch.zeros(16, 16), torch.ones(16, 16)
    kernel = hl.kernel(add_to, configs=[*CONFIGS, hl.Config(block_sizes=[16])], autotune_log_level=0)
    kernel.autotune((total, x))
    assert executor.tasks >= 2 and not total.any()


def test_fresh_processes_where_none_can_be_forked(monkeypatch, capsys):
    monkeypatch.setattr(testing, "can_fork", lambda: False)
    x = torch.randn(20, 30)
    kernel = hl.kernel(scaled, configs=CONFIGS, autotune_precompile_jobs=1, autotune_baseline_fn=lambda x, f: x * f)
    torch.testing.assert_close(kernel(x, 2), x * 2)
    assert "2 configurations timed, 0 out" in capsys.readouterr().err


@pytest.mark.skipif(not testing.can_fork(), reason="nothing is compiled in processes")
def test_devices_that_share_a_search(capsys, monkeypatch, tmp_path):
    """As on a GPU: forked processes compile, and fresh ones measure, one for each device; these find what was compiled,
    wherever this process keeps it, and compile nothing."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(knobs.cache, "dir", tmp_path / "here")
    x = torch.randn(20, 30)
    configs = [hl.Config(block_sizes=[rows]) for rows in (1, 2, 4, 8)]
    kernel = hl.kernel(scaled, configs=configs, autotune_precompile_jobs=2, autotune_devices=["cpu"])
    torch.testing.assert_close(kernel(x, 2), x * 2)
    assert "4 configurations timed, 0 out" in capsys.readouterr().err
    assert (tmp_path / "here").exists() and not (tmp_path / "elsewhere").exists()


def test_what_cannot_be_sent_runs_here_and_that_is_said(monkeypatch, capsys):
    monkeypatch.setattr(testing, "can_fork", lambda: False)
    grow = lambda x: x + 1

    def grown(x):
        out = torch.empty_like(grow(x))
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] + 1
        return out

    x = torch.randn(20, 30)
    torch.testing.assert_close(hl.kernel(grown, configs=CONFIGS)(x), x + 1)
    said = capsys.readouterr().err
    assert "candidates run in this process" in said and "2 configurations timed, 0 out" in said


def test_searches_begin_with_what_was_best_for_another_shape_and_a_like_kernel():
    best = hl.Config(block_sizes=[2])
    kernel = hl.kernel(scaled, configs=[best], autotune_log_level=0)
    kernel.autotune((torch.randn(20, 30), 2))

    def shifted(x, offset):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            out[rows, :] = x[rows, :] + offset
        return out

    for other, shape in ((scaled, (40, 30)), (shifted, (20, 30))):
        bound = hl.kernel(other).bind((torch.randn(shape), 2))
        assert [config["block_sizes"] for config in bound._driver((torch.randn(shape), 2))._starts] == [[2]]


def test_wrong_results_are_out():
    x = torch.randn(8, 8)
    kernel = hl.kernel(scaled, configs=CONFIGS, autotune_baseline_fn=lambda x, factor: x * factor + 1)
    with pytest.raises(hl.exc.NoConfigFound, match="not those of the baseline"):
        kernel.autotune((x, 2))


@pytest.mark.parametrize(("error", "agrees"), [(0.3, True), (3.0, False)])
def test_errors_are_those_of_a_usual_element(error, agrees):
    """Products in tf32 and in float32 differ by more than any part of a sum that is nearly 0."""
    x = torch.linspace(-100, 100, 2000).view(20, 100)
    kernel = hl.kernel(scaled, configs=CONFIGS, autotune_baseline_fn=lambda x, factor: x * factor + error)
    if agrees:
        kernel.autotune((x, 2))
    else:
        with pytest.raises(hl.exc.NoConfigFound, match="not those of the baseline"):
            kernel.autotune((x, 2))


def test_one_configuration_for_several_sizes():
    sets = [(torch.randn(8, 16), 2), (torch.randn(32, 16), 2)]
    kernel = hl.kernel(scaled, autotune_budget_seconds=0.1, autotune_max_generations=0)
    config = kernel.autotune_multi(sets)
    assert all(kernel.bind(args).config["block_sizes"] == config["block_sizes"] for args in sets)


def test_configurations_are_values(tmp_path):
    config = hl.Config(block_sizes=(4, 8), num_warps=2)
    assert config == hl.Config(num_warps=2, block_sizes=[4, 8]) == pickle.loads(pickle.dumps(config))
    assert hash(config) == hash(hl.Config.from_json(config.to_json()))
    config.save(tmp_path / "config.json")
    assert hl.Config.load(tmp_path / "config.json") == config
    spec = hl.kernel(scaled).bind((torch.randn(8, 8), 2)).config_spec
    assert spec.default_config().minimize(spec).keys() == {"block_sizes"}


def test_settings_come_from_the_environment():
    program = (
        "from tilewright import hl\n"
        "s = hl.Settings(fast_math=False)\n"
        "print(s.static_shapes, s.fast_math, s.autotune_effort, s.autotune_random_seed, s.ref_mode.name)\n"
        "hl.Settings(autotune_compile_timeout=3)\n"
    )
    env = {
        "PYTHONPATH": str(ROOT),
        "TILEWRIGHT_HL_STATIC_SHAPES": "0",
        "TILEWRIGHT_HL_FAST_MATH": "1",
        "TILEWRIGHT_HL_AUTOTUNE_EFFORT": "quick",
        "TILEWRIGHT_HL_AUTOTUNE_RANDOM_SEED": "7",
        "TILEWRIGHT_HL_INTERPRET": "1",
    }
    made = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["False", "False", "quick", "7", "EAGER"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("STATIC_SHAPES", "maybe"), ("INTERPRET", "2"), ("REF_MODE", "some"), ("AUTOTUNE_EFFORT", "huge"),
     ("INDEX_DTYPE", "int99"), ("AUTOTUNE_BUDGET_SECONDS", "soon")],
)  # fmt: skip
def test_a_value_of_the_environment_that_a_setting_cannot_have(monkeypatch, name, text):
    monkeypatch.setenv(f"TILEWRIGHT_HL_{name}", text)
    with pytest.raises(hl.exc.InvalidAPIUsage, match=text) as caught:
        hl.Settings()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "mode"), [("tiled", "TILED"), ("eager", "EAGER"), ("1", "EAGER"), ("off", "OFF"), ("", "OFF")]
)
def test_a_reference_mode_of_the_environment(monkeypatch, text, mode):
    monkeypatch.setenv("TILEWRIGHT_HL_REF_MODE", text)
    assert hl.Settings().ref_mode is hl.RefMode[mode]


def test_a_setting_that_does_not_exist():
    with pytest.raises(hl.exc.InvalidAPIUsage, match="did you mean static_shapes"):
        hl.kernel(scaled, static_shape=False)
