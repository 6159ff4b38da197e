"""Products of one row with bf16 and int4 weights, int8 products, epilogues, converted operands, persistent programs, in
several spellings each.

All kernels of one list take the same arguments and leave the same result; `benchmarks/forms.py` times them.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

FEW_ROWS: list[Spelling] = []
ONE_ROW: list[Spelling] = []
ONE_ROW_OF_LINEAR: list[Spelling] = []
ONE_ROW_OF_INT4: list[Spelling] = []
INT8: list[Spelling] = []
EPILOGUES: list[Spelling] = []
CONVERTED: list[Spelling] = []
ODD_SUMS: list[Spelling] = []


# --- out[n] = sum over k of x[k] w[k, n], w of bf16 --------------------------------------------------------------

_ONE_ROW = "*bf16:16, *bf16:16, *fp32:16, i32:16, i32:16, 128, 64"


@spelled(ONE_ROW, _ONE_ROW)
def dot_of_one_row(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((1, BN), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p[None, :], start + p[None, :] < k, 0.0)
        part = tl.load(w + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0.0)
        acc = tl.dot(row, part, acc)
    tl.store(out + j[None, :], acc, j[None, :] < n)


@spelled(ONE_ROW, _ONE_ROW)
def sum_of_products(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p, start + p < k, 0.0).to(tl.float32)
        part = tl.load(w + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0.0)
        acc += tl.sum(row[:, None] * part.to(tl.float32), 0)
    tl.store(out + j, acc, j < n)


@spelled(ONE_ROW, _ONE_ROW)
def row_after_row(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, acc = tl.program_id(0) * BN + tl.arange(0, BN), tl.zeros((BN,), tl.float32)
    for p in range(k):
        acc += tl.load(x + p).to(tl.float32) * tl.load(w + p * n + j, j < n, 0.0).to(tl.float32)
    tl.store(out + j, acc, j < n)


@spelled(ONE_ROW, _ONE_ROW)
def dot_of_sixteen_rows(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    """As it is written for tensor cores: fifteen rows are zero."""
    i, j, p = tl.arange(0, 16), tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((16, BN), tl.float32)
    for start in range(0, k, BK):
        rows = tl.load(x + start + p[None, :] + i[:, None] * k, (start + p < k)[None, :] & (i < 1)[:, None], 0.0)
        part = tl.load(w + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0.0)
        acc = tl.dot(rows, part, acc)
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < 1)[:, None] & (j < n)[None, :])


# --- out[n] = sum over k of x[k] w[n, k], w of bf16 --------------------------------------------------------------


@spelled(ONE_ROW_OF_LINEAR, _ONE_ROW)
def dot_turned_over(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((1, BN), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p[None, :], start + p[None, :] < k, 0.0)
        part = tl.load(w + (start + p)[:, None] + j[None, :] * k, (start + p < k)[:, None] & (j < n)[None, :], 0.0)
        acc = tl.dot(row, part, acc)
    tl.store(out + j[None, :], acc, j[None, :] < n)


@spelled(ONE_ROW_OF_LINEAR, _ONE_ROW)
def sums_of_rows(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p, start + p < k, 0.0).to(tl.float32)
        part = tl.load(w + (start + p)[None, :] + j[:, None] * k, (start + p < k)[None, :] & (j < n)[:, None], 0.0)
        acc += tl.sum(row[None, :] * part.to(tl.float32), 1)
    tl.store(out + j, acc, j < n)


@spelled(ONE_ROW_OF_LINEAR, _ONE_ROW)
def sums_at_the_end(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN, BK), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p, start + p < k, 0.0).to(tl.float32)
        part = tl.load(w + (start + p)[None, :] + j[:, None] * k, (start + p < k)[None, :] & (j < n)[:, None], 0.0)
        acc += row[None, :] * part.to(tl.float32)
    tl.store(out + j, tl.sum(acc, 1), j < n)


# --- the same with weights of 4 bits: two numbers of one column in a byte, a scale for each column -------------------

_INT4 = "*bf16:16, *i8:16, *fp32:16, *fp32:16, i32:16, i32:16, 128, 64"


@spelled(ONE_ROW_OF_INT4, _INT4)
def unpacked_by_shifts(x, w, scales, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK // 2)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(0, k // 2, BK // 2):
        packed = tl.load(w + (start + p)[:, None] * n + j[None, :], (j < n)[None, :], 0)
        low, high = (packed << 4).to(tl.int8) >> 4, packed >> 4
        even = tl.load(x + 2 * (start + p)).to(tl.float32)
        odd = tl.load(x + 2 * (start + p) + 1).to(tl.float32)
        acc += tl.sum(even[:, None] * low.to(tl.float32) + odd[:, None] * high.to(tl.float32), 0)
    tl.store(out + j, acc * tl.load(scales + j, j < n, 0.0), j < n)


@spelled(ONE_ROW_OF_INT4, _INT4)
def unpacked_into_a_product(x, w, scales, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK // 2)
    acc = tl.zeros((1, BN), tl.float32)
    for start in range(0, k // 2, BK // 2):
        packed = tl.load(w + (start + p)[:, None] * n + j[None, :], (j < n)[None, :], 0)
        low, high = (packed << 4).to(tl.int8) >> 4, packed >> 4
        acc = tl.dot(tl.load(x + 2 * (start + p))[None, :], low.to(tl.bfloat16), acc)
        acc = tl.dot(tl.load(x + 2 * (start + p) + 1)[None, :], high.to(tl.bfloat16), acc)
    tl.store(out + j[None, :], acc * tl.load(scales + j, j < n, 0.0)[None, :], (j < n)[None, :])


@spelled(ONE_ROW_OF_INT4, _INT4)
def joined_nibbles(x, w, scales, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p, q = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK // 2), tl.arange(0, BK)
    acc = tl.zeros((1, BN), tl.float32)
    for start in range(0, k // 2, BK // 2):
        packed = tl.load(w + (start + p)[:, None] * n + j[None, :], (j < n)[None, :], 0)
        low, high = (packed << 4).to(tl.int8) >> 4, packed >> 4
        both = tl.reshape(tl.permute(tl.join(low, high), (0, 2, 1)), (BK, BN))
        acc = tl.dot(tl.load(x + 2 * start + q)[None, :], both.to(tl.bfloat16), acc)
    tl.store(out + j[None, :], acc * tl.load(scales + j, j < n, 0.0)[None, :], (j < n)[None, :])


# --- int8 products ------------------------------------------------------------------------------------------------

_BYTES = "*i8:16, *i8:16, *i32:16, i32:16, i32:16, i32:16, 64, 64, 64"


@spelled(INT8, _BYTES)
def bytes_with_masks(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for start in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + start + p[None, :], (i < m)[:, None] & (start + p < k)[None, :], 0)
        y = tl.load(b + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0)
        acc = tl.dot(x, y, acc)
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


@spelled(INT8, _BYTES)
def bytes_with_wrapped_rows(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    x, y = a + (i % m)[:, None] * k + p[None, :], b + p[:, None] * n + (j % n)[None, :]
    acc = tl.zeros((BM, BN), tl.int32)
    for start in range(0, tl.cdiv(k, BK)):
        inside = p < k - start * BK
        acc += tl.dot(tl.load(x, inside[None, :], 0), tl.load(y, inside[:, None], 0))
        x += BK
        y += BK * n
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


# --- products with something after them: out = relu(a @ b * scale + bias) -----------------------------------------

_AFTER = "*bf16:16, *bf16:16, *fp32:16, *fp32:16, i32:16, i32:16, i32:16, 64, 64, 64"


@spelled(EPILOGUES, _AFTER)
def bias_and_relu(a, b, bias, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + start + p[None, :], (i < m)[:, None] & (start + p < k)[None, :], 0.0)
        y = tl.load(b + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0.0)
        acc = tl.dot(x, y, acc)
    acc = tl.maximum(acc * 0.5 + tl.load(bias + j, j < n, 0.0)[None, :], 0.0)
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


@spelled(EPILOGUES, _AFTER)
def begun_with_the_bias(a, b, bias, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32) + 2.0 * tl.load(bias + j, j < n, 0.0)[None, :]
    for start in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + start + p[None, :], (i < m)[:, None] & (start + p < k)[None, :], 0.0)
        y = tl.load(b + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0.0)
        acc = tl.dot(x, y, acc)
    acc = tl.where(acc > 0, acc * 0.5, 0.0)
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


@spelled(EPILOGUES, _AFTER)
def persistent_programs(a, b, bias, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles = tl.cdiv(m, BM) * tl.cdiv(n, BN)
    programs = tl.num_programs(0) * tl.num_programs(1)
    for tile in range(tl.program_id(0) + tl.program_id(1) * tl.num_programs(0), tiles, programs):
        i = tile // tl.cdiv(n, BN) * BM + tl.arange(0, BM)
        j, p = tile % tl.cdiv(n, BN) * BN + tl.arange(0, BN), tl.arange(0, BK)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            x = tl.load(a + i[:, None] * k + start + p[None, :], (i < m)[:, None] & (start + p < k)[None, :], 0.0)
            y = tl.load(b + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0.0)
            acc = tl.dot(x, y, acc)
        acc = tl.maximum(acc * 0.5 + tl.load(bias + j, j < n, 0.0)[None, :], 0.0)
        tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


# --- products with weights of int8 and a scale for each column: out = a @ (b * scales) ----------------------------

_CONVERTED = "*bf16:16, *i8:16, *fp32:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64"


@spelled(CONVERTED, _CONVERTED)
def cast_and_scaled_at_the_end(a, b, scales, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + start + p[None, :], (i < m)[:, None] & (start + p < k)[None, :], 0.0)
        y = tl.load(b + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0)
        acc = tl.dot(x, y.to(x.dtype), acc)
    acc *= tl.load(scales + j, j < n, 0.0)[None, :]
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


@spelled(CONVERTED, _CONVERTED)
def scaled_before_the_product(a, b, scales, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    scale, acc = tl.load(scales + j, j < n, 0.0), tl.zeros((BM, BN), tl.float32)
    x_ptrs, y_ptrs = a + i[:, None] * k + p[None, :], b + p[:, None] * n + j[None, :]
    for start in range(0, tl.cdiv(k, BK)):
        inside = p < k - start * BK
        x, y = tl.load(x_ptrs, inside[None, :], 0.0), tl.load(y_ptrs, inside[:, None], 0)
        acc += tl.dot(x, (y.to(tl.float32) * scale[None, :]).to(tl.bfloat16))
        x_ptrs += BK
        y_ptrs += BK * n
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


@spelled(CONVERTED, _CONVERTED)
def where_and_turned_over(a, b, scales, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The tile of weights is loaded across its memory, and what lies outside is replaced after the conversion."""
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inside = (start + p < k)[None, :] & (j < n)[:, None]
        x = tl.load(a + i[:, None] * k + start + p[None, :], (i < m)[:, None] & (start + p < k)[None, :], 0.0)
        y = tl.where(inside, tl.load(b + (start + p)[None, :] * n + j[:, None], inside).to(tl.bfloat16), 0.0)
        acc = tl.dot(x, y.T, acc)
    acc *= tl.load(scales + j, j < n, 0.0)[None, :]
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


@spelled(CONVERTED, _CONVERTED)
def scale_loaded_in_the_loop(a, b, scales, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + start + p[None, :], (i < m)[:, None] & (start + p < k)[None, :], 0.0)
        y = tl.load(b + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0)
        y = y.to(tl.bfloat16) * tl.load(scales + j, j < n, 0.0)[None, :].to(tl.bfloat16)
        acc = tl.dot(x, y, acc)
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


# --- sums of rows of an odd width -----------------------------------------------------------------------------------


@spelled(ODD_SUMS, "*fp32:16, *fp32:16, i32, 13")
def sums_of_thirteen(x, out, rows, COLUMNS: tl.constexpr):
    i, j = tl.program_id(0), tl.arange(0, COLUMNS)
    tl.store(out + i, tl.sum(tl.load(x + i * COLUMNS + j), 0))


@spelled(ODD_SUMS, "*fp32:16, *bf16:16, *fp32:16, i32:16, i32:16, 128, 64")
def sums_of_two_types(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    """A product has operands of one type."""
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(0, k, BK):
        part = tl.load(w + (start + p)[None, :] + j[:, None] * k, (start + p < k)[None, :], 0.0)
        acc += tl.sum(tl.load(x + start + p, start + p < k, 0.0)[None, :] * part.to(tl.float32), 1)
    tl.store(out + j, acc, j < n)


# --- products of few rows with columns that nobody wants again: out[r, :] = x[r, :] @ w[z] ----------------------------

_FEW_ROWS = "*fp32:16, *fp32:16, *fp32:16, *i64:16, 16, 64, 64"


@spelled(FEW_ROWS, _FEW_ROWS)
def ranges_of_rows(x, w, out, offsets, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z, j, p = tl.program_id(0), tl.arange(0, N)[None, :], tl.arange(0, K)
    for start in range(tl.load(offsets + z), tl.load(offsets + z + 1), B):
        i = start + tl.arange(0, B)[:, None]
        inside = i < tl.load(offsets + z + 1)
        y = tl.dot(tl.load(x + i * K + p[None, :], inside, 0.0), tl.load(w + z * N * K + p[:, None] * N + j))
        tl.store(out + i * N + j, y, inside)


@spelled(FEW_ROWS, _FEW_ROWS)
def depth_in_a_loop(x, w, out, offsets, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z, j, p = tl.program_id(0), tl.arange(0, N)[None, :], tl.arange(0, 16)
    i, acc = z * B + tl.arange(0, B)[:, None], tl.zeros((B, N), tl.float32)
    right = w + z * N * K + p[:, None] * N + j
    for start in range(0, K, 16):
        acc += tl.dot(tl.load(x + i * K + start + p[None, :]), tl.load(right))
        right += 16 * N
    tl.store(out + i * N + j, acc)


@spelled(FEW_ROWS, _FEW_ROWS)
def while_there_is_depth(x, w, out, offsets, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z, j, start = tl.program_id(0), tl.arange(0, N)[None, :], 0
    i, acc = z * B + tl.arange(0, B)[:, None], tl.zeros((B, N), tl.float32)
    while start < K:
        p = start + tl.arange(0, 16)
        acc = tl.dot(tl.load(x + i * K + p[None, :]), tl.load(w + (z * K + p[:, None]) * N + j), acc)
        start += 16
    tl.store(out + i * N + j, acc)


@spelled(FEW_ROWS, _FEW_ROWS)
def columns_that_do_not_exist(x, w, out, offsets, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z, j, p = tl.program_id(0), tl.arange(0, N)[None, :], tl.arange(0, K)
    i, width = z * B + tl.arange(0, B)[:, None], N - 3
    y = tl.dot(tl.load(x + i * K + p[None, :]), tl.load(w + (z * K + p[:, None]) * width + j, j < width, 0.0))
    tl.store(out + i * width + j, y, j < width)


@spelled(FEW_ROWS, _FEW_ROWS)
def through_a_block_pointer(x, w, out, offsets, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z, j, p = tl.program_id(0), tl.arange(0, N)[None, :], tl.arange(0, K)
    i = z * B + tl.arange(0, B)[:, None]
    right = tl.make_block_ptr(w + z * N * K, (K, N), (N, 1), (0, 0), (K, N), (1, 0))
    tl.store(out + i * N + j, tl.dot(tl.load(x + i * K + p[None, :]), tl.load(right)))


@spelled(FEW_ROWS, "*fp32:16, *fp32:16, *fp32:16, *i64:16, 128, 64, 64")
def many_rows(x, w, out, offsets, B: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Packed: the columns are read once for each few rows."""
    z, j, p = tl.program_id(0), tl.arange(0, N)[None, :], tl.arange(0, K)
    i = z * B + tl.arange(0, B)[:, None]
    y = tl.dot(tl.load(x + i * K + p[None, :]), tl.load(w + (z * K + p[:, None]) * N + j))
    tl.store(out + i * N + j, y)


_SQUARES = "*fp32:16, *fp32:16, i32:16, 16, 128"


@spelled(ODD_SUMS, _SQUARES)
def squares_in_pairs(x, out, n, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    total = tl.zeros((M,), tl.float32)
    for start in range(0, n, N):
        left, right = tl.split(tl.reshape(tl.load(x + i[:, None] * n + start + tl.arange(0, N)), (M, N // 2, 2)))
        total += tl.sum(left * left, 1) + tl.sum(right * right, 1)
    tl.store(out + i, total)


@spelled(ODD_SUMS, _SQUARES)
def products_in_pairs(x, out, n, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    total = tl.zeros((M,), tl.float32)
    for start in range(0, n, N):
        left, right = tl.split(tl.reshape(tl.load(x + i[:, None] * n + start + tl.arange(0, N)), (M, N // 2, 2)))
        total += tl.sum(left * right, 1) + tl.sum(right * right, 1)
    tl.store(out + i, total)


FURTHER = FEW_ROWS + ONE_ROW + ONE_ROW_OF_LINEAR + ONE_ROW_OF_INT4 + INT8 + EPILOGUES + CONVERTED + ODD_SUMS
