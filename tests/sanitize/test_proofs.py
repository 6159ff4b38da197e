"""Proofs of launches: what is proved, no check contradicts; and what the numbers decide is proved."""

from __future__ import annotations

import itertools
import random

import pytest

pytest.importorskip("torch")

import torch

import tilewright
from tests.sanitize import kernels
from tilewright.analysis.inequalities import InfeasibleError, Linear, is_infeasible, least
from tilewright.launch import checked
from tilewright.launch.faults import Fault


def forced(kernel, grid: tuple[int, ...], *arguments: object, **constants: int) -> list[Fault]:
    """What the checks say, with nothing taken for proved."""
    call = kernel.request(*arguments, **constants)[1]
    slots = checked.slots_of(call)
    compiled = checked.compile_checked(kernel, call.specialization, ("bounds", "races"), {}, shared=False)
    return checked.CheckedLaunch(compiled, call, slots, (*grid, 1, 1)[:3]).run()


def test_no_check_contradicts_a_proof() -> None:
    """Rows with a stride, of random sizes: rows may overlap, tiles may reach behind the last row."""
    chance, proved, contradictable = random.Random(5), 0, 0
    for _ in range(24):
        height, width = chance.randint(1, 40), chance.randint(1, 40)
        stride = chance.choice([width, width + 3, max(width - 1, 1), 48])
        grid = chance.randint(1, 4), chance.randint(1, 4)
        size = max(1, (height - 1) * stride + width - chance.choice([0, 0, 0, 1]))
        x, y = torch.zeros(size), torch.zeros(size)
        arguments, constants = (x, y, height, width, stride), {"H": 16, "W": 16}
        proof = kernels.rows.prove(*arguments, **constants, grid=grid)
        found = {fault.kind for fault in forced(kernels.rows, grid, *arguments, **constants)}
        assert not (proof.holds(("bounds",)) and "bounds" in found), proof
        assert not (proof.holds(("races",)) and "race" in found and "bounds" not in found), proof
        proved += proof.holds(("bounds", "races"))
        contradictable += bool(found)
    assert proved > 3 and contradictable > 3


@pytest.mark.parametrize("n", [1, 128, 500, 1000])
def test_what_masks_and_sizes_decide_is_proved(n: int) -> None:
    x, y = torch.zeros(1000), torch.zeros(1000)
    assert kernels.copy.prove(x, y, n, BLOCK=128, grid=(8,)).holds()
    assert not kernels.copy.prove(x, y, 1001, BLOCK=128, grid=(8,)).holds(("bounds",))
    assert kernels.copy.prove(x, y, 1001, BLOCK=128, grid=(7,)).holds()


def test_a_proof_says_what_it_goes_by() -> None:
    x, y = torch.zeros(100), torch.zeros(100)
    text = str(kernels.copy.prove(x, y, 100, BLOCK=64, grid=(2,)))
    assert "copy cannot leave its arguments, whatever they hold, with n = 100, grid (2, 1, 1)" in text
    index = torch.zeros(100, dtype=torch.int32)
    text = str(kernels.scatter.prove(index, x, y, 100, BLOCK=64, grid=(2,)))
    assert "no proof of bounds: store" in text and "tt.load" in text
    assert not kernels.shift.prove(x, x, 100, BLOCK=64, grid=(2,)).holds(("races",))


def test_a_number_may_be_left_open_up_to_what_is_passed() -> None:
    x, y = torch.zeros(1000), torch.zeros(1000)
    proof = kernels.copy.prove(x, y, 1000, BLOCK=128, grid=(8,), up_to="n")
    assert proof.holds() and "with n <= 1000, grid (8, 1, 1)" in str(proof)
    assert not kernels.copy.prove(x, y, 1001, BLOCK=128, grid=(8,), up_to="n").holds(("bounds",))
    a, b = torch.zeros(40, 64), torch.zeros(40, 64)
    rows = lambda up_to: kernels.rows.prove(a, b, 40, 60, 64, H=16, W=16, grid=(3, 4), up_to=up_to)
    assert rows("height, width").holds() and not rows("stride").holds(("overflow",))
    with pytest.raises(tilewright.errors.ArgumentError, match="m: no number"):
        kernels.copy.prove(x, y, 1000, BLOCK=128, grid=(8,), up_to="n m")


def test_elements_of_a_tile_are_apart_by_strides_and_masks_of_the_launch() -> None:
    a, b = torch.zeros(40, 64), torch.zeros(40, 64)
    strided = lambda stride, width: kernels.rows.prove(a, b, 3, width, stride, H=16, W=16, grid=(1, 1))
    assert strided(16, 16).holds(("races",)) and strided(9, 9).holds(("races",))
    assert not strided(9, 10).holds(("races",))


def test_bounds_of_linear_expressions_are_those_of_all_whole_points() -> None:
    chance = random.Random(1)
    for _ in range(60):
        x, y = Linear.of("x"), Linear.of("y")
        rows = [x, y, (-x).plus(6), (-y).plus(6)]
        rows += [
            x.times(chance.randint(-3, 3)) + y.times(chance.randint(-3, 3)).plus(chance.randint(-4, 6)) for _ in "ab"
        ]
        asked = x.times(chance.randint(-3, 3)) + y.times(chance.randint(-3, 3))

        def at(row: Linear, a: int, b: int) -> int:
            return row.constant + row.terms.get("x", 0) * a + row.terms.get("y", 0) * b

        points = [p for p in itertools.product(range(7), repeat=2) if all(at(row, *p) >= 0 for row in rows)]
        if is_infeasible(rows):
            assert not points
        try:
            found = least(asked, rows)
        except InfeasibleError:
            assert not points
            continue
        assert found is not None and all(at(asked, *point) >= found for point in points)
