"""Stores that fill each other's gaps, and sides of joins computed by themselves: the same numbers as one by one."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.plan.subjects import INTERLEAVED


@tilewright.jit
def pairs(x, out, n, BLOCK: tl.constexpr, WAY: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    even, odd = tl.load(x + 2 * i, i < n, 0.0), tl.load(x + 2 * i + 1, i < n, 0.0)
    if WAY == "one mask":
        tl.store(out + 2 * i, even - odd, i < n)
        tl.store(out + 2 * i + 1, even * odd, i < n)
    if WAY == "two masks":
        tl.store(out + 2 * i, even - odd, 2 * i < 2 * n)
        tl.store(out + 2 * i + 1, even * odd, 2 * i + 1 < 2 * n)
    if WAY == "odd first":
        tl.store(out + 2 * i + 1, even * odd, i < n)
        tl.store(out + 2 * i, even - odd, i < n)
    if WAY == "pointers":
        at = out + 2 * i
        tl.store(at, even - odd, i < n)
        tl.store(at + 1, even * odd, i < n)
    if WAY == "joined pointers":
        at, inside = out + 2 * i, i < n
        tl.store(tl.join(at, at + 1), tl.join(even - odd, even * odd), tl.join(inside, inside))


WAYS = ["one mask", "two masks", "odd first", "pointers", "joined pointers"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 100, 256])
def test_two_stores_are_one(way: str, dtype: type, n: int) -> None:
    x = np.resize(np.arange(-5, 7), 2 * n).astype(dtype)
    out = np.full(2 * n + 2, 77, dtype)
    compiled = pairs[(-(-n // 128),)](x, out, n, 128, way)
    even, odd = x[::2], x[1::2]
    assert out.tolist() == [*np.stack([even - odd, even * odd], 1).ravel().tolist(), 77, 77]
    said = [d.taken for d in compiled.decisions if d.subject == INTERLEAVED.name]
    assert said == ([] if way == "joined pointers" else [True])


@tilewright.jit
def quads(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i, i < n, 0.0), tl.load(x + n + i, i < n, 0.0)
    tl.store(out + 4 * i, a, i < n)
    tl.store(out + 4 * i + 2, a + b, i < n)
    tl.store(out + 4 * i + 1, b, i < n)
    tl.store(out + 4 * i + 3, a * b, i < n)


@pytest.mark.parametrize("n", [7, 64, 250])
def test_four_stores_are_one(n: int) -> None:
    x, out = np.random.default_rng(0).standard_normal(2 * n).astype(np.float32), np.zeros(4 * n, np.float32)
    quads[(-(-n // 64),)](x, out, n, 64)
    a, b = x[:n], x[n:]
    np.testing.assert_array_equal(out.reshape(n, 4), np.stack([a, b, a + b, a * b], 1))


@tilewright.jit
def overlapping(out, stride, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    at = out + r * stride + 2 * c
    tl.store(at, 100 + r * 0 + c * 0)
    tl.store(at + 1, 200 + r * 0 + c * 0)


def test_rows_that_meet_keep_their_order() -> None:
    """With an odd stride what is even in one row is odd in another: all the first stores come before the second."""
    out, want = np.zeros(64, np.int32), np.zeros(64, np.int32)
    overlapping[(1,)](out, 3, 8, 16)
    for value, first in ((100, 0), (200, 1)):
        for row in range(8):
            want[3 * row + first :][:32:2] = value
    assert out.tolist() == want.tolist()


@tilewright.jit
def between(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + 2 * i, i, i < n)
    odd = tl.load(x + 2 * ((i + 1) % n), i < n, 0)
    tl.store(x + 2 * i + 1, odd, i < n)


def test_what_is_stored_first_may_be_read_before_the_second() -> None:
    x = np.full(64, -1, np.int32)
    between[(1,)](x, 32, 32)
    assert x[::2].tolist() == list(range(32)) and x[1::2].tolist() == [*range(1, 32), 0]


@tilewright.jit
def three(x, out, n, BLOCK: tl.constexpr):
    """A store between them may be to the same elements."""
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i, i < n, 0.0)
    tl.store(out + 2 * i, a, i < n)
    tl.store(out + i, -a, i < n)
    tl.store(out + 2 * i + 1, a, i < n)


def test_a_store_between_keeps_its_place() -> None:
    x, out = np.arange(1, 33, dtype=np.float32), np.zeros(64, np.float32)
    three[(1,)](x, out, 32, 32)
    want = np.zeros(64, np.float32)
    want[::2], want[:32], want[1::2] = x, -x, x
    assert out.tolist() == want.tolist()


@tilewright.jit
def partners(x, y, out, n, BLOCK: tl.constexpr, WAY: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own, other = tl.load(x + i, i < n, 0.0), tl.load(x + (i ^ 1), i < n, 0.0)
    if WAY == "half":
        own, other = tl.load(y + i // 2, i < n, 0.0), 3.0
    factor = tl.where(i % 2 == 0, -other, other)
    tl.store(out + i, own * tl.load(y + i // 2, i < n, 0.0) + factor * (i & 3), i < n)


@pytest.mark.parametrize("way", ["both", "half"])
@pytest.mark.parametrize("n", [2, 128, 1000])
def test_partners(way: str, n: int) -> None:
    rng = np.random.default_rng(1)
    x, y, out = rng.integers(-9, 9, n).astype(np.float32), rng.integers(-9, 9, n).astype(np.float32), np.zeros(n)
    partners[(-(-n // 256),)](x, y, out, n, 256, way)
    i = np.arange(n)
    own, other = (y[i // 2], np.full(n, 3.0)) if way == "half" else (x, x[i ^ 1])
    assert out.tolist() == (own * y[i // 2] + np.where(i % 2 == 0, -other, other) * (i & 3)).tolist()


@tilewright.jit
def turned(x, out, H: tl.constexpr, D: tl.constexpr):
    h, d = tl.arange(0, H)[None, :], tl.arange(0, D)[:, None]
    real, imaginary = tl.load(x + h * 2 * D + 2 * d), tl.load(x + h * 2 * D + 2 * d + 1)
    tl.store(out + h * 2 * D + 2 * d, -imaginary)
    tl.store(out + h * 2 * D + 2 * d + 1, real)


def test_columns_along_memory() -> None:
    x, out = np.random.default_rng(2).standard_normal((6, 32)).astype(np.float32), np.zeros((6, 32), np.float32)
    turned[(1,)](x, out, 6, 16)
    np.testing.assert_array_equal(out.view(np.complex64), x.view(np.complex64) * 1j)
