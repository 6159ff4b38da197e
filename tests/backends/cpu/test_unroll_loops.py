"""Loops of few iterations that carry tiles are one pass over the elements; what they leave is what the iterations leave."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of

_SIGNATURE = "*fp32:16, *fp32:16, *fp32:16, i32, 256"


@tilewright.jit
def smoothed(x, w, out, n, BLOCK: tl.constexpr):
    """Three by three taps, in two loops, with a pointer that moves along."""
    i, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for row in range(3):
        taps = w + row * 3
        for column in tl.range(-1, 2):
            at = i + column
            total += tl.load(x + (tl.program_id(0) + row) * n + at, (at >= 0) & (at < n), 0.0) * tl.load(taps)
            taps += 1
    tl.store(out + tl.program_id(0) * n + i, total, i < n)


@tilewright.jit
def smoothed_by_while(x, w, out, n, BLOCK: tl.constexpr):
    i, total, tap = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32), 0
    while tap < 8:
        at = i + tap % 3 - 1
        value = tl.load(x + (tl.program_id(0) + tap // 3) * n + at, (at >= 0) & (at < n), 0.0)
        total, tap = total + value * tl.load(w + tap), tap + 1
    at = i + 1
    total += tl.load(x + (tl.program_id(0) + 2) * n + at, at < n, 0.0) * tl.load(w + 8)
    tl.store(out + tl.program_id(0) * n + i, total, i < n)


@pytest.mark.parametrize("kernel", [smoothed, smoothed_by_while], ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(("n", "block"), [(200, 256), (13, 16), (40, 56)])
def test_smoothed_rows(kernel, n: int, block: int) -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((6, n), (3, 3)))
    out = np.full((4, n), np.nan, np.float32)
    kernel[(4,)](x, w, out, n, block)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1)))
    want = sum(padded[r : r + 4, c : c + n] * w[r, c] for r in range(3) for c in range(3))
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    assert said(kernel) == {True}


@tilewright.jit
def largest_and_place(x, w, out, n, BLOCK: tl.constexpr):
    """Two tiles are carried, of which one chooses the other; the counter is a part of the result."""
    i = tl.arange(0, BLOCK)
    best, place = tl.full((BLOCK,), float("-inf"), tl.float32), tl.full((BLOCK,), -1, tl.int32)
    for row in range(6, 0, -2):
        value = tl.load(x + row * n + i, i < n)
        best, place = tl.where(value > best, value, best), tl.where(value > best, row, place)
    tl.store(out + i, best * place, i < n)


def test_several_tiles_that_depend_on_one_another() -> None:
    x, out = np.random.default_rng(0).standard_normal((7, 100)).astype(np.float32), np.zeros(100, np.float32)
    largest_and_place[(1,)](x, x, out, 100, 128)
    rows = np.array([6, 4, 2], np.float32)
    np.testing.assert_array_equal(out, x[[6, 4, 2]].max(0) * rows[x[[6, 4, 2]].argmax(0)])


@tilewright.jit
def kept_apart(x, w, out, n, BLOCK: tl.constexpr):
    """What an iteration stores the next one loads."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(3):
        total += tl.load(out + i, i < n, 0.0)
        tl.store(out + i, total + tl.load(x + row * n + i, i < n), i < n)


@tilewright.jit
def by_sums(x, w, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(3):
        value = tl.load(x + row * n + i, i < n, 0.0)
        total += value * tl.sum(value)
    tl.store(out + i, total, i < n)


def said(kernel) -> set[bool]:
    return {d.taken for d in decisions_of(Spelling(kernel, _SIGNATURE, {}), "avx512") if d.subject == "unrolled loop"}


def test_loops_with_passes_of_their_own_stay() -> None:
    assert said(kept_apart) == said(by_sums) == {False}
    x, out = np.arange(30, dtype=np.float32).reshape(3, 10), np.zeros(10, np.float32)
    kept_apart[(1,)](x, x, out, 10, 16)
    total, want = 0, np.zeros(10)
    for row in x:
        total = total + want
        want = total + row
    np.testing.assert_array_equal(out, want)
