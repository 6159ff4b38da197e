"""Functions of reductions and scans that print or assert: the results, and that each effect happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import DeviceAssertionError

MODES = pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])


@tilewright.jit
def checked_sum(a, b):
    tl.device_assert(a >= 0, "no negative parts")
    return a + b


@tilewright.jit
def later(a, b):
    tl.device_assert(b < 1000, "too large")
    return a * 2 + b


@tilewright.jit
def pair(a, i, b, j):
    tl.device_assert(i != j, "twice")
    if a > b:
        return a, i
    return b, j


@MODES
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_reduction_that_asserts(interpret: bool, axis: int) -> None:
    def kernel(x, out, A: tl.constexpr, N: tl.constexpr):
        i = tl.arange(0, 24)
        made = tl.reduce(tl.reshape(tl.load(x + i), (2, 3, 4)), A, checked_sum)
        tl.store(out + tl.arange(0, N), tl.reshape(made, (N,)))

    x = np.arange(24, dtype=np.int32)
    wanted = x.reshape(2, 3, 4).sum(axis).ravel()
    out = np.zeros(len(wanted), np.int32)
    made = tilewright.jit(kernel, interpret=interpret)
    made[(1,)](x, out, axis, len(wanted), debug=True)
    assert np.array_equal(out, wanted)
    if not interpret:
        x[0] = -1
        with pytest.raises(DeviceAssertionError, match="no negative parts"):
            made[(1,)](x, out, axis, len(wanted), debug=True)


@MODES
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_that_asserts(interpret: bool, axis: int, reverse: bool) -> None:
    def kernel(x, out, A: tl.constexpr, R: tl.constexpr):
        i = tl.arange(0, 3)[:, None] * 4 + tl.arange(0, 4)[None, :]
        tl.store(out + i, tl.associative_scan(tl.load(x + i), A, later, reverse=R))

    x = np.arange(12, dtype=np.float32)
    out, wanted = np.zeros_like(x), x.reshape(3, 4).copy()
    lines: Any = np.moveaxis(wanted, axis, 0)
    lines = lines[::-1] if reverse else lines
    for i in range(1, len(lines)):
        lines[i] += lines[i - 1] * 2
    tilewright.jit(kernel, interpret=interpret)[(1,)](x, out, axis, reverse, debug=True)
    assert np.array_equal(out, wanted.ravel())


@MODES
def test_a_reduction_of_two_tiles_with_branches(interpret: bool) -> None:
    def kernel(x, out):
        i = tl.arange(0, 8)
        best, at = tl.reduce((tl.load(x + i), i), 0, pair)
        tl.store(out, best)
        tl.store(out + 1, at.to(tl.float32))

    out = np.zeros(2, np.float32)
    x = np.array([3, 1, 9, 2, 8, 7, 0, 5], np.float32)
    tilewright.jit(kernel, interpret=interpret)[(1,)](x, out, debug=True)
    assert out.tolist() == [9, 2]


@tilewright.jit
def shown_sum(a, b):
    tl.device_print("part", a)
    return a + b


def test_a_reduction_that_prints(capfd: Any) -> None:
    @tilewright.jit
    def kernel(x, out):
        tl.store(out, tl.reduce(tl.load(x + tl.arange(0, 4)), 0, shown_sum))

    out = np.zeros(1, np.int32)
    kernel[(1,)](np.array([1, 2, 4, 8], np.int32), out)
    lines = capfd.readouterr().out.splitlines()
    assert out[0] == 15 and [line.rsplit(" ", 1)[-1] for line in lines] == ["1", "3", "7"]


def test_without_debug_nothing_of_it_is_left() -> None:
    @tilewright.jit
    def kernel(x, out):
        tl.store(out, tl.reduce(tl.load(x + tl.arange(0, 8)), 0, checked_sum))

    x, out = np.arange(8, dtype=np.int32), np.zeros(1, np.int32)
    plain, debug = (kernel.warmup(x, out, grid=(1,), debug=on).asm["ttir"] for on in (False, True))
    assert "tt.reduce" in plain and "scf.for" not in plain
    assert "tt.reduce" not in debug and "scf.for" in debug
