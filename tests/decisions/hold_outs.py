"""Thirty-one spellings that no rule was written for: products, matrices times vectors, reductions of rows.

They were written after the planner, without a look at its rules, and nothing is pinned here: `benchmarks/forms.py`
times them and `test_hold_outs.py` asks for right results. Extents are multiples of the tiles.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

PRODUCTS: list[Spelling] = []
VECTORS: list[Spelling] = []
ROWS: list[Spelling] = []

# --- out[m, n] = sum over k of a[m, k] b[k, n] ---

_PRODUCT = "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64"


@tilewright.jit
def add(x, y):
    return x + y


@tilewright.jit
def multiply_and_advance(state, BK: tl.constexpr, stride):
    a, b, acc = state
    return a + BK, b + BK * stride, tl.dot(tl.load(a), tl.load(b), acc)


@spelled(PRODUCTS, _PRODUCT)
def state_in_a_tuple(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    state = (a + row[:, None] * K + depth, b + depth[:, None] * N + col, tl.zeros((BM, BN), tl.float32))
    for _ in range(K // BK):
        state = multiply_and_advance(state, BK, N)
    tl.store(out + row[:, None] * N + col, state[2])


@spelled(PRODUCTS, _PRODUCT)
def down_to_zero(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(K - BK, -1, -BK):
        k = start + tl.arange(0, BK)
        acc += tl.dot(tl.load(a + row[:, None] * K + k), tl.load(b + k[:, None] * N + col))
    tl.store(out + row[:, None] * N + col, acc)


@spelled(PRODUCTS, _PRODUCT)
def what_remains(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a += row[:, None] * K + k[None, :]
    b += k[:, None] * N + col[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    remaining = K
    while remaining > 0:
        acc = tl.dot(tl.load(a, k[None, :] < remaining, 0.0), tl.load(b, k[:, None] < remaining, 0.0), acc)
        a += BK
        b += N * BK
        remaining -= BK
    tl.store(out + row[:, None] * N + col, acc)


@spelled(PRODUCTS, _PRODUCT)
def even_and_odd(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    even = tl.zeros((BM, BN), tl.float32)
    odd = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, 2 * BK):
        k1 = k0 + tl.arange(0, BK)
        k2 = k1 + BK
        even = tl.dot(tl.load(a + row[:, None] * K + k1), tl.load(b + k1[:, None] * N + col), even)
        odd = tl.dot(tl.load(a + row[:, None] * K + k2), tl.load(b + k2[:, None] * N + col), odd)
    tl.store(out + row[:, None] * N + col, even + odd)


@spelled(PRODUCTS, _PRODUCT)
def half_and_half(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for half in tl.static_range(2):
        for step in range(K // BK // 2):
            k = half * (K // 2) + step * BK + tl.arange(0, BK)
            acc = tl.dot(tl.load(a + row[:, None] * K + k), tl.load(b + k[:, None] * N + col), acc)
    tl.store(out + row[:, None] * N + col, acc)


@spelled(PRODUCTS, _PRODUCT)
def result_across(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN, BM), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(a + row[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * N + col[None, :])
        acc += tl.dot(y.T, x.T)
    tl.store(out + row[None, :] * N + col[:, None], acc)


@spelled(PRODUCTS, _PRODUCT)
def subtracted(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        k = i * BK + tl.arange(0, BK)
        acc -= tl.dot(tl.load(a + row[:, None] * K + k), tl.load(b + k[:, None] * N + col))
    tl.store(out + row[:, None] * N + col, -acc)


@spelled(PRODUCTS, _PRODUCT)
def columns_by_pointer(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    a_block = tl.make_block_ptr(a, (M, K), (K, 1), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    b_rows = b + tl.arange(0, BK)[:, None] * N + col
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(tl.load(tl.advance(a_block, (0, k))), tl.load(b_rows + k * N), acc)
    tl.store(out + row[:, None] * N + col, acc)


@spelled(PRODUCTS, _PRODUCT)
def scaled_at_the_end(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.full((BM, BN), 0.0, tl.float32)
    k = tl.arange(0, BK)
    for _ in tl.range(0, K, BK, num_stages=3):
        part = tl.dot(tl.load(a + row[:, None] * K + k), tl.load(b + k[:, None] * N + col))
        acc = part * 0.5 + acc
        k += BK
    tl.store(out + row[:, None] * N + col, acc * 2)


@spelled(PRODUCTS, _PRODUCT)
def one_batch(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)[None, :, None]
    col = tl.program_id(1) * BN + tl.arange(0, BN)[None, None, :]
    acc = tl.zeros((1, BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        across = k0 + tl.arange(0, BK)[None, None, :]
        down = k0 + tl.arange(0, BK)[None, :, None]
        acc = tl.dot(tl.load(a + row * K + across), tl.load(b + down * N + col), acc)
    tl.store(out + row * N + col, acc)


# --- out[m] = sum over k of w[m, k] x[k] ---

_VECTOR = "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16, 32, 128"


@spelled(VECTORS, _VECTOR)
def one_row_a_time(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    for i in range(BM):
        row = tl.program_id(0) * BM + i
        acc = 0.0
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            acc += tl.sum(tl.load(w + row * K + k) * tl.load(x + k))
        tl.store(out + row, acc)


@spelled(VECTORS, _VECTOR)
def sums_of_tiles(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        acc += tl.sum(tl.load(w + row[:, None] * K + k[None, :]) * tl.load(x + k)[None, :], axis=1)
    tl.store(out + row, acc)


@spelled(VECTORS, _VECTOR)
def tile_of_sums(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BK), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        k = i * BK + tl.arange(0, BK)
        acc += tl.load(w + row[:, None] * K + k) * tl.load(x + k)
    tl.store(out + row, tl.sum(acc, 1))


@spelled(VECTORS, _VECTOR)
def tile_across(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        acc = acc + tl.sum(tl.load(w + row[None, :] * K + k[:, None]) * tl.load(x + k)[:, None], axis=0)
    tl.store(out + row, acc)


@spelled(VECTORS, _VECTOR)
def even_and_odd_columns(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    even, odd = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + 2 * tl.arange(0, BK // 2)
        at = w + row[:, None] * K + k[None, :]
        even += tl.sum(tl.load(at) * tl.load(x + k)[None, :], 1)
        odd += tl.sum(tl.load(at + 1) * tl.load(x + k + 1)[None, :], 1)
    tl.store(out + row, even + odd)


@spelled(VECTORS, _VECTOR)
def by_reduce(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        acc += tl.reduce(tl.load(w + row[:, None] * K + k) * tl.load(x + k), 1, add)
    tl.store(out + row, acc)


@spelled(VECTORS, _VECTOR)
def fused_multiplies(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.arange(0, BK)
    rows = w + row[:, None] * K + k
    x += k
    acc = tl.zeros((BM, BK), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.fma(tl.load(rows), tl.broadcast_to(tl.load(x)[None, :], (BM, BK)), acc)
        rows += BK
        x += BK
    tl.store(out + row, tl.sum(acc, axis=1))


@spelled(VECTORS, _VECTOR)
def from_the_end(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    k0 = K - BK
    while k0 >= 0:
        k = k0 + tl.arange(0, BK)
        acc += tl.sum(tl.load(w + row[:, None] * K + k) * tl.load(x + k), 1)
        k0 -= BK
    tl.store(out + row, acc)


@spelled(VECTORS, _VECTOR)
def in_groups_of_eight(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, 8), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        part = tl.load(w + row[:, None] * K + k) * tl.load(x + k)
        acc += tl.sum(tl.reshape(part, (BM, BK // 8, 8)), 1)
    tl.store(out + row, tl.sum(acc, 1))


@spelled(VECTORS, _VECTOR)
def kept_dimension(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None]
    acc = tl.zeros((BM, 1), tl.float32)
    for k0 in range(0, K, BK):
        k = (k0 + tl.arange(0, BK))[None, :]
        acc += tl.sum(tl.load(w + row * K + k) * tl.load(x + k), 1, keep_dims=True)
    tl.store(out + row, acc)


@spelled(VECTORS, _VECTOR)
def two_rows_at_once(w, x, out, M, K, BM: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + 2 * tl.arange(0, BM // 2)
    first = tl.zeros((BM // 2,), tl.float32)
    second = tl.zeros((BM // 2,), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        v = tl.load(x + k)[None, :]
        first += tl.sum(tl.load(w + row[:, None] * K + k) * v, 1)
        second += tl.sum(tl.load(w + (row[:, None] + 1) * K + k) * v, 1)
    tl.store(out + row, first)
    tl.store(out + row + 1, second)


# --- out[m] = sum over n of x[m, n] squared ---

_ROW = "*fp32:16, *fp32:16, i32:16, i32:16, 16, 128"


@spelled(ROWS, _ROW)
def vector_of_partial_sums(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    for i in range(BM):
        row = tl.program_id(0) * BM + i
        acc = tl.zeros((BN,), tl.float32)
        for start in range(0, N, BN):
            v = tl.load(x + row * N + start + tl.arange(0, BN))
            acc += v * v
        tl.store(out + row, tl.sum(acc, 0))


@spelled(ROWS, _ROW)
def halved_before(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + row[:, None] * N + start + tl.arange(0, BN)) * 0.5
        acc += tl.sum(v * v, 1)
    tl.store(out + row, acc * 4.0)


@spelled(ROWS, _ROW)
def number_by_number(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for n in range(N):
        v = tl.load(x + row * N + n)
        acc += v * v
    tl.store(out + row, acc)


@spelled(ROWS, _ROW)
def chosen_lanes(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        v = tl.where(n < N, tl.load(x + row[:, None] * N + n), 0.0)
        acc += v * v
    tl.store(out + row, tl.sum(acc, 1))


@spelled(ROWS, _ROW)
def last_block_first(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for i in range(N // BN - 1, -1, -1):
        v = tl.load(x + row[:, None] * N + i * BN + tl.arange(0, BN))
        acc += tl.sum(v * v, 1)
    tl.store(out + row, acc)


@spelled(ROWS, _ROW)
def pairs_apart(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + row[:, None] * N + start + tl.arange(0, BN))
        left, right = tl.split(tl.reshape(v, (BM, BN // 2, 2)))
        acc += tl.sum(left * left, 1) + tl.sum(right * right, 1)
    tl.store(out + row, acc)


@spelled(ROWS, _ROW)
def combined_by_a_function(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM,), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + row[:, None] * N + start + tl.arange(0, BN))
        acc = add(acc, tl.reduce(v * v, 1, add))
    tl.store(out + row, acc)


@spelled(ROWS, _ROW)
def block_by_pointer(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    block = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    acc = tl.zeros((BM,), tl.float32)
    for _ in range(0, N, BN):
        v = tl.load(block, boundary_check=(0, 1), padding_option="zero")
        acc += tl.sum(v * v, 1)
        block = tl.advance(block, (0, BN))
    tl.store(out + tl.program_id(0) * BM + tl.arange(0, BM), acc)


@spelled(ROWS, _ROW)
def two_blocks_at_a_time(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, N, 2 * BN):
        place = x + row[:, None] * N + start + tl.arange(0, BN)
        u, v = tl.load(place), tl.load(place + BN)
        acc += u * u + v * v
    tl.store(out + row, tl.sum(acc, 1))


@spelled(ROWS, _ROW)
def tile_lying(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BN, BM), tl.float32)
    for start in range(0, N, BN):
        v = tl.load(x + row[None, :] * N + (start + tl.arange(0, BN))[:, None])
        acc += v * v
    tl.store(out + row, tl.sum(acc, 0))
