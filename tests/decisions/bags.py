"""Spellings of sums of rows of a table at places that are loaded: bags of embeddings, rows of sparse matrices."""

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

BAGS: list[Spelling] = []
_BAGS = "*i64:16, *i64:16, *fp32:16, *fp32:16, *fp32:16, i32, 256, 16"


@spelled(BAGS, _BAGS)
def row_by_row(ids, offsets, weights, table, out, columns, C: tl.constexpr, L: tl.constexpr):
    bag, c = tl.program_id(0), tl.arange(0, C)
    total = tl.zeros([C], tl.float32)
    for j in range(tl.load(offsets + bag), tl.load(offsets + bag + 1)):
        row = tl.load(table + tl.load(ids + j) * columns + c, c < columns, 0.0)
        total += tl.load(weights + j) * row
    tl.store(out + bag * columns + c, total, c < columns)


@spelled(BAGS, _BAGS)
def until_the_end(ids, offsets, weights, table, out, columns, C: tl.constexpr, L: tl.constexpr):
    """As rows of a sparse matrix are multiplied, by fused operations."""
    row, c = tl.program_id(0), tl.arange(0, C)
    p, end = tl.load(offsets + row), tl.load(offsets + row + 1)
    total = tl.zeros((C,), tl.float32)
    while p < end:
        value = tl.load(table + tl.load(ids + p) * columns + c, mask=c < columns, other=0.0)
        total = tl.fma(value, tl.load(weights + p) + tl.zeros((C,), tl.float32), total)
        p += 1
    tl.store(out + row * columns + c, total, mask=c < columns)


@spelled(BAGS, _BAGS)
def guarded_rows(ids, offsets, weights, table, out, columns, C: tl.constexpr, L: tl.constexpr):
    """Lists that may have places of nothing."""
    bag, c = tl.program_id(0), tl.arange(0, C)
    start = tl.load(offsets + bag)
    total = tl.zeros([C], tl.float32)
    for j in range(tl.load(offsets + bag + 1) - start):
        i = tl.load(ids + start + j)
        row = tl.load(table + i * columns + c, mask=(c < columns) & (i >= 0), other=0.0)
        total += row * tl.load(weights + start + j)
    tl.store(out + bag * columns + c, total, mask=c < columns)


@spelled(BAGS, _BAGS)
def tiles_of_rows(ids, offsets, weights, table, out, columns, C: tl.constexpr, L: tl.constexpr):
    bag, c = tl.program_id(0), tl.arange(0, C)
    end, total = tl.load(offsets + bag + 1), tl.zeros([C], tl.float32)
    for base in range(tl.load(offsets + bag), end, L):
        k = base + tl.arange(0, L)
        i = tl.load(ids + k, mask=k < end, other=0)
        inside = (k < end)[:, None] & (c < columns)[None, :]
        rows = tl.load(table + i[:, None] * columns + c[None, :], mask=inside, other=0.0)
        total += tl.sum(rows * tl.load(weights + k, mask=k < end, other=0.0)[:, None], 0)
    tl.store(out + bag * columns + c, total, mask=c < columns)
