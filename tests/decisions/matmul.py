"""A product of two matrices, in many spellings; row-major and contiguous, so that strides need no parameters."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled
from tilewright.devices.host_descriptor import TensorDescriptor

MATMUL: list[Spelling] = []
_USUAL = "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64"


@tilewright.jit
def rows_and_columns(BM: tl.constexpr, BN: tl.constexpr):
    return tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)


@tilewright.jit
def write(c_ptr, acc, m, n, M, N):
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@spelled(MATMUL, _USUAL)
def plain(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        x = tl.load(a, mask=(m[:, None] < M) & (k[None, :] < K - i), other=0.0)
        y = tl.load(b, mask=(k[:, None] < K - i) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def plus_equals(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc += tl.dot(tl.load(a), tl.load(b))
        a += BK
        b += BK * N
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def wrapped_rows(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + (m % M)[:, None] * K + k[None, :], b_ptr + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        x = tl.load(a, mask=k[None, :] < K - i * BK, other=0.0)
        y = tl.load(b, mask=k[:, None] < K - i * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def not_negative(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        inside = (k >= 0) & (k < K)
        x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=inside[None, :], other=0.0)
        y = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def negated_mask(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        inside = ~(k >= K)
        x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=inside[None, :], other=0.0)
        y = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def chosen_mask(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        inside = tl.where(k < K, True, False)
        x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=inside[None, :], other=0.0)
        y = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def doubled_mask(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=2 * k[None, :] < 2 * K, other=0.0)
        y = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=2 * k[:, None] < 2 * K, other=0.0)
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def while_loop(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    i = 0
    while i < K:
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK * N
        i += BK
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def early_exit(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        if i > 4096:
            break
        k = i + tl.arange(0, BK)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def left_for_ever(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    i = 0
    while True:
        if i >= K:
            break
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK * N
        i += BK
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def left_at_the_end(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        if i + BK >= K:
            break
        a += BK
        b += BK * N
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def skipped_iterations(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(0, K):
        if t * BK >= K:
            continue
        k = t * BK + tl.arange(0, BK)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def block_pointers(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0) * BM, tl.program_id(1) * BN
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (pm, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, pn), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, y, acc)
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    tl.store(tl.make_block_ptr(c_ptr, (M, N), (N, 1), (pm, pn), (BM, BN), (1, 0)), acc, boundary_check=(0, 1))


@spelled(MATMUL, _USUAL)
def descriptors_of_the_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, (M, K), (K, 1), (BM, BK))
    b = tl.make_tensor_descriptor(b_ptr, (K, N), (N, 1), (BK, BN))
    c = tl.make_tensor_descriptor(c_ptr, (M, N), (N, 1), (BM, BN))
    pm, pn = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([pm, k]), b.load([k, pn]), acc)
    c.store([pm, pn], acc)


_TENSOR = np.zeros((512, 512), np.float16)
_BLOCKS = [TensorDescriptor.from_tensor(_TENSOR, [64, 64]) for _ in range(3)]


@spelled(MATMUL, [*_BLOCKS, 512, 64])
def descriptors_of_the_host(a, b, c, K, BLOCK: tl.constexpr):
    pm, pn = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        acc = tl.dot(a.load([pm, k]), b.load([k, pn]), acc)
    c.store([pm, pn], acc.to(tl.float16))


@spelled(MATMUL, [*_BLOCKS, 512, 64])
def descriptors_at_odd_places(a, b, c, K, BLOCK: tl.constexpr):
    pm, pn = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(1, K, BLOCK):
        acc = tl.dot(a.load([pm, k]), b.load([k, pn]), acc)
    c.store([pm, pn], acc.to(tl.float16))


@spelled(MATMUL, _USUAL)
def wide_indices(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    m, n, k = m.to(tl.int64), n.to(tl.int64), tl.arange(0, BK).to(tl.int64)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        x = tl.load(a, mask=k[None, :] < K - i, other=0.0)
        y = tl.load(b, mask=k[:, None] < K - i, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, "*{T}:16, *i8:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64")
def cast_between(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y.to(x.dtype), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def store_in_the_loop(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
        tl.store(c_ptr + M * N + i, i.to(tl.float32))
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def ones_outside(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=1.0)
        acc = tl.dot(x, tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def transposed_operand(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        y = tl.load(b_ptr + n[:, None] * K + k[None, :])
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), y.T, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def under_a_condition(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        if i % 128 == 0:
            x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
            acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def masked_in_the_last_iteration(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        if i + BK <= K:
            x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        else:
            x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
            y = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def multiplied_on_either_side(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(tl.cdiv(K, BK)):
        left = K - t * BK
        if BK > left:
            x = tl.load(a, mask=k[None, :] < left, other=0.0)
            acc += tl.dot(x, tl.load(b, mask=k[:, None] < left, other=0.0))
        else:
            acc += tl.dot(tl.load(a), tl.load(b))
        a += BK
        b += BK * N
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def of_other_rows(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        if i < N:
            x = tl.load(a_ptr + m[:, None] * K + k[None, :])
        else:
            x = tl.load(a_ptr + (m + M)[:, None] * K + k[None, :])
        acc = tl.dot(x, tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def two_products(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc, other = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a_ptr + m[:, None] * K + k[None, :])
        acc = tl.dot(x, tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
        other = tl.dot(x, tl.load(b_ptr + K * N + k[:, None] * N + n[None, :]), other)
    write(c_ptr, acc * other, m, n, M, N)


@spelled(MATMUL, "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, 32, 32, 32")
def batched(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    z = tl.arange(0, 2)[:, None, None]
    acc = tl.zeros((2, BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x = tl.load(a_ptr + z * M * K + m[None, :, None] * K + k[None, None, :])
        y = tl.load(b_ptr + z * K * N + k[None, :, None] * N + n[None, None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c_ptr + z * M * N + m[None, :, None] * N + n[None, None, :], acc)


@spelled(MATMUL, "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, 16, 64, 64")
def few_rows(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16, i32:16, 64, 64, 32")
def exact_f32(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc, input_precision="ieee")
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, "*{T}:16, *{T}:16, *fp32:16, i32, i32, i32, 64, 128, 64")
def rows_at_odd_places(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL, num_stages=1)
def one_stage(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def loaded_ahead(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    a, b = a_ptr + m[:, None] * K + k[None, :], b_ptr + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    x, y = tl.load(a, mask=k[None, :] < K, other=0.0), tl.load(b, mask=k[:, None] < K, other=0.0)
    for i in range(0, K, BK):
        a += BK
        b += BK * N
        u = tl.load(a, mask=k[None, :] < K - i - BK, other=0.0)
        v = tl.load(b, mask=k[:, None] < K - i - BK, other=0.0)
        acc = tl.dot(x, y, acc)
        x, y = u, v
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def loaded_ahead_and_after(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
    for i in range(BK, K, BK):
        u = tl.load(a_ptr + m[:, None] * K + (k + i)[None, :])
        v = tl.load(b_ptr + (k + i)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
        x, y = u, v
    acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def first_from_other_rows(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x = tl.load(a_ptr + (m + M)[:, None] * K + k[None, :])
    for i in range(0, K, BK):
        acc = tl.dot(x, tl.load(b_ptr + (k + i)[:, None] * N + n[None, :]), acc)
        x = tl.load(a_ptr + m[:, None] * K + (k + i + BK)[None, :])
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def turned_over(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BN, BM), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(y.T, x.T, acc)
    write(c_ptr, acc.T, m, n, M, N)


@spelled(MATMUL, _USUAL)
def turned_over_in_each_iteration(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc += tl.trans(tl.dot(y.T, x.T))
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def loaded_across(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BN, BM), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[None, :] * K + k[:, None]), tl.load(b_ptr + k[None, :] * N + n[:, None])
        acc = tl.dot(y, x, acc)
    tl.store(c_ptr + m[None, :] * N + n[:, None], acc, mask=(m[None, :] < M) & (n[:, None] < N))


@spelled(MATMUL, _USUAL)
def relu_of_a(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(tl.maximum(x, 0.0), y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def in_two_loops(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for o in range(0, K, 2 * BK):
        for i in range(0, 2):
            k = o + i * BK + tl.arange(0, BK)
            x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
            acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def in_blocks_of_k(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for o in range(0, K, 4 * BK):
        for i in range(o, min(o + 4 * BK, K), BK):
            k = i + tl.arange(0, BK)
            x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
            acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def of_every_other_pair(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for o in range(0, K, 4 * BK):
        for i in range(0, 2):
            k = o + i * BK + tl.arange(0, BK)
            x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
            acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def unrolled(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.static_range(0, 512, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)


@spelled(MATMUL, _USUAL)
def gathered_rows(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    r = m ^ 1
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + r[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c_ptr + r[:, None] * N + n[None, :], acc, mask=(r[:, None] < M) & (n[None, :] < N))


@spelled(MATMUL, _USUAL)
def columns_first(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    num_n = tl.cdiv(N, BN)
    m, n = pid // num_n * BM + tl.arange(0, BM), pid % num_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    write(c_ptr, acc, m, n, M, N)
