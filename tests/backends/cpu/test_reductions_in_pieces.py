"""Reductions whose body has no identity, over axes that no width of vectors divides: each piece of the axis begins with
an element of its own, and no lane that is not there counts."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@tilewright.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@tilewright.jit
def later_of_larger(a, i, b, j):
    take = (b > a) | ((b == a) & (j > i))
    return tl.where(take, b, a), tl.where(take, j, i)


@tilewright.jit
def of_a_row(p, out, at, N: tl.constexpr, SCAN: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.cumsum(tl.load(p + i), 0) if SCAN else tl.load(p + i)
    value, place = tl.reduce((x, i), 0, later_of_larger)
    tl.store(out, tl.reduce(x, 0, larger))
    tl.store(out + 1, value)
    tl.store(at, place)
    tl.store(at + 1, tl.argmax(x, 0))


@tilewright.jit
def alone(p, out, N: tl.constexpr, SCAN: tl.constexpr):
    x = tl.load(p + tl.arange(0, N))
    tl.store(out, tl.reduce(tl.cumsum(x, 0) if SCAN else x, 0, larger))


@tilewright.jit
def of_a_tile(p, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    x = tl.load(p + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    other: tl.constexpr = M if AXIS == 1 else N
    tl.store(out + tl.arange(0, other), tl.reduce(x, AXIS, larger))


LENGTHS = [3, 7, 9, 12, 17, 18, 31, 33, 40, 63, 65, 100]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_rows(n, scan, dtype):
    """Nothing is above zero, which a lane that is not there would be."""
    rng = np.random.default_rng(n)
    x = -rng.integers(1, 2 if scan else 9, n).astype(dtype)
    out, at = np.zeros(2, dtype), np.zeros(2, np.int32)
    of_a_row[(1,)](x, out, at, N=n, SCAN=scan)
    wanted = np.cumsum(x, dtype=dtype) if scan else x
    assert out.tolist() == [wanted.max()] * 2
    out[:] = 0
    alone[(1,)](x, out, N=n, SCAN=scan)
    assert out[0] == wanted.max()
    assert at.tolist() == [np.flatnonzero(wanted == wanted.max())[-1], wanted.argmax()]


@pytest.mark.parametrize("shape", [(3, 9), (9, 3), (12, 18), (18, 12), (5, 33), (33, 5), (9, 40)])
@pytest.mark.parametrize("axis", [0, 1])
def test_tiles(shape, axis):
    x = -np.random.default_rng(1).integers(1, 99, shape).astype(np.float32)
    out = np.zeros(shape[1 - axis], np.float32)
    of_a_tile[(1,)](x, out, *shape, AXIS=axis)
    assert out.tolist() == x.max(axis).tolist()
