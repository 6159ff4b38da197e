"""Programs as users of Triton's libraries write them, compiled, interpreted and under checks, against PyTorch.

Packed weights (AWQ, GPTQ, NF4), keys packed for `topk`, tuples of pointers and functions, recursion over constants,
scans of pairs, locks, block pointers in three dims, sequences of different lengths, branches that return tuples,
unsigned hashes, orders given as numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def eq(found, expected, atol=1e-4, rtol=1e-4):
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol)


cd = triton.cdiv


@triton.jit
def awq_dequantize_kernel(
    qweight_ptr,
    scales_ptr,
    zeros_ptr,
    group_size,
    result_ptr,
    num_cols,
    num_rows,
    BLOCK_SIZE_X: tl.constexpr,
    BLOCK_SIZE_Y: tl.constexpr,
):
    pid_x = tl.program_id(axis=0)
    pid_y = tl.program_id(axis=1)
    offsets_y = pid_y * BLOCK_SIZE_Y + tl.arange(0, BLOCK_SIZE_Y)
    offsets_x = pid_x * BLOCK_SIZE_X + tl.arange(0, BLOCK_SIZE_X)
    offsets = num_cols * offsets_y[:, None] + offsets_x[None, :]
    masks = (offsets_y < num_rows)[:, None] & (offsets_x < num_cols)[None, :]
    result_offsets_y = pid_y * BLOCK_SIZE_Y + tl.arange(0, BLOCK_SIZE_Y)
    result_offsets_x = pid_x * BLOCK_SIZE_X * 8 + tl.arange(0, BLOCK_SIZE_X * 8)
    result_offsets = 8 * num_cols * result_offsets_y[:, None] + result_offsets_x[None, :]
    result_masks = (result_offsets_y < num_rows)[:, None] & (result_offsets_x < num_cols * 8)[None, :]
    iweights = tl.load(qweight_ptr + offsets, masks, 0.0)
    iweights = tl.interleave(iweights, iweights)
    iweights = tl.interleave(iweights, iweights)
    iweights = tl.interleave(iweights, iweights)
    reverse_awq_order_tensor = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = reverse_awq_order_tensor * 4
    shifts = tl.broadcast_to(shifts[None, :], (BLOCK_SIZE_Y * BLOCK_SIZE_X, 8))
    shifts = tl.reshape(shifts, (BLOCK_SIZE_Y, BLOCK_SIZE_X * 8))
    iweights = (iweights >> shifts) & 0xF
    zero_offsets_y = pid_y * BLOCK_SIZE_Y // group_size + tl.arange(0, 1)
    zero_offsets = num_cols * zero_offsets_y[:, None] + offsets_x[None, :]
    zero_masks = (zero_offsets_y < num_rows // group_size)[:, None] & (offsets_x < num_cols)[None, :]
    zeros = tl.load(zeros_ptr + zero_offsets, zero_masks, 0.0)
    zeros = tl.interleave(zeros, zeros)
    zeros = tl.interleave(zeros, zeros)
    zeros = tl.interleave(zeros, zeros)
    zeros = tl.broadcast_to(zeros, (BLOCK_SIZE_Y, BLOCK_SIZE_X * 8))
    zeros = (zeros >> shifts) & 0xF
    scale_offsets_y = pid_y * BLOCK_SIZE_Y // group_size + tl.arange(0, 1)
    scale_offsets_x = pid_x * BLOCK_SIZE_X * 8 + tl.arange(0, BLOCK_SIZE_X * 8)
    scale_offsets = num_cols * 8 * scale_offsets_y[:, None] + scale_offsets_x[None, :]
    scale_masks = (scale_offsets_y < num_rows // group_size)[:, None] & (scale_offsets_x < num_cols * 8)[None, :]
    scales = tl.load(scales_ptr + scale_offsets, scale_masks, 0.0)
    scales = tl.broadcast_to(scales, (BLOCK_SIZE_Y, BLOCK_SIZE_X * 8))
    iweights = (iweights - zeros) * scales
    iweights = iweights.to(result_ptr.type.element_ty)
    tl.store(result_ptr + result_offsets, iweights, result_masks)


def test_awq():
    K, N, G = 64, 40, 16
    q = torch.randint(-(2**31), 2**31 - 1, (K, N // 8), dtype=torch.int32)
    z = torch.randint(-(2**31), 2**31 - 1, (K // G, N // 8), dtype=torch.int32)
    s = torch.rand(K // G, N, dtype=torch.float16)
    r = torch.empty(K, N, dtype=torch.float16)
    X, Y = 4, 16
    awq_dequantize_kernel[
        lambda META: (triton.cdiv(N // 8, META["BLOCK_SIZE_X"]), triton.cdiv(K, META["BLOCK_SIZE_Y"]))
    ](q, s, z, G, r, N // 8, K, BLOCK_SIZE_X=X, BLOCK_SIZE_Y=Y)
    order = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7]) * 4
    un = lambda t: ((t[..., None] >> order) & 15).reshape(t.shape[0], -1)
    w = (un(q) - un(z).repeat_interleave(G, 0)) * s.repeat_interleave(G, 0)
    eq(r, w.to(torch.float16))


@triton.jit
def _fpval_to_key(x, N_EXPTS: tl.constexpr):
    tm: tl.constexpr = 1 << (-1 + x.dtype.primitive_bitwidth)
    fm: tl.constexpr = (1 << x.dtype.primitive_bitwidth) - 1
    return x ^ tl.where((x & tm) != 0, fm, tm)


@triton.jit
def topk_gate(X, W, I, stride, n, N_PAD: tl.constexpr, K: tl.constexpr, K_PAD: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, N_PAD)
    x = tl.load(X + pid * stride + cols, mask=cols < n, other=float("-inf"))
    bits = x.to(tl.uint32, bitcast=True)
    tm: tl.constexpr = 0x80000000
    key = bits ^ tl.where((bits & tm) != 0, 0xFFFFFFFF, tm).to(tl.uint32)
    packed = (key.to(tl.uint64) << 16) | (N_PAD - 1 - cols).to(tl.uint64)
    top = tl.topk(packed, K_PAD)
    k = (top >> 16).to(tl.uint32)
    back = k ^ tl.where((k & tm) == 0, 0xFFFFFFFF, tm).to(tl.uint32)
    v = back.to(tl.float32, bitcast=True)
    idx = (N_PAD - 1 - (top & 0xFFFF)).to(tl.int32)
    kk = tl.arange(0, K_PAD)
    v = tl.where(kk < K, v, float("-inf"))
    w = tl.exp(v - tl.max(v, 0))
    w = w / tl.sum(w, 0)
    tl.store(W + pid * K + kk, w, mask=kk < K)
    tl.store(I + pid * K + kk, idx, mask=kk < K)


def test_topk_gate():
    B, E, K = 17, 60, 6
    x = torch.randn(B, E)
    w = torch.empty(B, K)
    i = torch.empty(B, K, dtype=torch.int32)
    topk_gate[(B,)](x, w, i, x.stride(0), E, 64, K, 8)
    v, ii = x.topk(K, -1)
    eq(i, ii.int())
    eq(w, v.softmax(-1))


@triton.jit
def nf4_quant(A, absmax, out, n, BS: tl.constexpr, SPLIT: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BS * SPLIT + tl.arange(0, BS * SPLIT)
    a = tl.load(A + off, mask=off < n, other=0.0)
    A2 = tl.reshape(a, (SPLIT, BS))
    am = tl.max(tl.abs(A2), axis=1)
    tl.store(absmax + pid * SPLIT + tl.arange(0, SPLIT), am, mask=(pid * SPLIT + tl.arange(0, SPLIT)) * BS < n)
    x = A2 / am[:, None]
    x = tl.clamp(x, -1.0, 1.0)
    lo = tl.where(x > 0.03979014977812767, 0b1000, 0)
    pos = x > 0.03979014977812767
    r = tl.where(
        pos,
        tl.where(
            x > 0.3893125355243683,
            tl.where(
                x > 0.6427869200706482,
                tl.where(x > 0.8614784181118011, 0b1111, 0b1110),
                tl.where(x > 0.5016634166240692, 0b1101, 0b1100),
            ),
            tl.where(
                x > 0.2035212516784668,
                tl.where(x > 0.2920137718319893, 0b1011, 0b1010),
                tl.where(x > 0.1202552504837513, 0b1001, 0b1000),
            ),
        ),
        tl.where(
            x > -0.33967943489551544,
            tl.where(
                x > -0.13791173323988914,
                tl.where(x > -0.045525018125772476, 0b0111, 0b0110),
                tl.where(x > -0.23460740596055984, 0b0101, 0b0100),
            ),
            tl.where(
                x > -0.6106329262256622,
                tl.where(x > -0.4599952697753906, 0b0011, 0b0010),
                tl.where(x > -0.8480964004993439, 0b0001, 0b0000),
            ),
        ),
    )
    q = r.to(tl.uint8).reshape((BS * SPLIT // 2, 2))
    left, right = q.split()
    packed = left << 4 | (right & 0xF)
    o = pid * BS * SPLIT // 2 + tl.arange(0, BS * SPLIT // 2)
    tl.store(out + o, packed, mask=o < n // 2)


def test_nf4():
    n, BS = 64 * 7, 64
    a = torch.randn(n)
    am = torch.empty(7)
    out = torch.empty(n // 2, dtype=torch.uint8)
    nf4_quant[(triton.cdiv(n, BS * 2),)](a, am, out, n, BS, 2)
    code = torch.tensor(
        [
            -1.0,
            -0.6961928009986877,
            -0.5250730514526367,
            -0.39491748809814453,
            -0.28444138169288635,
            -0.18477343022823334,
            -0.09105003625154495,
            0.0,
            0.07958029955625534,
            0.16093020141124725,
            0.24611230194568634,
            0.33791524171829224,
            0.44070982933044434,
            0.5626170039176941,
            0.7229568362236023,
            1.0,
        ]
    )
    x = a.view(7, 64) / a.view(7, 64).abs().amax(1, keepdim=True)
    idx = (x[..., None] - code).abs().argmin(-1).view(-1)
    eq(am, a.view(7, 64).abs().amax(1))
    eq(out, (idx[::2] << 4 | idx[1::2]).to(torch.uint8))


class Pointers(NamedTuple):
    x: object
    y: object
    scale: float = 1.0


@triton.jit
def tup(ps, outs, n, FNS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    for j in tl.static_range(len(FNS)):
        r = FNS[j](tl.load(ps.x + i, m), tl.load(ps.y + i, m)) * ps.scale
        tl.store(outs[j] + i, r, m)


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _mul(a, b):
    return a * b


def test_tuple_args():
    x, y = torch.randn(100), torch.randn(100)
    o = (torch.empty(100), torch.empty(100))
    tup[(2,)](Pointers(x, y, 2.5), o, 100, (_add, _mul), BLOCK=64)
    eq(o[0], (x + y) * 2.5)
    eq(o[1], x * y * 2.5)


@triton.constexpr_function
def log2c(n):
    return int(math.log2(n))


@triton.jit
def butterfly(x, N: tl.constexpr, STEP: tl.constexpr = 0):
    if STEP == log2c(N):
        return x
    else:
        y = tl.reshape(x, (N // (2 << STEP), 2, 1 << STEP))
        y = tl.permute(y, (0, 2, 1))
        a, b = tl.split(y)
        z = tl.permute(tl.join(a + b, a - b), (0, 2, 1))
        return butterfly(tl.reshape(z, (N,)), N, STEP + 1)


@triton.jit
def hadamard(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    r = tl.program_id(0)
    tl.store(o + r * N + i, butterfly(tl.load(x + r * N + i), N))


def test_hadamard():
    N = 32
    x = torch.randn(5, N)
    o = torch.empty_like(x)
    hadamard[(5,)](x, o, N)
    H = torch.ones(1, 1)
    while H.shape[0] < N:
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
    eq(o, x @ H, atol=1e-4, rtol=1e-4)


@triton.jit
def op(al, bl, ar, br):
    return al * ar, ar * bl + br


@triton.jit
def lru(a, b, h, T, D, BT: tl.constexpr, BD: tl.constexpr, REV: tl.constexpr):
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    t = tl.arange(0, BT)
    p = t[:, None] * D + d[None, :]
    m = (t[:, None] < T) & (d[None, :] < D)
    A = tl.load(a + p, m, 1.0)
    B = tl.load(b + p, m, 0.0)
    _, H = tl.associative_scan((A, B), 0, op, reverse=REV)
    tl.store(h + p, H, m)


@pytest.mark.parametrize("rev", [False, True])
def test_lru(rev):
    T, D = 27, 19
    a, b = torch.rand(T, D), torch.randn(T, D)
    h = torch.empty(T, D)
    lru[(triton.cdiv(D, 8),)](a, b, h, T, D, 32, 8, rev)
    w = torch.empty(T, D)
    s = torch.zeros(D)
    for t in reversed(range(T)) if rev else range(T):
        s = a[t] * s + b[t]
        w[t] = s
    eq(h, w, atol=1e-4, rtol=1e-4)


@triton.jit
def splitk(a, b, c, locks, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SK: tl.constexpr):
    pid = tl.program_id(0)
    pk = tl.program_id(1)
    pm = pid // tl.cdiv(N, BN)
    pn = pid % tl.cdiv(N, BN)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = pk * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK * SK):
        acc += tl.dot(
            tl.load(a + rm[:, None] * K + (k + rk)[None, :], (rm < M)[:, None] & (k + rk < K)[None, :], 0.0),
            tl.load(b + (k + rk)[:, None] * N + rn[None, :], (k + rk < K)[:, None] & (rn < N)[None, :], 0.0),
            input_precision="ieee",
        )
    p = c + rm[:, None] * N + rn[None, :]
    m = (rm < M)[:, None] & (rn < N)[None, :]
    lock = locks + pid
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    cnt = tl.load(locks + tl.num_programs(0) + pid)
    if cnt == 0:
        tl.store(p, acc, m)
        tl.atomic_xchg(locks + tl.num_programs(0) + pid, 1)
    else:
        tl.store(p, acc + tl.load(p, m, 0.0), m)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_splitk():
    M, N, K = 35, 20, 100
    a, b = torch.randn(M, K), torch.randn(K, N)
    c = torch.empty(M, N)
    g = triton.cdiv(M, 16) * triton.cdiv(N, 16)
    locks = torch.zeros(2 * g, dtype=torch.int32)
    splitk[(g, 3)](a, b, c, locks, M, N, K, 16, 16, 16, 3)
    eq(c, a @ b, atol=1e-4, rtol=1e-4)


@triton.jit
def bp3(x, o, A, B, C, SA, SB, SC, TA: tl.constexpr, TB: tl.constexpr, TC: tl.constexpr):
    p = tl.make_block_ptr(
        x,
        shape=(A, B, C),
        strides=(SA, SB, SC),
        offsets=(tl.program_id(0) * TA, tl.program_id(1) * TB, 0),
        block_shape=(TA, TB, TC),
        order=(2, 1, 0),
    )
    q = tl.make_block_ptr(
        o,
        shape=(B, A),
        strides=(A, 1),
        offsets=(tl.program_id(1) * TB, tl.program_id(0) * TA),
        block_shape=(TB, TA),
        order=(1, 0),
    )
    s = tl.zeros((TA, TB), tl.float32)
    for _ in range(0, C, TC):
        v = tl.load(p, boundary_check=(0, 1, 2), padding_option="zero")
        s += tl.sum(v, -1)
        p = tl.advance(p, (0, 0, TC))
    tl.store(q, tl.trans(s), boundary_check=(0, 1))


def test_bp3():
    x = torch.randn(7, 10, 9).permute(2, 0, 1)
    o = torch.empty(7, 9)
    bp3[(3, 2)](x, o, 9, 7, 10, *x.stride(), 4, 4, 4)
    eq(o, x.sum(-1).t())


@triton.jit
def gptq(q, s, z, g, o, K, N, BITS: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr):
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    per: tl.constexpr = 32 // BITS
    mx: tl.constexpr = 2**BITS - 1
    m = (k < K)[:, None] & (n < N)[None, :]
    w = tl.load(q + (k // per)[:, None] * N + n[None, :], m, 0)
    w = (w >> ((k % per) * BITS)[:, None]) & mx
    gi = tl.load(g + k, k < K, 0)
    zz = tl.load(z + gi[:, None] * (N // per) + (n // per)[None, :], m, 0)
    zz = ((zz >> ((n % per) * BITS)[None, :]) & mx) + 1
    tl.store(o + k[:, None] * N + n[None, :], (w - zz) * tl.load(s + gi[:, None] * N + n[None, :], m, 0.0), m)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_gptq(bits):
    K, N, G = 64, 32, 4
    per = 32 // bits
    q = torch.randint(-(2**31), 2**31 - 1, (K // per, N), dtype=torch.int32)
    z = torch.randint(-(2**31), 2**31 - 1, (G, N // per), dtype=torch.int32)
    s = torch.rand(G, N)
    g = torch.randint(0, G, (K,), dtype=torch.int32)
    o = torch.empty(K, N)
    gptq[(4, 2)](q, s, z, g, o, K, N, bits, 16, 16)
    sh = torch.arange(per) * bits
    w = ((q[:, None] >> sh[None, :, None]) & (2**bits - 1)).reshape(K, N)
    zz = ((z[..., None] >> sh) & (2**bits - 1)).reshape(G, N) + 1
    eq(o, (w - zz[g.long()]) * s[g.long()])


@triton.jit
def varlen(q, k, v, o, cu, scale, H, W: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    b, h, t = tl.program_id(2), tl.program_id(1), tl.program_id(0)
    s = tl.load(cu + b)
    L = tl.load(cu + b + 1) - s
    if t * BM >= L:
        return
    m = t * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    Q = tl.load(q + ((s + m)[:, None] * H + h) * D + d[None, :], (m < L)[:, None], 0.0)
    mi = tl.full([BM], -1e30, tl.float32)
    li = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    lo = max(0, t * BM - W + 1) // BN * BN
    hi = min(L, (t + 1) * BM)
    for n0 in range(lo, hi, BN):
        n = n0 + tl.arange(0, BN)
        K = tl.load(k + ((s + n)[None, :] * H + h) * D + d[:, None], (n < L)[None, :], 0.0)
        S = tl.dot(Q, K) * scale
        ok = (n[None, :] <= m[:, None]) & (m[:, None] - n[None, :] < W) & (n < L)[None, :]
        S = tl.where(ok, S, -1e30)
        mn = tl.maximum(mi, tl.max(S, 1))
        P = tl.where(ok, tl.exp(S - mn[:, None]), 0.0)
        al = tl.exp(mi - mn)
        li = li * al + tl.sum(P, 1)
        acc = tl.dot(
            P, tl.load(v + ((s + n)[:, None] * H + h) * D + d[None, :], (n < L)[:, None], 0.0), acc * al[:, None]
        )
        mi = mn
    tl.store(o + ((s + m)[:, None] * H + h) * D + d[None, :], acc / li[:, None], (m < L)[:, None])


@pytest.mark.parametrize("W", [5, 1000])
def test_varlen(W):
    cu = torch.tensor([0, 7, 7, 40, 41], dtype=torch.int32)
    H, D = 2, 16
    q, k, v = (torch.randn(41, H, D) for _ in range(3))
    o = torch.empty_like(q)
    varlen[(cd(33, 16), H, 4)](q, k, v, o, cu, 0.3, H, W, D, 16, 16)
    for b in range(4):
        a, e = cu[b], cu[b + 1]
        L = e - a
        if L:
            i = torch.arange(L)
            ok = (i[None] <= i[:, None]) & (i[:, None] - i[None] < W)
            S = torch.einsum("mhd,nhd->hmn", q[a:e], k[a:e]) * 0.3
            eq(o[a:e], torch.einsum("hmn,nhd->mhd", S.masked_fill(~ok, -1e30).softmax(-1), v[a:e]), atol=1e-3)


@triton.jit
def pick(x, y, MODE: tl.constexpr):
    if MODE == 0:
        return x, y
    elif MODE == 1:
        return y, x
    r = x + y
    return r, r - y


@triton.jit
def picks(x, y, o, p, MODE: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = pick(tl.load(x + i), tl.load(y + i), MODE)
    tl.store(o + i, a)
    tl.store(p + i, b)


@pytest.mark.parametrize("m", [0, 1, 2])
def test_pick(m):
    x, y = torch.randn(8), torch.randn(8)
    o, p = torch.empty(8), torch.empty(8)
    picks[(1,)](x, y, o, p, m, 8)
    w = [(x, y), (y, x), (x + y, x)][m]
    eq(o, w[0])
    eq(p, w[1])


@triton.jit
def hashk(x, o, q, n, B: tl.constexpr):
    i = tl.arange(0, B)
    h = tl.load(x + i, i < n, 0).to(tl.uint32, bitcast=True)
    h ^= h >> 16
    h *= 0x85EBCA6B
    h ^= h >> 13
    h *= 0xC2B2AE35
    h ^= h >> 16
    tl.store(o + i, h.to(tl.int32, bitcast=True), i < n)
    tl.store(q + i, (h // 7 + tl.umulhi(h, h) % 13 + (h > 0x80000000).to(tl.uint32)).to(tl.int64), i < n)


def test_hash():
    x = torch.randint(-(2**31), 2**31 - 1, (40,), dtype=torch.int32)
    o = torch.empty_like(x)
    q = torch.empty(40, dtype=torch.int64)
    hashk[(1,)](x, o, q, 40, 64)
    M = 2**32 - 1
    for a, b, c in zip(x.tolist(), o.tolist(), q.tolist()):
        h = a & M
        h ^= h >> 16
        h = h * 0x85EBCA6B & M
        h ^= h >> 13
        h = h * 0xC2B2AE35 & M
        h ^= h >> 16
        assert h == b & M and c == h // 7 + (h * h >> 32) % 13 + (h > 0x80000000)


@triton.jit
def sorts(x, o, N: tl.constexpr, D: tl.constexpr, given):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, tl.sort(v, descending=D))
    tl.store(o + N + i, tl.topk(v, N, descending=D))
    tl.store(o + 2 * N + i, tl.sort(v, descending=given))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("order", [0, 1, 2, True])
def test_orders_as_numbers(order):
    x, o = torch.rand(16), torch.empty(3, 16)
    sorts[(1,)](x, o, 16, order, order)
    eq(o, x.sort(descending=bool(order)).values.expand(3, 16))
