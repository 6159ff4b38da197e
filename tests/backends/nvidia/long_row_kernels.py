"""Kernels whose rows are shared out to the blocks of a cluster: spellings, types, shapes and orders of what they do."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def softmax(x, out, n, B: tl.constexpr):
    i, row = tl.arange(0, B), tl.program_id(0)
    values = tl.load(x + row * n + i, i < n, -float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + i, powers / tl.sum(powers, 0), i < n)


@tw.jit
def total(x, out, n, B: tl.constexpr):
    """Two numbers a row, and one of all programs."""
    i, row = tl.arange(0, B), tl.program_id(0)
    values = tl.load(x + row * n + i, i < n, 0)
    whole = tl.sum(values, 0)
    tl.store(out + row, whole)
    tl.store(out + tl.num_programs(0) + row, row + 10 * tl.num_programs(0))
    tl.store(out + 2 * tl.num_programs(0) + row, tl.sum(((values > whole) & (i < n)).to(tl.int32), 0))


@tw.jit
def layer_norm(x, weight, bias, out, n, B: tl.constexpr):
    """Rows in a loop, as a program that stays does; weights are shared as rows are."""
    i = tl.arange(0, B)
    w, b = tl.load(weight + i, i < n, 0.0), tl.load(bias + i, i < n, 0.0)
    for row in range(tl.program_id(0), 3, tl.num_programs(0)):
        values = tl.load(x + row * n + i, i < n, 0.0).to(tl.float32)
        mean = tl.sum(values, 0) / n
        away = tl.where(i < n, values - mean, 0.0)
        scale = 1 / tl.sqrt(tl.sum(away * away, 0) / n + 1e-5)
        tl.store(out + row * n + i, (away * scale * w + b).to(out.dtype.element_ty), i < n)


@tw.jit
def centred(x, weight, out, tops, n, R: tl.constexpr, B: tl.constexpr):
    """Several rows a tile, of no power of two, with what belongs to columns and to rows."""
    r, i = tl.arange(0, R)[:, None], tl.arange(0, B)[None, :]
    inside = (r < 3) & (i < n)
    values = tl.load(x + r * n + i, inside, 0.0) * tl.load(weight + tl.arange(0, B), tl.arange(0, B) < n, 0.0)[None, :]
    top = tl.max(tl.where(inside, values, -1e9), 1)
    tl.store(tops + tl.arange(0, R), top, tl.arange(0, R) < 3)
    tl.store(out + r * n + i, values - top[:, None], inside)
    tl.store(tops + R + tl.arange(0, B), tl.sum(tl.where(inside, values, 0.0), 0), tl.arange(0, B) < n)


@tw.jit
def of_columns(x, out, n, B: tl.constexpr):
    """The dim that is reduced is the first."""
    i, j = tl.arange(0, B // 16)[:, None], tl.arange(0, 16)[None, :]
    values = tl.load(x + i * 16 + j, i < n, 0.0)
    tl.store(out + i * 16 + j, values - tl.max(values, 0)[None, :], i < n)


@tw.jit
def largest(x, out, places, n, B: tl.constexpr):
    """A pair of values, of which the first of equals counts."""
    i, row = tl.arange(0, B), tl.program_id(0)
    given = tl.load(x + row * n + i, i < n, -1000)
    values, at = tl.max(given, 0, return_indices=True)
    tl.store(out + row, tl.sum((given == values).to(tl.int32), 0))
    tl.store(places + row, at)


@tw.jit
def _then(a, b, c, d):
    return a * c, b * c + d


@tw.jit
def composed(x, out, n, B: tl.constexpr):
    """Steps s -> a s + b one after another: neighbours must not change places."""
    i = tl.arange(0, B)
    a = tl.where(i % 7 == 3, -1, 1)
    values = tl.load(x + i, i < n, 0)
    one, other = tl.reduce((a, values), 0, _then)
    tl.store(out, one)
    tl.store(out + 1, other)
    tl.store(out + 2, tl.sum((values < other).to(tl.int32), 0))


@tw.jit
def in_place(x, out, n, B: tl.constexpr):
    """What is stored is loaded again by other blocks, one element further."""
    i = tl.arange(0, B)
    values = tl.load(x + i, i < n, 0.0)
    tl.store(x + i, values - tl.max(values, 0), i < n)
    again = tl.load(x + (i + 9000) % n, i < n, 0.0)
    tl.store(out + i, again + tl.sum(again, 0), i < n)
    tl.store(x, 7.0)
    tl.store(out + i, again + tl.load(x), i < n)


@tw.jit
def chosen(x, out, n, flag, B: tl.constexpr):
    """Branches that all blocks take alike, some without what others exchange, and a row that is loaded by all."""
    i = tl.arange(0, B)
    few = tl.load(x + tl.arange(0, 16))
    tl.store(out + tl.arange(0, 16), few + tl.sum(few, 0))
    if flag > 0:
        values = tl.load(x + i, i < n, 0.0)
        if tl.sum(values, 0) > 0:
            tl.store(out + 16 + i, values - tl.min(values, 0), i < n)
        else:
            tl.store(out + 16, tl.max(values, 0))
