"""A matrix times a vector, and times half of it, in many spellings."""

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

MATVEC: list[Spelling] = []
_SIGNATURE = "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16, 16, 128"  # out, vector, matrix, rows, columns, blocks


@spelled(MATVEC, _SIGNATURE)
def row_sums(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total += tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :], 1)
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def summed_at_the_end(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    lanes = tl.zeros((R, C), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        lanes += tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :]
    tl.store(out + r, tl.sum(lanes, 1))


@spelled(MATVEC, _SIGNATURE)
def vector_as_a_row(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((1, R), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        block = tl.load(mat + r[None, :] * cols + c[:, None])
        total = tl.dot(tl.load(vec + c[None, :]), block, total, input_precision="ieee")
    tl.store(out + r[None, :], total)


@spelled(MATVEC, _SIGNATURE)
def vector_as_a_column(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R, 1), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        block = tl.load(mat + r[:, None] * cols + c[None, :])
        total += tl.dot(block, tl.load(vec + c[:, None]), input_precision="ieee")
    tl.store(out + r[:, None], total)


@spelled(MATVEC, _SIGNATURE)
def kept_dims(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    total = tl.zeros((R, 1), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)[None, :]
        total += tl.sum(tl.load(mat + r * cols + c) * tl.load(vec + c), 1, keep_dims=True)
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def vector_in_every_row(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = (start + tl.arange(0, C))[None, :]
        total += tl.sum(tl.load(vec + c + r * 0) * tl.load(mat + r * cols + c), 1)
    tl.store(out + tl.reshape(r, (R,)), total)


@spelled(MATVEC, _SIGNATURE)
def taken_away(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total -= tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * -tl.load(vec + c)[None, :], 1)
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def columns_counted_down(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for block in range(tl.cdiv(cols, C)):
        c = (tl.cdiv(cols, C) - 1 - block) * C + tl.arange(0, C)
        total += tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :], 1)
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def pointers_that_move(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r, c = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    left, right = mat + r[:, None] * cols + c[None, :], vec + c
    total = tl.zeros((R,), tl.float32)
    for _ in range(tl.cdiv(cols, C)):
        total += tl.sum(tl.load(left) * tl.load(right)[None, :], 1)
        left += C
        right += C
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def while_columns_are_left(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total, start = tl.zeros((R,), tl.float32), 0
    while start < cols:
        c = start + tl.arange(0, C)
        total += tl.sum(tl.load(vec + c)[None, :] * tl.load(mat + r[:, None] * cols + c[None, :]), 1)
        start += C
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def halved_first(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        half = tl.load(vec + c) * 0.5
        total += tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * half[None, :], 1)
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def halved_block_by_block(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total += 0.5 * tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :], 1)
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def halved_at_the_end(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total += tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :], 1)
    tl.store(out + r, total / 2)


@spelled(MATVEC, _SIGNATURE)
def chosen_columns(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        product = tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :]
        total += tl.sum(tl.where(c[None, :] < cols, product, 0.0), 1)
    tl.store(out + r, total)


@spelled(MATVEC, _SIGNATURE)
def masked_columns(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        x = tl.load(vec + c, mask=c < cols, other=0.0)
        total += tl.sum(
            tl.load(mat + r[:, None] * cols + c[None, :], mask=(c < cols)[None, :], other=0.0) * x[None, :], 1
        )
    tl.store(out + r, total)
