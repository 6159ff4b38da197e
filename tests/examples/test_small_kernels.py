"""Small kernels, each with one habit of Triton programs: atomic counters, 3-D tiles, early returns, packed bits.

They stand beside their tests, compiled and interpreted alike.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, params=[False, True], ids=["compiled", "interpreted"])
def _mode(request, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", request.param)


@triton.jit
def moe_count(ids, counts, n, E: tl.constexpr, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    e = tl.load(ids + o, mask=m, other=E)
    tl.atomic_add(counts + e, 1, mask=m)


@triton.jit
def moe_scatter(ids, starts, out, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    e = tl.load(ids + o, mask=m, other=0)
    pos = tl.atomic_add(starts + e, 1, mask=m)
    tl.store(out + pos, o, mask=m)


def test_tokens_sorted_by_expert_with_atomics():
    n, E = 1000, 8
    ids = torch.randint(0, E, (n,), dtype=torch.int32)
    c = torch.zeros(E, dtype=torch.int32)
    moe_count[(4,)](ids, c, n, E=E, B=256)
    assert torch.equal(c.long(), torch.bincount(ids, minlength=E))
    st = (c.cumsum(0) - c).int()
    out = torch.empty(n, dtype=torch.int32)
    moe_scatter[(4,)](ids, st, out, n, B=256)
    assert torch.equal(ids[out.long()], ids.sort().values)


@triton.jit
def outer3(a, b, o, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    x = tl.load(a + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    y = tl.load(b + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    z = tl.sum(x[:, :, None] * y[None, :, :], axis=1)
    tl.store(o + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], z)


def test_product_over_a_three_dimensional_tile():
    a, b = torch.randn(8, 16), torch.randn(16, 32)
    o = torch.empty(8, 32)
    outer3[(1,)](a, b, o, M=8, K=16, N=32)
    assert torch.allclose(o, a @ b, atol=1e-5)


@triton.jit
def bdot(a, b, o, B: tl.constexpr, M: tl.constexpr):
    i = tl.arange(0, B)[:, None, None] * M * M + tl.arange(0, M)[None, :, None] * M + tl.arange(0, M)[None, None, :]
    tl.store(o + i, tl.dot(tl.load(a + i), tl.load(b + i)))


def test_batched_dot():
    a, b = torch.randn(4, 16, 16), torch.randn(4, 16, 16)
    o = torch.empty(4, 16, 16)
    bdot[(1,)](a, b, o, B=4, M=16)
    assert torch.allclose(o, a @ b, atol=1e-5)


@triton.jit
def stats(x, n):
    m = tl.sum(x, 0) / n
    return m, tl.sum((x - m) * (x - m), 0) / n


@triton.jit
def ln_res(x, r, o, n, p, seed, B: tl.constexpr, DT: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + row * n + c).to(tl.float32)
    keep = tl.rand(seed, row * n + c) > p
    v = tl.where(keep, v / (1 - p), 0.0) + tl.load(r + row * n + c).to(tl.float32)
    m, var = stats(v, n)
    tl.store(o + row * n + c, ((v - m) * tl.rsqrt(var + 1e-5)).to(DT))


def test_dropout_residual_norm():
    x, r = torch.randn(5, 128).bfloat16(), torch.randn(5, 128).bfloat16()
    o = torch.empty(5, 128, dtype=torch.float16)
    ln_res[(5,)](x, r, o, 128, 0.0, 7, B=128, DT=tl.float16)
    ref = torch.nn.functional.layer_norm(x.float() + r.float(), (128,))
    assert (o.float() - ref).abs().max() < 3e-3


@triton.jit
def srt(x, o, i, N: tl.constexpr, K: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(o + tl.arange(0, N), tl.sort(v))
    tl.store(i + tl.arange(0, K), tl.topk(v, K))


def test_sort_and_topk():
    x = torch.randn(64)
    o = torch.empty(64)
    k = torch.empty(8)
    srt[(1,)](x, o, k, N=64, K=8)
    assert torch.equal(o, x.sort().values) and torch.equal(k, x.topk(8).values)


@triton.jit
def early(x, msk, o, n, s0, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    flag = tl.load(msk + pid)
    if not flag:
        tl.store(o + pid, -1.0)
        return
    v = tl.load(x + pid.to(tl.int64) * s0 + tl.arange(0, B))
    tl.store(o + pid, tl.max(v, axis=0))


def test_returns_before_the_end():
    x = torch.randn(6, 32)
    m = torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.bool)
    o = torch.zeros(6)
    early[(8,)](x, m, o, 6, x.stride(0), B=32)
    assert torch.equal(o, torch.where(m, x.max(1).values, torch.tensor(-1.0)))


@triton.jit
def quant(x, q, s, n, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    m = c < n
    v = tl.load(x + row * n + c, mask=m, other=0.0).to(tl.float32)
    sc = tl.maximum(tl.max(tl.abs(v)), 1e-12) / 448.0
    tl.store(q + row * n + c, (v / sc).to(q.dtype.element_ty), mask=m)
    tl.store(s + row, sc)


def test_quantisation_to_fp8():
    x = torch.randn(7, 100)
    q = torch.empty(7, 100, dtype=torch.float8_e4m3fn)
    s = torch.empty(7)
    quant[(7,)](x, q, s, 100, B=128)
    assert ((q.float() * s[:, None]) - x).abs().max() < 0.2


@triton.jit
def i8mm(a, b, sa, sb, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0)
        y = tl.load(b + (k + rk)[:, None] + rn[None, :] * K, mask=(rn[None, :] < N) & ((k + rk)[:, None] < K), other=0)
        acc = tl.dot(x, y, acc, out_dtype=tl.int32)
    out = acc.to(tl.float32) * tl.load(sa + rm, mask=rm < M)[:, None] * tl.load(sb + rn, mask=rn < N)[None, :]
    tl.store(c + rm[:, None] * N + rn[None, :], out.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def test_int8_product_with_scales():
    M, N, K = 50, 70, 90
    a = torch.randint(-128, 128, (M, K), dtype=torch.int8)
    b = torch.randint(-128, 128, (N, K), dtype=torch.int8)
    sa, sb = torch.rand(M), torch.rand(N)
    c = torch.empty(M, N, dtype=torch.bfloat16)
    i8mm[(2, 3)](a, b, sa, sb, c, M, N, K, BM=32, BN=32, BK=32)
    ref = (a.double() @ b.double().T) * sa[:, None] * sb[None]
    assert (c.double() - ref).abs().max() / ref.abs().max() < 5e-3


@triton.jit
def transp(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    m = (i[:, None] < M) & (j[None, :] < N)
    t = tl.load(x + i[:, None] * N + j[None, :], mask=m)
    tl.store(y + j[:, None] * M + i[None, :], tl.trans(t), mask=tl.trans(m))


def test_transposed_copy():
    x = torch.randn(70, 45)
    y = torch.empty(45, 70)
    transp[(3, 2)](x, y, 70, 45, BM=32, BN=32)
    assert torch.equal(y, x.T)


@triton.jit
def wf(m1, v1, n1, m2, v2, n2):
    d = m2 - m1
    n = n1 + n2
    f = tl.where(n == 0.0, 0.0, n2 / n)
    return m1 + d * f, v1 + v2 + d * d * n1 * f, n


@triton.jit
def welford(x, o, n, B: tl.constexpr):
    c = tl.arange(0, B)
    m = c < n
    v = tl.load(x + c, mask=m, other=0.0)
    mean, m2, cnt = tl.reduce((v, tl.zeros_like(v), m.to(tl.float32)), 0, wf)
    tl.store(o, mean)
    tl.store(o + 1, m2 / cnt)
    tl.store(o + 2, cnt)


def test_welford_reduction_of_triples():
    x = torch.randn(100) * 3 + 5
    o = torch.empty(3)
    welford[(1,)](x, o, 100, B=128)
    assert torch.allclose(o, torch.tensor([x.mean(), x.var(unbiased=False), 100.0]), rtol=1e-4)


@triton.jit
def bits(x, o, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B)).to(tl.uint32, bitcast=True)
    v = (v ^ (v >> 16)) * 0x85EBCA6B
    v = (v ^ (v >> 13)) * 0xC2B2AE35
    v = v ^ (v >> 16)
    tl.store(o + tl.arange(0, B), v.to(tl.int32, bitcast=True))


def test_hash_in_unsigned_arithmetic():
    x = torch.arange(64, dtype=torch.int32) * 7919
    o = torch.empty_like(x)
    bits[(1,)](x, o, B=64)
    v = x.numpy().view(np.uint32).copy()
    with np.errstate(over="ignore"):
        v ^= v >> 16
        v *= np.uint32(0x85EBCA6B)
        v ^= v >> 13
        v *= np.uint32(0xC2B2AE35)
        v ^= v >> 16
    assert (o.numpy().view(np.uint32) == v).all()


@triton.jit
def segsum(a, o, L: tl.constexpr):
    i = tl.arange(0, L)
    c = tl.cumsum(tl.load(a + i), 0)
    s = c[:, None] - c[None, :]
    tl.store(o + i[:, None] * L + i[None, :], tl.where(i[:, None] >= i[None, :], tl.exp(s), 0.0))


def test_segment_sums():
    a = -torch.rand(32)
    o = torch.empty(32, 32)
    segsum[(1,)](a, o, L=32)
    c = a.cumsum(0)
    assert torch.allclose(o, (c[:, None] - c[None]).exp().tril(), atol=1e-6)


@triton.jit
def named(desc, o, B: tl.constexpr):
    p, n = desc
    c = tl.arange(0, B)
    tl.store(o + c, tl.load(p + c, mask=c < n, other=-1))


def test_tuple_argument():
    x = torch.arange(10.0)
    o = torch.empty(16)
    named[(1,)]((x, 10), o, B=16)
    assert o.tolist() == list(map(float, range(10))) + [-1.0] * 6


@triton.jit
def interl(x, o, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + c)
    lo = (v & 0xF).to(tl.float32)
    hi = ((v >> 4) & 0xF).to(tl.float32)
    tl.store(o + tl.arange(0, 2 * B), tl.interleave(lo, hi))


def test_interleaved_nibbles():
    x = torch.randint(0, 256, (32,), dtype=torch.uint8)
    o = torch.empty(64)
    interl[(1,)](x, o, B=32)
    assert torch.equal(o.view(32, 2), torch.stack([x & 15, x >> 4], 1).float())
