"""Spellings written without a look at the rules: the largest magnitude of rows, neighbours in rows, running sums.

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
