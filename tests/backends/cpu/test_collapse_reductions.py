"""Reductions of reductions: one loop over both dims where their elements lie side by side, and right everywhere."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of


def said(kernel, signature: str) -> list[bool]:
    return [
        d.taken for d in decisions_of(Spelling(kernel, signature, {}), "avx512") if d.subject == "loop of reductions"
    ]


_SIGNATURE = "*fp32:16, *fp32:16, i32, i32"


@tilewright.jit
def over_the_last_two(x, out, rows, columns):
    i, part = tl.arange(0, 4)[:, None, None], tl.arange(0, 8)[None, :, None]
    j = part * 16 + tl.arange(0, 16)[None, None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    tl.store(out + tl.arange(0, 4), tl.sum(tl.sum(value, 2), 1), tl.arange(0, 4) < rows)


@tilewright.jit
def with_dims_kept(x, out, rows, columns):
    i, part = tl.arange(0, 4)[None, :, None], tl.arange(0, 8)[:, None, None]
    j = part * 16 + tl.arange(0, 16)[None, None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    total = tl.sum(tl.sum(value, 2, keep_dims=True), 0, keep_dims=True)
    i = tl.arange(0, 4)[None, :, None]
    tl.store(out + i, total, i < rows)


@tilewright.jit
def parts_that_lie_last(x, out, rows, columns):
    """The dim whose elements lie apart comes behind the one whose elements are neighbours."""
    i, part = tl.arange(0, 4)[:, None, None], tl.arange(0, 8)[None, None, :]
    j = part * 16 + tl.arange(0, 16)[None, :, None]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    tl.store(out + tl.arange(0, 4), tl.sum(tl.sum(value, 1), 1), tl.arange(0, 4) < rows)


@tilewright.jit
def three_dims_one_by_one(x, out, rows, columns):
    i, a, b = tl.arange(0, 4)[:, None, None, None], tl.arange(0, 4)[None, :, None, None], tl.arange(0, 4)
    j = a * 32 + b[None, None, :, None] * 8 + tl.arange(0, 8)[None, None, None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    tl.store(out + tl.arange(0, 4), tl.sum(tl.sum(tl.sum(value, 2), 2), 1), tl.arange(0, 4) < rows)


@tilewright.jit
def of_a_reshape(x, out, rows, columns):
    i, j = tl.arange(0, 4)[:, None], tl.arange(0, 128)[None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    tl.store(out + tl.arange(0, 4), tl.sum(tl.sum(tl.reshape(value, (4, 32, 4)), 2), 1), tl.arange(0, 4) < rows)


@pytest.mark.parametrize(
    "kernel", [over_the_last_two, with_dims_kept, parts_that_lie_last, three_dims_one_by_one, of_a_reshape]
)
@pytest.mark.parametrize(("rows", "columns"), [(4, 128), (3, 100), (2, 7), (1, 64)])
def test_sums(kernel, rows, columns):
    assert all(said(kernel, _SIGNATURE)) and said(kernel, _SIGNATURE)
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    out = np.full(rows + 1, 7, np.float32)
    kernel[(1,)](x, out, rows, columns)
    np.testing.assert_allclose(out, [*x.sum(1), 7], rtol=1e-5, atol=1e-5)


# --- elements that do not lie side by side ---------------------------------------------------------------------------


@tilewright.jit
def of_a_window(x, out, rows, columns):
    """Rows and columns of a block within a matrix."""
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 16)[None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < 13), 0.0)
    tl.store(out, tl.sum(tl.sum(value, 1), 0))


@tilewright.jit
def of_overlapping_parts(x, out, rows, columns):
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 16)[None, :]
    value = tl.load(x + i * 8 + j, (i * 8 + j) < columns, 0.0)
    tl.store(out, tl.sum(tl.sum(value, 1), 0))


@tilewright.jit
def of_a_maximum(x, out, rows, columns):
    """Another reduction inside than outside."""
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 16)[None, :]
    value = tl.load(x + i * 16 + j)
    tl.store(out, tl.max(tl.sum(value, 1), 0))


def test_others():
    for kernel in (of_a_window, of_overlapping_parts, of_a_maximum):
        assert not any(said(kernel, _SIGNATURE))
    x, out = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32), np.zeros(1, np.float32)
    of_a_window[(1,)](x, out, 7, 16)
    np.testing.assert_allclose(out[0], x[:7, :13].sum(), rtol=1e-5)
    of_overlapping_parts[(1,)](x, out, 8, 70)
    flat = x.reshape(-1)[:70]
    np.testing.assert_allclose(out[0], sum(flat[at : at + 16].sum() for at in range(0, 64, 8)), rtol=1e-4)
    of_a_maximum[(1,)](x, out, 8, 16)
    np.testing.assert_allclose(out[0], x.sum(1).max(), rtol=1e-5)


@tilewright.jit
def maxima_and_bits(x, n, best, bits):
    i, j = tl.arange(0, 4)[:, None], tl.arange(0, 32)[None, :]
    value = tl.load(x + i * 32 + j, i * 32 + j < n, -5)
    tl.store(best, tl.max(tl.max(value, 1), 0))
    tl.store(bits, tl.xor_sum(tl.xor_sum(value, 0), 0))


@pytest.mark.parametrize("n", [1, 33, 100, 128])
def test_other_reductions(n):
    x = np.random.default_rng(1).integers(-1000, 1000, 128).astype(np.int32)
    best, bits = np.zeros(1, np.int32), np.zeros(1, np.int32)
    maxima_and_bits[(1,)](x, n, best, bits)
    whole = np.where(np.arange(128) < n, x, -5)
    assert best[0] == whole.max() and bits[0] == np.bitwise_xor.reduce(whole)


@tilewright.jit
def read_again(x, out, n):
    """What the sums are made of is stored in its own shape, too."""
    at = tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :]
    value = tl.exp(tl.load(x + at, at < n, 0.0))
    tl.store(out + at, value / tl.sum(tl.sum(value, 1), 0), at < n)


def test_what_costs_much_is_computed_once():
    assert said(read_again, "*fp32:16, *fp32:16, i32") == [False]
    x, out = np.random.default_rng(0).standard_normal(128).astype(np.float32), np.zeros(128, np.float32)
    read_again[(1,)](x, out, 100)
    whole = np.exp(np.where(np.arange(128) < 100, x, 0))
    np.testing.assert_allclose(out[:100], (whole / whole.sum())[:100], rtol=1e-5)


@tilewright.jit
def held_to_a_launch(x, out, rows, columns, COLUMNS: tl.constexpr):
    """One bound for all elements of a block, beside one for columns."""
    i, j = tl.program_id(0) * 4 + tl.arange(0, 4)[:, None], tl.arange(0, COLUMNS)[None, :]
    at = i * columns + j
    value = tl.load(x + at, (at < rows * columns) & (j < columns), 0.0)
    tl.store(out + tl.program_id(0) * 4 + tl.arange(0, 4), tl.sum(value, 1))


@pytest.mark.parametrize(("rows", "columns"), [(8, 256), (7, 200), (5, 250), (1, 3)])
def test_bounds_that_grow_by_a_number_of_the_launch(rows, columns):
    answers = [
        d.taken
        for d in decisions_of(Spelling(held_to_a_launch, "*fp32:16, *fp32:16, i32, i32, 256", {}), "avx512")
        if d.subject == "chunks without masks"
    ]
    assert answers and all(answers)
    x, out = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32), np.full(8, 7, np.float32)
    held_to_a_launch[(2,)](x, out, rows, columns, COLUMNS=256)
    expected = np.zeros(8, np.float32)
    expected[:rows] = x.sum(1)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
