"""Rotary embeddings, activations with their gradients, dropout, and other element-wise work of libraries."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves
from tilewright.language.extra import libdevice

F = torch.nn.functional


@triton.jit
def rope_kernel(Q, K, COS, SIN, T, HQ: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, BACK: tl.constexpr):
    """Halves of each head turned by the angle of its position, in place."""
    token = tl.program_id(0).to(tl.int64)
    half: tl.constexpr = D // 2
    d = tl.arange(0, half)
    cos = tl.load(COS + (token % T) * half + d)
    sin = tl.load(SIN + (token % T) * half + d)
    if BACK:
        sin = -sin
    heads: tl.constexpr = triton.next_power_of_2(HQ)
    h = tl.arange(0, heads)
    at = token * HQ * D + h[:, None] * D + d[None, :]
    keep = (h < HQ)[:, None] & (d >= 0)[None, :]
    a, b = tl.load(Q + at, mask=keep), tl.load(Q + at + half, mask=keep)
    tl.store(Q + at, a * cos[None, :] - b * sin[None, :], mask=keep)
    tl.store(Q + at + half, b * cos[None, :] + a * sin[None, :], mask=keep)
    for i in tl.static_range(HK):
        p = K + token * HK * D + i * D + d
        a, b = tl.load(p), tl.load(p + half)
        tl.store(p, a * cos - b * sin)
        tl.store(p + half, b * cos + a * sin)


def _turned(x, cos, sin):
    a, b = x.double().chunk(2, -1)
    c, s = cos.double()[None, :, None], sin.double()[None, :, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


@case({"b": 2, "t": 5, "hq": 3, "d": 16}, {"b": 4, "t": 2048, "hq": 12, "d": 128})
def rotary_of_halves(new, b, t, hq, d) -> Pairs:
    q, k, angle = new.normal(b, t, hq, d), new.normal(b, t, 2, d), new.uniform(t, d // 2, high=6.0)
    cos, sin = angle.cos(), angle.sin()
    q64, k64 = leaves(q, k)
    turned = [_turned(q64, cos, sin), _turned(k64, cos, sin)]
    rope_kernel[(b * t,)](q, k, cos, sin, t, HQ=hq, HK=2, D=d, BACK=False)
    dq, dk = new.normal(b, t, hq, d), new.normal(b, t, 2, d)
    want = [*gradients(turned[0], dq, q64), *gradients(turned[1], dk, k64)]
    rope_kernel[(b * t,)](dq, dk, cos, sin, t, HQ=hq, HK=2, D=d, BACK=True)
    return [*zip((q, k, dq, dk), (*turned, *want), strict=True)]


@triton.jit
def rope_pairs_kernel(x_ptr, y_ptr, f_ptr, rows, T, D: tl.constexpr, BLOCK: tl.constexpr):
    """Neighbours are the real and imaginary part; the factor is a complex number a pair."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, D)
    x = tl.load(x_ptr + r[:, None] * D + c[None, :], mask=r[:, None] < rows, other=0.0)
    f = tl.load(f_ptr + (r % T)[:, None] * D + c[None, :], mask=r[:, None] < rows, other=0.0)
    re, im = tl.split(tl.reshape(x, (BLOCK, D // 2, 2)))
    fr, fi = tl.split(f.reshape(BLOCK, D // 2, 2))
    y = tl.join(re * fr - im * fi, re * fi + im * fr).reshape(BLOCK, D)
    tl.store(y_ptr + r[:, None] * D + c[None, :], y, mask=r[:, None] < rows)


@case({"n": 11, "t": 4, "d": 8}, {"n": 65536, "t": 1024, "d": 64})
def rotary_of_neighbours(new, n, t, d) -> Pairs:
    x, factor, dy = new.normal(n, d), new.normal(t, d), new.normal(n, d)
    y, dx = torch.empty_like(x), torch.empty_like(x)
    rope_pairs_kernel[(triton.cdiv(n, 8),)](x, y, factor, n, t, D=d, BLOCK=8)
    conjugate = (factor.view(t, -1, 2) * torch.tensor([1.0, -1.0], device=x.device)).flatten(1)
    rope_pairs_kernel[(triton.cdiv(n, 8),)](dy, dx, conjugate, n, t, D=d, BLOCK=8)
    (x64,) = leaves(x)
    f = torch.view_as_complex(factor.double().view(t, -1, 2))[torch.arange(n, device=x.device) % t]
    out = torch.view_as_real(torch.view_as_complex(x64.view(n, -1, 2)) * f).flatten(1)
    return [(y, out), (dx, *gradients(out, dy, x64))]


@triton.jit
def rope_angles_kernel(positions, out, base: tl.constexpr, D: tl.constexpr):
    """Cosines and sines made in the kernel; positions are 64 bit."""
    t = tl.program_id(0)
    i = tl.arange(0, D // 2)
    inv = tl.exp2(-(2.0 * i / D) * tl.log2(base * 1.0))
    angle = tl.load(positions + t).to(tl.float32) * inv
    tl.store(out + t * D + i, tl.cos(angle))
    tl.store(out + t * D + D // 2 + i, tl.sin(angle))


@case({"t": 6, "d": 16}, {"t": 8192, "d": 128}, 2e-3)
def rotary_angles_of_positions(new, t, d) -> Pairs:
    positions = new.integers(4000, t)
    out = new.empty(t, d)
    rope_angles_kernel[(t,)](positions, out, 10000.0, D=d)
    inv = 10000.0 ** (-torch.arange(0, d, 2, device=out.device, dtype=torch.float64) / d)
    angle = positions.double()[:, None] * inv
    return [(out, torch.cat([angle.cos(), angle.sin()], -1))]


@triton.jit
def swiglu_forward(gate, up, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    gate, up, out = gate + row * cols, up + row * cols, out + row * cols
    c = tl.arange(0, BLOCK)
    a = tl.load(gate + c, mask=c < cols, other=0).to(tl.float32)
    b = tl.load(up + c, mask=c < cols, other=0)
    tl.store(out + c, (a * tl.sigmoid(a)).cast(b.dtype) * b, mask=c < cols)


@triton.jit
def swiglu_backward(dout, gate, up, cols, BLOCK: tl.constexpr):
    """Gradients take the place of the inputs."""
    row = tl.program_id(0).to(tl.int64) * cols
    c = tl.arange(0, BLOCK)
    m = c < cols
    d = tl.load(dout + row + c, mask=m, other=0)
    a = tl.load(gate + row + c, mask=m, other=0).to(tl.float32)
    b = tl.load(up + row + c, mask=m, other=0)
    s = tl.sigmoid(a)
    silu = a * s
    tl.store(up + row + c, d * silu, mask=m)
    tl.store(gate + row + c, d * (silu * (1 - s) + s) * b, mask=m)


@case({"m": 4, "n": 50}, {"m": 4096, "n": 8192})
def swiglu_with_gradients_in_place(new, m, n) -> Pairs:
    gate, up, dout, out = new.normal(m, n), new.normal(m, n), new.normal(m, n), new.empty(m, n)
    a, b = leaves(gate, up)
    block = triton.next_power_of_2(n)
    swiglu_forward[(m,)](gate, up, out, n, BLOCK=block)
    swiglu_backward[(m,)](dout, gate, up, n, BLOCK=block)
    want = F.silu(a) * b
    return [(out, want), *zip((gate, up), gradients(want, dout, a, b), strict=True)]


@triton.jit
def gelu(x, TANH: tl.constexpr):
    if TANH:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + libdevice.tanh(inner))
    else:
        return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def geglu_kernel(X, OUT, N, H, TANH: tl.constexpr, BLOCK: tl.constexpr):
    """The two halves of a row, side by side in memory."""
    pid = tl.program_id(axis=0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    row, col = offs // H, offs % H
    valid = row < N
    a = tl.load(X + row * 2 * H + col, mask=valid)
    b = tl.load(X + row * 2 * H + H + col, mask=valid)
    tl.store(OUT + offs, gelu(a, TANH) * b, mask=valid)


@triton.jit
def geglu_backward_kernel(X, DOUT, DX, N, H, TANH: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    row, col = offs // H, offs % H
    valid = row < N
    a = tl.load(X + row * 2 * H + col, mask=valid, other=0.0)
    b = tl.load(X + row * 2 * H + H + col, mask=valid, other=0.0)
    d = tl.load(DOUT + offs, mask=valid, other=0.0)
    if TANH:
        t = libdevice.tanh(0.7978845608028654 * (a + 0.044715 * a * a * a))
        slope = 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * a * a)
    else:
        slope = 0.5 * (1 + tl.erf(a * 0.7071067811865476)) + a * tl.exp(-0.5 * a * a) * 0.3989422804014327
    tl.store(DX + row * 2 * H + col, d * b * slope, mask=valid)
    tl.store(DX + row * 2 * H + H + col, d * gelu(a, TANH), mask=valid)


@case({"n": 5, "h": 30, "tanh": True}, {"n": 4096, "h": 4096, "tanh": False})
def geglu_of_halves(new, n, h, tanh) -> Pairs:
    x, out, dout, dx = new.normal(n, 2 * h), new.empty(n, h), new.normal(n, h), new.empty(n, 2 * h)
    geglu_backward_kernel[(triton.cdiv(n * h, 64),)](x, dout, dx, n, h, TANH=tanh, BLOCK=64)
    geglu_kernel[(triton.cdiv(n * h, 64),)](x, out, n, h, TANH=tanh, BLOCK=64)
    (x64,) = leaves(x)
    a, b = x64.chunk(2, -1)
    want = F.gelu(a, approximate="tanh" if tanh else "none") * b
    return [(out, want), (dx, *gradients(want, dout, x64))]


@triton.jit
def bias_gelu_backward_kernel(X, B, DY, DX, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(1) * BM + tl.arange(0, BM)
    rn = tl.program_id(0) * BN + tl.arange(0, BN)
    ok = (rm[:, None] < M) & (rn[None, :] < N)
    at = rm[:, None] * N + rn[None, :]
    x = tl.load(X + at, mask=ok, other=0.0) + tl.load(B + rn, mask=rn < N, other=0.0)[None, :]
    cdf = 0.5 * (1 + tl.math.erf(x * 0.7071067811865476))
    pdf = tl.math.exp(-0.5 * x * x) * 0.3989422804014327
    tl.store(DX + at, tl.load(DY + at, mask=ok) * (cdf + x * pdf), mask=ok)


@case({"m": 9, "n": 20}, {"m": 4096, "n": 4096})
def gelu_backward_with_bias(new, m, n) -> Pairs:
    x, b, dy, dx = new.normal(m, n), new.normal(n), new.normal(m, n), new.empty(m, n)
    bias_gelu_backward_kernel[(triton.cdiv(n, 16), triton.cdiv(m, 8))](x, b, dy, dx, m, n, BM=8, BN=16)
    a, c = leaves(x, b)
    return [(dx, gradients(F.gelu(a + c), dy, a)[0])]


@triton.jit
def dropout_kernel(x_ptr, y_ptr, seed_ptr, n, p, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = offs < n
    keep = tl.rand(tl.load(seed_ptr), offs) >= p
    x = tl.load(x_ptr + offs, mask=live)
    tl.store(y_ptr + offs, tl.where(keep, x / (1 - p), 0.0), mask=live)


@case({"n": 500}, {"n": 1 << 20})
def dropout_repeats_itself(new, n) -> Pairs:
    x, seed = new.normal(n) + 10, torch.tensor([123], device=new.device)
    y, z = new.empty(n), new.empty(n)
    for out in (y, z):
        dropout_kernel[(triton.cdiv(n, 128),)](x, out, seed, n, 0.25, BLOCK=128)
    kept = y != 0
    share = kept.double().mean()
    assert abs(share.item() - 0.75) < 0.08
    dy, dx = new.normal(n), new.empty(n)
    dropout_kernel[(triton.cdiv(n, 128),)](dy, dx, seed, n, 0.25, BLOCK=128)  # the gradient: what was kept, again
    (a,) = leaves(x)
    want = a * kept / 0.75
    return [(z, y.clone()), (y, want), (dx, *gradients(want, dy, a))]


@triton.jit
def masked_fill_kernel(x, m, out, value, shape_1, stride_0, stride_1, n, BLOCK: tl.constexpr):
    """Any two strides, a mask of booleans."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    at = (i // shape_1).to(tl.int64) * stride_0 + (i % shape_1).to(tl.int64) * stride_1
    v = tl.load(x + at, mask=inside)
    flag = tl.load(m + i, mask=inside, other=0).to(tl.int1)
    v = tl.where(flag, value, v)
    tl.store(out + i, v, mask=inside)


@case({"m": 6, "n": 9}, {"m": 2000, "n": 3000})
def masked_fill_of_a_transposed_tensor(new, m, n) -> Pairs:
    x, flag, out = new.normal(n, m).T, new.uniform(m, n) > 0.5, new.empty(m, n)
    masked_fill_kernel[(triton.cdiv(m * n, 32),)](x, flag, out, -5.0, n, *x.stride(), m * n, BLOCK=32)
    dy, dx = new.normal(n, m).T, new.empty(m, n)
    masked_fill_kernel[(triton.cdiv(m * n, 32),)](dy, flag, dx, 0.0, n, *dy.stride(), m * n, BLOCK=32)
    (a,) = leaves(x)
    want = a.masked_fill(flag, -5.0)
    return [(out, want), (dx, *gradients(want, dy, a))]


@triton.jit
def softcap_tanh_kernel(X, Y, DX, n, CAP: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(X + o, mask=m, other=0.0)
    e = tl.exp(2.0 * tl.abs(x) / CAP)
    t = 1.0 - 2.0 / (e + 1.0)
    t = tl.where(x < 0, -t, t)
    tl.store(Y + o, CAP * t, mask=m)
    tl.store(DX + o, 1.0 - t * t, mask=m)


@case({"n": 77}, {"n": 1 << 22}, 1e-5)
def soft_capped_logits(new, n) -> Pairs:
    x = new.normal(n) * 30
    y, dx = new.empty(n), new.empty(n)
    softcap_tanh_kernel[(triton.cdiv(n, 64),)](x, y, dx, n, CAP=30.0, BLOCK=64)
    (a,) = leaves(x)
    out = 30 * (a / 30).tanh()
    return [(y, out), (dx, *gradients(out, torch.ones_like(out), a))]


@triton.jit
def relu_squared_kernel(x_ptr, y_ptr, n: tl.int32, BLOCK: tl.constexpr = 128):
    pid = tl.program_id(0)
    start = pid * BLOCK
    if start + BLOCK <= n:
        x = tl.load(x_ptr + start + tl.arange(0, BLOCK))
        r = tl.maximum(x, 0)
        tl.store(y_ptr + start + tl.arange(0, BLOCK), r * r)
    else:
        for k in range(start, n):
            x = tl.load(x_ptr + k)
            if x > 0:
                tl.store(y_ptr + k, x * x)
            else:
                tl.store(y_ptr + k, 0.0)


@triton.jit
def relu_squared_backward_kernel(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(dx_ptr + at, 2 * tl.maximum(x, 0.0) * tl.load(dy_ptr + at, mask=at < n), mask=at < n)


@case({"n": 300}, {"n": (1 << 20) + 37})
def relu_squared_with_a_scalar_tail(new, n) -> Pairs:
    x, y, dy, dx = new.normal(n), new.empty(n), new.normal(n), new.empty(n)
    relu_squared_kernel[(triton.cdiv(n, 128),)](x, y, n)
    relu_squared_backward_kernel[(triton.cdiv(n, 128),)](x, dy, dx, n, BLOCK=128)
    (a,) = leaves(x)
    want = a.relu() ** 2
    return [(y, want), (dx, *gradients(want, dy, a))]


@triton.jit
def mish_selu_kernel(X, OUT, DY, DX, n, WHICH: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + o, mask=o < n, other=0.0)
    if WHICH == "mish":
        t = libdevice.tanh(libdevice.log1p(tl.exp(tl.minimum(x, 20.0))))
        y = tl.where(x > 20.0, x, x * t)
        slope = t + x * (1 - t * t) * tl.sigmoid(x)
    elif WHICH == "selu":
        y = 1.0507009873554805 * tl.where(x > 0, x, 1.6732632423543772 * libdevice.expm1(x))
        slope = 1.0507009873554805 * tl.where(x > 0, 1.0, 1.6732632423543772 * tl.exp(x))
    else:
        tl.static_assert(WHICH == "hardswish")
        y = x * tl.clamp(x + 3, 0.0, 6.0) / 6
        slope = tl.where(tl.abs(x) < 3, x / 3 + 0.5, (x > 0).to(tl.float32))
    tl.store(OUT + o, y, mask=o < n)
    tl.store(DX + o, slope * tl.load(DY + o, mask=o < n), mask=o < n)


@case({"n": 100}, {"n": 1 << 20})
def activations_by_name(new, n) -> Pairs:
    x, dy = new.normal(n) * 4, new.normal(n)
    (a,) = leaves(x)
    functions = {"mish": F.mish, "selu": F.selu, "hardswish": F.hardswish}
    pairs = []
    for name, function in functions.items():
        out, dx = new.empty(n), new.empty(n)
        mish_selu_kernel[(triton.cdiv(n, 64),)](x, out, dy, dx, n, WHICH=name, BLOCK=64)
        want = function(a)
        pairs += [(out, want), (dx, *gradients(want, dy, a))]
    return pairs
