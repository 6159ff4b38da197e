"""Products as strangers write them: f32 of any size, bf16 with a bias and `relu`, int8, batches of f16.

Written without a look at the rules. Nothing is pinned: `benchmarks/foreign_forms.py` has sizes and what torch does,
`benchmarks/forms.py` times them, and `test_foreign.py` asks for right results.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

PRODUCTS: list[Spelling] = []
LAYERS: list[Spelling] = []
BYTES: list[Spelling] = []
BATCHES: list[Spelling] = []


# --- out[m, n] = sum over k of a[m, k] b[k, n] in f32, of any size ---

_PRODUCTS = "*fp32:16, *fp32:16, *fp32:16, i32, i32, i32, 32, 64, 32"


@spelled(PRODUCTS, _PRODUCTS)
def product_pointers(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * K + rk[None, :]
    b = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a, mask=(rm[:, None] < M) & (k + rk[None, :] < K), other=0.0)
        y = tl.load(b, mask=(k + rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
        a += BK
        b += BK * N
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@spelled(PRODUCTS, _PRODUCTS)
def product_block_pointers(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (pm * BM, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, pn * BN), (BK, BN), (1, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (pm * BM, pn * BN), (BM, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        x = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    tl.store(c, acc, boundary_check=(0, 1))


@spelled(PRODUCTS, _PRODUCTS)
def product_downward(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK) - 1, -1, -1):
        rk = k * BK + tl.arange(0, BK)
        am = (rm < M)[:, None] & (rk < K)[None, :]
        bm = (rk < K)[:, None] & (rn < N)[None, :]
        x = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=am, other=0.0)
        y = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=bm, other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm < M)[:, None] & (rn < N)[None, :])


@spelled(PRODUCTS, _PRODUCTS)
def product_while(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = (pm * BM + tl.arange(0, BM)) % M
    rn = (pn * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a = a_ptr + (rm[:, None] * K + rk[None, :])
    b = b_ptr + (rk[:, None] * N + rn[None, :])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    left = K
    while left > 0:
        x = tl.load(a, mask=rk[None, :] < left, other=0.0)
        y = tl.load(b, mask=rk[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a += BK
        b += BK * N
        left -= BK
    cm = pm * BM + tl.arange(0, BM)
    cn = pn * BN + tl.arange(0, BN)
    tl.store(c_ptr + cm[:, None] * N + cn[None, :], acc, mask=(cm[:, None] < M) & (cn[None, :] < N))


@spelled(PRODUCTS, _PRODUCTS)
def product_broadcast_sum(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], (rm[:, None] < M) & (rk[None, :] < K), 0.0)
        b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], (rk[:, None] < K) & (rn[None, :] < N), 0.0)
        acc += tl.sum(a[:, :, None] * b[None, :, :], axis=1)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, (rm[:, None] < M) & (rn[None, :] < N))


@spelled(PRODUCTS, _PRODUCTS)
def product_nested_descriptors(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    A = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    B = tl.make_tensor_descriptor(b_ptr, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    C = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m0 = tl.program_id(0) * BM
    n0 = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for ko in range(0, K, 4 * BK):
        part = tl.zeros((BM, BN), tl.float32)
        for ki in range(ko, min(ko + 4 * BK, K), BK):
            part = tl.dot(A.load([m0, ki]), B.load([ki, n0]), part, input_precision="ieee")
        total += part
    C.store([m0, n0], total)


@spelled(PRODUCTS, _PRODUCTS)
def product_tail_apart(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # grouped order; whole blocks of K in the loop, the rest behind it
    pid = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    group = 4 * nn
    first = pid // group * 4
    size = min(nm - first, 4)
    pm = first + (pid % group) % size
    pn = (pid % group) // size
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    mm = rm[:, None] < M
    mn = rn[None, :] < N
    acc = tl.zeros((BM, BN), tl.float32)
    whole = K // BK
    for i in range(whole):
        rk = i * BK + tl.arange(0, BK)
        x = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=mm, other=0.0)
        y = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=mn, other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    if whole * BK < K:
        rk = whole * BK + tl.arange(0, BK)
        x = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=mm & (rk[None, :] < K), other=0.0)
        y = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=mn & (rk[:, None] < K), other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=mm & mn)


@spelled(PRODUCTS, _PRODUCTS)
def product_split_in_program(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # two halves of K side by side, added at the end
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    half = tl.cdiv(K, 2)
    lo = tl.zeros((BM, BN), tl.float32)
    hi = tl.zeros((BM, BN), tl.float32)
    for k in range(0, half, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < half), other=0.0)
        y = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rn[None, :] < N) & (rk[:, None] < half), other=0.0)
        lo = tl.dot(x, y, lo, input_precision="ieee")
        rh = half + rk
        x = tl.load(a_ptr + rm[:, None] * K + rh[None, :], mask=(rm[:, None] < M) & (rh[None, :] < K), other=0.0)
        y = tl.load(b_ptr + rh[:, None] * N + rn[None, :], mask=(rn[None, :] < N) & (rh[:, None] < K), other=0.0)
        hi = tl.dot(x, y, hi, input_precision="ieee")
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], lo + hi, mask=(rm[:, None] < M) & (rn[None, :] < N))


# --- relu(a @ w.T + bias) in bf16 ---

_LAYERS = "*bf16:16, *bf16:16, *bf16:16, *bf16:16, i32:16, i32:16, i32:16, 64, 64, 64"


@spelled(LAYERS, _LAYERS)
def layer_grouped(a_ptr, w_ptr, bias_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    pm, pn = tl.swizzle2d(pid // nn, pid % nn, nm, nn, 4)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a_ptr + rm[:, None] * K + k * BK + rk[None, :])
        w = tl.load(w_ptr + rn[:, None] * K + k * BK + rk[None, :])
        acc += tl.dot(x, tl.trans(w))
    acc += tl.load(bias_ptr + rn)[None, :]
    acc = tl.where(acc > 0, acc, 0.0)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16))


@spelled(LAYERS, _LAYERS)
def layer_persistent(a_ptr, w_ptr, bias_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    nn = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * nn
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rm = (tile // nn) * BM + tl.arange(0, BM)
        rn = (tile % nn) * BN + tl.arange(0, BN)
        rk = tl.arange(0, BK)
        a = a_ptr + rm[:, None] * K + rk[None, :]
        w = w_ptr + rn[None, :] * K + rk[:, None]
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(tl.load(a), tl.load(w), acc)
            a += BK
            w += BK
        bias = tl.load(bias_ptr + rn)
        out = tl.maximum(acc + bias[None, :], 0.0)
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], out.to(tl.bfloat16))


@spelled(LAYERS, _LAYERS)
def layer_descriptors(a_ptr, w_ptr, bias_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    nn = tl.cdiv(N, BN)
    m0 = (pid // nn) * BM
    n0 = (pid % nn) * BN
    A = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    W = tl.make_tensor_descriptor(w_ptr, [N, K], [K, 1], [BN, BK])
    C = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    bias = tl.load(bias_ptr + n0 + tl.arange(0, BN)).to(tl.float32)
    acc = tl.zeros((BM, BN), tl.float32) + bias[None, :]
    for k in range(0, K, BK):
        acc = tl.dot(A.load([m0, k]), W.load([n0, k]).T, acc)
    C.store([m0, n0], tl.maximum(acc, 0.0).to(tl.bfloat16))


@spelled(LAYERS, _LAYERS)
def layer_odd_and_even(a_ptr, w_ptr, bias_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    nm = tl.cdiv(M, BM)
    rm = (pid % nm) * BM + tl.arange(0, BM)
    rn = (pid // nm) * BN + tl.arange(0, BN)
    even = tl.zeros((BM, BN), tl.float32)
    odd = tl.zeros((BM, BN), tl.float32)
    k = 0
    while k < K:
        rk = k + tl.arange(0, BK)
        x0 = tl.load(a_ptr + rm[:, None] * K + rk[None, :])
        w0 = tl.load(w_ptr + rn[:, None] * K + rk[None, :])
        even += tl.dot(x0, w0.T)
        x1 = tl.load(a_ptr + rm[:, None] * K + rk[None, :] + BK)
        w1 = tl.load(w_ptr + rn[:, None] * K + rk[None, :] + BK)
        odd += tl.dot(x1, w1.T)
        k += 2 * BK
    acc = even + odd + tl.load(bias_ptr + rn).to(tl.float32)[None, :]
    acc = acc * (acc > 0)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc)


@spelled(LAYERS, _LAYERS)
def layer_turned(a_ptr, w_ptr, bias_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # W @ A.T, turned before the store
    pid = tl.program_id(0)
    nn = tl.cdiv(N, BN)
    rm = (pid // nn) * BM + tl.arange(0, BM)
    rn = (pid % nn) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN, BM), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        w = tl.load(w_ptr + rn[:, None] * K + rk[None, :])
        xt = tl.load(a_ptr + rm[None, :] * K + rk[:, None])
        acc = tl.dot(w, xt, acc)
    acc += tl.load(bias_ptr + rn)[:, None]
    out = tl.maximum(acc, 0.0).to(tl.bfloat16)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], tl.trans(out))


# --- products of int8, of any size ---

_BYTES = "*i8:16, *i8:16, *i32:16, i32, i32, i32, 64, 64, 64"


@spelled(BYTES, _BYTES)
def bytes_masked(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0)
        y = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0)
        acc += tl.dot(x, y, out_dtype=tl.int32)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@spelled(BYTES, _BYTES)
def bytes_wrapped_downward(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m0 = tl.program_id(0) * BM
    n0 = tl.program_id(1) * BN
    rm = tl.minimum(m0 + tl.arange(0, BM), M - 1)
    rn = tl.minimum(n0 + tl.arange(0, BN), N - 1)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    steps = tl.cdiv(K, BK)
    while steps > 0:
        steps -= 1
        x = tl.load(a_ptr + rm[:, None] * K + (steps * BK + rk)[None, :], mask=(rk < K - steps * BK)[None, :], other=0)
        y = tl.load(b_ptr + (steps * BK + rk)[:, None] * N + rn[None, :], mask=(rk < K - steps * BK)[:, None], other=0)
        acc = tl.dot(x, y, acc)
    cm = m0 + tl.arange(0, BM)[:, None]
    cn = n0 + tl.arange(0, BN)[None, :]
    tl.store(c_ptr + cm * N + cn, acc, mask=(cm < M) & (cn < N))


@spelled(BYTES, _BYTES)
def bytes_blocks(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, tl.program_id(1) * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(0, K, BK):
        acc += tl.dot(
            tl.load(a, boundary_check=(0, 1), padding_option="zero"),
            tl.load(b, boundary_check=(0, 1), padding_option="zero"),
        )
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (tl.program_id(0) * BM, tl.program_id(1) * BN), (BM, BN), (1, 0))
    tl.store(c, acc, boundary_check=(0, 1))


# --- a product for each of a batch, f16 ---

_BATCHES = "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16, i32:16, 64, 64, 32"


@spelled(BATCHES, _BATCHES)
def batch_three_dims(a_ptr, b_ptr, c_ptr, S, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # grid: tiles, S // 4
    nn = tl.cdiv(N, BN)
    rm = (tl.program_id(0) // nn) * BM + tl.arange(0, BM)
    rn = (tl.program_id(0) % nn) * BN + tl.arange(0, BN)
    rs = tl.program_id(1) * 4 + tl.arange(0, 4)
    acc = tl.zeros((4, BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rs[:, None, None] * (M * K) + rm[None, :, None] * K + rk[None, None, :])
        y = tl.load(b_ptr + rs[:, None, None] * (K * N) + rk[None, :, None] * N + rn[None, None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c_ptr + rs[:, None, None] * (M * N) + rm[None, :, None] * N + rn[None, None, :], acc.to(tl.float16))


@spelled(BATCHES, _BATCHES)
def batch_grid(a_ptr, b_ptr, c_ptr, S, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # grid: tiles, S
    nn = tl.cdiv(N, BN)
    s = tl.program_id(1)
    a_ptr += s * M * K
    b_ptr += s * K * N
    c_ptr += s * M * N
    rm = (tl.program_id(0) // nn) * BM + tl.arange(0, BM)
    rn = (tl.program_id(0) % nn) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rm[:, None] * K + rk[None, :])
        y = tl.load(b_ptr + rk[:, None] * N + rn[None, :])
        acc += tl.dot(x, y)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16))


@spelled(BATCHES, _BATCHES)
def batch_loop(a_ptr, b_ptr, c_ptr, S, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # grid: tiles, S // 4
    nn = tl.cdiv(N, BN)
    rm = (tl.program_id(0) // nn) * BM + tl.arange(0, BM)
    rn = (tl.program_id(0) % nn) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    for i in range(4):
        s = tl.program_id(1) * 4 + i
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(K // BK - 1, -1, -1):
            x = tl.load(a_ptr + s * M * K + rm[:, None] * K + k * BK + rk[None, :])
            y = tl.load(b_ptr + s * K * N + (k * BK + rk[:, None]) * N + rn[None, :])
            acc = tl.dot(x, y, acc)
        tl.store(c_ptr + s * M * N + rm[:, None] * N + rn[None, :], acc.to(tl.float16))
