"""Quantisation: by rows, groups and tiles, 8-bit floats, packed nibbles, and products of quantised matrices."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves
from tilewright.language.extra import libdevice


@triton.jit
def int8_rows_kernel(x_ptr, q_ptr, s_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(x)), 1e-10) / 127
    q = libdevice.rint(x / scale).to(tl.int8)
    tl.store(q_ptr + row * n_cols + cols, q, mask=cols < n_cols)
    tl.store(s_ptr + row, scale)


@case({"m": 5, "n": 60}, {"m": 4096, "n": 4096})
def int8_with_a_scale_a_row(new, m, n) -> Pairs:
    x, q, s = new.normal(m, n), new.empty(m, n, dtype=torch.int8), new.empty(m)
    int8_rows_kernel[(m,)](x, q, s, n, BLOCK=triton.next_power_of_2(n))
    scale = x.abs().amax(1) / 127
    return [(s, scale), _near(q, x, s)]


def _near(q, x, scale):
    """Every number is within half a step (and rounding) of what it stands for."""
    inside = (q.double() * scale.double()[:, None] - x.double()).abs() <= 0.5001 * scale.double()[:, None]
    return inside.to(torch.int32), torch.ones_like(inside, dtype=torch.int32)


@triton.jit
def float8_groups_kernel(x_ptr, y_ptr, s_ptr, GROUP: tl.constexpr, LIMIT: tl.constexpr):
    g = tl.program_id(0).to(tl.int64)
    offs = g * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + offs).to(tl.float32)
    s = tl.max(tl.abs(x)) / LIMIT
    tl.store(y_ptr + offs, (x / s).to(y_ptr.dtype.element_ty))
    tl.store(s_ptr + g, s)


@case({"m": 4, "n": 64}, {"m": 2048, "n": 4096}, 0.13)
def float8_in_groups(new, m, n) -> Pairs:
    x, s = new.normal(m, n, dtype=torch.bfloat16), new.empty(m, n // 32)
    y = torch.zeros(m, n, device=new.device).to(torch.float8_e5m2)
    float8_groups_kernel[(m * n // 32,)](x, y, s, GROUP=32, LIMIT=57344.0)
    back = y.float().view(m, -1, 32) * s[..., None]
    return [(s, x.double().view(m, -1, 32).abs().amax(-1) / 57344), (back.view(m, n), x.double())]


@triton.jit
def tiles_kernel(X, Y, S, M, N, BLOCK: tl.constexpr, HALF: tl.constexpr):
    """Dequantise: a scale for each square tile."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    tiles = tl.cdiv(N, BLOCK)
    m = pid_m * BLOCK + tl.arange(0, BLOCK)
    n = pid_n * BLOCK + tl.arange(0, BLOCK)
    at = m[:, None] * N + n[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    s = tl.load(S + pid_m * tiles + pid_n)
    y = tl.load(X + at, mask=inside).to(tl.float32) * s
    tl.store(Y + at, y.to(tl.float16) if HALF else y, mask=inside)


@case({"m": 20, "n": 33}, {"m": 3000, "n": 5000}, 1e-3)
def dequantised_tiles(new, m, n) -> Pairs:
    x, s = new.integers(127, m, n, low=-127, dtype=torch.int8), new.uniform(triton.cdiv(m, 16), triton.cdiv(n, 16))
    y = new.empty(m, n, dtype=torch.float16)
    tiles_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 16))](x, y, s, m, n, BLOCK=16, HALF=True)
    scale = s.double().repeat_interleave(16, 0)[:m].repeat_interleave(16, 1)[:, :n]
    return [(y, x.double() * scale)]


@triton.jit
def pack_nibbles_kernel(q_ptr, packed_ptr, n, BLOCK: tl.constexpr):
    """Eight nibbles a word, lowest first."""
    word = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    nibble = tl.arange(0, 8)
    at = word[:, None] * 8 + nibble[None, :]
    q = tl.load(q_ptr + at, mask=at < n, other=0).to(tl.uint32) & 0xF
    packed = tl.sum(q << (4 * nibble[None, :]).to(tl.uint32), axis=1)
    tl.store(packed_ptr + word, packed.to(tl.int32, bitcast=True), mask=word * 8 < n)


@triton.jit
def unpack_nibbles_kernel(packed_ptr, out_ptr, words, ZERO: tl.constexpr, BLOCK: tl.constexpr):
    word = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = word < words
    w = tl.load(packed_ptr + word, mask=ok, other=0)
    for k in tl.static_range(8):
        tl.store(out_ptr + word * 8 + k, ((w >> (4 * k)) & 0xF) - ZERO, mask=ok)


@case({"n": 80}, {"n": 1 << 20})
def nibbles_packed_and_unpacked(new, n) -> Pairs:
    q = new.integers(16, n, dtype=torch.int8)
    packed, back = new.empty(n // 8, dtype=torch.int32), new.empty(n, dtype=torch.int32)
    pack_nibbles_kernel[(triton.cdiv(n, 128),)](q, packed, n, BLOCK=16)
    unpack_nibbles_kernel[(triton.cdiv(n // 8, 16),)](packed, back, n // 8, ZERO=8, BLOCK=16)
    return [(back, q.to(torch.int32) - 8)]


@triton.jit
def int4_matmul_kernel(A, W, S, C, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A dequant(W): eight rows of W in a word, a scale for each group of rows and column."""
    pid = tl.program_id(0)
    blocks = tl.cdiv(N, BN)
    rm = (pid // blocks) * BM + tl.arange(0, BM)
    rn = (pid % blocks) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    shift = (rk % 8) * 4
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        kk = k * BK + rk
        a = tl.load(A + rm[:, None] * K + kk[None, :], mask=rm[:, None] < M, other=0.0)
        w = tl.load(W + (kk // 8)[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0)
        s = tl.load(S + (kk // GROUP)[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
        b = (((w >> shift[:, None]) & 0xF) - 8).to(tl.float32) * s
        acc += tl.dot(a, b.to(a.dtype))
    tl.store(C + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def int4_matmul_backward_kernel(
    DC, W, S, DA, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Frozen weights hand gradients through: dA = dC dequant(W)^T."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rk = tl.program_id(1) * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BK), tl.float32)
    for n in range(0, N, BN):
        rn = n + tl.arange(0, BN)
        dc = tl.load(DC + rm[:, None] * N + rn[None, :], mask=(rm < M)[:, None] & (rn < N)[None, :], other=0.0)
        w = tl.load(W + (rk // 8)[None, :] * N + rn[:, None], mask=rn[:, None] < N, other=0)
        s = tl.load(S + (rk // GROUP)[None, :] * N + rn[:, None], mask=rn[:, None] < N, other=0.0)
        acc += tl.dot(dc, ((((w >> (rk % 8 * 4)[None, :]) & 0xF) - 8).to(tl.float32) * s).to(dc.dtype))
    tl.store(DA + rm[:, None] * K + rk[None, :], acc, mask=rm[:, None] < M)


@case({"m": 5, "n": 24, "k": 64}, {"m": 64, "n": 1024, "k": 2048}, 5e-3)
def product_with_nibble_weights(new, m, n, k) -> Pairs:
    q, s = new.integers(16, k, n, dtype=torch.int32), new.uniform(k // 32, n, low=0.1)
    a, c = new.normal(m, k, dtype=torch.float16), new.empty(m, n)
    shifts = 4 * torch.arange(8, device=new.device, dtype=torch.int64)
    words = (q.long().view(k // 8, 8, n) << shifts[None, :, None]).sum(1)
    words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    grid = (triton.cdiv(m, 16) * triton.cdiv(n, 16),)
    int4_matmul_kernel[grid](a, words, s, c, m, n, k, GROUP=32, BM=16, BN=16, BK=32)
    w = (q.double() - 8) * s.double().repeat_interleave(32, 0)
    dc, da = new.normal(m, n, dtype=torch.float16), new.empty(m, k)
    grid = (triton.cdiv(m, 16), k // 32)
    int4_matmul_backward_kernel[grid](dc, words, s, da, m, n, k, GROUP=32, BM=16, BN=16, BK=32)
    (x,) = leaves(a)
    want = x @ w
    return [(c, want), (da, *gradients(want, dc, x))]


@triton.jit
def int8_matmul_kernel(
    a_ptr, b_ptr, sa_ptr, sb_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rm = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    rn = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    a = a_ptr + rm[:, None] * K + rk[None, :]
    b = b_ptr + rn[None, :] * K + rk[:, None]
    acc = tl.zeros((BM, BN), tl.int32)
    for k in range(0, K, BK):
        acc = tl.dot(
            tl.load(a, mask=rk[None, :] < K - k, other=0), tl.load(b, mask=rk[:, None] < K - k, other=0), acc,
            out_dtype=tl.int32,
        )  # fmt: skip
        a += BK
        b += BK
    c = acc.to(tl.float32) * tl.load(sa_ptr + rm)[:, None] * tl.load(sb_ptr + rn)[None, :]
    om = tl.program_id(0) * BM + tl.arange(0, BM)
    on = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(c_ptr + om[:, None] * N + on[None, :], c, mask=(om < M)[:, None] & (on < N)[None, :])


@case({"m": 19, "n": 35, "k": 50}, {"m": 1000, "n": 1000, "k": 1111})
def int8_product_with_scales_and_wrapped_rows(new, m, n, k) -> Pairs:
    a, b = new.integers(128, m, k, low=-128, dtype=torch.int8), new.integers(128, n, k, low=-128, dtype=torch.int8)
    sa, sb, c = new.uniform(m), new.uniform(n), new.empty(m, n)
    int8_matmul_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 32))](a, b, sa, sb, c, m, n, k, BM=16, BN=32, BK=32)
    return [(c, a.double() @ b.double().T * sa.double()[:, None] * sb.double()[None, :])]


@triton.jit
def fake_quantise_kernel(x, y, dx, dy, n, low, high, scale, zero, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = o < n
    level = libdevice.nearbyint(tl.load(x + o, mask=ok) / scale) + zero
    inside = (level >= low) & (level <= high)
    tl.store(y + o, (tl.minimum(tl.maximum(level, low), high) - zero) * scale, mask=ok)
    tl.store(dx + o, tl.where(inside, tl.load(dy + o, mask=ok), 0.0), mask=ok)


@case({"n": 120}, {"n": 1 << 20})
def fake_quantisation_straight_through(new, n) -> Pairs:
    x, dy, y, dx = new.normal(n), new.normal(n), new.empty(n), new.empty(n)
    fake_quantise_kernel[(triton.cdiv(n, 64),)](x, y, dx, dy, n, -8.0, 7.0, 0.25, 1.0, BLOCK=64)
    leaf = x.clone().requires_grad_()
    want = torch.fake_quantize_per_tensor_affine(leaf, 0.25, 1, -8, 7)
    return [(y, want), (dx, *torch.autograd.grad(want, leaf, dy))]


@triton.jit
def table_kernel(codes, table, scales, out, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Two 4-bit codes a byte, each an index of a table of sixteen numbers."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(codes + o // 2, mask=o < n, other=0)
    code = tl.where(o % 2 == 0, byte >> 4, byte & 15)
    v = tl.load(table + code.to(tl.int32)) * tl.load(scales + o // GROUP, mask=o < n)
    tl.store(out + o, v, mask=o < n)


@case({"n": 96}, {"n": 1 << 20})
def codes_of_a_table(new, n) -> Pairs:
    codes, table, s = new.integers(256, n // 2, dtype=torch.uint8), new.normal(16), new.uniform(n // 32)
    out = new.empty(n)
    table_kernel[(triton.cdiv(n, 64),)](codes, table, s, out, n, BLOCK=64, GROUP=32)
    index = torch.stack([codes >> 4, codes & 15], 1).flatten().long()
    return [(out, table.double()[index] * s.double().repeat_interleave(32))]


@triton.jit
def stochastic_kernel(x_ptr, y_ptr, seed, n, BLOCK: tl.constexpr):
    """Rounds to bfloat16 by adding random low bits."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    noise = tl.randint(seed, o).to(tl.uint32, bitcast=True) & 0xFFFF
    bits = (x.to(tl.uint32, bitcast=True) + noise) & 0xFFFF0000
    tl.store(y_ptr + o, bits.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=o < n)


@case({"n": 4000}, {"n": 1 << 20}, 0.05)
def stochastic_rounding_keeps_the_mean(new, n) -> Pairs:
    x, y = torch.full((n,), 1.003, device=new.device), new.empty(n, dtype=torch.bfloat16)
    stochastic_kernel[(triton.cdiv(n, 128),)](x, y, 7, n, BLOCK=128)
    steps = ((y.double() - 1) / 2**-7).round()
    assert set(steps.unique().tolist()) == {0.0, 1.0}
    return [(steps.mean(), (x.double() - 1).mean() / 2**-7)]


@triton.jit
def kv_cache_kernel(key, cache, scales, slots, HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    """Keys of new tokens, quantised, to the place of their slot; negative slots are left out."""
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    page = slot // PAGE
    within = slot - page * PAGE
    h = tl.arange(0, HEADS)[:, None]
    d = tl.arange(0, D)[None, :]
    k = tl.load(key + (token * HEADS + h) * D + d)
    s = tl.max(tl.abs(k), 1) / 127
    q = libdevice.round(k / s[:, None]).to(tl.int8)
    tl.store(cache + ((page * HEADS + h) * PAGE + within) * D + d, q)
    tl.store(scales + (page * HEADS + tl.arange(0, HEADS)) * PAGE + within, s)


@case({"n": 6, "d": 16}, {"n": 1000, "d": 128}, 1e-2)
def cache_of_quantised_keys(new, n, d) -> Pairs:
    pages, page, heads = n // 2, 4, 2
    key, slots = new.normal(n, heads, d), new.permutation(pages * page)[:n]
    slots[0] = -1
    cache, scales = new.zeros(pages, heads, page, d, dtype=torch.int8), new.zeros(pages, heads, page)
    kv_cache_kernel[(n,)](key, cache, scales, slots, HEADS=heads, D=d, PAGE=page)
    want = new.zeros(pages, heads, page, d, dtype=torch.float64)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            want[slot // page, :, slot % page] = key[token].double()
    return [(cache.double() * scales.double()[..., None], want)]
