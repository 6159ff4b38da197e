"""Loops over one range are straight-line code where they run once: results for rows of none, one and more trips, and what
must not be computed once.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of
from tilewright.backends.cpu.plan.subjects import SINGLE_TRIPS

_SIGNATURE = "*fp32:16, *fp32:16, i32, 64"


def said(kernel, signature: str = _SIGNATURE) -> list[bool]:
    """Whether loops were made code for one trip."""
    decisions = decisions_of(Spelling(kernel, signature, {}), "avx512")
    return [decision.taken for decision in decisions if decision.subject == SINGLE_TRIPS.name]


@tilewright.jit
def in_three_passes(x, out, n, B: tl.constexpr):
    row = tl.program_id(0) * n
    largest = tl.full((B,), -float("inf"), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        largest = tl.maximum(largest, tl.load(x + row + i, i < n, -float("inf")))
    top, total = tl.max(largest, 0), 0.0
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        total += tl.sum(tl.exp(tl.load(x + row + i, i < n, -float("inf")) - top), 0)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        tl.store(out + row + i, tl.exp(tl.load(x + row + i, i < n) - top) / total, i < n)


@tilewright.jit
def online(x, out, n, B: tl.constexpr):
    row, top, total = tl.program_id(0) * n, -float("inf"), 0.0
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        value = tl.load(x + row + i, i < n, -float("inf"))
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        tl.store(out + row + i, tl.exp(tl.load(x + row + i, i < n) - top) / total, i < n)


@pytest.mark.parametrize("kernel", [in_three_passes, online], ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("n", [1, 50, 64, 65, 200])
@pytest.mark.parametrize("in_place", [False, True])
def test_softmax(kernel, n: int, in_place: bool) -> None:
    x = np.random.default_rng(0).standard_normal((3, n)).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    out = x if in_place else np.full_like(x, np.nan)
    kernel[(3,)](x, out, n, 64)
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)
    assert True in said(kernel)


@tilewright.jit
def changed_between(x, out, n, B: tl.constexpr):
    """The first loop changes what the second one loads."""
    i = tl.arange(0, B)
    for start in range(0, n, B):
        value = tl.exp(tl.load(x + start + i, start + i < n, 0.0))
        tl.store(x + start + i, value, start + i < n)
    for start in range(0, n, B):
        tl.store(out + start + i, tl.exp(tl.load(x + start + i, start + i < n, 0.0)), start + i < n)


@tilewright.jit
def others_outside(x, out, n, B: tl.constexpr):
    """What masks leave out is one number in a loop and another in the other."""
    i = tl.arange(0, B)
    total = 0.0
    for start in range(0, n, B):
        total += tl.sum(tl.exp(tl.load(x + start + i, start + i < n, 0.0)))
    for start in range(0, n, B):
        tl.store(out + start + i, tl.exp(tl.load(x + start + i, start + i < n, 1.0)) / total)


@pytest.mark.parametrize("n", [0, 5, 64, 100])
def test_that_what_differs_is_computed_twice(n: int) -> None:
    x = np.random.default_rng(0).standard_normal(128).astype(np.float32)
    out, want, values = np.full(128, np.nan, np.float32), np.full(128, np.nan), np.exp(x[:n].astype(np.float64))
    changed_between[(1,)](x.copy(), out, n, 64)
    want[:n] = np.exp(values)
    np.testing.assert_allclose(out, want, rtol=1e-5)
    blocks = -(-n // 64) * 64
    outside = blocks - n
    out[:] = np.nan
    want[:blocks] = np.concatenate([values, np.full(outside, np.e)]) / (values.sum() + outside) if blocks else []
    others_outside[(1,)](x, out, n, 64)
    np.testing.assert_allclose(out, want, rtol=1e-5)
    assert said(changed_between) == said(others_outside) == [False]


@tilewright.jit
def one_row_after_the_other(w, x, out, rows, n, B: tl.constexpr):
    for r in range(tl.program_id(0) * 16, min(tl.program_id(0) * 16 + 16, rows)):
        total = 0.0
        for start in range(0, n, B):
            k = start + tl.arange(0, B)
            total += tl.sum(tl.load(w + r * n + k, k < n, 0.0) * tl.load(x + k, k < n, 0.0))
        tl.store(out + r, total)


@pytest.mark.parametrize("n", [0, 5, 1000, 16384, 16385, 40000])
def test_rows_of_pieces(n: int) -> None:
    rng, rows = np.random.default_rng(0), 19
    w, x, out = rng.standard_normal((rows, n)).astype(np.float32), rng.standard_normal(n), np.full(rows, np.nan)
    x, out = x.astype(np.float32), out.astype(np.float32)
    one_row_after_the_other[(2,)](w, x, out, rows, n, 128)
    np.testing.assert_allclose(out, w.astype(np.float64) @ x, rtol=1e-3, atol=1e-2)
    assert said(one_row_after_the_other, "*fp32:16, *fp32:16, *fp32:16, i32, i32, 128") == [True]
