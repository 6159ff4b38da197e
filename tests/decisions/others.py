"""Computations in several spellings each: gathers, column sums, stencils, histograms, running and small products.

All kernels of one list take the same arguments and leave the same result; `benchmarks/forms.py` times them.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

GATHERS: list[Spelling] = []
COLUMN_SUMS: list[Spelling] = []
STENCILS: list[Spelling] = []
HISTOGRAMS: list[Spelling] = []
SEGMENTS: list[Spelling] = []
RUNNING_PRODUCTS: list[Spelling] = []
SMALL_PRODUCTS: list[Spelling] = []
AS_WRITTEN: list[Spelling] = []


# --- rows of a table by number: out[r, :] = table[ids[r], :] -------------------------------------------------


@spelled(GATHERS, "*fp32:16, *i64:16, *fp32:16, i32, 256")
def row_per_program(table, ids, out, rows, COLUMNS: tl.constexpr):
    j = tl.arange(0, COLUMNS)
    for r in range(tl.program_id(0) * 64, min(rows, tl.program_id(0) * 64 + 64)):
        tl.store(out + r * COLUMNS + j, tl.load(table + tl.load(ids + r) * COLUMNS + j))


@spelled(GATHERS, "*fp32:16, *i64:16, *fp32:16, i32, 256")
def tile_of_rows(table, ids, out, rows, COLUMNS: tl.constexpr):
    r, j = tl.program_id(0) * 64 + tl.arange(0, 64), tl.arange(0, COLUMNS)
    picked = tl.load(ids + r, r < rows, 0)
    x = tl.load(table + picked[:, None] * COLUMNS + j[None, :], (r < rows)[:, None])
    tl.store(out + r[:, None] * COLUMNS + j[None, :], x, (r < rows)[:, None])


@spelled(GATHERS, "*fp32:16, *i64:16, *fp32:16, i32, 256")
def flat_elements(table, ids, out, rows, COLUMNS: tl.constexpr):
    e = tl.program_id(0) * 64 * COLUMNS + tl.arange(0, 64 * COLUMNS)
    r, j = e // COLUMNS, e % COLUMNS
    inside = e < rows * COLUMNS
    picked = tl.load(ids + r, inside, 0)
    tl.store(out + e, tl.load(table + picked * COLUMNS + j, inside), inside)


@spelled(GATHERS, "*fp32:16, *i64:16, *fp32:16, i32, 256")
def flat_bits(table, ids, out, rows, COLUMNS: tl.constexpr):
    e = tl.program_id(0) * 64 * COLUMNS + tl.arange(0, 64 * COLUMNS)
    inside = e < rows * COLUMNS
    picked = tl.load(ids + (e >> 8), inside, 0)
    tl.store(out + e, tl.load(table + (picked << 8) + (e & 255), inside), inside)


@spelled(GATHERS, "*fp32:16, *i64:16, *fp32:16, i32, 256")
def flat_whole_blocks(table, ids, out, rows, COLUMNS: tl.constexpr):
    e = tl.program_id(0) * 64 * COLUMNS + tl.arange(0, 64 * COLUMNS)[:]
    j, r = e % COLUMNS, e // COLUMNS
    picked = tl.load(ids + r, None, eviction_policy="evict_last")
    picked = tl.where(picked < 0, picked + 4096, picked)
    tl.store(out + e, tl.load(table + (j + COLUMNS * picked), None), None)


# --- out[j] = sum of x[:, j] ----------------------------------------------------------------------------------


@spelled(COLUMN_SUMS, "*fp32:16, *fp32:16, i32, i32:16, 128")
def whole_tile(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, total = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, rows, 32):
        i = start + tl.arange(0, 32)
        inside = (i < rows)[:, None] & (j < columns)[None, :]
        total += tl.sum(tl.load(x + i[:, None] * columns + j[None, :], inside, 0.0), 0)
    tl.store(out + j, total, j < columns)


@spelled(COLUMN_SUMS, "*fp32:16, *fp32:16, i32, i32:16, 128")
def tile_accumulator(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, total = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.zeros((32, COLUMNS), tl.float32)
    for start in range(0, rows, 32):
        i = start + tl.arange(0, 32)
        inside = (i < rows)[:, None] & (j < columns)[None, :]
        total += tl.load(x + i[:, None] * columns + j[None, :], inside, 0.0)
    tl.store(out + j, tl.sum(total, 0), j < columns)


@spelled(COLUMN_SUMS, "*fp32:16, *fp32:16, i32, i32:16, 128")
def row_after_row(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, total = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.zeros((COLUMNS,), tl.float32)
    for i in range(rows):
        total += tl.load(x + i * columns + j, j < columns, 0.0)
    tl.store(out + j, total, j < columns)


@spelled(COLUMN_SUMS, "*fp32:16, *fp32:16, i32, i32:16, 128")
def chosen_sums(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[:, None], tl.arange(0, 32)[None, :]
    total = tl.full((COLUMNS, 32), 0.0, tl.float32)
    for start in tl.range(0, rows, 32):
        inside = (start + i < rows) & (j < columns)
        value = tl.load(x + (j + columns * (start + i)), inside, 0.0, eviction_policy="evict_first")
        total = tl.where(inside, total + value, total)
    tl.store(out + j, tl.sum(total, 1)[:, None], j < columns)


@spelled(COLUMN_SUMS, "*fp32:16, *fp32:16, i32, i32:16, 128")
def columns_first(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, total = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, rows, 32):
        i = start + tl.arange(0, 32)
        inside = (j < columns)[:, None] & (i < rows)[None, :]
        total += tl.sum(tl.load(x + j[:, None] + i[None, :] * columns, inside, 0.0), 1)
    tl.store(out + j, total, j < columns)


# --- out[i, j] = sum of the four neighbours of x[i, j], where it has four ---------------------------------------


@spelled(STENCILS, "*fp32:16, *fp32:16, i32, i32, 64")
def shifted_loads(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, j = 1 + tl.program_id(1) * 16 + tl.arange(0, 16)[:, None], tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    j = 1 + j[None, :]
    inside, at = (i < rows - 1) & (j < columns - 1), x + i * columns + j
    sides = tl.load(at - 1, inside) + tl.load(at + 1, inside)
    tl.store(out + i * columns + j, sides + tl.load(at - columns, inside) + tl.load(at + columns, inside), inside)


@spelled(STENCILS, "*fp32:16, *fp32:16, i32, i32, 64")
def both_bounds(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, j = 1 + tl.program_id(1) * 16 + tl.arange(0, 16)[:, None], tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    j = 1 + j[None, :]
    inside, at = (i >= 1) & (i < rows - 1) & (j >= 1) & (j < columns - 1), x + i * columns + j
    sides = tl.load(at - 1, inside) + tl.load(at + 1, inside)
    tl.store(out + i * columns + j, sides + tl.load(at - columns, inside) + tl.load(at + columns, inside), inside)


@spelled(STENCILS, "*fp32:16, *fp32:16, i32, i32, 64")
def rows_in_a_loop(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, first = 1 + tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), 1 + tl.program_id(1) * 16
    for i in range(first, min(first + 16, rows - 1)):
        inside, at = j < columns - 1, x + i * columns + j
        sides = tl.load(at - 1, inside) + tl.load(at + 1, inside)
        tl.store(out + i * columns + j, sides + tl.load(at - columns, inside) + tl.load(at + columns, inside), inside)


# --- out[b] += number of elements that are b --------------------------------------------------------------------


@spelled(HISTOGRAMS, "*i32:16, *i32:16, i32, 256, 1024")
def of_the_library(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i, b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BINS)
    tl.atomic_add(out + b, tl.histogram(tl.load(x + i, i < n, 0), BINS, mask=i < n))


@spelled(HISTOGRAMS, "*i32:16, *i32:16, i32, 256, 1024")
def atomics(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i, i < n, 0), 1, mask=i < n)


@spelled(HISTOGRAMS, "*i32:16, *i32:16, i32, 256, 1024")
def relaxed_atomics(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i, i < n, 0), 1, mask=i < n, sem="relaxed")


@spelled(SEGMENTS, "*fp32:16, *i32:16, *fp32:16, i32, 1024")
def segments(x, ids, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.atomic_add(out + tl.load(ids + i, inside, 0), tl.load(x + i, inside, 0.0), mask=inside)


@spelled(SEGMENTS, "*fp32:16, *i32:16, *fp32:16, i32, 1024")
def relaxed_segments_of_a_tile(x, ids, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK // 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    at = out + tl.load(ids + i, i < n, 0)
    tl.atomic_add(at, tl.load(x + i, i < n, 0.0), i < n, "relaxed")


@spelled(SEGMENTS, "*fp32:16, *i32:16, *fp32:16, i32, 1024")
def segments_of_the_device(x, ids, out, n, BLOCK: tl.constexpr):
    for part in range(2):
        i = tl.program_id(0) * BLOCK + part * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
        if part * (BLOCK // 2) < n:
            tl.atomic_add(out + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0.0), i < n, scope="gpu")


# --- running products of the rows ---------------------------------------------------------------------------------


@tilewright.jit
def times(a, b):
    return a * b


@spelled(RUNNING_PRODUCTS, "*fp32:16, *fp32:16, i32:16, 1024")
def cumprod(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(out + at, tl.cumprod(tl.load(x + at, inside, 1.0), 0), inside)


@spelled(RUNNING_PRODUCTS, "*fp32:16, *fp32:16, i32:16, 1024")
def associative_scan(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(out + at, tl.associative_scan(tl.load(x + at, inside, 1.0), 0, times), inside)


@spelled(RUNNING_PRODUCTS, "*fp32:16, *fp32:16, i32:16, 1024")
def rows_of_a_tile(x, out, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)[None, :]
    inside = tl.arange(0, BLOCK)[None, :] < columns
    tl.store(out + at, tl.cumprod(tl.load(x + at, inside, 1.0), 1), inside)


# --- small products by the batch ----------------------------------------------------------------------------------


@spelled(SMALL_PRODUCTS, "*fp32:16, *fp32:16, *fp32:16, i32, i32, i32, 16, 16, 32")
def padded(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z = tl.program_id(0)
    i, j, p = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    x = tl.load(a + z * m * k + i * k + p[None, :], (i < m) & (p[None, :] < k), 0.0)
    y = tl.load(b + z * k * n + p[:, None] * n + j, (p[:, None] < k) & (j < n), 0.0)
    tl.store(out + z * m * n + i * n + j, tl.dot(x, y), (i < m) & (j < n))


@spelled(SMALL_PRODUCTS, "*fp32:16, *fp32:16, *fp32:16, i32, i32, i32, 16, 16, 32")
def broadcast(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z = tl.program_id(0)
    i, j, p = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    x = tl.load(a + z * m * k + i * k + p[None, :], (i < m) & (p[None, :] < k), 0.0)
    y = tl.load(b + z * k * n + p[:, None] * n + j, (p[:, None] < k) & (j < n), 0.0)
    tl.store(out + z * m * n + i * n + j, tl.sum(x[:, :, None] * y[None, :, :], 1), (i < m) & (j < n))


@spelled(SMALL_PRODUCTS, "*fp32:16, *fp32:16, *fp32:16, i32, i32, i32, 16, 16, 32")
def columns_in_a_loop(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z = tl.program_id(0)
    i, j, acc = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.zeros((BM, BN), tl.float32)
    for p in range(k):
        acc += tl.load(a + z * m * k + i * k + p, i < m, 0.0) * tl.load(b + z * k * n + p * n + j, j < n, 0.0)
    tl.store(out + z * m * n + i * n + j, acc, (i < m) & (j < n))


# --- what stays as it is written, though it looks like something else ----------------------------------------


@spelled(AS_WRITTEN, "*fp32:16, i32, 64")
def few_iterations_that_store(x, n, B: tl.constexpr):
    """Each iteration loads what the one before stored."""
    i, total = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for part in range(3):
        total += tl.load(x + part * n + i)
        tl.store(x + part * n + n + i, total)


@spelled(AS_WRITTEN, "*fp32:16, i32, 64")
def loaded_ahead_of_a_store(x, n, B: tl.constexpr):
    """The store may change what the next iteration would load."""
    i = tl.arange(0, B)
    before = tl.load(x + i)
    for start in range(0, n, B):
        after = tl.load(x + start + B + i)
        tl.store(x + 2 * start + i, before + after)
        before = after


@spelled(AS_WRITTEN, "*fp32:16, i32, 64")
def rows_made_of_rows(x, n, B: tl.constexpr):
    """Every iteration loads what the one before has stored."""
    i = tl.arange(0, B)
    for row in range(n):
        tl.store(x + (row + 1) * B + i, tl.load(x + row * B + i) + 1.0)


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, i32, 128, 512")
def sums_of_large_tiles(x, out, n, ROWS: tl.constexpr, B: tl.constexpr):
    """A GPU's threads have no registers for the elements of such a tile."""
    i, j, total = tl.arange(0, ROWS)[:, None], tl.arange(0, B), tl.zeros((B,), tl.float32)
    for start in range(0, n, ROWS):
        total += tl.sum(tl.load(x + (start + i) * B + j[None, :]), 0)
    tl.store(out + j, total)


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, i32, 16, 64")
def sum_of_a_block_of_a_matrix(x, out, columns, ROWS: tl.constexpr, B: tl.constexpr):
    """A row ends before the next one begins."""
    value = tl.load(x + tl.arange(0, ROWS)[:, None] * columns + tl.arange(0, B)[None, :])
    tl.store(out, tl.sum(tl.sum(value, 1), 0))


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, i32, 128")
def sum_of_every_second_block(x, out, n, B: tl.constexpr):
    """What an iteration reads does not begin where that of the one before ended."""
    total = 0.0
    for start in range(0, n, 2 * B):
        total += tl.sum(tl.load(x + start + tl.arange(0, B)))
    tl.store(out, total)


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, 4, 256")
def shares_of_exponentials(x, out, C: tl.constexpr, N: tl.constexpr):
    """Each row wants the sums over all rows, and they cost much."""
    at = tl.arange(0, C)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    tl.store(out + at, value / tl.sum(tl.exp(value + 1.0), 0)[None, :])


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, *fp32:16, i32, i32, 64, 64, 32")
def left_operand_across(a, b, out, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Turned over, the right operand would be packed across."""
    i, j, acc = tl.arange(0, BM), tl.arange(0, BN), tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p = start + tl.arange(0, BK)
        acc = tl.dot(tl.load(a + i[:, None] + p[None, :] * n), tl.load(b + p[:, None] * n + j[None, :]), acc)
    tl.store(out + i[:, None] * n + j[None, :], acc)


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, *fp32:16, i32, i32, 64")
def sums_of_chosen_columns(x, w, out, rows, columns, BLOCK: tl.constexpr):
    """All rows share what says which columns count."""
    i, total = tl.program_id(0) * 16 + tl.arange(0, 16), tl.zeros((16, BLOCK), tl.float32)
    for start in range(0, columns, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = (i < rows)[:, None] & (j < columns)[None, :]
        counts = tl.load(w + j, j < columns, 0.0) > 0.0
        total += tl.where(counts[None, :], tl.load(x + i[:, None] * columns + j[None, :], inside, 0.0), 0.0)
    tl.store(out + i, tl.sum(total, 1), i < rows)


@spelled(AS_WRITTEN, "*fp32:16, i32, i32, i32, 16, 64")
def tile_doubled_in_place(x, columns, rows_apart, columns_apart, M: tl.constexpr, N: tl.constexpr):
    """Whether two elements have one address is known at launch."""
    i, j = tl.program_id(0) * M + tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    at = x + i * rows_apart + j * columns_apart
    tl.store(at, tl.load(at, j < columns, 0.0) * 2.0, j < columns)


@spelled(AS_WRITTEN, "*fp32:16, i32, 16, 64")
def rows_doubled_in_place(x, columns, M: tl.constexpr, N: tl.constexpr):
    """A row ends where its mask does: no two elements have one address."""
    i, j = tl.program_id(0) * M + tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    at = x + i * columns + j
    tl.store(at, tl.load(at, j < columns, 0.0) * 2.0, j < columns)


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, 1024, 128")
def groups_and_their_scales(x, scales, N: tl.constexpr, G: tl.constexpr):
    """The scale of a group is stored once all its elements have been scaled."""
    i = tl.arange(0, N)
    scale = tl.load(scales + i // G)
    tl.store(x + i, tl.load(x + i) * scale)
    tl.store(scales + i // G, scale * 0.5)


@spelled(AS_WRITTEN, "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, 64, 64, 32")
def last_blocks_first(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The order of the sums is free."""
    i, j = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(K - BK, -1, -BK):
        k = at + tl.arange(0, BK)
        acc = tl.dot(tl.load(a + i * K + k[None, :]), tl.load(b + k[:, None] * N + j), acc)
    tl.store(c + i * N + j, acc)


@spelled(AS_WRITTEN, "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, 64, 64, 32")
def every_sum_from_the_end(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each sum on the way is stored."""
    i, j = tl.program_id(0) * BM + tl.arange(0, BM)[:, None], tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for at in range(K - BK, -1, -BK):
        k = at + tl.arange(0, BK)
        acc = tl.dot(tl.load(a + i * K + k[None, :]), tl.load(b + k[:, None] * N + j), acc)
        tl.store(c + (at * BM + i) * N + j, acc)


@spelled(AS_WRITTEN, "*fp32:16, *fp32:16, i32, 64")
def loops_that_share_nothing(x, out, n, B: tl.constexpr):
    """Each of the loops computes exponentials, of other elements."""
    i, total = tl.arange(0, B), 0.0
    for start in range(0, n, B):
        total += tl.sum(tl.exp(tl.load(x + start + i)))
    for start in range(0, n, B):
        tl.store(out + start + i, tl.exp(tl.load(x + n + start + i)) / total)


OTHERS = GATHERS + COLUMN_SUMS + STENCILS + HISTOGRAMS + SEGMENTS + RUNNING_PRODUCTS + SMALL_PRODUCTS + AS_WRITTEN
