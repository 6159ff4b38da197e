"""Spellings written without a look at the rules: the largest magnitude of rows, neighbours in rows, running sums, a
matrix times a vector that ends anywhere.

As in `hold_outs.py`, nothing is pinned: `benchmarks/forms.py` times them, `test_hold_outs.py` asks for right results.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

MAGNITUDES: list[Spelling] = []
NEIGHBOURS: list[Spelling] = []
RUNNING: list[Spelling] = []
ENDING: list[Spelling] = []

_ROWS = "*fp32:16, *fp32:16, i32:16, i32, 1024"

# --- out[r] = max over c of |x[r, c]|, of eight rows a program ---


@spelled(MAGNITUDES, _ROWS)
def largest_of_a_tile(x, out, R, C, B: tl.constexpr):
    r, c = tl.program_id(0) * 8 + tl.arange(0, 8), tl.arange(0, B)
    tl.store(out + r, tl.max(tl.abs(tl.load(x + r[:, None] * C + c[None, :], c[None, :] < C, 0.0)), 1))


@spelled(MAGNITUDES, _ROWS)
def largest_and_least(x, out, R, C, B: tl.constexpr):
    r, c = tl.program_id(0) * 8 + tl.arange(0, 8), tl.arange(0, B)
    value = tl.load(x + r[:, None] * C + c[None, :], c[None, :] < C, 0.0)
    tl.store(out + r, tl.maximum(tl.max(value, 1), -tl.min(value, 1)))


@spelled(MAGNITUDES, _ROWS)
def largest_by_choice(x, out, R, C, B: tl.constexpr):
    r, most = tl.program_id(0) * 8 + tl.arange(0, 8), tl.zeros((8, 128), tl.float32)
    for start in range(0, C, 128):
        c = start + tl.arange(0, 128)
        value = tl.abs(tl.load(x + r[:, None] * C + c[None, :], c[None, :] < C, 0.0))
        most = tl.where(value > most, value, most)
    tl.store(out + r, tl.max(most, 1))


@spelled(MAGNITUDES, _ROWS)
def largest_row_by_row(x, out, R, C, B: tl.constexpr):
    for n in range(8):
        r, most = tl.program_id(0) * 8 + n, 0.0
        for start in range(0, C, 256):
            c = start + tl.arange(0, 256)
            most = tl.maximum(most, tl.max(tl.abs(tl.load(x + r * C + c, c < C, 0.0))))
        tl.store(out + r, most)


# --- out[r, c] = x[r, c - 1] + 2 x[r, c] + x[r, c + 1], zeros outside of a row ---


@spelled(NEIGHBOURS, _ROWS)
def neighbours_under_masks(x, out, R, C, B: tl.constexpr):
    c = tl.arange(0, B)
    at = x + tl.program_id(0) * C + c
    sides = tl.load(at - 1, (c > 0) & (c < C), 0.0) + tl.load(at + 1, c < C - 1, 0.0)
    tl.store(out + tl.program_id(0) * C + c, sides + 2.0 * tl.load(at, c < C, 0.0), c < C)


@spelled(NEIGHBOURS, _ROWS)
def neighbours_at_held_places(x, out, R, C, B: tl.constexpr):
    c, row = tl.arange(0, B), x + tl.program_id(0) * C
    left = tl.where(c > 0, tl.load(row + tl.maximum(c - 1, 0), c < C, 0.0), 0.0)
    right = tl.where(c + 1 < C, tl.load(row + tl.minimum(c + 1, C - 1)), 0.0)
    tl.store(out + tl.program_id(0) * C + c, left + 2.0 * tl.load(row + c, c < C, 0.0) + right, c < C)


@spelled(NEIGHBOURS, _ROWS)
def neighbours_by_distance(x, out, R, C, B: tl.constexpr):
    c, total = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for d in tl.static_range(3):
        at = c + d - 1
        total += tl.load(x + tl.program_id(0) * C + at, (at >= 0) & (at < C), 0.0) * (2 - tl.abs(d - 1))
    tl.store(out + tl.program_id(0) * C + c, total, c < C)


@spelled(NEIGHBOURS, _ROWS)
def neighbours_of_flat_places(x, out, R, C, B: tl.constexpr):
    i = tl.program_id(0) * C + tl.arange(0, B)
    c, end = i % C, (tl.program_id(0) + 1) * C
    left = tl.load(x + i - 1, (c != 0) & (i < end), 0.0)
    right = tl.load(x + i + 1, (c != C - 1) & (i < end), 0.0)
    tl.store(out + i, left + 2.0 * tl.load(x + i, i < end, 0.0) + right, i < end)


@spelled(NEIGHBOURS, _ROWS)
def neighbours_as_a_tile(x, out, R, C, B: tl.constexpr):
    c, d = tl.arange(0, B), tl.arange(0, 4)
    at = c[:, None] + d[None, :] - 1
    weights = tl.where(d == 1, 2.0, 1.0) * (d < 3)
    window = tl.load(x + tl.program_id(0) * C + at, (at >= 0) & (at < C), 0.0)
    tl.store(out + tl.program_id(0) * C + c, tl.sum(window * weights[None, :], 1), c < C)


# --- out[r, c] = sum of x[r, :c + 1], C a multiple of 128 ---


@tilewright.jit
def add(x, y):
    return x + y


@spelled(RUNNING, _ROWS)
def running_by_a_function(x, out, R, C, B: tl.constexpr):
    at = tl.program_id(0) * C + tl.arange(0, B)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, add))


@spelled(RUNNING, _ROWS)
def running_in_blocks(x, out, R, C, B: tl.constexpr):
    before = 0.0
    for start in range(0, C, 128):
        at = tl.program_id(0) * C + start + tl.arange(0, 128)
        value = tl.load(x + at)
        tl.store(out + at, tl.cumsum(value) + before)
        before += tl.sum(value)


@spelled(RUNNING, _ROWS)
def running_from_the_end(x, out, R, C, B: tl.constexpr):
    at = tl.program_id(0) * C + tl.arange(0, B)
    value = tl.load(x + at)
    tl.store(out + at, tl.sum(value) - tl.cumsum(value, 0, reverse=True) + value)


# --- out[r] = sum over k of w[r, k] x[k], of 16 rows a program, of any number of rows and columns ---

_ENDING = "*fp32:16, *fp32:16, *fp32:16, i32, i32, 128"


@tilewright.jit
def plus(x, y):
    return x + y


@spelled(ENDING, _ENDING)
def one_row_after_the_other(w, x, out, R, K, BK: tl.constexpr):
    for r in range(tl.program_id(0) * 16, min(tl.program_id(0) * 16 + 16, R)):
        total = 0.0
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            total += tl.sum(tl.load(w + r * K + k, k < K, 0.0) * tl.load(x + k, k < K, 0.0))
        tl.store(out + r, total)


@spelled(ENDING, _ENDING)
def rows_summed_inside(w, x, out, R, K, BK: tl.constexpr):
    r, total = tl.program_id(0) * 16 + tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        tile = tl.load(w + r[:, None] * K + k[None, :], (r[:, None] < R) & (k[None, :] < K), 0.0)
        total += tl.sum(tile * tl.load(x + k, k < K, 0.0)[None, :], 1)
    tl.store(out + r, total, r < R)


@spelled(ENDING, _ENDING)
def rows_summed_behind(w, x, out, R, K, BK: tl.constexpr):
    r, total = tl.program_id(0) * 16 + tl.arange(0, 16), tl.zeros((16, BK), tl.float32)
    for piece in range(tl.cdiv(K, BK)):
        k = piece * BK + tl.arange(0, BK)
        tile = tl.load(w + r[:, None] * K + k, mask=(r < R)[:, None] & (k < K)[None, :], other=0.0)
        total = tl.fma(tile, tl.broadcast_to(tl.load(x + k, mask=k < K, other=0.0)[None, :], (16, BK)), total)
    tl.store(out + r, tl.sum(total, 1), mask=r < R)


@spelled(ENDING, _ENDING)
def columns_that_are_kept(w, x, out, R, K, BK: tl.constexpr):
    r, total = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.zeros((16, 1), tl.float32)
    for start in range(0, K, BK):
        k = (start + tl.arange(0, BK))[None, :]
        piece = tl.load(w + r * K + k, (r < R) & (k < K), 0.0) * tl.load(x + k, k < K, 0.0)
        total += tl.reduce(piece, 1, plus, keep_dims=True)
    tl.store(out + r, total, r < R)


@spelled(ENDING, _ENDING)
def tiles_on_their_side(w, x, out, R, K, BK: tl.constexpr):
    r, total = tl.program_id(0) * 16 + tl.arange(0, 16), tl.zeros((16,), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        tile = tl.load(w + r[None, :] * K + k[:, None], (r[None, :] < R) & (k[:, None] < K), 0.0)
        total += tl.sum(tl.load(x + k, k < K, 0.0)[:, None] * tile, axis=0)
    tl.store(out + r, total, r < R)


@spelled(ENDING, _ENDING)
def halves_counted_down(w, x, out, R, K, BK: tl.constexpr):
    r, h = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, BK // 2)
    low, high = tl.zeros((16, BK // 2), tl.float32), tl.zeros((16, BK // 2), tl.float32)
    rows, half = w + r[:, None] * K + h[None, :], BK // 2
    x += h
    for left in range(K, 0, -BK):
        there = (r[:, None] < R) & (h[None, :] < left)
        low += tl.load(rows, there, 0.0) * tl.load(x, h < left, 0.0)[None, :]
        there = (r[:, None] < R) & (h[None, :] + half < left)
        high += tl.load(rows + half, there, 0.0) * tl.load(x + half, h + half < left, 0.0)[None, :]
        rows += BK
        x += BK
    tl.store(out + r, tl.sum(low + high, 1), r < R)
