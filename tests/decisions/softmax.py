"""The softmax of the rows of a matrix, in many spellings."""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

SOFTMAX: list[Spelling] = []
_ROW = "*fp32:16, *fp32:16, i32:16, i32, 1024"
_ROWS = "*fp32:16, *fp32:16, i32:16, i32, 64"


@spelled(SOFTMAX, _ROW)
def plain(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, _ROW)
def of_the_library(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    tl.store(y_ptr + row + i, tl.softmax(x), i < n)


@spelled(SOFTMAX, _ROW)
def times_reciprocal(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e * (1.0 / tl.sum(e, 0)), i < n)


@spelled(SOFTMAX, _ROW)
def masked_by_choice(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.where(i < n, tl.load(x_ptr + row + i, i < n), -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, _ROW)
def negated_mask(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    outside = i >= n
    x = tl.load(x_ptr + row + i, ~outside, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), ~outside)


@spelled(SOFTMAX, _ROW)
def chosen_divisor(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    total = tl.sum(e, 0) + tl.zeros((BLOCK,), tl.float32)
    tl.store(y_ptr + row + i, e / tl.where(total == 0, 1.0, total), i < n)


@spelled(SOFTMAX, "*fp16:16, *fp16:16, i32:16, i32, 1024")
def of_halves(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, "*fp32:16, *fp32:16, i32:16, i32, 65536")
def of_long_rows(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, "*fp32:16, *fp32:16, i32:16, i32, 1048576")
def of_rows_that_no_cluster_holds(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, "*fp64:16, *fp64:16, i32:16, i32, 1024")
def of_doubles(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, _ROWS)
def rows_of_a_tile(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + i * stride + j, j < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(y_ptr + i * stride + j, e / tl.sum(e, 1)[:, None], j < n)


@spelled(SOFTMAX, _ROWS)
def rows_with_kept_dims(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + i * stride + j, j < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 1, keep_dims=True))
    tl.store(y_ptr + i * stride + j, e / tl.sum(e, 1, keep_dims=True), j < n)


@spelled(SOFTMAX, _ROWS)
def columns_of_a_tile(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + i * stride + j, j < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0)[None, :])
    tl.store(y_ptr + i * stride + j, e / tl.sum(e, 0)[None, :], j < n)


@spelled(SOFTMAX, _ROW)
def in_three_passes(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, tl.load(x_ptr + row + i, i < n, -float("inf")))
    top, total = tl.max(largest, 0), 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.exp(tl.load(x_ptr + row + i, i < n, -float("inf")) - top), 0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + row + i, tl.exp(tl.load(x_ptr + row + i, i < n) - top) / total, i < n)


@spelled(SOFTMAX, _ROW)
def online(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    top, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + i, i < n, -float("inf"))
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
        top = higher
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(y_ptr + row + i, tl.exp(tl.load(x_ptr + row + i, i < n) - top) / total, i < n)


@spelled(SOFTMAX, _ROW)
def of_many_rows(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        x = tl.load(x_ptr + row * stride + i, i < n, -float("inf"))
        e = tl.exp(x - tl.max(x, 0))
        tl.store(y_ptr + row * stride + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, "*fp32:16, *fp32:16, *i32:16, i32, 1024")
def of_chosen_rows(x_ptr, y_ptr, chosen, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.load(chosen + tl.program_id(0)) * n
    x = tl.load(x_ptr + row + i, i < n, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + tl.program_id(0) * n + i, e / tl.sum(e, 0), i < n)


@spelled(SOFTMAX, _ROWS, num_warps=1)
def over_rows_divided_along_columns(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    e = tl.exp(tl.load(x_ptr + i * stride + j))
    tl.store(y_ptr + i * stride + j, e / tl.sum(e, 1)[None, :])
