"""Functions of reductions and scans that branch, return early and loop, compiled, interpreted and checked."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl

pytestmark = pytest.mark.usefixtures("way")


@tilewright.jit
def farther_from_zero(a, b):
    if tl.abs(a) >= tl.abs(b):
        return a
    else:
        return b


@tilewright.jit
def larger(a, b):
    if a > b:
        return a
    return b


@tilewright.jit
def nearest_to_ten(a, b):
    c = b
    if a != b:
        if tl.abs(a - 10) < tl.abs(b - 10):
            c = a
        elif a - 10 == 10 - b:
            c = tl.maximum(a, b)
    return c


@tilewright.jit
def divisor(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@tilewright.jit
def looped_sum(a, b):
    for _ in range(b):
        a += 1
    return a


@tilewright.jit
def later_of_equals(a, i, b, j):
    if a > b:
        return a, i
    elif a < b:
        return b, j
    else:
        return b, max(i, j)


@tilewright.jit
def reduced(x, out, ROWS: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, FN: tl.constexpr):
    tile = tl.load(x + tl.arange(0, ROWS)[:, None] * N + tl.arange(0, N)[None, :])
    result = tl.reduce(tile, AXIS, FN)
    tl.store(out + tl.arange(0, result.shape[0]), result)


@tilewright.jit
def scanned(x, out, ROWS: tl.constexpr, N: tl.constexpr, FN: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 1, FN))


@tilewright.jit
def in_pieces(x, out, n, BLOCK: tl.constexpr, FN: tl.constexpr):
    best = tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        piece = tl.reduce(tl.load(x + at, at < n, other=0), 0, FN)
        best = FN(best, piece)
    tl.store(out, best)


@tilewright.jit
def place(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    value, where = tl.reduce((tl.load(x + at), at), 0, later_of_equals)
    tl.store(out, value)
    tl.store(out + 1, where)


PYTHON = {
    "farther_from_zero": lambda a, b: a if abs(a) >= abs(b) else b,
    "larger": max,
    "nearest_to_ten": lambda a, b: min((a, b), key=lambda v: (abs(v - 10), -v)),
    "divisor": np.gcd,
    "looped_sum": lambda a, b: a + b,
}
FUNCTIONS = [farther_from_zero, larger, nearest_to_ten, divisor, looped_sum]


def folded(fn, values):
    """All results of a scan; the last is that of the reduction."""
    combine, made = PYTHON[fn.__name__], []
    for value in values:
        made.append(combine(made[-1], value) if made else value)
    return made


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("rows, n", [(1, 8), (4, 32), (3, 100)])
def test_reductions_and_scans(fn, rows, n):
    x = np.random.default_rng(n).integers(1, 40, (rows, n)).astype(np.int32)
    out, scans = np.zeros(rows, np.int32), np.zeros((rows, n), np.int32)
    reduced[(1,)](x, out, rows, n, 1, fn)
    scanned[(1,)](x, scans, rows, n, fn)
    wanted = [folded(fn, row) for row in x]
    assert out.tolist() == [row[-1] for row in wanted]
    assert scans.tolist() == wanted
    columns = np.zeros(n, np.int32)
    reduced[(1,)](x, columns, rows, n, 0, fn)
    assert columns.tolist() == [folded(fn, column)[-1] for column in x.T]


@pytest.mark.parametrize("fn", [larger, divisor, farther_from_zero], ids=lambda fn: fn.__name__)
def test_in_a_loop(fn):
    x = (np.random.default_rng(0).integers(1, 40, 150) * 6).astype(np.int32)
    out = np.zeros(1, np.int32)
    in_pieces[(1,)](x, out, 150, 64, fn)
    assert out[0] == folded(fn, [0, *x])[-1]


def test_several_values():
    x = np.random.default_rng(0).integers(0, 5, 64).astype(np.int32)
    out = np.zeros(2, np.int32)
    place[(1,)](x, out, 64)
    assert out.tolist() == [x.max(), 63 - x[::-1].argmax()]


def test_looks_up_only_where_it_may():
    """A side that reads memory does not run unasked: its place is not there."""

    @tilewright.jit
    def ranked(a, b, table):
        best = min(a, b)
        if max(a, b) < 4:
            if tl.load(table + b) > tl.load(table + a):
                best = b
            else:
                best = a
        return best

    @tilewright.jit
    def kernel(x, table, out, N: tl.constexpr):
        tl.store(out, tl.reduce(tl.load(x + tl.arange(0, N)), 0, lambda a, b: ranked(a, b, table)))

    x = np.array([1, 2, 1 << 28, 3, 1 << 28, 1, 0, 1 << 28], np.int32)
    out = np.zeros(1, np.int32)
    kernel[(1,)](x, np.array([1, 10, 1000, 100], np.int32), out, 8)
    assert out[0] == 2
