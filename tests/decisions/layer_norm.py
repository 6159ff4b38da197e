"""The normalisation of the rows of a matrix, in many spellings."""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

LAYER_NORM: list[Spelling] = []
_ROW = "*fp32:16, *fp32:16, *fp32:16, *fp32:16, i32:16, i32, fp32, 1024"
_TILE = "*fp32:16, *fp32:16, *fp32:16, *fp32:16, i32:16, i32, fp32, 64"


@spelled(LAYER_NORM, _ROW)
def plain(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, 0.0)
    mean = tl.sum(x, 0) / n
    d = tl.where(i < n, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(y_ptr + row + i, d * scale * tl.load(w_ptr + i, i < n) + tl.load(b_ptr + i, i < n), i < n)


@spelled(LAYER_NORM, _ROW)
def by_moments(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, 0.0)
    mean, square = tl.sum(x, 0) / n, tl.sum(x * x, 0) / n
    scale = tl.rsqrt(square - mean * mean + eps)
    tl.store(y_ptr + row + i, (x - mean) * scale * tl.load(w_ptr + i, i < n) + tl.load(b_ptr + i, i < n), i < n)


@spelled(LAYER_NORM, _ROW)
def divided_by_the_root(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, 0.0)
    d = tl.where(i < n, x - tl.sum(x, 0) / n, 0.0)
    y = d / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(y_ptr + row + i, y * tl.load(w_ptr + i, i < n) + tl.load(b_ptr + i, i < n), i < n)


@spelled(LAYER_NORM, _ROW)
def exactly_divided(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, 0.0)
    d = tl.where(i < n, x - tl.sum(x, 0) / n, 0.0)
    root = tl.sqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(y_ptr + row + i, tl.div_rn(d, root + tl.zeros((BLOCK,), tl.float32)), i < n)


@spelled(LAYER_NORM, _ROW)
def without_masks(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i)
    d = x - tl.sum(x, 0) / BLOCK
    scale = tl.rsqrt(tl.sum(d * d, 0) / BLOCK + eps)
    tl.store(y_ptr + row + i, d * scale * tl.load(w_ptr + i) + tl.load(b_ptr + i))


@spelled(LAYER_NORM, _ROW)
def multiplied_mask(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, 0.0)
    d = (x - tl.sum(x, 0) / n) * (i < n).to(tl.float32)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(y_ptr + row + i, d * scale * tl.load(w_ptr + i, i < n) + tl.load(b_ptr + i, i < n), i < n)


@spelled(LAYER_NORM, _ROW)
def with_its_statistics(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, 0.0)
    mean = tl.sum(x, 0) / n
    d = tl.where(i < n, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(w_ptr + tl.program_id(0), mean)
    tl.store(b_ptr + tl.program_id(0), scale)
    tl.store(y_ptr + row + i, d * scale, i < n)


@spelled(LAYER_NORM, "*fp16:16, *fp16:16, *fp16:16, *fp16:16, i32:16, i32, fp32, 1024")
def of_halves(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.program_id(0) * stride
    x = tl.load(x_ptr + row + i, i < n, 0.0).to(tl.float32)
    d = tl.where(i < n, x - tl.sum(x, 0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(y_ptr + row + i, d * scale * tl.load(w_ptr + i, i < n) + tl.load(b_ptr + i, i < n), i < n)


@spelled(LAYER_NORM, _ROW)
def in_passes(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row, j = tl.program_id(0) * stride, tl.arange(0, BLOCK)
    total, square = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + row + start + j, start + j < n, 0.0)
    mean = tl.sum(total, 0) / n
    for start in range(0, n, BLOCK):
        d = tl.where(start + j < n, tl.load(x_ptr + row + start + j, start + j < n, 0.0) - mean, 0.0)
        square += d * d
    scale = tl.rsqrt(tl.sum(square, 0) / n + eps)
    for start in range(0, n, BLOCK):
        i = start + j
        y = (tl.load(x_ptr + row + i, i < n) - mean) * scale
        tl.store(y_ptr + row + i, y * tl.load(w_ptr + i, i < n) + tl.load(b_ptr + i, i < n), i < n)


@spelled(LAYER_NORM, _ROW)
def with_moving_pointers(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    x = x_ptr + tl.program_id(0) * stride + j
    total, square = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        value = tl.load(x, j < n - start, 0.0)
        total += value
        square += value * value
        x += BLOCK
    mean = tl.sum(total, 0) / n
    tl.store(w_ptr + tl.program_id(0), mean)
    tl.store(b_ptr + tl.program_id(0), tl.sum(square, 0) / n - mean * mean)


@spelled(LAYER_NORM, _ROW)
def with_moving_indices(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, n, BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * stride + i, i < n, 0.0)
        i += BLOCK
    tl.store(w_ptr + tl.program_id(0), tl.sum(total, 0) / n)


@spelled(LAYER_NORM, _ROW)
def with_bouncing_pointers(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    x = x_ptr + tl.program_id(0) * stride + j
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x, j < n - start, 0.0)
        x = tl.where(start % 2 == 0, x + BLOCK, x)
    tl.store(w_ptr + tl.program_id(0), tl.sum(total, 0) / n)


@spelled(LAYER_NORM, _TILE)
def rows_of_a_tile(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + i * stride + j, j < n, 0.0)
    d = tl.where(j < n, x - (tl.sum(x, 1) / n)[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 1) / n + eps)[:, None]
    tl.store(y_ptr + i * stride + j, d * scale * tl.load(w_ptr + j, j < n) + tl.load(b_ptr + j, j < n), j < n)


@spelled(LAYER_NORM, _TILE)
def divided_rows_of_a_tile(x_ptr, y_ptr, w_ptr, b_ptr, stride, n, eps, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + i * stride + j, j < n, 0.0)
    d = tl.where(j < n, x - (tl.sum(x, 1) / n)[:, None], 0.0)
    tl.store(y_ptr + i * stride + j, d / tl.sqrt(tl.sum(d * d, 1) / n + eps)[:, None], j < n)
