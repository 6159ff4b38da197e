"""Order by atomics: data that are handed over are no race, and are one where the order is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch

from tests.sanitize import kernels as plain
from tests.sanitize import order_kernels as kernels
from tests.sanitize.test_faults import faults, kinds


def _split(how: str, grid: tuple[int, int] = (3, 5)) -> Callable[[], object]:
    rows, split = grid
    x, parts = torch.randn(rows * split * 32), torch.zeros(rows * split * 32)
    counter, out = torch.zeros(rows, dtype=torch.int32), torch.zeros(rows * 32)
    return lambda: kernels.last_one_reduces[grid](x, parts, counter, out, SPLIT=split, BLOCK=32, HOW=how)


def _locked(how: str) -> Callable[[], object]:
    lock = torch.zeros(8, dtype=torch.int32)
    return lambda: kernels.locked_sum[(5,)](lock, torch.zeros(16), torch.ones(80), BLOCK=16, HOW=how)


def _scan(how: str) -> Callable[[], object]:
    flags = torch.zeros(6, dtype=torch.int32)
    return lambda: kernels.look_back[(6,)](torch.ones(192), torch.zeros(6), flags, torch.zeros(192), BLOCK=32, HOW=how)


def _reset(how: str) -> Callable[[], object]:
    counter = torch.zeros(1, dtype=torch.int32)
    return lambda: kernels.read_then_reset[(4,)](torch.ones(32), torch.zeros(128), counter, BLOCK=32, HOW=how)


def _added(how: str) -> Callable[[], object]:
    total, counter, out = torch.zeros(32), torch.zeros(1, dtype=torch.int32), torch.zeros(32)
    return lambda: kernels.added_then_read[(4,)](torch.ones(128), total, counter, out, BLOCK=32, HOW=how)


def _handed(how: str) -> Callable[[], object]:
    data, flags, out = (torch.zeros(n, dtype=torch.int32) for n in (1, 4, 1))
    return lambda: kernels.handed_on[(4,)](data, flags, out, HOW=how)


CASES = {"split": _split, "lock": _locked, "scan": _scan, "reset": _reset, "added": _added, "handed": _handed}


@pytest.mark.parametrize("case", CASES)
def test_what_atomics_order_is_no_race(case: str) -> None:
    assert not kinds(CASES[case]("right"))


def test_an_earlier_release_of_the_same_place_takes_nothing_away() -> None:
    assert not kinds(_split("early"))


def test_launches_of_any_size_come_before() -> None:
    """Stamps count on from launch to launch, and have flags in their lowest bits."""
    index, y = torch.arange(16, dtype=torch.int32), torch.zeros(16)
    for _ in range(2):
        assert not kinds(lambda: plain.scatter[(1,)](index, torch.ones(16), y, 16, BLOCK=16))
        assert not kinds(_split("right", (1, 1)))


@pytest.mark.parametrize("grid", [(1, 1), (300, 2), (1, 4100)])
def test_any_number_of_programs_is_followed(grid: tuple[int, int]) -> None:
    assert not kinds(_split("right", grid))
    assert grid == (1, 1) or ("race", "parts") in kinds(_split("late", grid))


@pytest.mark.parametrize(
    ("case", "how", "argument"),
    [
        ("split", "none", "parts"),
        ("split", "relaxed", "parts"),
        ("split", "cta", "parts"),
        ("split", "release", "parts"),
        ("split", "late", "parts"),
        ("lock", "none", "total"),
        ("lock", "relaxed", "total"),
        ("lock", "other", "total"),
        ("lock", "late", "total"),
        ("scan", "none", "sums"),
        ("scan", "wrong", "sums"),
        ("reset", "none", "x"),
        ("added", "none", "total"),
        ("handed", "broken", "data"),
    ],
)
def test_broken_order_is_a_race(case: str, how: str, argument: str) -> None:
    assert ("race", argument) in kinds(CASES[case](how))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
@pytest.mark.parametrize("masked", [False, True])
def test_an_atomic_that_changed_nothing_has_released_nothing(dtype: torch.dtype, masked: bool) -> None:
    for how in ("right", "not"):
        flag, data, out = torch.zeros(1, dtype=dtype), *(torch.zeros(1, dtype=torch.int32) for _ in range(2))
        found = kinds(lambda: kernels.one_turn[(2, 2)](flag, data, out, MASKED=masked, HOW=how))
        is_told = how == "not" and (masked or not dtype.is_floating_point)  # a swap of floats counts as made
        assert found == ({("race", "data")} if is_told else set()), how


@pytest.mark.parametrize("grid", [(4,), (2, 2)])
def test_the_other_order_of_programs_is_run_where_it_is_asked_for(grid: tuple[int, ...]) -> None:
    data, counter, out = (torch.zeros(n, dtype=torch.int32) for n in (4, 1, 1))

    def launch(sem: str) -> None:
        counter.zero_()
        kernels.first_come[grid](data, counter, out, SEM=sem)

    assert not faults(lambda: launch("relaxed"), "races")
    assert out.item() == 0
    found = faults(lambda: launch("relaxed"), "orders")
    told = next(fault for fault in found if fault.argument == "data" and fault.access == "load")
    assert told.program == (0, 0, 0) and told.other is not None and told.other.program is not None
    assert told.other.program[0] == 1
    assert out.item() == 0 and counter.item() == 4  # memory is as the programs leave it in their usual order
    assert not faults(lambda: launch("acq_rel"), "orders")


@pytest.mark.parametrize("case", CASES)
def test_both_orders_of_right_programs_are_right(case: str) -> None:
    assert not faults(CASES[case]("right"), "all,orders")


def test_what_cannot_be_put_back_is_launched_once() -> None:
    counter, y = torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    assert not faults(lambda: kernels.draw_elsewhere[(4,)](torch.tensor([counter.data_ptr()]), y), "orders,nan")
    assert counter.item() == 4 and y[0] == -float("inf")
