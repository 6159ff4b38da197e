"""What loops add up, iteration by iteration or as tiles that are reduced after them: reduced in long rows."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of

_SIGNATURE = "*fp32:16, *fp32:16, i32, i32, 64"


def said(kernel, subject: str) -> list[bool]:
    return [d.taken for d in decisions_of(Spelling(kernel, _SIGNATURE, {}), "avx512") if d.subject == subject]


# --- sums over the rows [first, rows) of x, a program for each block of columns ------------------------------------


@tilewright.jit
def by_counter(x, out, rows, columns, BLOCK: tl.constexpr):
    j, total = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for i in range(3, rows):
        total += tl.load(x + i * columns + j, j < columns, 0.0)
    tl.store(out + j, total, j < columns)


@tilewright.jit
def by_pointer(x, out, rows, columns, BLOCK: tl.constexpr):
    """The pointer moves, by steps of which the kernel has another counter."""
    j, total, i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32), 3
    x += 3 * columns + j
    while i < rows:
        total = tl.load(x, mask=j < columns, other=0.0) + total
        x += columns
        i += 1
    tl.store(out + j, total, j < columns)


@tilewright.jit
def by_two_sums(x, out, rows, columns, BLOCK: tl.constexpr):
    """Every second row in a sum of its own; wide counters, and a mask of each iteration."""
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    even, odd = tl.load(x + 3 * columns + j, j < columns, 0.0), tl.zeros((BLOCK,), tl.float32)
    for i in range(tl.full((), 4, tl.int64), rows, 2):
        odd += tl.load(x + i * columns + j, j < columns, 0.0)
        even += tl.where(
            (i + 1 < rows) & (j < columns), tl.load(x + (i + 1) * columns + j, (i + 1 < rows) & (j < columns)), 0
        )
    tl.store(out + j, even + odd, j < columns)


@tilewright.jit
def by_numbers(x, out, rows, columns, BLOCK: tl.constexpr):
    """One column after the other."""
    for j in range(tl.program_id(0) * BLOCK, min(tl.program_id(0) * BLOCK + BLOCK, columns)):
        total = 0.0
        for i in range(3, rows):
            total += tl.load(x + i * columns + j)
        tl.store(out + j, total)


@tilewright.jit
def by_parts(x, out, rows, columns, BLOCK: tl.constexpr):
    """Tiles of which the sum over rows is made after the loop."""
    j, total = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.full((BLOCK, 32), 0.0, tl.float32)
    for start in range(3, rows, 32):
        i = start + tl.arange(0, 32)
        inside = (i < rows)[None, :] & (j < columns)[:, None]
        total = tl.where(inside, total + tl.load(x + i[None, :] * columns + j[:, None], inside), total)
    tl.store(out + j, tl.sum(total, 1), j < columns)


ROWS = [by_counter, by_pointer, by_two_sums, by_numbers, by_parts]


@pytest.mark.parametrize("kernel", ROWS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(("rows", "columns"), [(700, 100), (67, 64), (4, 33), (2, 5)])
def test_sums_of_rows(kernel, rows: int, columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    out = np.full(columns + 64, np.nan, np.float32)
    if kernel is by_two_sums and rows < 4:
        return
    kernel[(-(-columns // 64),)](x, out, rows, columns, 64)
    np.testing.assert_allclose(out[:columns], x[3:].astype(np.float64).sum(0), rtol=1e-4, atol=1e-4)
    assert np.isnan(out[columns:]).all()


def test_that_they_are_made_in_blocks() -> None:
    assert all(True in said(kernel, "loop of reductions") for kernel in ROWS if kernel is not by_two_sums)


# --- along the iterations; other operations ------------------------------------------------------------------------------


@tilewright.jit
def across(x, out, rows, columns, BLOCK: tl.constexpr):
    """An iteration takes one element of each row: sums, and the largest."""
    i, total, top = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32), tl.full((BLOCK,), -1e9, tl.float32)
    for j in range(columns):
        value = tl.load(x + i * columns + j, i < rows, 0.0)
        total += value * 2
        top = tl.maximum(top, value)
    tl.store(out + i, total + top, i < rows)


@tilewright.jit
def counted(x, out, rows, columns, BLOCK: tl.constexpr):
    """Integers, with a table that is looked up by what was loaded."""
    i, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.int32)
    for j in range(columns):
        at = (tl.load(x + i * columns + j, i < rows, 0.0) > 0).to(tl.int32) * columns
        total += (tl.load(x + at + j) > 0).to(tl.int32)
    tl.store(out + i, total.to(tl.float32), i < rows)


@pytest.mark.parametrize("columns", [3, 64, 150])
def test_iterations_along_memory(columns: int) -> None:
    x, out = np.random.default_rng(0).standard_normal((40, columns)).astype(np.float32), np.zeros(40, np.float32)
    across[(1,)](x, out, 40, columns, 64)
    np.testing.assert_allclose(out, 2 * x.astype(np.float64).sum(1) + x.max(1), rtol=1e-4, atol=1e-4)
    counted[(1,)](x, out, 40, columns, 64)
    np.testing.assert_array_equal(out, (x[(x > 0).astype(int), np.arange(columns)] > 0).sum(1))
    assert said(across, "loop of reductions").count(True) == 1 and True not in said(counted, "loop of reductions")


@tilewright.jit
def compensated(x, out, rows, columns, BLOCK: tl.constexpr):
    """What was lost is carried too: the order of these sums is what they are about."""
    j = tl.arange(0, BLOCK)
    total, lost = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for i in range(rows):
        value = tl.load(x + i * columns + j, j < columns, 0.0) - lost
        following = total + value
        lost, total = (following - total) - value, following
    tl.store(out + j, total, j < columns)


@tilewright.jit
def handed_on(x, out, rows, columns, BLOCK: tl.constexpr):
    """Each sum is stored."""
    j, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for i in range(rows):
        total += tl.load(x + i * columns + j, j < columns, 0.0)
        tl.store(out + i * columns + j, total, j < columns)


def test_sums_whose_order_counts_stay() -> None:
    assert True not in said(compensated, "loop of reductions") + said(handed_on, "loop of reductions")
    x = np.where(np.arange(512)[:, None] % 2, 1e-4, 1).astype(np.float32) * np.ones(8, np.float32)
    out = np.zeros(8, np.float32)
    compensated[(1,)](x, out, 512, 8, 16)
    np.testing.assert_allclose(out, x.astype(np.float64).sum(0), rtol=1e-7)


# --- tiles that are reduced after the loop -------------------------------------------------------------------------


@tilewright.jit
def extremes(x, out, n, unused, BLOCK: tl.constexpr):
    """The largest number, where there is one, and the smallest but for NaN."""
    j = tl.arange(0, 8 * BLOCK)
    high, low = tl.full((8 * BLOCK,), -1.0, tl.float32), tl.full((8 * BLOCK,), 5.0, tl.float32)
    for start in range(0, n, 8 * BLOCK):
        value = tl.load(x + start + j, start + j < n, 0.0)
        high = tl.where(start + j < n, tl.maximum(high, value), high)
        low = tl.minimum(value, low)
    tl.store(out, tl.max(high, 0))
    tl.store(out + 1, tl.min(low, 0))


@pytest.mark.parametrize("n", [700, 1500])
def test_extremes_with_first_values(n: int) -> None:
    assert said(extremes, "loop of reductions") == [True]  # both in one loop
    x, out = -np.random.default_rng(0).random(n, np.float32), np.zeros(2, np.float32)
    x[::7] = np.nan
    extremes[(1,)](x, out, n, 0, 64)
    assert out.tolist() == [max(-1, np.nanmax(x)), np.nanmin(x)]


@tilewright.jit
def read_twice(x, out, n, unused, BLOCK: tl.constexpr):
    """The tile is stored as well."""
    j, total = tl.arange(0, 8 * BLOCK), tl.zeros((8 * BLOCK,), tl.float32)
    for start in range(0, n, 8 * BLOCK):
        total += tl.load(x + start + j, start + j < n, 0.0)
    tl.store(out + j, total)
    tl.store(out, tl.sum(total, 0))


@tilewright.jit
def short_rows(x, out, n, unused, BLOCK: tl.constexpr):
    i, j, total = tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :], tl.zeros((16, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x + i * n + start + j, start + j < n, 0.0)
    tl.store(out + tl.arange(0, 16), tl.sum(total, 1))


def test_tiles_that_stay() -> None:
    assert True not in said(read_twice, "loop of reductions") and said(short_rows, "loop of reductions") == [True]


# --- sums that end where their elements are zero --------------------------------------------------------------------


@tilewright.jit
def weighted(x, out, n, taps, BLOCK: tl.constexpr):
    """Sums of five of eight neighbours with weights that infinities follow; of the others one is infinite, too."""
    i, d = tl.arange(0, BLOCK), tl.arange(0, 8)
    value = tl.load(x + i[:, None] + d[None, :], (d < 5)[None, :] & (i < n)[:, None], 0.0)
    weight = tl.load(x + n + 8 + d, 5 > d, 0.0)
    tl.store(out + i, tl.sum(value * weight[None, :], 1), i < n)
    known = tl.load(x + i[:, None] + d[None, :], i[:, None] < n, 0.0)
    tl.store(out + n + i, tl.sum(tl.where(d < 3, known, 0.0), 1), i < n)
    tl.store(out + 2 * n + i, tl.sum(value * tl.load(x + n + 8 + d)[None, :], 1), i < n)
    tl.store(out + 3 * n + i, tl.max(tl.where(d < 3, known, 0.0), 1), i < n)
    tl.store(out + 4 * n + i, tl.sum(tl.where(d < taps, known, 0.0), 1), i < n)


def test_sums_end_where_nothing_follows() -> None:
    n = 50
    x, out = -np.random.default_rng(0).random(n + 16, np.float32), np.zeros((5, n), np.float32)
    x[n + 8 + 5 :] = np.inf
    weighted[(1,)](x, out, n, 2, 64)
    windows = np.lib.stride_tricks.sliding_window_view(x[: n + 7], 8)
    np.testing.assert_allclose(out[0], windows[:, :5] @ x[n + 8 :][:5], rtol=1e-5)
    np.testing.assert_allclose(out[1], windows[:, :3].sum(1), rtol=1e-5)
    assert np.isnan(out[2]).all()  # zero times infinity
    assert (out[3] == 0).all()  # the largest is one of those that were left out of the sum
    np.testing.assert_allclose(out[4], windows[:, :2].sum(1), rtol=1e-5)


@tilewright.jit
def sum_of_branches(x, w, out, rows, n):
    for row in range(rows):
        total = 0.0
        for i in range(n):
            v = tl.load(x + row * n + i)
            if v != 0.0:
                total += 3.0
            else:
                total += tl.exp(tl.load(x + row * n + i) * tl.load(w + i))
        tl.store(out + row, total)


@tilewright.jit
def sum_of_what_branches_choose(x, w, out, rows, n):
    for row in range(rows):
        total = 0.0
        for i in range(n):
            v = tl.load(x + row * n + i)
            if v != 0.0:
                t = 3.0
            else:
                t = tl.exp(v * tl.load(w + i))
            total = total + t
        tl.store(out + row, total)


@pytest.mark.parametrize("kernel", [sum_of_branches, sum_of_what_branches_choose], ids=lambda kernel: kernel.__name__)
def test_a_sum_of_what_a_branch_gives_stays_a_loop(kernel):
    """Which side an iteration takes is its own matter: a branch has no tile of iterations."""
    x = (np.arange(60).reshape(3, 20) % 3).astype(np.float32)
    w, out = np.ones(20, np.float32), np.zeros(3, np.float32)
    kernel[(1,)](x, w, out, 3, 20)
    np.testing.assert_allclose(out, np.where(x != 0, 3, 1).sum(1))


@tilewright.jit
def largest_magnitude(x, out, n, first, BLOCK: tl.constexpr):
    most = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.max(tl.abs(tl.load(x + i, i < n, 0.0))))
    tl.store(out, most)


@tilewright.jit
def largest_beside_zeros(x, out, n, first, BLOCK: tl.constexpr):
    """Zeros outside count, as it begins with less."""
    most = -1.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.max(tl.load(x + i, i < n, 0.0)))
    tl.store(out, most)


@tilewright.jit
def largest_of_computed(x, out, n, first, BLOCK: tl.constexpr):
    """What masks leave out is made 1, with which it begins."""
    most = 1.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.max(1.0 - 2.0 * tl.load(x + i, i < n, 0.0)))
    tl.store(out, most)


@pytest.mark.parametrize("n", [0, 3, 256, 300, 40000])
@pytest.mark.parametrize("value", [0.25, -0.25, -3.0, 3.0, np.nan, np.inf])
def test_what_adds_nothing_to_the_first_value_is_left_out(n: int, value: float) -> None:
    x, out = np.full(n, value, np.float32), np.zeros(1, np.float32)
    number = 0.0 if np.isnan(value) or not n else value
    outside = [0.0] if n % 256 else []
    for kernel, begin, numbers in (
        (largest_magnitude, 0.0, [abs(number)]),
        (largest_beside_zeros, -1.0, [*([value] if n and not np.isnan(value) else []), *outside]),
        (largest_of_computed, 1.0, [1 - 2 * number] if np.isfinite(number) else [-np.inf]),
    ):
        kernel[(1,)](x, out, n, 0.0, 256)
        assert out[0] == max(begin, *numbers, begin), kernel
