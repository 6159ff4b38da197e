"""Kernels as compilers of graphs write them: tiles of rows by blocks of columns, masked reductions in loops whose
accumulators are whole tiles, hints for caches, blocks with sides of 1; products of narrow types and in parts.

All kernels of one list take the same arguments and leave the same result; `benchmarks/forms.py` times them.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

TILED_SOFTMAX: list[Spelling] = []
TILED_NORM: list[Spelling] = []
CROSS_ENTROPY: list[Spelling] = []
TURNED: list[Spelling] = []
BATCHED_ATTENTION: list[Spelling] = []

# --- out[i, :] = softmax of x[i, :] ------------------------------------------------

_TILES = "*fp32:16, *fp32:16, i32:16, i32:16, 1, 2048"


@spelled(TILED_SOFTMAX, "*fp32:16, *fp32:16, i32:16, i32:16, 1, 4096", num_warps=16)
def whole_rows(x, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    valid = tl.full([XBLOCK, RBLOCK], True, tl.int1)
    value = tl.load(x + (j + columns * i), (j < columns) & valid, 0.0)
    wide = tl.broadcast_to(value, [XBLOCK, RBLOCK])
    top = tl.max(tl.where(j < columns, wide, float("-inf")), 1)[:, None]
    power = tl.exp(value - top)
    total = tl.sum(tl.where(j < columns, tl.broadcast_to(power, [XBLOCK, RBLOCK]), 0.0), 1)[:, None]
    tl.store(out + (j + columns * i), power / total, (j < columns) & valid)


@spelled(TILED_SOFTMAX, _TILES, num_warps=16)
def three_loops(x, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    tops = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        wide = tl.broadcast_to(
            tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_last"), [XBLOCK, RBLOCK]
        )
        tops = tl.where(at < columns, tl.maximum(tops, wide), tops)
    top = tl.max(tops, 1)[:, None]
    totals = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_last")
        wide = tl.broadcast_to(tl.exp(value - top), [XBLOCK, RBLOCK])
        totals = tl.where(at < columns, totals + wide, totals)
    total = tl.sum(totals, 1)[:, None]
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_first")
        tl.store(out + (at + columns * i), tl.exp(value - top) / total, at < columns)


@spelled(TILED_SOFTMAX, _TILES, num_warps=16)
def running_tops(x, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    tops = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    totals = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_last")
        wide = tl.broadcast_to(value, [XBLOCK, RBLOCK])
        higher = tl.maximum(tops, wide)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        sums = totals * tl.exp(tops - base) + tl.exp(wide - base)
        tops, totals = tl.where(at < columns, higher, tops), tl.where(at < columns, sums, totals)
    top = tl.max(tops, 1)[:, None]
    total = tl.sum(totals * tl.exp(tops - tl.where(top == float("-inf"), 0.0, top)), 1)[:, None]
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_first")
        tl.store(out + (at + columns * i), tl.exp(value - top) / total, at < columns)


# --- out[i, :] = layer norm of x[i, :], of f16 ------------------------------------------------

_NORM = "*fp16:16, *fp32:16, *fp32:16, *fp16:16, i32:16, i32:16, 1, 2048"


@spelled(TILED_NORM, "*fp16:16, *fp32:16, *fp32:16, *fp16:16, i32:16, i32:16, 1, 8192", num_warps=16)
def norm_of_whole_rows(x, weight, bias, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    value = tl.load(x + (j + columns * i), j < columns, 0.0).to(tl.float32)
    factor = tl.load(weight + j, j < columns, 0.0, eviction_policy="evict_last")
    added = tl.load(bias + j, j < columns, 0.0, eviction_policy="evict_last")
    wide = tl.broadcast_to(value, [XBLOCK, RBLOCK])
    mean = tl.sum(tl.where(j < columns, wide, 0.0), 1)[:, None] / columns.to(tl.float32)
    apart = tl.broadcast_to((wide - mean) * (wide - mean), [XBLOCK, RBLOCK])
    variance = tl.sum(tl.where(j < columns, apart, 0.0), 1)[:, None] / columns
    scaled = (value - mean) * tl.rsqrt(variance + 1e-05)
    tl.store(out + (j + columns * i), (scaled * factor + added).to(tl.float16), j < columns)


@spelled(TILED_NORM, _NORM, num_warps=16)
def norm_in_loops(x, weight, bias, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    sums, squares = tl.zeros([XBLOCK, RBLOCK], tl.float32), tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_last").to(tl.float32)
        wide = tl.broadcast_to(value, [XBLOCK, RBLOCK])
        sums = tl.where(at < columns, sums + wide, sums)
        squares = tl.where(at < columns, squares + wide * wide, squares)
    mean = tl.sum(sums, 1)[:, None] / columns
    variance = tl.sum(squares, 1)[:, None] / columns - mean * mean
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_first").to(tl.float32)
        factor = tl.load(weight + at, at < columns, 0.0, eviction_policy="evict_last")
        added = tl.load(bias + at, at < columns, 0.0, eviction_policy="evict_last")
        scaled = (value - mean) * tl.rsqrt(variance + 1e-05)
        tl.store(out + (at + columns * i), (scaled * factor + added).to(tl.float16), at < columns)


@spelled(TILED_NORM, _NORM, num_warps=16)
def norm_by_running_means(x, weight, bias, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    means, apart = tl.zeros([XBLOCK, RBLOCK], tl.float32), tl.zeros([XBLOCK, RBLOCK], tl.float32)
    counts = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_last").to(tl.float32)
        wide = tl.broadcast_to(value, [XBLOCK, RBLOCK])
        step = wide - means
        count = counts + 1
        mean = means + step / count
        apart = tl.where(at < columns, apart + step * (wide - mean), apart)
        means, counts = tl.where(at < columns, mean, means), tl.where(at < columns, count, counts)
    mean = tl.sum(means * counts, 1)[:, None] / columns
    away = means - mean
    variance = tl.sum(apart + counts * away * away, 1)[:, None] / columns
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_first").to(tl.float32)
        factor = tl.load(weight + at, at < columns, 0.0, eviction_policy="evict_last")
        added = tl.load(bias + at, at < columns, 0.0, eviction_policy="evict_last")
        scaled = (value - mean) * tl.rsqrt(variance + 1e-05)
        tl.store(out + (at + columns * i), (scaled * factor + added).to(tl.float16), at < columns)


# --- out[i] = log of the sum of exp x[i, :] less x[i, labels[i]] ------------------------------------------------

_LABELS = "*fp32:16, *i64:16, *fp32:16, i32:16, i32:16, 1, 2048"


@spelled(CROSS_ENTROPY, _LABELS, num_warps=16)
def loss_in_two_loops(x, labels, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    tops = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        wide = tl.broadcast_to(
            tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_last"), [XBLOCK, RBLOCK]
        )
        tops = tl.where(at < columns, tl.maximum(tops, wide), tops)
    top = tl.max(tops, 1)[:, None]
    totals = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_first")
        wide = tl.broadcast_to(tl.exp(value - top), [XBLOCK, RBLOCK])
        totals = tl.where(at < columns, totals + wide, totals)
    total = tl.sum(totals, 1)[:, None]
    label = tl.load(labels + i, None, eviction_policy="evict_last")
    label = tl.where(label < 0, label + columns, label)
    picked = tl.load(x + (label + columns * i), None, eviction_policy="evict_last")
    tl.store(out + i, tl.log(total) - (picked - top), None)


@spelled(CROSS_ENTROPY, _LABELS, num_warps=16)
def loss_in_one_loop(x, labels, out, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i, j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None], tl.arange(0, RBLOCK)[None, :]
    tops = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    totals = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for start in range(0, columns, RBLOCK):
        at = start + j
        value = tl.load(x + (at + columns * i), at < columns, 0.0, eviction_policy="evict_first")
        wide = tl.broadcast_to(value, [XBLOCK, RBLOCK])
        higher = tl.maximum(tops, wide)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        sums = totals * tl.exp(tops - base) + tl.exp(wide - base)
        tops, totals = tl.where(at < columns, higher, tops), tl.where(at < columns, sums, totals)
    top = tl.max(tops, 1)[:, None]
    total = tl.sum(totals * tl.exp(tops - top), 1)[:, None]
    picked = tl.load(x + (tl.load(labels + i, None) + columns * i), None)
    tl.store(out + i, tl.log(total) - (picked - top), None)


# --- out[j, i] = x[i, j] ------------------------------------------------


@spelled(TURNED, "*fp32:16, *fp32:16, i32:16, i32:16, 64, 64", num_warps=4)
def turned_where_stored(x, out, rows, columns, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    i, j = (
        tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[None, :],
        tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None],
    )
    value = tl.load(x + (j + columns * i), (j < columns) & (i < rows), 0.0, eviction_policy="evict_last")
    tl.store(out + (i + rows * j), value, (j < columns) & (i < rows))


@spelled(TURNED, "*fp32:16, *fp32:16, i32:16, i32:16, 64, 64", num_warps=4)
def turned_where_loaded(x, out, rows, columns, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    j, i = (
        tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :],
        tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[:, None],
    )
    value = tl.load(x + (j + columns * i), (j < columns) & (i < rows), eviction_policy="evict_last")
    tl.store(out + (tl.trans(j) * rows + tl.trans(i)), tl.trans(value), tl.trans((j < columns) & (i < rows)))


# --- attention whose blocks are those of one batch ------------------------------------------------

_ATTENTION = "*bf16:16, *bf16:16, *bf16:16, *bf16:16, i32:16, 128, 128, 128"


@spelled(BATCHED_ATTENTION, _ATTENTION, num_warps=8, num_stages=3)
def blocks_of_one_batch(q, k, v, out, n, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    z, i, d = tl.program_id(1) + tl.arange(0, 1), tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    top = tl.full([1, BM], float("-inf"), tl.float32)
    total, acc = tl.full([1, BM], 1.0, tl.float32), tl.full([1, BM, D], 0.0, tl.float32)
    query = tl.load(q + (z[:, None, None] * n * D + i[None, :, None] * D + d[None, None, :]))
    for start in tl.range(0, n, BN):
        j = start + tl.arange(0, BN)
        keys = tl.load(k + (z[:, None, None] * n * D + d[None, :, None] + j[None, None, :] * D))
        scores = tl.reshape(tl.dot(tl.reshape(query, [BM, D]), tl.reshape(keys, [D, BN])), [1, BM, BN])
        higher = tl.maximum(top, tl.max(scores, 2) * 0.125)
        power = tl.exp2(scores * 0.125 - higher[:, :, None])
        change = tl.exp2(top - higher)
        total = total * change + tl.sum(power, 2)
        acc = acc * change[:, :, None]
        values = tl.load(v + (z[:, None, None] * n * D + j[None, :, None] * D + d[None, None, :]))
        part = tl.dot(
            tl.reshape(power.to(tl.bfloat16), [BM, BN]), tl.reshape(values, [BN, D]), acc=tl.reshape(acc, [BM, D])
        )
        acc, top = tl.reshape(part, [1, BM, D]), higher
    result = (acc / total[:, :, None]).to(tl.bfloat16)
    tl.store(out + (z[:, None, None] * n * D + i[None, :, None] * D + d[None, None, :]), result)


@spelled(BATCHED_ATTENTION, _ATTENTION, num_warps=8, num_stages=3)
def blocks_of_a_matrix(q, k, v, out, n, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    z, i, d = tl.program_id(1) * n * D, tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    top = tl.full([BM], float("-inf"), tl.float32)
    total, acc = tl.full([BM], 1.0, tl.float32), tl.full([BM, D], 0.0, tl.float32)
    query = tl.load(q + z + i[:, None] * D + d[None, :])
    for start in tl.range(0, n, BN):
        j = start + tl.arange(0, BN)
        scores = tl.dot(query, tl.load(k + z + d[:, None] + j[None, :] * D))
        higher = tl.maximum(top, tl.max(scores, 1) * 0.125)
        power = tl.exp2(scores * 0.125 - higher[:, None])
        change = tl.exp2(top - higher)
        total = total * change + tl.sum(power, 1)
        acc = tl.dot(power.to(tl.bfloat16), tl.load(v + z + j[:, None] * D + d[None, :]), acc * change[:, None])
        top = higher
    tl.store(out + z + i[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.bfloat16))


# --- products of 8-bit floats, with scales of 32 elements each, and split along K ----------------------------------

GRADIENT: list[Spelling] = []


@spelled(
    GRADIENT, "*bf16:16, *bf16:16, *bf16:16, *fp32:16, *fp32:16, *fp32:16, *fp32:16, 2048, 64, 64, 64", num_warps=4
)
def gradient_of_keys(q, k, up, top, less, dk, dv, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """As hl derives it of causal attention."""
    j, d = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, D)
    dk_sum, dv_sum = tl.full([D, BN], 0, tl.float32), tl.full([BN, D], 0, tl.float32)
    for start in tl.range(tl.program_id(0) * BN, N, BM):
        i = start + tl.arange(0, BM)
        query, grad = tl.load(q + i[:, None] * D + d[None, :]), tl.load(up + i[:, None] * D + d[None, :])
        keys = tl.load(k + d[:, None] + j[None, :] * D)
        scores = tl.where(i[:, None] >= j[None, :], tl.dot(query, keys), float("-inf"))
        share = tl.exp2(scores - tl.load(top + i)[:, None])
        dv_sum += tl.dot(tl.permute(share.to(tl.bfloat16), [1, 0]), grad)
        part = (tl.dot(grad, keys) + tl.load(less + i)[:, None]) * share
        dk_sum += tl.dot(tl.permute(query, [1, 0]), part.to(tl.bfloat16))
    tl.store(dk + j[None, :] * D + d[:, None], dk_sum)
    tl.store(dv + j[:, None] * D + d[None, :], dv_sum)


NARROW: list[Spelling] = []
SCALED: list[Spelling] = []
SPLIT: list[Spelling] = []


@spelled(NARROW, "*fp8e4nv:16, *fp8e4nv:16, *fp32:16, i32:16, i32:16, i32:16, 128, 128, 128", num_warps=8)
def eight_bit_floats(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + start + p[None, :], (start + p < k)[None, :], 0.0)
        y = tl.load(b + (start + p)[:, None] + j[None, :] * k, (start + p < k)[:, None], 0.0)
        acc = tl.dot(x, y, acc)
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


@spelled(NARROW, "*fp8e4nv:16, *fp8e4nv:16, *fp32:16, i32:16, i32:16, i32:16, 128, 128, 128", num_warps=8)
def eight_bit_floats_by_moving_pointers(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    x, y = a + (i % m)[:, None] * k + p[None, :], b + (j % n)[:, None] * k + p[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.cdiv(k, BK)):
        inside = p[None, :] < k - start * BK
        acc += tl.dot(tl.load(x, inside, 0.0), tl.load(y, inside, 0.0).T)
        x, y = x + BK, y + BK
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


_SCALED = "*fp8e4nv:16, *u8:16, *fp8e4nv:16, *u8:16, *fp32:16, i32:16, i32:16, i32:16, 128, 128, 128"


@spelled(SCALED, _SCALED, num_warps=8)
def scaled_by_the_block(a, a_scale, b, b_scale, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i, j, p = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    s, acc = tl.arange(0, BK // 32), tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        x = tl.load(a + i[:, None] * k + start + p[None, :])
        y = tl.load(b + (start + p)[:, None] + j[None, :] * k)
        u = tl.load(a_scale + i[:, None] * (k // 32) + start // 32 + s[None, :])
        v = tl.load(b_scale + j[:, None] * (k // 32) + start // 32 + s[None, :])
        acc = tl.dot_scaled(x, u, "e4m3", y, v, "e4m3", acc)
    tl.store(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


_SPLIT = "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, 128, 128, 64, 4"


@spelled(SPLIT, _SPLIT, num_warps=8)
def strided_parts(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    p = tl.program_id(2) * BK + tl.arange(0, BK)
    x, y = a + (i[:, None] * k + p[None, :]), b + (p[:, None] * n + j[None, :])
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, tl.cdiv(k, BK * PARTS)):
        left = k - start * (BK * PARTS)
        acc += tl.dot(tl.load(x, p[None, :] < left, 0.0), tl.load(y, p[:, None] < left, 0.0))
        x += BK * PARTS
        y += BK * PARTS * n
    tl.atomic_add(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :], "relaxed")


@spelled(SPLIT, _SPLIT, num_warps=8)
def parts_side_by_side(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr):
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    share = tl.cdiv(tl.cdiv(k, PARTS), BK) * BK
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * share, min(k, (tl.program_id(2) + 1) * share), BK):
        p = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * k + p[None, :], (i < m)[:, None] & (p < k)[None, :], 0.0)
        y = tl.load(b + p[:, None] * n + j[None, :], (p < k)[:, None] & (j < n)[None, :], 0.0)
        acc = tl.dot(x, y, acc)
    tl.atomic_add(out + i[:, None] * n + j[None, :], acc, (i < m)[:, None] & (j < n)[None, :])


GENERATED = NARROW + SCALED + SPLIT + TILED_SOFTMAX + TILED_NORM + CROSS_ENTROPY + TURNED + BATCHED_ATTENTION + GRADIENT
