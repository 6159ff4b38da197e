"""Matrices times vectors as strangers write them: by rows, by columns, and of bf16 with sums in f32.

Written without a look at the rules. Nothing is pinned: `benchmarks/foreign_forms.py` has sizes and what torch does,
`benchmarks/forms.py` times them, and `test_foreign.py` asks for right results.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

VECTORS: list[Spelling] = []
ACROSS: list[Spelling] = []
HALVES: list[Spelling] = []


# --- y = a @ x in f32, of any size ---

_VECTORS = "*fp32:16, *fp32:16, *fp32:16, i32, i32, 8, 128"


@spelled(VECTORS, _VECTORS)
def vector_row_each_step(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    for r in range(BM):
        row = tl.program_id(0) * BM + r
        if row < M:
            total = 0.0
            for k in range(0, K, BK):
                cols = k + tl.arange(0, BK)
                a = tl.load(a_ptr + row * K + cols, mask=cols < K, other=0.0)
                x = tl.load(x_ptr + cols, mask=cols < K, other=0.0)
                total += tl.sum(a * x, axis=0)
            tl.store(y_ptr + row, total)


@spelled(VECTORS, _VECTORS)
def vector_row_at_end(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    for row in range(tl.program_id(0) * BM, min((tl.program_id(0) + 1) * BM, M)):
        acc = tl.zeros((BK,), tl.float32)
        for k in range(0, K, BK):
            cols = k + tl.arange(0, BK)
            a = tl.load(a_ptr + row * K + cols, mask=cols < K, other=0.0)
            x = tl.load(x_ptr + cols, mask=cols < K, other=0.0)
            acc += a * x
        tl.store(y_ptr + row, tl.sum(acc))


@spelled(VECTORS, _VECTORS)
def vector_tile_each_step(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for k in range(0, K, BK):
        cols = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rows[:, None] * K + cols[None, :], mask=(rows[:, None] < M) & (cols[None, :] < K), other=0.0
        )
        x = tl.load(x_ptr + cols, mask=cols < K, other=0.0)
        acc += tl.sum(a * x[None, :], axis=1)
    tl.store(y_ptr + rows, acc, mask=rows < M)


@spelled(VECTORS, _VECTORS)
def vector_tile_at_end(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.arange(0, BK)
    acc = tl.zeros((BM, BK), tl.float32)
    a = a_ptr + rows[:, None] * K + cols[None, :]
    x = x_ptr + cols
    for k in range(tl.cdiv(K, BK)):
        ok = cols < K - k * BK
        acc += tl.load(a, mask=(rows < M)[:, None] & ok[None, :], other=0.0) * tl.load(x, mask=ok, other=0.0)[None, :]
        a += BK
        x += BK
    tl.store(y_ptr + rows, tl.sum(acc, 1), mask=rows < M)


@spelled(VECTORS, _VECTORS)
def vector_downward(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM,), tl.float32)
    k = (K - 1) // BK * BK
    while k >= 0:
        cols = k + tl.arange(0, BK)
        x = tl.load(x_ptr + cols, mask=cols < K, other=0.0)
        a = tl.load(
            a_ptr + rows[:, None] * K + cols[None, :], mask=(rows < M)[:, None] & (cols < K)[None, :], other=0.0
        )
        total += tl.sum(x[None, :] * a, axis=1)
        k -= BK
    tl.store(y_ptr + rows, total, mask=rows < M)


@spelled(VECTORS, _VECTORS)
def vector_tail_apart(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    ok = rows < M
    acc = tl.zeros((BM, BK), tl.float32)
    whole = K // BK * BK
    for k in range(0, whole, BK):
        cols = k + tl.arange(0, BK)
        acc += (
            tl.load(a_ptr + rows[:, None] * K + cols[None, :], mask=ok[:, None], other=0.0)
            * tl.load(x_ptr + cols)[None, :]
        )
    cols = whole + tl.arange(0, BK)
    a = tl.load(a_ptr + rows[:, None] * K + cols[None, :], mask=ok[:, None] & (cols < K)[None, :], other=0.0)
    acc += a * tl.load(x_ptr + cols, mask=cols < K, other=0.0)[None, :]
    tl.store(y_ptr + rows, tl.sum(acc, axis=1), mask=ok)


@spelled(VECTORS, _VECTORS)
def vector_block_pointers(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    m0 = tl.program_id(0) * BM
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (m0, 0), (BM, BK), (1, 0))
    x = tl.make_block_ptr(x_ptr, (K,), (1,), (0,), (BK,), (0,))
    y = tl.make_block_ptr(y_ptr, (M,), (1,), (m0,), (BM,), (0,))
    acc = tl.zeros((BM,), tl.float32)
    for _ in range(0, K, BK):
        t = (
            tl.load(a, boundary_check=(0, 1), padding_option="zero")
            * tl.load(x, boundary_check=(0,), padding_option="zero")[None, :]
        )
        acc = acc + tl.sum(t, 1)
        a = tl.advance(a, (0, BK))
        x = tl.advance(x, (BK,))
    tl.store(y, acc, boundary_check=(0,))


@spelled(VECTORS, _VECTORS)
def vector_columns(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    # lanes are columns of the transposed tile: [BK, BM], reduced over its first dim
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for k in range(0, K, BK):
        cols = k + tl.arange(0, BK)
        at = tl.load(
            a_ptr + cols[:, None] + rows[None, :] * K, mask=(cols[:, None] < K) & (rows[None, :] < M), other=0.0
        )
        x = tl.load(x_ptr + cols, mask=cols < K, other=0.0)
        acc += tl.sum(at * x[:, None], axis=0)
    tl.store(y_ptr + rows, acc, mask=rows < M)


# --- y = x @ a in f32, of any size ---

_ACROSS = "*fp32:16, *fp32:16, *fp32:16, i32, i32, 64, 16"


@spelled(ACROSS, _ACROSS)
def across_row_by_row(a_ptr, x_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k in range(K):
        acc += tl.load(x_ptr + k) * tl.load(a_ptr + k * N + cols, mask=cols < N, other=0.0)
    tl.store(y_ptr + cols, acc, mask=cols < N)


@spelled(ACROSS, _ACROSS)
def across_each_step(a_ptr, x_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    for k in range(0, K, BK):
        rows = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rows[:, None] * N + cols[None, :], mask=(rows[:, None] < K) & (cols[None, :] < N), other=0.0
        )
        x = tl.load(x_ptr + rows, mask=rows < K, other=0.0)
        acc += tl.sum(x[:, None] * a, axis=0)
    tl.store(y_ptr + cols, acc, mask=cols < N)


@spelled(ACROSS, _ACROSS)
def across_at_end(a_ptr, x_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BK, BN), tl.float32)
    for k in range(0, K, BK):
        rows = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rows[:, None] * N + cols[None, :], mask=(rows < K)[:, None] & (cols < N)[None, :], other=0.0
        )
        acc += a * tl.load(x_ptr + rows, mask=rows < K, other=0.0)[:, None]
    tl.store(y_ptr + cols, tl.sum(acc, axis=0), mask=cols < N)


@spelled(ACROSS, _ACROSS)
def across_other_way_round(a_ptr, x_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), tl.float32)
    k = 0
    while k < K:
        rows = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + cols[:, None] + rows[None, :] * N, mask=(cols[:, None] < N) & (rows[None, :] < K), other=0.0
        )
        acc += tl.sum(a * tl.load(x_ptr + rows, mask=rows < K, other=0.0)[None, :], axis=1)
        k += BK
    tl.store(y_ptr + cols, acc, mask=cols < N)


# --- y = a @ x in bf16, added up in f32 ---

_HALVES = "*bf16:16, *bf16:16, *bf16:16, i32, i32, 8, 128"


@spelled(HALVES, _HALVES)
def halves_each_step(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for k in range(0, K, BK):
        cols = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rows[:, None] * K + cols[None, :], mask=(rows[:, None] < M) & (cols[None, :] < K), other=0.0
        )
        x = tl.load(x_ptr + cols, mask=cols < K, other=0.0)
        acc += tl.sum(a.to(tl.float32) * x.to(tl.float32)[None, :], axis=1)
    tl.store(y_ptr + rows, acc.to(tl.bfloat16), mask=rows < M)


@spelled(HALVES, _HALVES)
def halves_at_end(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BK), tl.float32)
    for k in range(0, K, BK):
        cols = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rows[:, None] * K + cols[None, :], mask=(rows[:, None] < M) & (cols[None, :] < K), other=0.0
        )
        x = tl.load(x_ptr + cols, mask=cols < K, other=0.0).to(tl.float32)
        acc = tl.fma(a.to(tl.float32), tl.broadcast_to(x[None, :], (BM, BK)), acc)
    tl.store(y_ptr + rows, tl.sum(acc, axis=1).to(tl.bfloat16), mask=rows < M)


@spelled(HALVES, _HALVES)
def halves_one_row(a_ptr, x_ptr, y_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    for i in tl.static_range(BM):
        row = tl.program_id(0) * BM + i
        acc = tl.zeros((BK,), tl.float32)
        if row < M:
            for k in range(0, K, BK):
                cols = k + tl.arange(0, BK)
                a = tl.load(a_ptr + row * K + cols, mask=cols < K, other=0.0).to(tl.float32)
                x = tl.load(x_ptr + cols, mask=cols < K, other=0.0).to(tl.float32)
                acc += a * x
            tl.store(y_ptr + row, tl.sum(acc, 0))
