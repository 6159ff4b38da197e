"""Loops that take a piece of each row in every iteration: upwards, downwards, by counters, by single elements."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of

_SIGNATURE = "*fp32:16, *fp32:16, i32, i32, 64"


def said(kernel) -> list[str]:
    """What is said of a kernel's loops in blocks."""
    told = decisions_of(Spelling(kernel, _SIGNATURE, {}), "avx512")
    return [d.text for d in told if d.subject == "loop of reductions" and d.taken]


# --- out[i] = sum of row i of x, `rows` rows of `n` elements --------------------------------------------------------


@tilewright.jit
def upwards(x, out, rows, n, BLOCK: tl.constexpr):
    i, total = tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + i[:, None] * n + j[None, :], (i < rows)[:, None] & (j < n)[None, :], 0.0), 1)
    tl.store(out + i, total, i < rows)


@tilewright.jit
def downwards(x, out, rows, n, BLOCK: tl.constexpr):
    """What lies outside is not zero but left out of the sum."""
    i, total = tl.arange(0, 16), tl.zeros((16,), tl.float32)
    start = tl.cdiv(n, BLOCK) * BLOCK
    while start > 0:
        start -= BLOCK
        j = start + tl.arange(0, BLOCK)[None, :]
        inside = (i < rows)[:, None] & (j < n)
        total += tl.sum(tl.where(inside, tl.load(x + i[:, None] * n + j, inside, 7.0), 0.0), 1)
    tl.store(out + i, total, i < rows)


@tilewright.jit
def by_what_is_left(x, out, rows, n, BLOCK: tl.constexpr):
    """A tile is added up; columns first; the mask compares with what is left."""
    i, total, left, start = tl.arange(0, 16)[None, :], tl.zeros((BLOCK, 16), tl.float32), n, 0
    j = tl.arange(0, BLOCK)[:, None]
    while left > 0:
        total += tl.load(x + i * n + start + j, (i < rows) & (j < left), 0.0)
        start, left = start + BLOCK, left - BLOCK
    i = tl.arange(0, 16)
    tl.store(out + i, tl.sum(total, 0), i < rows)


@tilewright.jit
def by_elements(x, out, rows, n, BLOCK: tl.constexpr):
    i, total = tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for j in range(n):
        total += tl.load(x + i * n + j, i < rows, 0.0)
    tl.store(out + i, total, i < rows)


@tilewright.jit
def by_elements_from_the_end(x, out, rows, n, BLOCK: tl.constexpr):
    """Wide numbers, no value for what is left out."""
    i, total = tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for j in range(n - 1, -1, -1):
        total += tl.where(i < rows, tl.load(x + i.to(tl.int64) * n + j, i < rows), 0.0)
    tl.store(out + i, total, i < rows)


@tilewright.jit
def by_numbers(x, out, rows, n, BLOCK: tl.constexpr):
    """One row after the other, one element after the other."""
    for i in range(rows):
        total = 0.0
        for j in range(n):
            total += tl.load(x + i * n + j)
        tl.store(out + i, total)


FORMS = [upwards, downwards, by_what_is_left, by_elements, by_elements_from_the_end, by_numbers]


@pytest.mark.parametrize("kernel", FORMS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(
    ("rows", "n"), [(16, 1000), (3, 1), (16, 64), (5, 63), (16, 0), (7, 16384), (4, 16385), (2, 40000)]
)
def test_sums_of_rows(kernel, rows: int, n: int) -> None:
    x = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32)
    around = np.full(rows * n + 512, np.nan, np.float32)
    around[256 : 256 + rows * n] = x.reshape(-1)
    out = np.full(16, -1, np.float32)
    kernel[(1,)](around[256 : 256 + rows * n] if n else around[256:], out, rows, n, BLOCK=64)
    np.testing.assert_allclose(out[:rows], x.astype(np.float64).sum(1), rtol=1e-4, atol=1e-3)
    assert (out[rows:] == -1).all()


@pytest.mark.parametrize("kernel", FORMS, ids=lambda kernel: kernel.fn.__name__)
def test_they_are_taken_as_one(kernel) -> None:
    assert said(kernel) == ["16384 elements of a row at a time"]


@tilewright.jit
def squares_by_tiles(x, out, rows, n, BLOCK: tl.constexpr):
    i, total = tl.arange(0, 16), tl.zeros((16, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.where((j < n)[None, :], tl.load(x + i[:, None] * n + j, (i < rows)[:, None] & (j < n)[None, :]), 0.0)
        total += v * v
    tl.store(out + i, tl.sum(total, 1), i < rows)


@tilewright.jit
def squares_by_elements(x, out, rows, n, BLOCK: tl.constexpr):
    i, total = tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for j in range(n):
        v = tl.load(x + i * n + j, i < rows, 0.0)
        total += v * v
    tl.store(out + i, total, i < rows)


@tilewright.jit
def squares_by_block_pointers(x, out, rows, n, BLOCK: tl.constexpr):
    i, total = tl.arange(0, 16), tl.zeros((16,), tl.float32)
    block = tl.make_block_ptr(x, (rows, n), (n, 1), (0, 0), (16, BLOCK), (1, 0))
    for _ in range(0, n, BLOCK):
        v = tl.load(block, boundary_check=(0, 1), padding_option="zero")
        total += tl.sum(v * v, 1)
        block = tl.advance(block, (0, BLOCK))
    tl.store(out + i, total, i < rows)


@pytest.mark.parametrize("kernel", [squares_by_tiles, squares_by_elements, squares_by_block_pointers])
def test_sums_of_squares(kernel) -> None:
    assert said(kernel) == ["16384 elements of a row at a time"]
    for rows, n in ((16, 1000), (5, 63), (2, 20000), (1, 0)):
        x = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32)
        around, out = np.full(rows * n + 512, np.nan, np.float32), np.full(16, -1, np.float32)
        around[256 : 256 + rows * n] = x.reshape(-1)
        kernel[(1,)](around[256 : 256 + rows * n] if n else around[256:], out, rows, n, BLOCK=64)
        np.testing.assert_allclose(out[:rows], np.square(x, dtype=np.float64).sum(1), rtol=1e-4, atol=1e-3)


# --- others -----------------------------------------------------------------------------------------------------------


@tilewright.jit
def moments(x, out, rows, n, BLOCK: tl.constexpr):
    """Two sums and a largest element, of what is not zero where nothing is loaded; iterations of three pieces' width."""
    total, squares, top = 0.0, 0.0, -float("inf")
    for start in range(5, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        value = tl.load(x + j, j < n, 0.0)
        total += tl.sum(value + 1.0, 0)
        squares += tl.sum((value - 2.0) * (value - 2.0), 0)
        top = tl.maximum(top, tl.max(tl.where(j < n, value, -float("inf")), 0))
    tl.store(out, total)
    tl.store(out + 1, squares)
    tl.store(out + 2, top)


@pytest.mark.parametrize("n", [6, 69, 70, 1000, 17000])
def test_what_is_not_zero_outside(n: int) -> None:
    x, out = -np.random.default_rng(0).random(n, np.float32), np.zeros(3, np.float32)
    moments[(1,)](x, out, 1, n, BLOCK=64)
    padded = np.zeros(-(-(n - 5) // 64) * 64)
    padded[: n - 5] = x[5:]
    np.testing.assert_allclose(out, [(padded + 1).sum(), ((padded - 2) ** 2).sum(), x[5:].max()], rtol=1e-4)


@tilewright.jit
def by_shared_weights(x, out, rows, n, BLOCK: tl.constexpr):
    """What all rows share lies behind them."""
    i, total = tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = (i < rows)[:, None] & (j < n)[None, :]
        shared = tl.exp(tl.load(x + rows * n + j, j < n, 0.0))
        total += tl.sum(tl.where(inside, tl.load(x + i[:, None] * n + j[None, :], inside) * shared[None, :], 0.0), 1)
    tl.store(out + i, total, i < rows)


@pytest.mark.parametrize("n", [1, 1000, 1024, 3000])
def test_what_rows_share(n: int) -> None:
    x, out = np.random.default_rng(0).standard_normal((6, n)).astype(np.float32), np.zeros(16, np.float32)
    by_shared_weights[(1,)](x, out, 5, n, BLOCK=64)
    np.testing.assert_allclose(out[:5], x[:5] @ np.exp(x[5]), rtol=1e-3, atol=1e-3)
    assert said(by_shared_weights) == []  # shared elements stay in registers for several rows


@tilewright.jit
def triangle(x, out, rows, n, BLOCK: tl.constexpr):
    """Row i of a packed triangle begins i elements behind the one before it, by a counter that gains another one."""
    j, total, at = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32), 0
    for i in range(rows):
        total += tl.load(x + at + j, j <= i, 0.0)
        at += i + 1
    tl.store(out + j, total)


@tilewright.jit
def triangle_of_counters(x, out, rows, n, BLOCK: tl.constexpr):
    j, total, at, gain = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32), 0, 1
    for i in range(rows):
        total += tl.load(x + at + j, j < gain, 0.0)
        at += gain
        gain += 1
    tl.store(out + j, total)


@pytest.mark.parametrize("kernel", [triangle, triangle_of_counters], ids=["counter", "counters"])
def test_steps_that_grow(kernel) -> None:
    full = np.tril(np.random.default_rng(0).standard_normal((60, 60))).astype(np.float32)
    out = np.zeros(64, np.float32)
    kernel[(1,)](full[np.tril_indices(60)], out, 60, 0, BLOCK=64)
    np.testing.assert_allclose(out[:60], full.sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", [48, 100, 1])
def test_pieces_of_other_sizes(block: int) -> None:
    x, out = np.random.default_rng(0).random((16, 1000), np.float32), np.zeros(16, np.float32)
    for kernel in FORMS:
        kernel[(1,)](x, out, 16, 1000, BLOCK=block)
        np.testing.assert_allclose(out, x.sum(1), rtol=1e-4)
    told = decisions_of(Spelling(upwards, _SIGNATURE.replace("64", str(block)), {}), "avx512")
    assert [d.taken for d in told if d.subject == "loop of reductions"] == [True]


@tilewright.jit
def with_gaps(x, out, rows, n, BLOCK: tl.constexpr):
    """Pieces that overlap."""
    total = 0.0
    for start in range(0, n, BLOCK // 2):
        j = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + j, j < n, 0.0), 0)
    tl.store(out, total)


@tilewright.jit
def across(x, out, rows, n, BLOCK: tl.constexpr):
    """Rows of pieces, added as they are: lanes go along the piece, not along the iterations."""
    j, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for start in range(n):
        total += tl.load(x + start + j)
    tl.store(out + j, total)


def test_pieces_that_do_not_go_on() -> None:
    assert said(with_gaps) == [] and said(across) == ["8 elements at a time"]
    x, out = np.random.default_rng(0).random(1064, np.float32), np.zeros(64, np.float32)
    across[(1,)](x, out, 0, 1000, BLOCK=64)
    np.testing.assert_allclose(out, [x[i : i + 1000].sum() for i in range(64)], rtol=1e-5)
    with_gaps[(1,)](x, out, 0, 1000, BLOCK=64)
    np.testing.assert_allclose(out[0], 2 * x[:1000].sum() - x[:32].sum(), rtol=1e-5)


# --- where sums end -----------------------------------------------------------------------------------------------------


@tilewright.jit
def by_steps(x, out, rows, n, BLOCK: tl.constexpr):
    """Bounds that grow by three where 128 elements are passed, by two for each element, and downwards."""
    e = tl.arange(0, 32 * BLOCK)
    tl.store(out, tl.sum(tl.load(x + e, 3 * (e // 128) < n, 0.0), 0))
    tl.store(out + 1, tl.sum(tl.load(x + e, 2 * e + 1 < n, 0.0), 0))
    tl.store(out + 2, tl.sum(tl.load(x + e, n < e, 0.0), 0))
    tl.store(out + 3, tl.sum(tl.load(x + e, (e < n) & (e >= rows), 0.0), 0))


@pytest.mark.parametrize("n", [-5, 0, 1, 2, 3, 4, 7, 64, 65, 700, 2047, 2048, 3000, 5000])
def test_sums_that_end(n: int) -> None:
    x, out, e = np.random.default_rng(0).random(2048, np.float32), np.zeros(4, np.float32), np.arange(2048)
    by_steps[(1,)](x, out, 70, n, BLOCK=64)
    masks = (3 * (e // 128) < n, 2 * e + 1 < n, n < e, (e < n) & (e >= 70))
    np.testing.assert_allclose(out, [x[mask].sum() for mask in masks], rtol=1e-4)
