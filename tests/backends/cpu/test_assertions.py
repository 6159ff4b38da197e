"""Assertions about tiles: bounds of places are tested once for a row, equal elements once; whichever is wrong is found."""

from __future__ import annotations

import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.plan.subjects import UNMASKED
from tilewright.base.errors import DeviceAssertionError

torch = pytest.importorskip("torch")


@tilewright.jit
def bounds(lo, hi, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    place = i * N + j
    tl.device_assert((place >= lo) & (place < hi), "inside")


@tilewright.jit
def runs(x, n, RUN: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.device_assert(tl.load(x + i // RUN) < n, "small")


@tilewright.jit
def columns(x, n, M: tl.constexpr, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))[None, :]
    tl.device_assert(tl.broadcast_to(value, M, N) < n, "small")


@tilewright.jit
def pairs(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.device_assert(tl.interleave(tl.load(x + i // 8), tl.load(x + B // 8 + i // 8)) < n, "small")


def _holds(kernel, *args) -> bool:
    try:
        kernel[(1,)](*args, debug=True, sanitize_overflow=False)
    except DeviceAssertionError:
        return False
    return True


@pytest.mark.parametrize(("m", "n"), [(1, 64), (1, 1024), (3, 40), (4, 256), (16, 1), (1, 1)])
def test_bounds(m, n):
    last = m * n
    for lo, hi in (
        (0, last),
        (0, last + 5),
        (-3, last),
        (0, last - 1),
        (1, last),
        (0, 0),
        (last, last),
        (0, last // 2),
    ):
        assert _holds(bounds, lo, hi, m, n) == (lo <= 0 and hi >= last), (lo, hi)


@tilewright.jit
def under_a_number(flag, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.device_assert((flag > 0) & (i < n), "both")


@pytest.mark.parametrize("block", [64, 1024])
def test_a_number_of_all_elements_is_looked_at_too(block):
    for flag, n in ((1, block), (0, block), (1, block - 1), (0, 0)):
        assert _holds(under_a_number, flag, n, block) == (flag > 0 and n >= block), (flag, n)


@pytest.mark.parametrize(("run", "block"), [(1, 64), (4, 256), (16, 64), (64, 1024), (1024, 1024), (3, 64)])
def test_equal_elements(run, block):
    count = -(-block // run)
    for wrong in (None, 0, count // 2, count - 1):
        x = torch.zeros(count, dtype=torch.int64)
        if wrong is not None:
            x[wrong] = 7
        assert _holds(runs, x, 7, run, block) == (wrong is None), wrong


@pytest.mark.parametrize("wrong", [None, 0, 13, 31])
def test_rows_that_are_equal(wrong):
    x = torch.zeros(32, dtype=torch.int32)
    if wrong is not None:
        x[wrong] = 7
    assert _holds(columns, x, 7, 64, 32) == (wrong is None)


@pytest.mark.parametrize("wrong", [None, 0, 7, 8, 15])
def test_either_side_of_pairs(wrong):
    x = torch.zeros(16, dtype=torch.int32)
    if wrong is not None:
        x[wrong] = 7
    assert _holds(pairs, x, 7, 64) == (wrong is None)


@tilewright.jit
def sums(x, start, B: tl.constexpr):
    i = start * B + tl.arange(0, B)
    tl.store(x + i, i)


def test_sums_of_places_are_looked_at_once():
    """In debug builds every sum of integers is asserted not to overflow."""
    x = torch.empty(1024, dtype=torch.int32)
    kernel = sums[(1,)](x, 0, 1024, debug=True)
    assert x.tolist() == list(range(1024))
    assert any(d.subject == UNMASKED.name and d.taken for d in kernel.decisions), kernel.decisions
    with pytest.raises(DeviceAssertionError, match="int32 overflow"):
        sums[(1,)](x, 1 << 21, 1024, debug=True)
    with pytest.raises(DeviceAssertionError, match="int32 overflow"):
        sums[(1,)](x, -(1 << 22), 1024, debug=True)
