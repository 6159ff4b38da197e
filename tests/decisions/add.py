"""Adding two vectors, in many spellings."""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

ADD: list[Spelling] = []
_USUAL = "*fp32:16, *fp32:16, *fp32:16, i32, 1024"


@spelled(ADD, _USUAL)
def plain(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


@spelled(ADD, _USUAL)
def without_mask(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


@spelled(ADD, _USUAL)
def two_dims(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK // 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


@spelled(ADD, _USUAL)
def unsigned(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.uint32) * BLOCK + tl.arange(0, BLOCK).to(tl.uint32)
    keep = i < n.to(tl.uint32)
    tl.store(out_ptr + i, tl.load(x_ptr + i, keep) + tl.load(y_ptr + i, keep), keep)


@spelled(ADD, _USUAL)
def wide_indices(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


@spelled(ADD, _USUAL)
def either_mask(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = (i < n) | (i < n // 2)
    tl.store(out_ptr + i, tl.load(x_ptr + i, keep) + tl.load(y_ptr + i, keep), keep)


@spelled(ADD, _USUAL)
def negated_mask(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = ~(i >= n)
    tl.store(out_ptr + i, tl.load(x_ptr + i, keep) + tl.load(y_ptr + i, keep), keep)


@spelled(ADD, _USUAL)
def chosen_mask(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.where(i < n, True, False)
    tl.store(out_ptr + i, tl.load(x_ptr + i, keep) + tl.load(y_ptr + i, keep), keep)


@spelled(ADD, _USUAL)
def both_bounds(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = (0 <= i) & (i < n)
    tl.store(out_ptr + i, tl.load(x_ptr + i, keep) + tl.load(y_ptr + i, keep), keep)


@spelled(ADD, _USUAL)
def strided(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * 2
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


@spelled(ADD, _USUAL)
def blocks_in_a_loop(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y, out = x_ptr + i, y_ptr + i, out_ptr + i
    for start in range(0, n, BLOCK):
        tl.store(out, tl.load(x, i < n - start) + tl.load(y, i < n - start), i < n - start)
        x += BLOCK
        y += BLOCK
        out += BLOCK


@spelled(ADD, _USUAL)
def blocks_in_a_while_loop(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y, out = x_ptr + i, y_ptr + i, out_ptr + i
    start = 0
    while start < n:
        tl.store(out, tl.load(x, i < n - start) + tl.load(y, i < n - start), i < n - start)
        x += BLOCK
        y += BLOCK
        out += BLOCK
        start += BLOCK


@spelled(ADD, _USUAL)
def two_outputs(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, i < n), tl.load(y_ptr + i, i < n)
    tl.store(out_ptr + i, x + y, i < n)
    tl.store(out_ptr + n + i, x - y, i < n)


@spelled(ADD, _USUAL)
def in_place_with_its_sum(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, i < n, 0.0) + tl.load(y_ptr + i, i < n, 0.0)
    tl.store(x_ptr + i, total, i < n)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))


@spelled(ADD, _USUAL)
def with_block_pointers(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    x = tl.make_block_ptr(x_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    y = tl.make_block_ptr(y_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    out = tl.make_block_ptr(out_ptr, (n,), (1,), (start,), (BLOCK,), (0,))
    tl.store(out, tl.load(x, boundary_check=(0,)) + tl.load(y, boundary_check=(0,)), boundary_check=(0,))


@spelled(ADD, "*fp32:16, *fp32:16, *fp32:16, i32, 64")
def stored_transposed(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(out_ptr + i + j * BLOCK, tl.load(x_ptr + i * BLOCK + j) + tl.load(y_ptr + i * BLOCK + j))


@spelled(ADD, "*fp32:16, *fp32:16, *fp32:16, i32, 243")
def odd_blocks(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)


@spelled(ADD, _USUAL, num_ctas=2)
def of_two_blocks(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, i < n) + tl.load(y_ptr + i, i < n), i < n)
