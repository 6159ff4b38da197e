"""Computations on rows in spellings that are less usual: sums, norms, windows, tables, counts and running sums.

Tiles of three dimensions, reshapes, loops that run backwards or with two counters, masks that compare offsets, helpers.
All kernels of one list take the same arguments and leave the same result; `benchmarks/forms.py` times them.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

ROW_SUMS: list[Spelling] = []
ROW_TOPS: list[Spelling] = []
ROW_NORMS: list[Spelling] = []
WINDOWS: list[Spelling] = []
PICKED: list[Spelling] = []
COUNTS: list[Spelling] = []
RUNNING_SUMS: list[Spelling] = []
MIXES: list[Spelling] = []


# --- out[i] = sum over j of x[i, j]; 16 rows a program ------------------------------------------------------------

_SUMS = "*fp32:16, *fp32:16, i32:16, i32:16, 1024"


@tilewright.jit
def offsets_of(row, columns, COLUMNS: tl.constexpr):
    return row[:, None] * columns + tl.arange(0, COLUMNS)[None, :]


@tilewright.jit
def total_of(x, AXIS: tl.constexpr):
    return tl.sum(x, AXIS)


@tilewright.jit
def plus(a, b):
    return a + b


@spelled(ROW_SUMS, _SUMS)
def sums_of_a_tile(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, COLUMNS)
    value = tl.load(x + i[:, None] * columns + j[None, :], (i < rows)[:, None] & (j < columns)[None, :], 0.0)
    tl.store(out + i, tl.sum(value, 1), i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_row_by_row(x, out, rows, columns, COLUMNS: tl.constexpr):
    j = tl.arange(0, COLUMNS)
    for i in range(tl.program_id(0) * 16, min(tl.program_id(0) * 16 + 16, rows)):
        tl.store(out + i, tl.sum(tl.load(x + i * columns + j, j < columns, 0.0)))


@spelled(ROW_SUMS, _SUMS)
def sums_by_helpers(x, out, rows, columns, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    at = offsets_of(i, columns, COLUMNS)
    value = tl.load(x + at, (at < rows * columns) & (tl.arange(0, COLUMNS) < columns), other=0)
    tl.store(out + i, total_of(value, 1), mask=i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_of_three_dims(x, out, rows, columns, COLUMNS: tl.constexpr):
    """A row is a tile of eight parts."""
    i, part = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None, None], tl.arange(0, 8)[None, :, None]
    j = part * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)[None, None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.sum(tl.sum(value, 2), 1), i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_of_the_middle_first(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, part = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None, None], tl.arange(0, 8)[None, :, None]
    j = part * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)[None, None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.sum(tl.sum(value, 1), 1), i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_of_a_reshape(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    value = tl.reshape(value, (16, COLUMNS // 8, 8))
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.sum(tl.sum(value, 2), 1), i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_of_a_flat_block(x, out, rows, columns, COLUMNS: tl.constexpr):
    e = tl.arange(0, 16 * COLUMNS)
    i, j = tl.program_id(0) * 16 + e // COLUMNS, e % COLUMNS
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), 0.0)
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.sum(tl.reshape(value, (16, COLUMNS)), 1), i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_backwards(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, total = tl.program_id(0) * 16 + tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for start in range(tl.cdiv(columns, 128) * 128 - 128, -1, -128):
        j = start + tl.arange(0, 128)
        value = tl.load(x + i[:, None] * columns + j[None, :], (i < rows)[:, None] & (j < columns)[None, :], 0.0)
        total += tl.sum(value, 1)
    tl.store(out + i, total, i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_with_two_counters(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, total = tl.program_id(0) * 16 + tl.arange(0, 16), tl.zeros((16, 128), tl.float32)
    start, left = 0, columns
    while left > 0:
        j = tl.arange(0, 128)
        inside = (i < rows)[:, None] & (j < left)[None, :]
        total += tl.load(x + i[:, None] * columns + start + j[None, :], inside, 0.0)
        start, left = start + 128, left - 128
    tl.store(out + i, tl.sum(total, 1), i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_of_wide_numbers(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, total = tl.program_id(0).to(tl.int64) * 16 + tl.arange(0, 16).to(tl.int64), tl.zeros((16,), tl.float32)
    for part in tl.range(0, tl.cdiv(columns, 256), num_stages=2):
        j = part.to(tl.int64) * 256 + tl.arange(0, 256)
        at = tl.expand_dims(i * columns, 1) + tl.expand_dims(j, 0)
        total += tl.sum(tl.load(x + at, (i[:, None] < rows) & (at < (i[:, None] + 1) * columns), 0.0), axis=-1)
    tl.store(out + i, total, i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_by_reduce(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[None, :], tl.arange(0, COLUMNS)[:, None]
    value = tl.where((i < rows) & (j < columns), tl.load(x + (j + i * columns), (i < rows) & (j < columns)), 0.0)
    tl.store(out + i, tl.reduce(value, 0, plus, keep_dims=True), i < rows)


@spelled(ROW_SUMS, _SUMS)
def sums_column_by_column(x, out, rows, columns, COLUMNS: tl.constexpr):
    """Sixteen elements an iteration, a line apart."""
    i, total = tl.program_id(0) * 16 + tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for j in range(columns):
        total += tl.load(x + i * columns + j, i < rows, 0.0)
    tl.store(out + i, total, i < rows)


# --- out[i] = place of the largest element of row i -----------------------------------------------------------------

_TOPS = "*fp32:16, *i32:16, i32:16, i32:16, 1024"


@spelled(ROW_TOPS, _TOPS)
def top_by_argmax(x, out, rows, columns, COLUMNS: tl.constexpr):
    j = tl.arange(0, COLUMNS)
    for i in range(tl.program_id(0) * 16, min(tl.program_id(0) * 16 + 16, rows)):
        tl.store(out + i, tl.argmax(tl.load(x + i * columns + j, j < columns, float("-inf")), 0))


@spelled(ROW_TOPS, _TOPS)
def top_of_a_tile(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, COLUMNS)
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    value = tl.load(x + i[:, None] * columns + j[None, :], inside, float("-inf"))
    tl.store(out + i, tl.argmax(value, 1), i < rows)


@spelled(ROW_TOPS, _TOPS)
def top_with_a_record(x, out, rows, columns, COLUMNS: tl.constexpr):
    """The best element so far of each lane and its place, replaced where a better one comes."""
    j = tl.arange(0, 128)
    for i in range(tl.program_id(0) * 16, min(tl.program_id(0) * 16 + 16, rows)):
        best, place = tl.full((128,), float("-inf"), tl.float32), tl.zeros((128,), tl.int32)
        for start in range(0, columns, 128):
            value = tl.load(x + i * columns + start + j, start + j < columns, float("-inf"))
            better = value > best
            best, place = tl.where(better, value, best), tl.where(better, start + j, place)
        top = tl.max(best, 0)
        tl.store(out + i, tl.min(tl.where(best == top, place, columns), 0))


@spelled(ROW_TOPS, _TOPS)
def top_by_equality(x, out, rows, columns, COLUMNS: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + i * columns + j, (i < rows) & (j < columns), float("-inf"))
    first = tl.where(value == tl.max(value, 1, keep_dims=True), j, COLUMNS)
    tl.store(out + i, tl.min(first, 1, keep_dims=True), i < rows)


# --- out[i, :] = x[i, :] over the root of its mean square -----------------------------------------------------------

_NORMS = "*fp32:16, *fp32:16, i32:16, i32:16, fp32, 1024"


@spelled(ROW_NORMS, _NORMS)
def norm_of_a_row(x, out, rows, columns, eps, COLUMNS: tl.constexpr):
    j, row = tl.arange(0, COLUMNS), tl.program_id(0) * columns
    value = tl.load(x + row + j, j < columns, 0.0)
    tl.store(out + row + j, value * tl.rsqrt(tl.sum(value * value, 0) / columns + eps), j < columns)


@spelled(ROW_NORMS, _NORMS)
def norm_of_parts(x, out, rows, columns, eps, COLUMNS: tl.constexpr):
    """A row is a tile of eight rows, summed over both dims."""
    j = tl.arange(0, 8)[:, None] * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)[None, :]
    at = tl.program_id(0) * columns + j
    value = tl.load(x + at, j < columns, 0.0)
    total = tl.sum(tl.sum(value * value, 0), 0)
    tl.store(out + at, value / tl.sqrt(total / columns + eps), j < columns)


@spelled(ROW_NORMS, _NORMS)
def norm_of_parts_along_first(x, out, rows, columns, eps, COLUMNS: tl.constexpr):
    j = tl.arange(0, COLUMNS // 8)[None, :] + tl.arange(0, 8)[:, None] * (COLUMNS // 8)
    at = tl.program_id(0) * columns + j
    value = tl.load(x + at, j < columns, 0.0)
    total = tl.sum(tl.sum(value * value, 1, keep_dims=True), 0, keep_dims=True)
    tl.store(out + at, value * (1.0 / tl.sqrt(total / columns + eps)), j < columns)


@spelled(ROW_NORMS, _NORMS)
def norm_of_a_reshape(x, out, rows, columns, eps, COLUMNS: tl.constexpr):
    j, row = tl.arange(0, COLUMNS), tl.program_id(0) * columns
    value = tl.reshape(tl.load(x + row + j, j < columns, 0.0), (COLUMNS // 8, 8))
    value *= tl.rsqrt(tl.sum(value * value) / columns + eps)
    tl.store(out + row + j, tl.reshape(value, (COLUMNS,)), j < columns)


@spelled(ROW_NORMS, _NORMS)
def norm_in_two_loops(x, out, rows, columns, eps, COLUMNS: tl.constexpr):
    """The second loop goes backwards, as what was read last is near."""
    x, out, total = x + tl.program_id(0) * columns, out + tl.program_id(0) * columns, 0.0
    for start in range(0, columns, 256):
        value = tl.load(x + start + tl.arange(0, 256), start + tl.arange(0, 256) < columns, 0.0)
        total += tl.sum(value * value)
    scale, start = tl.rsqrt(total / columns + eps), tl.cdiv(columns, 256) * 256
    while start > 0:
        start -= 256
        j = start + tl.arange(0, 256)
        tl.store(out + j, tl.load(x + j, j < columns) * scale, j < columns)


@spelled(ROW_NORMS, _NORMS)
def norm_of_a_product(x, out, rows, columns, eps, COLUMNS: tl.constexpr):
    """The squares are the product of the row and the column that it is."""
    j, row = tl.arange(0, COLUMNS), tl.program_id(0) * columns
    value = tl.load(x + row + j, j < columns, 0.0)
    total = tl.sum(value[None, :] * value[None, :], 1)
    tl.store(out + row + j[None, :], value[None, :] * tl.rsqrt(total / columns + eps)[:, None], (j < columns)[None, :])


# --- out[i] = sum over 5 neighbours of x[i + d] * w[d], with zeros outside ------------------------------------------

_WINDOWS = "*fp32:16, *fp32:16, *fp32:16, i32, 1024"


@spelled(WINDOWS, _WINDOWS)
def window_by_shifts(x, w, out, n, BLOCK: tl.constexpr):
    i, total = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for d in tl.static_range(5):
        at = i + d - 2
        total += tl.load(x + at, (at >= 0) & (at < n), 0.0) * tl.load(w + d)
    tl.store(out + i, total, i < n)


@spelled(WINDOWS, _WINDOWS)
def window_in_a_loop(x, w, out, n, BLOCK: tl.constexpr):
    i, total = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for d in range(-2, 3):
        total += tl.load(x + (i + d), (i + d >= 0) & (i + d < n), 0.0) * tl.load(w + (d + 2))
    tl.store(out + i, total, i < n)


@spelled(WINDOWS, _WINDOWS)
def window_as_a_tile(x, w, out, n, BLOCK: tl.constexpr):
    """Eight taps, three of them outside."""
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 8)
    at = i[:, None] + d[None, :] - 2
    value = tl.load(x + at, (at >= 0) & (at < n) & (d < 5)[None, :], 0.0)
    tl.store(out + i, tl.sum(value * tl.load(w + d, d < 5, 0.0)[None, :], 1), i < n)


@spelled(WINDOWS, _WINDOWS)
def window_with_taps_first(x, w, out, n, BLOCK: tl.constexpr):
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :], tl.arange(0, 8)[:, None]
    at = i + d - 2
    value = tl.load(x + at, (at >= 0) & (at < n) & (d < 5), 0.0)
    total = tl.sum(value * tl.load(w + d, d < 5, 0.0), 0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, total, i < n)


@spelled(WINDOWS, _WINDOWS)
def window_of_clamped_places(x, w, out, n, BLOCK: tl.constexpr):
    """Places outside are moved inside, and what lies there is replaced by zero."""
    i, total = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    for d in tl.static_range(5):
        at = i + d - 2
        value = tl.load(x + tl.minimum(tl.maximum(at, 0), n - 1))
        total += tl.where((at < 0) | (at >= n), 0.0, value) * tl.load(w + d)
    tl.store(out + i, total, i < n)


# --- out[i, :] = table[ids[i], :], negative numbers counting from the end --------------------------------------------

_PICKED = "*fp32:16, *i32:16, *fp32:16, i32:16, i32:16, 256"


@spelled(PICKED, _PICKED)
def picked_row_by_row(table, ids, out, rows, entries, COLUMNS: tl.constexpr):
    j = tl.arange(0, COLUMNS)
    for i in range(tl.program_id(0) * 64, min(rows, tl.program_id(0) * 64 + 64)):
        which = tl.load(ids + i)
        if which < 0:
            which += entries
        tl.store(out + i * COLUMNS + j, tl.load(table + which * COLUMNS + j))


@spelled(PICKED, _PICKED)
def picked_three_dims(table, ids, out, rows, entries, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)[:, None, None]
    j = tl.arange(0, 4)[None, :, None] * (COLUMNS // 4) + tl.arange(0, COLUMNS // 4)[None, None, :]
    which = tl.load(ids + i, i < rows, 0)
    which = tl.where(which < 0, which + entries, which)
    tl.store(out + i * COLUMNS + j, tl.load(table + which * COLUMNS + j, i < rows), i < rows)


@spelled(PICKED, _PICKED)
def picked_columns_first(table, ids, out, rows, entries, COLUMNS: tl.constexpr):
    i, j = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :], tl.arange(0, COLUMNS)[:, None]
    which = tl.load(ids + i, i < rows, 0)
    which = (which + entries * (which < 0).to(tl.int32)).to(tl.int64)
    tl.store(out + i * COLUMNS + j, tl.load(table + which * COLUMNS + j, i < rows), i < rows)


@spelled(PICKED, _PICKED)
def picked_by_remainder(table, ids, out, rows, entries, COLUMNS: tl.constexpr):
    e = tl.program_id(0) * 64 * COLUMNS + tl.arange(0, 64 * COLUMNS)
    which = (tl.load(ids + e // COLUMNS, e < rows * COLUMNS, 0) + entries) % entries
    value = tl.load(table + (which * COLUMNS + (e - e // COLUMNS * COLUMNS)), e < rows * COLUMNS)
    tl.store(out + e, value, e < rows * COLUMNS)


# --- out[b] += number of elements that are b, and not negative -------------------------------------------------------

_COUNTS = "*i32:16, *i32:16, i32, 16, 1024"


@spelled(COUNTS, _COUNTS)
def counted_by_atomics(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, -1)
    tl.atomic_add(out + value, 1, mask=value >= 0)


@spelled(COUNTS, _COUNTS)
def counted_by_comparison(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i, b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BINS)
    value = tl.load(x + i, i < n, -1)
    tl.atomic_add(out + b, tl.sum((value[:, None] == b[None, :]).to(tl.int32), 0))


@spelled(COUNTS, _COUNTS)
def counted_bins_first(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i, b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BINS)
    value = tl.load(x + i, i < n, -1)
    tl.atomic_add(out + b, tl.sum(tl.where(b[:, None] == value[None, :], 1, 0), 1))


@spelled(COUNTS, _COUNTS)
def counted_bin_by_bin(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, -1)
    for b in range(BINS):
        tl.atomic_add(out + b, tl.sum((value == b).to(tl.int32)))


# --- running sums of the rows --------------------------------------------------------------------------------------

_RUNNING = "*fp32:16, *fp32:16, i32:16, 1024"


@spelled(RUNNING_SUMS, _RUNNING)
def running_row(x, out, columns, BLOCK: tl.constexpr):
    j, row = tl.arange(0, BLOCK), tl.program_id(0) * columns
    tl.store(out + row + j, tl.cumsum(tl.load(x + row + j, j < columns, 0.0), 0), j < columns)


@spelled(RUNNING_SUMS, _RUNNING)
def running_with_a_carry(x, out, columns, BLOCK: tl.constexpr):
    row, before = tl.program_id(0) * columns, 0.0
    for start in range(0, columns, 256):
        j = start + tl.arange(0, 256)
        value = tl.load(x + row + j, j < columns, 0.0)
        tl.store(out + row + j, before + tl.cumsum(value, 0), j < columns)
        before += tl.sum(value, 0)


@spelled(RUNNING_SUMS, _RUNNING)
def running_parts(x, out, columns, BLOCK: tl.constexpr):
    """The sums of eight parts, and what comes before each."""
    part = tl.arange(0, 8)
    j = part[:, None] * (BLOCK // 8) + tl.arange(0, BLOCK // 8)[None, :]
    row = tl.program_id(0) * columns
    value = tl.load(x + row + j, j < columns, 0.0)
    totals = tl.sum(value, 1)
    before = tl.cumsum(totals, 0) - totals
    tl.store(out + row + j, tl.cumsum(value, 1) + before[:, None], j < columns)


@spelled(RUNNING_SUMS, _RUNNING)
def running_difference(x, out, columns, BLOCK: tl.constexpr):
    """What is left of the total behind each element, by a scan from the end."""
    j, row = tl.arange(0, BLOCK), tl.program_id(0) * columns
    value = tl.load(x + row + j, j < columns, 0.0)
    after = tl.cumsum(value, 0, reverse=True) - value
    tl.store(out + row + j, tl.sum(value, 0) - after, j < columns)


# --- out[i, j] = x[i, j] + y[j], on tiles of other shapes ----------------------------------------------------------

_MIXES = "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16, 1024"


@spelled(MIXES, _MIXES)
def mixed_row(x, y, out, rows, columns, COLUMNS: tl.constexpr):
    j, row = tl.arange(0, COLUMNS), tl.program_id(0) * columns
    tl.store(out + row + j, tl.load(x + row + j, j < columns) + tl.load(y + j, j < columns), j < columns)


@spelled(MIXES, _MIXES)
def mixed_flat(x, y, out, rows, columns, COLUMNS: tl.constexpr):
    """The column is a remainder of a number that is known only when the kernel runs."""
    e = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tl.store(
        out + e, tl.load(x + e, e < rows * columns) + tl.load(y + e % columns, e < rows * columns), e < rows * columns
    )


@spelled(MIXES, _MIXES)
def mixed_turned(x, y, out, rows, columns, COLUMNS: tl.constexpr):
    j, row = tl.arange(0, COLUMNS)[:, None] + tl.arange(0, 1)[None, :], tl.program_id(0) * columns
    value = tl.trans(tl.load(x + row + j, j < columns)) + tl.load(y + tl.arange(0, COLUMNS))[None, :]
    tl.store(out + row + tl.arange(0, COLUMNS)[None, :], value, tl.arange(0, COLUMNS)[None, :] < columns)


@spelled(MIXES, _MIXES)
def mixed_pairs(x, y, out, rows, columns, COLUMNS: tl.constexpr):
    """Even and odd elements apart, and joined."""
    p, row = tl.arange(0, COLUMNS // 2), tl.program_id(0) * columns
    inside = 2 * p < columns
    even = tl.load(x + row + 2 * p, inside) + tl.load(y + 2 * p, inside)
    odd = tl.load(x + row + 2 * p + 1, inside) + tl.load(y + 2 * p + 1, inside)
    j = tl.arange(0, COLUMNS)
    tl.store(out + row + j, tl.reshape(tl.join(even, odd), (COLUMNS,)), j < columns)


@spelled(MIXES, _MIXES)
def mixed_cat(x, y, out, rows, columns, COLUMNS: tl.constexpr):
    """Two halves of a row as the rows of a tile."""
    half, k, row = columns // 2, tl.arange(0, COLUMNS // 2)[None, :], tl.program_id(0) * columns
    j = tl.arange(0, 2)[:, None] * half + k
    tl.store(out + row + j, tl.load(x + row + j, k < half) + tl.load(y + j, k < half), k < half)


ROWS = ROW_SUMS + ROW_TOPS + ROW_NORMS + WINDOWS + PICKED + COUNTS + RUNNING_SUMS + MIXES
