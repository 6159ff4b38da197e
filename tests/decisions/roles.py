"""Products that ask for a warp group which copies: through descriptors, which it can, and through pointers.

And two products one after the other, which can run beside each other if only the next iteration needs the last.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled
from tests.decisions.matmul import rows_and_columns, write
from tilewright.devices.host_descriptor import TensorDescriptor

ROLES: list[Spelling] = []

_BLOCKS = [TensorDescriptor.from_tensor(np.zeros((512, 512), np.float16), [64, 64]) for _ in range(3)]


@spelled(ROLES, [*_BLOCKS, 512, 64])
def roles_asked_for(a, b, c, K, BLOCK: tl.constexpr):
    pm, pn = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in tl.range(0, K, BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([pm, k]), b.load([k, pn]), acc)
    c.store([pm, pn], acc.to(tl.float16))


@spelled(ROLES, "*fp16:16, *fp16:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64")
def roles_asked_for_by_pointers(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.range(0, K, BK, warp_specialize=True):
        k = i + tl.arange(0, BK)
        x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        y = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(ROLES, [*_BLOCKS, 512, 64])
def products_one_after_the_other(a, b, c, K, BLOCK: tl.constexpr):
    rows = a.load([tl.program_id(0) * BLOCK, 0])
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in tl.range(0, K, BLOCK, warp_specialize=True):
        scores = tl.maximum(tl.dot(rows, b.load([k, 0]).T), 0.0)
        acc = tl.dot(scores.to(tl.float16), b.load([k, BLOCK]), acc)
    c.store([tl.program_id(0) * BLOCK, 0], acc.to(tl.float16))


@spelled(ROLES, [*_BLOCKS, 512, 64])
def products_of_which_the_last_is_looked_at(a, b, c, K, BLOCK: tl.constexpr):
    rows = a.load([tl.program_id(0) * BLOCK, 0])
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in tl.range(0, K, BLOCK, warp_specialize=True):
        scores = tl.dot(rows, b.load([k, 0]).T)
        acc = tl.maximum(tl.dot(scores.to(tl.float16), b.load([k, BLOCK]), acc), 0.0)
    c.store([tl.program_id(0) * BLOCK, 0], acc.to(tl.float16))


@spelled(ROLES, "*fp16:16, *fp16:16, *fp32:16, *i32, 64, 64")
def sums_that_later_programs_wait_for(a_ptr, b_ptr, c_ptr, flag, BLOCK: tl.constexpr, K: tl.constexpr):
    m, n = rows_and_columns(BLOCK, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for i in range(0, tl.program_id(0) + 1):
        k = i * K + tl.arange(0, K)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * 4096 + k), tl.load(b_ptr + k[:, None] * 4096 + n), acc)
    tl.atomic_add(flag, 1)
    write(c_ptr, acc, m, n, 4096, 4096)
