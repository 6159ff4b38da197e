"""Attention: flash forward and backward, variable lengths, pages, split keys, windows, biases, grouped heads."""

from __future__ import annotations

import math

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves


def exact(q, k, v, scale, keep=None, bias=None):
    """softmax(scale q k^T + bias) v over the last two dimensions, in float64; nothing where nothing is kept."""
    s = q.double() @ k.double().transpose(-1, -2) * scale
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, -math.inf)
    p = torch.nan_to_num(s.softmax(-1), 0.0)
    return p @ v.double()


@triton.jit
def flash_kernel(
    Q, K, V, O, LSE, scale, stride_h, T, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    start = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    rm = start * BM + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    q = tl.load(Q + head * stride_h + rm[:, None] * D + rd[None, :], mask=rm[:, None] < T, other=0.0)
    m_i = tl.full([BM], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    end = tl.minimum((start + 1) * BM, T) if CAUSAL else T
    for n in range(0, end, BN):
        n = tl.multiple_of(n, BN)
        at = (n + rn)[:, None] * D + rd[None, :]
        k = tl.load(K + head * stride_h + at, mask=(n + rn)[:, None] < T, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where((n + rn)[None, :] < T, s, float("-inf"))
        if CAUSAL:
            s = tl.where(rm[:, None] >= (n + rn)[None, :], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(V + head * stride_h + at, mask=(n + rn)[:, None] < T, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m_i = m_new
    acc = acc / l_i[:, None]
    tl.store(O + head * stride_h + rm[:, None] * D + rd[None, :], acc.to(O.dtype.element_ty), mask=rm[:, None] < T)
    tl.store(LSE + head * T + rm, m_i + tl.log(l_i), mask=rm < T)


@triton.jit
def delta_kernel(O, DO, DELTA, T, D: tl.constexpr, BM: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    at = (tl.program_id(1) * T + rm)[:, None] * D + tl.arange(0, D)[None, :]
    o = tl.load(O + at, mask=rm[:, None] < T, other=0.0).to(tl.float32)
    do = tl.load(DO + at, mask=rm[:, None] < T, other=0.0).to(tl.float32)
    tl.store(DELTA + tl.program_id(1) * T + rm, tl.sum(o * do, 1), mask=rm < T)


@triton.jit
def flash_backward_kernel(
    Q, K, V, DO, LSE, DELTA, DQ, DK, DV, scale, T, CAUSAL: tl.constexpr, D: tl.constexpr, B: tl.constexpr
):
    """One block of keys; gradients of queries are summed by atomics."""
    head = tl.program_id(1)
    rn = tl.program_id(0) * B + tl.arange(0, B)
    rd = tl.arange(0, D)
    kv = (head * T + rn)[:, None] * D + rd[None, :]
    k = tl.load(K + kv, mask=rn[:, None] < T, other=0.0)
    v = tl.load(V + kv, mask=rn[:, None] < T, other=0.0)
    dk = tl.zeros([B, D], tl.float32)
    dv = tl.zeros([B, D], tl.float32)
    first = tl.program_id(0) * B if CAUSAL else 0
    for m in range(first, T, B):
        rm = m + tl.arange(0, B)
        at = (head * T + rm)[:, None] * D + rd[None, :]
        q = tl.load(Q + at, mask=rm[:, None] < T, other=0.0)
        do = tl.load(DO + at, mask=rm[:, None] < T, other=0.0)
        lse = tl.load(LSE + head * T + rm, mask=rm < T, other=0.0)
        delta = tl.load(DELTA + head * T + rm, mask=rm < T, other=0.0)
        keep = (rm[:, None] < T) & (rn[None, :] < T)
        if CAUSAL:
            keep &= rm[:, None] >= rn[None, :]
        p = tl.where(keep, tl.exp(tl.dot(q, k.T) * scale - lse[:, None]), 0.0)
        dv += tl.dot(tl.trans(p).to(do.dtype), do)
        ds = p * (tl.dot(do, tl.trans(v)) - delta[:, None]) * scale
        dk += tl.dot(tl.trans(ds).to(q.dtype), q)
        tl.atomic_add(DQ + at, tl.dot(ds.to(k.dtype), k), mask=rm[:, None] < T)
    tl.store(DK + kv, dk, mask=rn[:, None] < T)
    tl.store(DV + kv, dv, mask=rn[:, None] < T)


@case({"h": 2, "t": 40, "d": 16, "causal": True}, {"h": 16, "t": 1000, "d": 64, "causal": True}, 1e-2)
def flash_attention(new, h, t, d, causal) -> Pairs:
    q, k, v, do = (new.normal(h, t, d, dtype=torch.float16) for _ in range(4))
    o, lse, delta = new.empty(h, t, d, dtype=torch.float16), new.empty(h, t), new.empty(h, t)
    dq, dk, dv = new.zeros(h, t, d), new.empty(h, t, d), new.empty(h, t, d)
    scale, blocks = d**-0.5, triton.cdiv(t, 16)
    flash_kernel[(blocks, h)](q, k, v, o, lse, scale, t * d, t, CAUSAL=causal, D=d, BM=16, BN=16)
    delta_kernel[(blocks, h)](o, do, delta, t, D=d, BM=16)
    flash_backward_kernel[(blocks, h)](q, k, v, do, lse, delta, dq, dk, dv, scale, t, CAUSAL=causal, D=d, B=16)
    a, b, c = leaves(q, k, v)
    keep = torch.ones(t, t, dtype=torch.bool, device=q.device).tril()
    out = exact(a, b, c, scale, keep)
    return [(o, out), *zip((dq, dk, dv), gradients(out, do, a, b, c), strict=True)]


@case({"h": 2, "t": 33, "d": 32, "causal": False}, {"h": 16, "t": 2048, "d": 128, "causal": False}, 1e-2)
def flash_attention_of_everything(new, h, t, d, causal) -> Pairs:
    q, k, v, do = (new.normal(h, t, d, dtype=torch.bfloat16) for _ in range(4))
    o, lse, delta = new.empty(h, t, d, dtype=torch.bfloat16), new.empty(h, t), new.empty(h, t)
    dq, dk, dv = new.zeros(h, t, d), new.empty(h, t, d), new.empty(h, t, d)
    flash_kernel[(triton.cdiv(t, 32), h)](q, k, v, o, lse, d**-0.5, t * d, t, CAUSAL=causal, D=d, BM=32, BN=16)
    blocks = triton.cdiv(t, 16)
    delta_kernel[(blocks, h)](o, do, delta, t, D=d, BM=16)
    flash_backward_kernel[(blocks, h)](q, k, v, do, lse, delta, dq, dk, dv, d**-0.5, t, CAUSAL=causal, D=d, B=16)
    scores = q.double() @ k.double().transpose(1, 2) * d**-0.5
    a, b, c = leaves(q, k, v)
    want = exact(a, b, c, d**-0.5)
    grads = zip((dq, dk, dv), gradients(want, do, a, b, c), strict=True)
    return [(o, want), (lse, scores.logsumexp(-1)), *grads]


@triton.jit
def varlen_kernel(
    Q, K, V, O, LSE, cu_q, cu_k, scale, H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Sequences one after another; a key head for GROUP query heads; the last query sees the last key."""
    seq, head = tl.program_id(1), tl.program_id(2)
    q0, q1 = tl.load(cu_q + seq), tl.load(cu_q + seq + 1)
    k0, k1 = tl.load(cu_k + seq), tl.load(cu_k + seq + 1)
    len_q, len_k = q1 - q0, k1 - k0
    if tl.program_id(0) * BM >= len_q:
        return
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    q = tl.load(Q + ((q0 + rm) * H + head)[:, None] * D + rd, mask=rm[:, None] < len_q, other=0.0)
    q = (q * (scale * 1.44269504)).to(Q.dtype.element_ty)
    m_i = tl.zeros([BM], tl.float32) - 1.0e30
    l_i = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    shift = len_k - len_q
    for n in range(0, tl.minimum(len_k, (tl.program_id(0) + 1) * BM + shift), BN):
        rn = n + tl.arange(0, BN)
        at = ((k0 + rn) * (H // GROUP) + head // GROUP)[:, None] * D + rd[None, :]
        k = tl.load(K + at, mask=(rn < len_k)[:, None], other=0.0)
        s = tl.dot(q, k.T)
        s = tl.where((rn[None, :] <= rm[:, None] + shift) & (rn[None, :] < len_k), s, -1.0e30)
        new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        a = tl.exp2(m_i - new)
        l_i = l_i * a + tl.sum(p, axis=1)
        acc *= a[:, None]
        v = tl.load(V + at, mask=(rn < len_k)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = new
    o = acc / tl.where(l_i == 0, 1.0, l_i)[:, None]
    tl.store(O + ((q0 + rm) * H + head)[:, None] * D + rd, o.to(O.dtype.element_ty), mask=rm[:, None] < len_q)
    tl.store(LSE + (q0 + rm) * H + head, m_i + tl.log2(tl.where(l_i == 0, 1.0, l_i)), mask=rm < len_q)


@triton.jit
def varlen_backward_kernel(
    Q, K, V, O, DO, LSE, DQ, DK, DV, cu_q, cu_k, scale, H: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr,
    B: tl.constexpr,
):  # fmt: skip
    """A block of keys of one key head against the queries of its group."""
    seq, kv_head = tl.program_id(1), tl.program_id(2)
    q0, len_q = tl.load(cu_q + seq), tl.load(cu_q + seq + 1) - tl.load(cu_q + seq)
    k0, len_k = tl.load(cu_k + seq), tl.load(cu_k + seq + 1) - tl.load(cu_k + seq)
    rn = tl.program_id(0) * B + tl.arange(0, B)
    rd = tl.arange(0, D)
    kv = ((k0 + rn) * (H // GROUP) + kv_head)[:, None] * D + rd[None, :]
    k = tl.load(K + kv, mask=rn[:, None] < len_k, other=0.0)
    v = tl.load(V + kv, mask=rn[:, None] < len_k, other=0.0)
    dk = tl.zeros([B, D], tl.float32)
    dv = tl.zeros([B, D], tl.float32)
    shift = len_k - len_q
    first = tl.maximum(0, tl.program_id(0) * B - shift) // B * B
    for head in range(kv_head * GROUP, (kv_head + 1) * GROUP):
        for m in range(first, len_q, B):
            rm = m + tl.arange(0, B)
            seen = rm < len_q
            at = ((q0 + rm) * H + head)[:, None] * D + rd[None, :]
            q = tl.load(Q + at, mask=seen[:, None], other=0.0)
            do = tl.load(DO + at, mask=seen[:, None], other=0.0)
            o = tl.load(O + at, mask=seen[:, None], other=0.0)
            delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
            lse = tl.load(LSE + (q0 + rm) * H + head, mask=seen, other=0.0)
            keep = (rn[None, :] <= rm[:, None] + shift) & (rn[None, :] < len_k) & seen[:, None]
            p = tl.where(keep, tl.exp2(tl.dot(q, k.T) * (scale * 1.44269504) - lse[:, None]), 0.0)
            dv = tl.dot(p.T.to(do.dtype), do, dv)
            ds = (p * (tl.dot(do, v.T) - delta[:, None]) * scale).to(q.dtype)
            dk = tl.dot(ds.T, q, dk)
            tl.atomic_add(DQ + at, tl.dot(ds, k), mask=seen[:, None])
    tl.store(DK + kv, dk, mask=rn[:, None] < len_k)
    tl.store(DV + kv, dv, mask=rn[:, None] < len_k)


@case({"lengths": (5, 21, 0, 17), "d": 16}, {"lengths": (1000, 37, 513, 2048), "d": 64}, 1e-2)
def attention_of_variable_lengths_with_grouped_heads(new, lengths, d) -> Pairs:
    heads, group = 4, 2
    more = [n + 3 for n in lengths]
    q = new.normal(sum(lengths), heads, d, dtype=torch.float16)
    k, v = (new.normal(sum(more), heads // group, d, dtype=torch.float16) for _ in range(2))
    o, cu_q, cu_k = torch.zeros_like(q), new.offsets(list(lengths)), new.offsets(more)
    grid, lse = (triton.cdiv(max(lengths), 16), len(lengths), heads), new.empty(sum(lengths), heads)
    varlen_kernel[grid](q, k, v, o, lse, cu_q, cu_k, d**-0.5, H=heads, GROUP=group, D=d, BM=16, BN=16)
    do, dq, dk, dv = new.normal(*q.shape, dtype=q.dtype), new.zeros(*q.shape), new.empty(*k.shape), new.empty(*k.shape)
    grid = (triton.cdiv(max(more), 16), len(lengths), heads // group)
    varlen_backward_kernel[grid](q, k, v, o, do, lse, dq, dk, dv, cu_q, cu_k, d**-0.5, H=heads, GROUP=group, D=d, B=16)
    q64, k64, v64 = leaves(q, k, v)
    parts, a, b = [], 0, 0
    for n, m in zip(lengths, more, strict=True):
        if n:
            keys, values = (t[b : b + m].repeat_interleave(group, 1).transpose(0, 1) for t in (k64, v64))
            keep = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
            parts.append(exact(q64[a : a + n].transpose(0, 1), keys, values, d**-0.5, keep).transpose(0, 1))
        a, b = a + n, b + m
    want = torch.cat(parts)
    return [(o, want), *zip((dq, dk, dv), gradients(want, do, q64, k64, v64), strict=True)]


@triton.jit
def paged_kernel(
    Q, KC, VC, TABLE, LENS, PART, TOP, SUM, scale, pages, PAGE: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr
):
    """One query a sequence against keys in pages; each program takes every SPLITS-th page."""
    seq, split = tl.program_id(0), tl.program_id(1)
    n = tl.load(LENS + seq)
    d = tl.arange(0, D)
    slot = tl.arange(0, PAGE)
    q = tl.load(Q + seq * D + d).to(tl.float32)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros([D], tl.float32)
    page = split
    while page * PAGE < n:
        block = tl.load(TABLE + seq * pages + page).to(tl.int64)
        inside = page * PAGE + slot < n
        k = tl.load(KC + (block * PAGE + slot[:, None]) * D + d[None, :], mask=inside[:, None], other=0.0)
        s = tl.sum(q[None, :] * k.to(tl.float32), 1) * scale
        s = tl.where(inside, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 0))
        p = tl.exp(s - new)
        fade = tl.exp(top - new)
        v = tl.load(VC + (block * PAGE + slot[:, None]) * D + d[None, :], mask=inside[:, None], other=0.0)
        acc = acc * fade + tl.sum(p[:, None] * v.to(tl.float32), 0)
        total = total * fade + tl.sum(p, 0)
        top = new
        page += SPLITS
    tl.store(PART + (seq * SPLITS + split) * D + d, acc)
    tl.store(TOP + seq * SPLITS + split, top)
    tl.store(SUM + seq * SPLITS + split, total)


@triton.jit
def merge_splits_kernel(PART, TOP, SUM, O, D: tl.constexpr, SPLITS: tl.constexpr):
    seq = tl.program_id(0)
    s = tl.arange(0, SPLITS)
    d = tl.arange(0, D)
    top = tl.load(TOP + seq * SPLITS + s)
    best = tl.max(top, 0)
    w = tl.where(top == float("-inf"), 0.0, tl.exp(top - best))
    part = tl.load(PART + (seq * SPLITS + s)[:, None] * D + d[None, :])
    out = tl.sum(tl.where(w[:, None] > 0, part * w[:, None], 0.0), 0) / tl.sum(w * tl.load(SUM + seq * SPLITS + s), 0)
    tl.store(O + seq * D + d, out)


@case({"lengths": (1, 9, 30), "d": 16}, {"lengths": (4000, 1, 700, 2049), "d": 128}, 1e-2)
def paged_attention_in_splits(new, lengths, d) -> Pairs:
    page, splits, b = 8, 4, len(lengths)
    pages = triton.cdiv(max(lengths), page)
    table = new.permutation(b * pages).view(b, pages).to(torch.int32)
    q, kc, vc = new.normal(b, d), *(new.normal(b * pages, page, d, dtype=torch.float16) for _ in range(2))
    lens = torch.tensor(lengths, device=q.device, dtype=torch.int32)
    part, top, total, o = new.empty(b, splits, d), new.empty(b, splits), new.empty(b, splits), new.empty(b, d)
    paged_kernel[(b, splits)](q, kc, vc, table, lens, part, top, total, d**-0.5, pages, PAGE=page, D=d, SPLITS=splits)
    merge_splits_kernel[(b,)](part, top, total, o, D=d, SPLITS=splits)
    want = []
    for i, n in enumerate(lengths):
        keys, values = (cache[table[i].long()].reshape(-1, d)[:n] for cache in (kc, vc))
        want.append(exact(q[i : i + 1], keys, values, d**-0.5)[0])
    return [(o, torch.stack(want))]


@triton.jit
def biased_kernel(
    Q, K, V, BIAS, O, LSE, T, scale, slope_base, WINDOW: tl.constexpr, ALIBI: tl.constexpr, HAS_BIAS: tl.constexpr,
    D: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    h = tl.program_id(1)
    q_block = tl.make_block_ptr(Q + h * T * D, (T, D), (D, 1), (tl.program_id(0) * B, 0), (B, D), (1, 0))
    o_block = tl.make_block_ptr(O + h * T * D, (T, D), (D, 1), (tl.program_id(0) * B, 0), (B, D), (1, 0))
    lowest = tl.maximum(0, (tl.program_id(0) * B - WINDOW) // B * B) if WINDOW > 0 else 0
    k_block = tl.make_block_ptr(K + h * T * D, (D, T), (1, D), (0, lowest), (D, B), (0, 1))
    v_block = tl.make_block_ptr(V + h * T * D, (T, D), (D, 1), (lowest, 0), (B, D), (1, 0))
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    rm = tl.program_id(0) * B + tl.arange(0, B)
    slope = tl.exp2(-slope_base * (h + 1))
    m_i = tl.full((B,), -1e9, tl.float32)
    l_i = tl.full((B,), 0.0, tl.float32)
    acc = tl.zeros((B, D), tl.float32)
    for n in range(lowest, T, B):
        rn = n + tl.arange(0, B)
        s = tl.dot(q, tl.load(k_block, boundary_check=(1,), padding_option="zero"), input_precision="ieee") * scale
        away = rm[:, None] - rn[None, :]
        if ALIBI:
            s -= slope * tl.abs(away).to(tl.float32)
        if HAS_BIAS:
            inside = (rm[:, None] < T) & (rn[None, :] < T)
            s += tl.load(BIAS + rm[:, None] * T + rn[None, :], mask=inside, other=0.0)
        keep = rn[None, :] < T
        if WINDOW > 0:
            keep = keep & (away >= 0) & (away <= WINDOW)
        s = tl.where(keep, s, -1e9)
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.where(keep, tl.exp(s - m_new[:, None]), 0.0)
        a = tl.exp(m_i - m_new)
        l_i = l_i * a + tl.sum(p, 1)
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        acc = acc * a[:, None] + tl.dot(p, v, input_precision="ieee")
        m_i = m_new
        k_block = tl.advance(k_block, (0, B))
        v_block = tl.advance(v_block, (B, 0))
    tl.store(o_block, acc / tl.maximum(l_i, 1e-20)[:, None], boundary_check=(0,))
    tl.store(LSE + h * T + rm, m_i + tl.log(l_i), mask=rm < T)


@triton.jit
def biased_backward_kernel(
    Q, K, V, BIAS, O, DO, LSE, DQ, DK, DV, DBIAS, T, scale, slope_base, WINDOW: tl.constexpr, ALIBI: tl.constexpr,
    HAS_BIAS: tl.constexpr, D: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """A block of keys; atomics sum the gradients of queries, and over heads that of the bias."""
    h = tl.program_id(1)
    rn = tl.program_id(0) * B + tl.arange(0, B)
    rd = tl.arange(0, D)
    kv = (h * T + rn)[:, None] * D + rd[None, :]
    k = tl.load(K + kv, mask=rn[:, None] < T, other=0.0)
    v = tl.load(V + kv, mask=rn[:, None] < T, other=0.0)
    slope = tl.exp2(-slope_base * (h + 1))
    dk = tl.zeros((B, D), tl.float32)
    dv = tl.zeros((B, D), tl.float32)
    first = tl.program_id(0) * B if WINDOW > 0 else 0
    last = tl.minimum(T, tl.program_id(0) * B + B + WINDOW) if WINDOW > 0 else T
    for m in range(first, last, B):
        rm = m + tl.arange(0, B)
        at = (h * T + rm)[:, None] * D + rd[None, :]
        q = tl.load(Q + at, mask=rm[:, None] < T, other=0.0)
        do = tl.load(DO + at, mask=rm[:, None] < T, other=0.0)
        delta = tl.sum(do * tl.load(O + at, mask=rm[:, None] < T, other=0.0), 1)
        s = tl.dot(q, k.T, input_precision="ieee") * scale
        away = rm[:, None] - rn[None, :]
        inside = (rm[:, None] < T) & (rn[None, :] < T)
        if ALIBI:
            s -= slope * tl.abs(away).to(tl.float32)
        if HAS_BIAS:
            s += tl.load(BIAS + rm[:, None] * T + rn[None, :], mask=inside, other=0.0)
        keep = inside & (away >= 0) & (away <= WINDOW) if WINDOW > 0 else inside
        p = tl.where(keep, tl.exp(s - tl.load(LSE + h * T + rm, mask=rm < T, other=0.0)[:, None]), 0.0)
        dv = tl.dot(p.T, do, dv, input_precision="ieee")
        ds = p * (tl.dot(do, v.T, input_precision="ieee") - delta[:, None])
        dk = tl.dot(ds.T, q * scale, dk, input_precision="ieee")
        if HAS_BIAS:
            tl.atomic_add(DBIAS + rm[:, None] * T + rn[None, :], ds, mask=inside)
        tl.atomic_add(DQ + at, tl.dot(ds, k, input_precision="ieee") * scale, mask=rm[:, None] < T)
    tl.store(DK + kv, dk, mask=rn[:, None] < T)
    tl.store(DV + kv, dv, mask=rn[:, None] < T)


def _biased(new, h, t, d, *, window=0, alibi=False, biased=False):
    q, k, v, do = (new.normal(h, t, d) for _ in range(4))
    o, lse, dq, dk, dv = new.empty(h, t, d), new.empty(h, t), new.zeros(h, t, d), new.empty(h, t, d), new.empty(h, t, d)
    bias, dbias = (new.normal(t, t), new.zeros(t, t)) if biased else (None, None)
    grid, kind = (triton.cdiv(t, 16), h), {"WINDOW": window, "ALIBI": alibi, "HAS_BIAS": biased, "D": d, "B": 16}
    biased_kernel[grid](q, k, v, bias, o, lse, t, d**-0.5, 0.5, **kind)
    biased_backward_kernel[grid](q, k, v, bias, o, do, lse, dq, dk, dv, dbias, t, d**-0.5, 0.5, **kind)
    made, inputs = [dq, dk, dv], [*leaves(q, k, v)]
    i = torch.arange(t, device=q.device)
    away = i[:, None] - i[None, :]
    keep = (away >= 0) & (away <= window) if window else None
    extra = None
    if biased:
        (extra,) = leaves(bias)
        made, inputs = [*made, dbias], [*inputs, extra]
    if alibi:
        slopes = 2.0 ** (-0.5 * torch.arange(1, h + 1, device=q.device, dtype=torch.float64))
        extra = -slopes[:, None, None] * away.abs()
    want = exact(*inputs[:3], d**-0.5, keep, extra)
    return [(o, want), *zip(made, gradients(want, do, *inputs), strict=True)]


@case({"h": 2, "t": 45, "d": 16}, {"h": 4, "t": 700, "d": 64}, 1e-4)
def sliding_window_attention_with_block_pointers(new, h, t, d) -> Pairs:
    return _biased(new, h, t, d, window=10)


@case({"h": 3, "t": 20, "d": 16}, {"h": 4, "t": 500, "d": 32}, 1e-4)
def attention_with_slopes_of_distance(new, h, t, d) -> Pairs:
    return _biased(new, h, t, d, alibi=True)


@case({"h": 2, "t": 31, "d": 32}, {"h": 4, "t": 400, "d": 64}, 1e-4)
def attention_with_a_bias_matrix(new, h, t, d) -> Pairs:
    return _biased(new, h, t, d, biased=True)


@triton.jit
def descriptor_attention_kernel(Q, K, V, O, LSE, T, D: tl.constexpr, B: tl.constexpr):
    """Two passes over the keys: row maxima and sums, then the result; all blocks by descriptors."""
    start = tl.program_id(0) * B
    q_desc = tl.make_tensor_descriptor(Q, [T, D], [D, 1], [B, D])
    k_desc = tl.make_tensor_descriptor(K, [T, D], [D, 1], [B, D])
    v_desc = tl.make_tensor_descriptor(V, [T, D], [D, 1], [B, D])
    o_desc = tl.make_tensor_descriptor(O, [T, D], [D, 1], [B, D])
    q = q_desc.load([start, 0])
    top = tl.full([B], float("-inf"), tl.float32)
    total = tl.zeros([B], tl.float32)
    for n in range(0, T, B):
        s = tl.dot(q, k_desc.load([n, 0]).T, input_precision="ieee")
        s = tl.where((n + tl.arange(0, B))[None, :] < T, s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(s - new[:, None]), 1)
        top = new
    acc = tl.zeros([B, D], tl.float32)
    for n in range(0, T, B):
        s = tl.dot(q, k_desc.load([n, 0]).T, input_precision="ieee")
        s = tl.where((n + tl.arange(0, B))[None, :] < T, s, float("-inf"))
        acc += tl.dot(tl.exp(s - top[:, None]) / total[:, None], v_desc.load([n, 0]), input_precision="ieee")
    o_desc.store([start, 0], acc)
    rows = start + tl.arange(0, B)
    tl.store(LSE + rows, top + tl.log(total), mask=rows < T)


@triton.jit
def descriptor_attention_backward_kernel(Q, K, V, O, DO, LSE, DQ, DK, DV, T, D: tl.constexpr, B: tl.constexpr):
    """A block of queries; descriptors add to the gradients of keys and values."""
    start = tl.program_id(0) * B
    rows = start + tl.arange(0, B)
    k_desc = tl.make_tensor_descriptor(K, [T, D], [D, 1], [B, D])
    v_desc = tl.make_tensor_descriptor(V, [T, D], [D, 1], [B, D])
    dk_desc = tl.make_tensor_descriptor(DK, [T, D], [D, 1], [B, D])
    dv_desc = tl.make_tensor_descriptor(DV, [T, D], [D, 1], [B, D])
    q = tl.make_tensor_descriptor(Q, [T, D], [D, 1], [B, D]).load([start, 0])
    o = tl.make_tensor_descriptor(O, [T, D], [D, 1], [B, D]).load([start, 0])
    do = tl.make_tensor_descriptor(DO, [T, D], [D, 1], [B, D]).load([start, 0])
    delta = tl.sum(o * do, 1)
    lse = tl.load(LSE + rows, mask=rows < T, other=0.0)
    dq = tl.zeros([B, D], tl.float32)
    for n in range(0, T, B):
        k = k_desc.load([n, 0])
        keep = (rows < T)[:, None] & ((n + tl.arange(0, B))[None, :] < T)
        p = tl.where(keep, tl.exp(tl.dot(q, k.T, input_precision="ieee") - lse[:, None]), 0.0)
        ds = p * (tl.dot(do, v_desc.load([n, 0]).T, input_precision="ieee") - delta[:, None])
        dq = tl.dot(ds, k, dq, input_precision="ieee")
        dk_desc.atomic_add([n, 0], tl.dot(ds.T, q, input_precision="ieee"))
        dv_desc.atomic_add([n, 0], tl.dot(p.T, do, input_precision="ieee"))
    tl.make_tensor_descriptor(DQ, [T, D], [D, 1], [B, D]).store([start, 0], dq)


@case({"t": 24, "d": 16}, {"t": 900, "d": 64}, 1e-4)
def attention_by_descriptors(new, t, d) -> Pairs:
    q, k, v, do = (new.normal(t, d) for _ in range(4))
    o, lse, dq, dk, dv = new.empty(t, d), new.empty(t), new.empty(t, d), new.zeros(t, d), new.zeros(t, d)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=new.device))
    grid = (triton.cdiv(t, 16),)
    descriptor_attention_kernel[grid](q, k, v, o, lse, t, D=d, B=16)
    descriptor_attention_backward_kernel[grid](q, k, v, o, do, lse, dq, dk, dv, t, D=d, B=16)
    inputs = [*leaves(q, k, v)]
    want = exact(*inputs, 1.0)
    return [(o, want), *zip((dq, dk, dv), gradients(want, do, *inputs), strict=True)]


@triton.jit
def latent_kernel(
    Q, KV, O, LSE, T, scale, HEADS: tl.constexpr, RANK: tl.constexpr, ROPE: tl.constexpr, B: tl.constexpr
):
    """All heads of one token share one latent: keys are latent and rotary part, values are the latent."""
    token = tl.program_id(0)
    h = tl.arange(0, HEADS)
    r, p = tl.arange(0, RANK), tl.arange(0, ROPE)
    width: tl.constexpr = RANK + ROPE
    q = tl.load(Q + (token * HEADS + h)[:, None] * width + r)
    qp = tl.load(Q + (token * HEADS + h)[:, None] * width + RANK + p)
    m_i = tl.full([HEADS], float("-inf"), tl.float32)
    l_i = tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, RANK], tl.float32)
    for n in tl.range(0, token + 1, B):
        rn = n + tl.arange(0, B)
        seen = rn <= token
        c = tl.load(KV + rn[:, None] * width + r[None, :], mask=seen[:, None], other=0.0)
        kp = tl.load(KV + rn[:, None] * width + RANK + p[None, :], mask=seen[:, None], other=0.0)
        s = tl.dot(qp, kp.T, tl.dot(q, c.T, input_precision="ieee"), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        new = tl.maximum(m_i, tl.max(s, 1))
        w = tl.exp(s - new[:, None])
        a = tl.exp(m_i - new)
        l_i, m_i = l_i * a + tl.sum(w, 1), new
        acc = tl.dot(w, c, acc * a[:, None], input_precision="ieee")
    tl.store(O + (token * HEADS + h)[:, None] * RANK + r, acc / l_i[:, None])
    tl.store(LSE + token * HEADS + h, m_i + tl.log(l_i))


@triton.jit
def latent_backward_kernel(
    Q, KV, O, DO, LSE, DQ, DKV, scale, HEADS: tl.constexpr, RANK: tl.constexpr, ROPE: tl.constexpr, B: tl.constexpr
):
    """A token; the latents before it get what they gave as keys and as values."""
    token = tl.program_id(0)
    h = tl.arange(0, HEADS)
    r, p = tl.arange(0, RANK), tl.arange(0, ROPE)
    width: tl.constexpr = RANK + ROPE
    q = tl.load(Q + (token * HEADS + h)[:, None] * width + r)
    qp = tl.load(Q + (token * HEADS + h)[:, None] * width + RANK + p)
    do = tl.load(DO + (token * HEADS + h)[:, None] * RANK + r)
    delta = tl.sum(do * tl.load(O + (token * HEADS + h)[:, None] * RANK + r), 1)
    lse = tl.load(LSE + token * HEADS + h)
    dq = tl.zeros([HEADS, RANK], tl.float32)
    dqp = tl.zeros([HEADS, ROPE], tl.float32)
    for n in tl.range(0, token + 1, B):
        rn = n + tl.arange(0, B)
        seen = rn <= token
        c = tl.load(KV + rn[:, None] * width + r[None, :], mask=seen[:, None], other=0.0)
        kp = tl.load(KV + rn[:, None] * width + RANK + p[None, :], mask=seen[:, None], other=0.0)
        s = tl.dot(qp, kp.T, tl.dot(q, c.T, input_precision="ieee"), input_precision="ieee") * scale
        w = tl.where(seen[None, :], tl.exp(s - lse[:, None]), 0.0)
        ds = w * (tl.dot(do, c.T, input_precision="ieee") - delta[:, None]) * scale
        dq = tl.dot(ds, c, dq, input_precision="ieee")
        dqp = tl.dot(ds, kp, dqp, input_precision="ieee")
        dc = tl.dot(w.T, do, tl.dot(ds.T, q, input_precision="ieee"), input_precision="ieee")
        tl.atomic_add(DKV + rn[:, None] * width + r[None, :], dc, mask=seen[:, None])
        dkp = tl.dot(ds.T, qp, input_precision="ieee")
        tl.atomic_add(DKV + rn[:, None] * width + RANK + p[None, :], dkp, mask=seen[:, None])
    tl.store(DQ + (token * HEADS + h)[:, None] * width + r, dq)
    tl.store(DQ + (token * HEADS + h)[:, None] * width + RANK + p, dqp)


@case({"t": 9, "rank": 32}, {"t": 300, "rank": 128}, 1e-4)
def latent_attention(new, t, rank) -> Pairs:
    q, kv, o = new.normal(t, 16, rank + 16), new.normal(t, rank + 16), new.empty(t, 16, rank)
    lse, do, dq, dkv = new.empty(t, 16), new.normal(t, 16, rank), new.empty(*q.shape), new.zeros(*kv.shape)
    latent_kernel[(t,)](q, kv, o, lse, t, 0.1, HEADS=16, RANK=rank, ROPE=16, B=16)
    latent_backward_kernel[(t,)](q, kv, o, do, lse, dq, dkv, 0.1, HEADS=16, RANK=rank, ROPE=16, B=16)
    a, b = leaves(q, kv)
    keep = torch.ones(t, t, dtype=torch.bool, device=q.device).tril()
    want = exact(a.transpose(0, 1), b[None], b[None, :, :rank], 0.1, keep).transpose(0, 1)
    return [(o, want), *zip((dq, dkv), gradients(want, do, a, b), strict=True)]
