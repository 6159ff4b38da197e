"""What is told of each kind of fault, by every door; and that right programs are told nothing of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tilewright
from tests.meta.sources import ROOT
from tests.sanitize import kernels
from tilewright.sanitize import Fault, SanitizerError, checking, collect_faults


def faults(launch: Callable[[], object], wanted: str = "bounds,races") -> list[Fault]:
    with checking(wanted) as found:
        launch()
    return found.faults


def kinds(launch: Callable[[], object], wanted: str = "bounds,races") -> set[tuple[str, str]]:
    return {(fault.kind, fault.argument) for fault in faults(launch, wanted)}


# --- bounds --------------------------------------------------------------------------------------------------


def test_an_access_behind_an_array_names_line_program_tile_and_index() -> None:
    x, y = torch.zeros(1000), torch.zeros(2000)
    (fault,) = faults(lambda: kernels.copy[(8,)](x, y, 1020, BLOCK=128))
    assert (fault.kind, fault.kernel, fault.access, fault.argument) == ("bounds", "copy", "load", "x")
    assert fault.program == (7, 0, 0) and fault.tile == (128,)
    assert fault.index == 7 * 128 + fault.element[0] and fault.extent == (0, 1000) <= (0, fault.index)
    assert fault.place is not None and "tl.load(x + at" in fault.place.source_line()
    assert "^" in fault.render() and "x has 1000 elements" in fault.render()


def test_the_first_program_at_fault_is_told_whichever_thread_came_first() -> None:
    index = torch.full((64 * 4096,), 3, dtype=torch.int32)
    index[64 * 5 :: 64] = -1
    for _ in range(5):
        launch = lambda: kernels.scatter[(4096,)](
            index, torch.ones(len(index)), torch.zeros(9), len(index), BLOCK=64, num_threads=2
        )
        (fault,) = faults(launch, "bounds")
        assert fault.program == (5, 0, 0) and fault.times == fault.programs == 4091


def test_what_was_not_at_fault_is_computed_and_nothing_else_is_touched() -> None:
    memory = torch.arange(1300.0)
    x, y = torch.arange(1000.0), torch.full((1300,), -1.0)
    faults(lambda: kernels.copy[(10,)](x, y, 1280, BLOCK=128))
    assert torch.equal(y[:896], memory[:896]) and (y[896:] == -1).all()


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_a_view_ends_with_its_storage_and_begins_with_it(library: str) -> None:
    whole = torch.zeros(100) if library == "torch" else np.zeros(100, np.float32)
    y = torch.zeros(100)
    assert not faults(lambda: kernels.copy[(1,)](whole[40:50], y, 60, BLOCK=64))
    (fault,) = faults(lambda: kernels.copy[(1,)](whole[40:50], y, 61, BLOCK=64))
    assert fault.extent == (-40, 60)


def test_indices_from_memory_are_checked_one_by_one() -> None:
    index = torch.arange(100, dtype=torch.int32)
    index[[3, 70]] = torch.tensor([-1, 100], dtype=torch.int32)
    (fault,) = faults(lambda: kernels.scatter[(2,)](index, torch.ones(100), torch.zeros(100), 100, BLOCK=64))
    assert (fault.access, fault.argument, fault.index, fault.element) == ("store", "y", -1, (3,))
    assert fault.times == 2 and fault.programs == 2


def test_an_address_of_several_arguments_may_be_in_any_of_them() -> None:
    x, y, out = torch.zeros(100), torch.zeros(50), torch.zeros(100)
    for which in (0, 1):
        assert not kinds(lambda which=which: kernels.chosen[(1,)](x, y, out, which, 50, BLOCK=64))
    assert kinds(lambda: kernels.chosen[(2,)](x, y, out, 0, 101, BLOCK=64))


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_single_element_more_is_seen(size: int) -> None:
    x, y = torch.zeros(size), torch.zeros(size + 1)
    assert not faults(lambda: kernels.copy[(1,)](x, y, size, BLOCK=64))
    assert kinds(lambda: kernels.copy[(1,)](x, y, size + 1, BLOCK=128)) == {("bounds", "x")}


def test_programs_that_wait_for_each_other_go_on_behind_a_fault() -> None:
    flag = torch.ones(1, dtype=torch.int32)
    x, y = torch.ones(20), torch.zeros(32)
    launch = lambda: kernels.wait_and_store[(3,)](flag, x, y, 32, BLOCK=32)
    assert kinds(launch) == {("bounds", "x"), ("race", "y")}  # all three store to y
    assert (y[:20] == 1).all()


# --- races ---------------------------------------------------------------------------------------------------


def test_a_sum_without_atomics_races_and_one_with_does_not() -> None:
    x, counts = torch.ones(512), torch.zeros(1)
    found = faults(lambda: kernels.count[(4,)](x, counts, 512, BLOCK=128, ATOMIC=False))
    assert {fault.kind for fault in found} == {"race"}
    first = next(fault for fault in found if fault.access == "load")
    assert first.program == (1, 0, 0) and first.other is not None and first.other.program == (0, 0, 0)
    assert first.other.access == "store" and first.other.lines
    assert not faults(lambda: kernels.count[(4,)](x, counts, 512, BLOCK=128, ATOMIC=True))
    assert not faults(lambda: kernels.count[(1,)](x, counts, 512, BLOCK=512, ATOMIC=False))


def test_a_shift_in_place_races_and_one_between_arrays_does_not() -> None:
    x = torch.zeros(512)
    assert ("race", "x") in kinds(lambda: kernels.shift[(4,)](x, x, 512, BLOCK=128))
    assert not faults(lambda: kernels.shift[(4,)](x, x.clone(), 512, BLOCK=128))
    halves = torch.zeros(1024)
    assert kinds(lambda: kernels.copy[(5,)](halves[:512], halves[512 - 128 :], 640, BLOCK=128))


def test_elements_of_a_tile_that_store_other_values_to_one_place() -> None:
    index, y = torch.arange(64, dtype=torch.int32), torch.zeros(64)
    index[5] = 4
    assert kinds(lambda: kernels.scatter[(1,)](index, torch.arange(64.0), y, 64, BLOCK=64)) == {("lanes", "y")}
    assert not faults(lambda: kernels.scatter[(1,)](index, torch.ones(64), y, 64, BLOCK=64))


def test_a_lock_is_no_race() -> None:
    total = torch.zeros(1)
    assert not faults(lambda: kernels.locked[(5,)](torch.zeros(1, dtype=torch.int32), total))
    assert total.item() == 5


def test_launches_do_not_race_with_each_other() -> None:
    x, y = torch.ones(300), torch.zeros(300)

    def both() -> None:
        kernels.copy[(3,)](x, y, 300, BLOCK=128)
        kernels.copy[(3,)](y, x, 300, BLOCK=128)
        kernels.copy[(3,)](x, y, 300, BLOCK=128)

    assert not faults(both)


# --- first reads, overflow -----------------------------------------------------------------------------------


def test_what_nobody_has_written() -> None:
    with checking("uninitialised") as found:
        x, y = torch.empty(300), torch.empty(300)
        kernels.copy[(3,)](x, y, 300, BLOCK=128)
    assert {(fault.kind, fault.argument) for fault in found.faults} == {("uninitialised", "x")}


def test_what_was_written_by_anybody_is_no_fault() -> None:
    with checking("uninitialised") as found:
        x, y = torch.empty(300), torch.empty(300)
        x[:100] = 1
        x[100:].normal_()
        kernels.copy[(3,)](x, y, 300, BLOCK=128)
        kernels.copy[(3,)](y, torch.empty(300), 300, BLOCK=128)
        y.sum()
    assert not found.faults


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_tensors_and_kernels_that_only_print_are_no_fault(capfd: pytest.CaptureFixture[str]) -> None:
    with checking("all") as found:
        sparse = torch.eye(16).to_sparse_csr()
        kernels.told[(1,)](sparse.values(), BLOCK=16)
        assert (sparse @ torch.ones(16)).sum() == 16
    assert not found.faults and "sum: 16.0" in capfd.readouterr().out


def test_a_launch_is_a_launch_while_pytorch_is_followed() -> None:
    """What a library does with what its kernels return it does then, too."""

    class Caching(tilewright.KernelInterface[Any]):
        kernel: Any = None

        def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            self.kernel = kernels.copy.run(*args, grid=grid, warmup=warmup, **kwargs)

    with checking("uninitialised") as found:
        x, y, launcher = torch.empty(300), torch.empty(300), Caching()
        launcher[(3,)](x, y, 300, BLOCK=128)
        assert launcher.kernel.name == kernels.copy[(3,)](x.fill_(1), y, 300, BLOCK=128).name == "copy"
        y.sum()
    (fault,) = found.faults
    assert (fault.kind, fault.argument) == ("uninitialised", "x")


def test_elements_that_a_kernel_left_out_are_told_when_pytorch_reads_them() -> None:
    with checking("uninitialised") as found:
        x, y = torch.ones(300), torch.empty(300)
        kernels.copy[(2,)](x, y, 300, BLOCK=128)
        y[:256].sum()
        assert not found.faults
        y.sum()
    (fault,) = found.faults
    assert (fault.kind, fault.argument, fault.times) == ("never written", "y", 44)


def test_an_index_that_wraps() -> None:
    x, y = torch.zeros(64), torch.zeros(64)
    (fault,) = faults(lambda: kernels.far[(1,)](x, y, 1 << 27, BLOCK=64), "overflow")
    assert (fault.kind, fault.access, fault.index) == ("overflow", "mul", 63 << 27)
    assert not faults(lambda: kernels.far[(1,)](x, y, 1 << 20, BLOCK=64), "overflow")


# --- doors ---------------------------------------------------------------------------------------------------


def test_a_launch_that_asks_for_checks_raises() -> None:
    x, y = torch.zeros(1000), torch.zeros(2000)
    kernels.copy[(8,)](x, y, 1000, BLOCK=128, sanitize=True)
    kernels.copy[(8,)](x, y, 1000, BLOCK=128, sanitize=False)
    with pytest.raises(SanitizerError, match=r"x has 1000 elements") as caught:
        kernels.copy[(8,)](x, y, 1020, BLOCK=128, sanitize="bounds")
    assert len(caught.value.faults) == 1
    with collect_faults() as found:
        kernels.copy[(8,)](x, y, 1020, BLOCK=128, sanitize=True)
        kernels.copy[(8,)](x, y, 1020, BLOCK=128, sanitize=True)
    assert len(found.faults) == 1 and found.faults[0].times == 2
    with pytest.raises(tilewright.errors.ArgumentError, match="bound"):
        kernels.copy[(8,)](x, y, 1000, BLOCK=128, sanitize="bound")


def test_a_launch_without_checks_is_what_it_was() -> None:
    """Behind launches with checks machine code goes on to launch; and it goes by again when the knob is set."""
    x, y = torch.arange(300.0), torch.zeros(300)
    for _ in range(4):
        kernels.copy[(3,)](x, y, 300, BLOCK=128)
    assert len(faults(lambda: kernels.copy[(3,)](x, y, 310, BLOCK=128))) == 1
    y.zero_()
    kernels.copy[(3,)](x, y, 300, BLOCK=128)
    assert torch.equal(x, y)


PROGRAM = """
import sys, torch
from tests.sanitize import kernels
x, y, n = torch.zeros(1000), torch.zeros(2000), int(sys.argv[1])
print("n is", n)
for _ in range(3):
    kernels.copy[(8,)](x, y, n, BLOCK=128)
"""


def run(*arguments: str, module: str = "tilewright.tools.cli") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    good = run("sanitize", str(path), "1000")
    assert (good.returncode, good.stdout) == (0, "n is 1000\n") and "no faults" in good.stderr
    bad = run("sanitize", "--json", str(path), "1020")
    (fault,) = json.loads(bad.stdout)
    assert bad.returncode == 1 and "n is 1020" in bad.stderr
    assert (fault["kind"], fault["argument"], fault["times"]) == ("bounds", "x", 3)
    assert fault["file"].endswith("kernels.py") and "tl.load" in fault["source"]


TESTS = """
import torch
from tests.sanitize import kernels
def test_right(): kernels.copy[(8,)](torch.zeros(1000), torch.zeros(2000), 1000, BLOCK=128)
def test_wrong(): kernels.copy[(8,)](torch.zeros(1000), torch.zeros(2000), 1020, BLOCK=128)
"""


def test_the_option_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_kernels.py").write_text(TESTS)
    plugin = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:tilewright",
        "-p",
        "pytest_tilewright",
        str(tmp_path),
    )
    checked = run(*plugin, "--tilewright-sanitize", module="pytest")
    assert checked.returncode == 1 and "1 failed, 1 passed" in checked.stdout
    assert "x has 1000 elements" in checked.stdout


EMPTY = """
import tilewright, torch
from tests.sanitize import kernels
x, y = torch.empty(300), torch.empty(300)
kernels.copy[(3,)](x, y, 300, BLOCK=128)
x.fill_(1.0)
kernels.copy[(2,)](x, torch.empty(300), 256, BLOCK=128)
print("done")
"""


@pytest.mark.parametrize("posing", [[], ["-m", "tilewright.as_triton"]], ids=["plain", "posing"])
def test_the_variable_follows_pytorch_too(tmp_path: Path, posing: list[str]) -> None:
    (tmp_path / "program.py").write_text(EMPTY)
    asked = {**os.environ, "TILEWRIGHT_SANITIZE": "uninitialised", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error::RuntimeWarning", *posing, str(tmp_path / "program.py")]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("uninitialised: ") == 1 and "an element of x" in done.stderr
