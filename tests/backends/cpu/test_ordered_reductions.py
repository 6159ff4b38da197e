"""Reductions that compare places, and extremes that prefer numbers to NaN, by themselves and as a loop chooses them."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import built_ir
from tilewright.ir.walk import every
from tilewright.loops.chosen_extremes import raise_chosen_extremes
from tilewright.ops.elementwise import MaxNumFOp, SelectOp
from tilewright.ops.function import FuncOp

_INF = np.float32(np.inf)


@tilewright.jit
def first_of(a, i, b, j, ASKED: tl.constexpr):
    """The element at the smaller place, by any comparison that says which that is."""
    if ASKED == "lt":
        left = i < j
    elif ASKED == "le":
        left = i <= j
    elif ASKED == "gt":
        left = j > i
    elif ASKED == "ge":
        left = j >= i
    else:
        left = (i != j) & (i < j)
    return tl.where(left, a, b), tl.where(left, i, j)


@tilewright.jit
def by_lt(a, i, b, j):
    return first_of(a, i, b, j, "lt")


@tilewright.jit
def by_le(a, i, b, j):
    return first_of(a, i, b, j, "le")


@tilewright.jit
def by_gt(a, i, b, j):
    return first_of(a, i, b, j, "gt")


@tilewright.jit
def by_ge(a, i, b, j):
    return first_of(a, i, b, j, "ge")


@tilewright.jit
def by_ne(a, i, b, j):
    return first_of(a, i, b, j, "ne")


@tilewright.jit
def first_in_order(x, out, n, FUNCTION: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value, place = tl.reduce((tl.load(x + at, at < n, 0.0), (at * STEP) & 0xFFFF), 0, FUNCTION)
    tl.store(out, value)
    tl.store(out + 1, place.to(tl.float32))


@pytest.mark.parametrize("function", [by_lt, by_le, by_gt, by_ge, by_ne], ids=lambda f: f.fn.__name__)
@pytest.mark.parametrize("step", [1, 3, -1])
def test_places_are_compared(function, step: int) -> None:
    x, out = np.arange(7, 7 + 300, dtype=np.float32), np.zeros(2, np.float32)
    first_in_order[(1,)](x, out, 300, function, step, 512)
    places = (np.arange(512) * step) & 0xFFFF
    first = int(places.argmin())
    np.testing.assert_array_equal(out, [x[first] if first < 300 else 0, places[first]])


@tilewright.jit
def tops(x, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + i[:, None] * columns + j[None, :], (i < rows)[:, None] & (j < columns)[None, :], float("-inf"))
    tl.store(out + i, tl.argmax(value, 1), i < rows)
    tl.store(out + rows + i, tl.argmin(tl.where((j < columns)[None, :], value, float("inf")), 1), i < rows)


@pytest.mark.parametrize("columns", [1, 5, 64, 200, 1000])
def test_first_of_equal_elements(columns: int) -> None:
    x = np.random.default_rng(columns).integers(-2, 3, (6, columns)).astype(np.float32)
    out = np.zeros(12, np.int32)
    tops[(1,)](x, out, 6, columns, 8, 1024 if columns > 64 else 64)
    np.testing.assert_array_equal(out, [*x.argmax(1), *x.argmin(1)])


@tilewright.jit
def ends(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.max(tl.load(x + at, at < n, float("nan")), 0))
    tl.store(out + 1, tl.min(tl.load(x + at, at < n, float("nan")), 0))


@pytest.mark.parametrize(
    "row", [[np.nan] * 70, [-_INF] * 70, [_INF] * 70, [np.nan, -_INF], [np.nan, _INF], [np.nan, 3]]
)
@pytest.mark.parametrize("block", [16, 1024])
def test_numbers_before_nan(row: list[float], block: int) -> None:
    x, out = np.array(row[:block], np.float32), np.zeros(2, np.float32)
    ends[(1,)](x, out, len(x), block)
    np.testing.assert_array_equal(out, [np.fmax.reduce(x), np.fmin.reduce(x)])


@tilewright.jit
def chosen(x, out, columns, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    """The largest of each lane, as a loop chooses it; what it begins with is among them."""
    most, least = tl.full((BLOCK,), FIRST, tl.float32), tl.full((BLOCK,), FIRST, tl.float32)
    for start in range(0, columns, BLOCK):
        value = tl.load(x + start + tl.arange(0, BLOCK))
        most, least = tl.where(value > most, value, most), tl.where(least > value, value, least)
    tl.store(out, tl.max(most, 0))
    tl.store(out + 1, tl.min(least, 0))


@pytest.mark.parametrize("first", [0.0, float("-inf"), float("nan")])
def test_chosen_extremes(first: float) -> None:
    x, out = np.random.default_rng(0).standard_normal(1024).astype(np.float32), np.zeros(2, np.float32)
    x[5::7] = np.nan
    chosen[(1,)](x, out, 1024, first, 64)
    wanted = [np.nan, np.nan] if np.isnan(first) else [np.fmax.reduce([first, *x]), np.fmin.reduce([first, *x])]
    np.testing.assert_array_equal(out, np.array(wanted, np.float32))


def test_what_is_chosen_of_nan_stays() -> None:
    for first, maxima in ((0.0, 1), (float("nan"), 0)):
        types = {"x": "*fp32!", "out": "*fp32!", "columns": "i32"}
        (function,) = FuncOp.all_of(built_ir(chosen, types, FIRST=first, BLOCK=64))
        before = len(every(function, SelectOp))
        raise_chosen_extremes(function)
        assert len(every(function, MaxNumFOp)) == maxima + 1  # that of the reduction
        assert before - len(every(function, SelectOp)) == 2 * maxima
