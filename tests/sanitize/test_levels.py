"""Broken promises, deadlocks, and what is looked for by name alone: views, barriers, the first NaN."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tests.sanitize import kernels
from tilewright.base.checks import ALL, EVERY, parse_checks
from tilewright.base.errors import ArgumentError
from tilewright.sanitize import Fault, SanitizerError, checking


def faults(launch: Callable[[], object], wanted: str) -> list[Fault]:
    with checking(wanted) as found:
        launch()
    return found.faults


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def line_of(fault: Fault) -> str:
    assert fault.place is not None
    return fault.place.source_line().strip()


# --- promises ------------------------------------------------------------------------------------------------


def promised(start: int, n: int) -> dict[str, Fault]:
    """The first fault of each promise."""
    x, y = torch.zeros(300), torch.zeros(300)
    found = faults(lambda: kernels.promises[(1,)](x, y, start, n, BLOCK=64), "hints")
    return {fault.access: fault for fault in reversed(found)}


def test_promises_that_hold_are_no_fault() -> None:
    assert not promised(16, 64) and not promised(64, 96)


def test_a_multiple_that_is_none() -> None:
    found = promised(12, 96)["multiple_of(..., 8)"]
    assert (found.kind, found.values, found.program) == ("promise", (12,), (0, 0, 0))
    assert line_of(found) == "start = tl.multiple_of(start, 8)"


def test_an_assumption_that_does_not_hold_shows_both_sides() -> None:
    (found,) = promised(16, 200).values()
    assert (found.access, found.values, line_of(found)) == ("assume(...)", (200, 100), "tl.assume(n < 100)")


def test_a_run_that_wraps_in_the_middle() -> None:
    found = promised(16, 60)
    run = found["max_contiguous(..., 8)"]
    assert (run.element, run.times, run.values) == ((44,), 4, (0, 60))
    assert found["multiple_of(..., 8)"].values == (4,), "the second of the runs begins behind the wrap"


def test_rows_that_are_not_constant() -> None:
    index, y = (torch.arange(64) // 16).int(), zeros(64)
    assert not faults(lambda: kernels.constant_rows[(1,)](index, y, H=4, W=16), "hints")
    index[37] = 9
    (found,) = faults(lambda: kernels.constant_rows[(1,)](index, y, H=4, W=16), "hints")
    assert (found.element, found.values, found.times) == ((2, 5), (9, 2), 1)


def test_promises_are_broken_where_an_oracle_says_so() -> None:
    """Random runs that wrap, against the definition: found are all that are broken, and no others."""
    chance, broken, kept, y = random.Random(3), 0, 0, zeros(64)
    for _ in range(6):
        number, run = chance.choice([1, 2, 4, 8, 16]), chance.choice([1, 2, 4, 8, 16, 64])
        for _ in range(12):
            start, n = (
                chance.choice([1, 2, 4, 8, 16]) * chance.randint(2, 9),
                chance.choice([2, 8, 16]) * chance.randint(2, 9),
            )
            values = (start + np.arange(64)) % n
            wanted = set()
            if (values[::run] % number).any():
                wanted.add(f"multiple_of(..., {number})")
            if (values.reshape(-1, run) - values[::run, None] != np.arange(run)).any():
                wanted.add(f"max_contiguous(..., {run})")
            launch = functools.partial(kernels.wrapping_runs[(1,)], y, start, n, NUMBER=number, RUN=run, BLOCK=64)
            assert {fault.access for fault in faults(launch, "hints")} == wanted, (start, n, number, run)
            broken, kept = broken + bool(wanted), kept + (not wanted)
    assert broken > 15 and kept > 15


def test_what_is_checked_is_not_relied_on() -> None:
    """A kernel with checks computes what the values say, whatever is promised of them."""
    x, y = torch.arange(300.0), torch.zeros(64)
    faults(lambda: kernels.promises[(1,)](x, y, 13, 61, BLOCK=64), "hints")
    assert torch.equal(y, x[(13 + torch.arange(64)) % 61])


# --- deadlocks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backward", [False, True])
def test_a_program_that_waits_for_a_later_one_or_for_nobody(backward: bool) -> None:
    flag, y = zeros(9), zeros(8)
    flag[8] = 1
    found = faults(lambda: kernels.spin[(8,)](flag, y, BACKWARD=backward), "deadlocks")
    (fault,) = found
    assert (fault.kind, fault.argument, fault.program, fault.values) == ("deadlock", "flag", (0, 0, 0), (0,))
    assert line_of(fault).startswith("while tl.atomic_add" if backward else "while tl.load")


def test_programs_that_wait_for_earlier_ones_are_no_fault() -> None:
    flag, y = zeros(9), zeros(8)
    flag[0] = 1
    assert not faults(lambda: kernels.spin[(8,)](flag, y, BACKWARD=False), "deadlocks")
    assert (y == 1).all()
    total = torch.zeros(1)
    assert not faults(lambda: kernels.locked[(70_000,)](zeros(1), total), "deadlocks"), "each looks once"
    assert total.item() == 70_000


def test_a_lock_that_nobody_gives_back() -> None:
    (fault,) = faults(lambda: kernels.locked[(2,)](zeros(1) + 1, torch.zeros(1)), "bounds,races,deadlocks")
    assert (fault.kind, fault.argument, fault.values) == ("deadlock", "lock", (1,))


def test_a_loop_that_makes_way_is_no_deadlock() -> None:
    counts = zeros(100_000)
    assert not faults(lambda: kernels.take_turns[(2,)](zeros(1), counts, len(counts)), "deadlocks")
    assert (counts == 1).all()


# --- views ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_padding_of_rows_belongs_to_the_storage_and_not_to_the_view(library: str) -> None:
    whole = torch.zeros(16, 32) if library == "torch" else np.zeros((16, 32), np.float32)
    y = torch.zeros(16, 32)

    def run(width: int, wanted: str) -> list[Fault]:
        return faults(lambda: kernels.rows[(1, 1)](whole[:, :20], y, 16, width, 32, H=16, W=32), wanted)

    assert not run(20, "views") and not run(24, "bounds")
    (fault,) = run(24, "views")
    assert (fault.kind, fault.argument, fault.index, fault.element, fault.times) == ("view", "x", 20, (0, 20), 64)


def test_a_view_from_behind_the_first_element() -> None:
    whole, y = torch.zeros(64), torch.zeros(64)
    assert not faults(lambda: kernels.copy[(1,)](whole[8:40], y, 32, BLOCK=64), "views")
    (fault,) = faults(lambda: kernels.copy[(1,)](whole[8:40], y, 33, BLOCK=64), "views")
    assert fault.index == 32


# --- barriers ------------------------------------------------------------------------------------------------


def test_a_barrier_that_other_machines_need() -> None:
    x, y = torch.arange(64.0), torch.zeros(64)
    launch = lambda barrier: lambda: kernels.turn_around[(1,)](x, y, 64, BLOCK=64, BARRIER=barrier)
    assert not faults(launch(False), "all") and not faults(launch(True), "portable")
    (fault,) = faults(launch(False), "portable")
    assert (fault.kind, fault.argument, fault.access, fault.times) == ("barrier", "y", "load", 64)
    assert fault.other is not None and len(fault.other.lines) == 1 and "debug_barrier" in fault.title()


def test_elements_that_load_what_they_stored_need_none() -> None:
    x, y = torch.arange(64.0), torch.zeros(64)
    assert not faults(lambda: kernels.there_and_back[(3,)](x, y, BLOCK=64), "portable")


# --- the first NaN -------------------------------------------------------------------------------------------


def test_infinities_of_masks_are_no_fault() -> None:
    x, y = torch.randn(100), torch.zeros(100)
    assert not faults(lambda: kernels.normalise[(1,)](x, y, 100, BLOCK=128), "nan")


def test_the_operation_that_makes_an_infinity_and_its_operand() -> None:
    x, y = torch.zeros(100), torch.zeros(100)
    x[5] = 1e5
    launch = lambda: kernels.normalise[(1,)](x, y, 100, BLOCK=128)
    (fault,) = faults(launch, "nan")
    assert (fault.kind, fault.access, fault.values, fault.element) == ("nan", "log", (0.0,), (0,))
    after = y.clone()
    kernels.normalise[(1,)](x, y, 100, BLOCK=128)
    assert torch.equal(after, y), "the launch that was made again leaves what one leaves"


def test_a_number_too_large_for_a_half() -> None:
    x, y = torch.ones(100), torch.zeros(100, dtype=torch.float16)
    assert not faults(lambda: kernels.narrowed[(1,)](x, y, 100, BLOCK=128), "nan")
    x[7] = 7e4
    (fault,) = faults(lambda: kernels.narrowed[(1,)](x, y, 100, BLOCK=128), "nan")
    assert (fault.access, fault.values, fault.element) == ("truncf", (140_000.0,), (7,))


@pytest.mark.parametrize("given", [1.0, float("nan"), float("inf")])
def test_what_is_no_number_before_is_not_made(given: float) -> None:
    x, y = torch.ones(16, 16), torch.zeros(16, 16)
    x[3, 4] = given
    assert not faults(lambda: kernels.squares[(1,)](x, y, M=16), "nan")


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_what_is_no_number_in_eight_bits_is_not_made(kind: torch.dtype) -> None:
    x, y = torch.arange(256).to(torch.uint8).view(kind), torch.zeros(256)
    assert not faults(lambda: kernels.widened[(1,)](x, y, BLOCK=256), "nan")
    x, y = x.view(16, 16), torch.zeros(16, 16)
    assert not faults(lambda: kernels.squares[(1,)](x, y, M=16), "nan")


def test_a_product_that_is_too_large() -> None:
    (fault,) = faults(lambda: kernels.squares[(1,)](torch.full((16, 16), 1e20), torch.zeros(16, 16), M=16), "nan")
    assert (fault.access, fault.times) == ("dot", 256)


# --- names ---------------------------------------------------------------------------------------------------


def test_names() -> None:
    assert parse_checks("all") == ALL and parse_checks("all,nan,views") == (*ALL, "views", "nan")
    assert parse_checks(",".join(EVERY)) == EVERY and parse_checks("portable") == ("bounds", "portable")
    assert parse_checks(True) == parse_checks("1") == ("bounds", "races", "deadlocks")
    with pytest.raises(ArgumentError, match="no check 'barriers'"):
        parse_checks("barriers")


def test_a_launch_that_asks_for_a_level_raises() -> None:
    with pytest.raises(SanitizerError, match=r"breaks multiple_of"):
        kernels.promises[(1,)](torch.zeros(99), torch.zeros(99), 12, 96, BLOCK=64, sanitize="hints")
