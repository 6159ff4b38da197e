"""Kernels that see rows as flat elements: of a picture `wide`, of which `w` columns are wanted."""

from __future__ import annotations

import tilewright
import tilewright.language as tl


@tilewright.jit
def cropped(x, out, w, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i // w * wide + i % w, i < n), i < n)


@tilewright.jit
def flipped(x, out, w, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i // w * wide + (w - 1 - i % w), i < n, 7), i < n)


@tilewright.jit
def padded(x, out, w, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = i // wide, i % wide
    tl.store(out + i, tl.load(x + row * w + column, (column < w) & (i < n), -1), i < n)


@tilewright.jit
def planes(x, out, w, wide, n, BLOCK: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    plane, rest = i // (5 * w), i % (5 * w)
    tl.store(out + i, tl.load(x + plane * 5 * wide + rest // w * wide + rest % w, i < n), i < n)


@tilewright.jit
def cropped_rows(x, out, w, wide, n, BLOCK: tl.constexpr):
    """`cropped` as tiles of rows."""
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * w + column, tl.load(x + row * wide + column, column < w), column < w)
