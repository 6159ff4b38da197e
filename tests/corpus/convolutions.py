"""Convolutions and pooling: causal, depthwise, by matrix products, transposed, their gradients, resampling."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves

F = torch.nn.functional


@triton.jit
def causal_kernel(x, w, b, y, T, C, WIDTH: tl.constexpr, SILU: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    i_c, i_t, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    c = i_c * BC + tl.arange(0, BC)
    t = i_t * BT + tl.arange(0, BT)
    m_c = c < C
    acc = tl.zeros((BT, BC), tl.float32) + tl.load(b + c, mask=m_c, other=0.0)[None, :]
    for k in tl.static_range(WIDTH):
        past = t - (WIDTH - 1 - k)
        seen = (past >= 0) & (past < T)
        v = tl.load(x + (i_b * T + past)[:, None] * C + c[None, :], mask=seen[:, None] & m_c[None, :], other=0.0)
        acc += v * tl.load(w + c * WIDTH + k, mask=m_c, other=0.0)[None, :]
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(y + (i_b * T + t)[:, None] * C + c[None, :], acc, mask=(t < T)[:, None] & m_c[None, :])


@triton.jit
def causal_backward_kernel(x, w, dy, dx, dw, T, C, WIDTH: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    batch = tl.program_id(2) * T
    m_c = (c < C)[None, :]
    acc = tl.zeros((BT, BC), tl.float32)
    v = tl.load(x + (batch + t)[:, None] * C + c[None, :], mask=(t < T)[:, None] & m_c, other=0.0)
    for k in tl.static_range(WIDTH):
        later = t + (WIDTH - 1 - k)
        g = tl.load(dy + (batch + later)[:, None] * C + c[None, :], mask=(later < T)[:, None] & m_c, other=0.0)
        acc += g * tl.load(w + c * WIDTH + k, mask=c < C, other=0.0)[None, :]
        tl.atomic_add(dw + c * WIDTH + k, tl.sum(g * v, 0), mask=c < C)
    tl.store(dx + (batch + t)[:, None] * C + c[None, :], acc, mask=(t < T)[:, None] & m_c)


@case({"b": 2, "t": 13, "c": 10}, {"b": 4, "t": 2000, "c": 768}, 1e-4)
def causal_convolution_in_time(new, b, t, c) -> Pairs:
    x, w, bias, dy = new.normal(b, t, c), new.normal(c, 4), new.normal(c), new.normal(b, t, c)
    y, dx, dw = new.empty(b, t, c), new.empty(b, t, c), new.zeros(c, 4)
    grid = (triton.cdiv(c, 8), triton.cdiv(t, 8), b)
    causal_kernel[grid](x, w, bias, y, t, c, WIDTH=4, SILU=False, BT=8, BC=8)
    causal_backward_kernel[grid](x, w, dy, dx, dw, t, c, WIDTH=4, BT=8, BC=8)
    p, q = leaves(x, w)
    out = F.conv1d(p.transpose(1, 2), q[:, None], bias.double(), padding=3, groups=c)[..., :t].transpose(1, 2)
    return [(y, out), *zip((dx, dw), gradients(out, dy, p, q), strict=True)]


@triton.jit
def causal_step_kernel(x, state, w, y, C, WIDTH: tl.constexpr, BC: tl.constexpr):
    """One token: the state of the last inputs moves on by one place."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    row = tl.program_id(1)
    m = c < C
    acc = tl.zeros((BC,), tl.float32)
    p = state + (row * C + c) * WIDTH
    for k in tl.static_range(WIDTH - 1):
        v = tl.load(p + k + 1, mask=m, other=0.0)
        tl.store(p + k, v, mask=m)
        acc += v * tl.load(w + c * WIDTH + k, mask=m, other=0.0)
    v = tl.load(x + row * C + c, mask=m, other=0.0)
    tl.store(p + WIDTH - 1, v, mask=m)
    acc += v * tl.load(w + c * WIDTH + WIDTH - 1, mask=m, other=0.0)
    tl.store(y + row * C + c, acc, mask=m)


@case({"b": 3, "c": 10}, {"b": 64, "c": 4096})
def convolution_of_one_more_token(new, b, c) -> Pairs:
    x, state, w, y = new.normal(b, c), new.normal(b, c, 4), new.normal(c, 4), new.empty(b, c)
    after = torch.cat([state[..., 1:], x[..., None]], -1).double()
    causal_step_kernel[(triton.cdiv(c, 8), b)](x, state, w, y, c, WIDTH=4, BC=8)
    return [(state, after), (y, (after * w.double()).sum(-1))]


@triton.jit
def conv2d_kernel(
    x, w, b, y, C, H, W, OC, OH, OW, total, stride: tl.constexpr, pad: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Pixels by channels as one product whose rows are gathered, the order of the sum being (c, r, s)."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    image, pixel = m // (OH * OW), m % (OH * OW)
    oh, ow = pixel // OW, pixel % OW
    K = C * KH * KW
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        c, rs = k // (KH * KW), k % (KH * KW)
        ih = oh[:, None] * stride - pad + (rs // KW)[None, :]
        iw = ow[:, None] * stride - pad + (rs % KW)[None, :]
        inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & (k < K)[None, :] & (m < total)[:, None]
        a = tl.load(x + ((image[:, None] * C + c[None, :]) * H + ih) * W + iw, mask=inside, other=0.0)
        v = tl.load(w + n[None, :] * K + k[:, None], mask=(n < OC)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(a, v, acc, input_precision="ieee")
    acc += tl.load(b + n, mask=n < OC, other=0.0)[None, :]
    at = (image[:, None] * OC + n[None, :]) * (OH * OW) + pixel[:, None]
    tl.store(y + at, acc, mask=(m < total)[:, None] & (n < OC)[None, :])


@case({"n": 2, "c": 3, "h": 9, "oc": 5, "stride": 2}, {"n": 8, "c": 64, "h": 56, "oc": 128, "stride": 1}, 1e-4)
def convolution_by_gathered_product(new, n, c, h, oc, stride) -> Pairs:
    x, w, b = new.normal(n, c, h, h), new.normal(oc, c, 3, 3), new.normal(oc)
    x64, w64 = leaves(x, w)
    want = F.conv2d(x64, w64, b.double(), stride=stride, padding=1)
    y, dy, dx, dw = new.empty(*want.shape), new.normal(*want.shape), new.empty(n, c, h, h), new.empty(oc, c, 3, 3)
    oh, ow = want.shape[2:]
    total = n * oh * ow
    conv2d_kernel[(triton.cdiv(total, 32), triton.cdiv(oc, 16))](
        x, w, b, y, c, h, h, oc, oh, ow, total, stride=stride, pad=1, KH=3, KW=3, BM=32, BN=16, BK=16
    )
    conv2d_input_gradient_kernel[(triton.cdiv(n * h * h, 32), triton.cdiv(c, 16))](
        dy, w, dx, c, h, h, oc, oh, ow, n * h * h, stride=stride, pad=1, KH=3, KW=3, BM=32, BN=16, BK=16
    )
    conv2d_weight_gradient_kernel[(triton.cdiv(oc, 16), triton.cdiv(c * 9, 16))](
        x, dy, dw, n, c, h, h, oc, oh, ow, stride=stride, pad=1, KH=3, KW=3, BM=16, BK=16, BP=32
    )
    return [(y, want), *zip((dx, dw), gradients(want, dy, x64, w64), strict=True)]


@triton.jit
def conv2d_input_gradient_kernel(
    dy, w, dx, C, H, W, OC, OH, OW, total, stride: tl.constexpr, pad: tl.constexpr, KH: tl.constexpr,
    KW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The same product over (o, r, s): an input pixel takes from those outputs that a whole step leads to."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    image, pixel = m // (H * W), m % (H * W)
    K = OC * KH * KW
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        o, rs = k // (KH * KW), k % (KH * KW)
        up = (pixel // W)[:, None] + pad - (rs // KW)[None, :]
        left = (pixel % W)[:, None] + pad - (rs % KW)[None, :]
        oh, ow = up // stride, left // stride
        inside = (up >= 0) & (left >= 0) & (up % stride == 0) & (left % stride == 0) & (oh < OH) & (ow < OW)
        inside = inside & (k < K)[None, :] & (m < total)[:, None]
        a = tl.load(dy + ((image[:, None] * OC + o[None, :]) * OH + oh) * OW + ow, mask=inside, other=0.0)
        at = (o[:, None] * C + n[None, :]) * (KH * KW) + rs[:, None]
        v = tl.load(w + at, mask=(n < C)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(a, v, acc, input_precision="ieee")
    at = (image[:, None] * C + n[None, :]) * (H * W) + pixel[:, None]
    tl.store(dx + at, acc, mask=(m < total)[:, None] & (n < C)[None, :])


@triton.jit
def conv2d_weight_gradient_kernel(
    x, dy, dw, NB, C, H, W, OC, OH, OW, stride: tl.constexpr, pad: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """Sums over all pixels of the output."""
    oc = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    c, r, s = k // (KH * KW), k // KW % KH, k % KW
    acc = tl.zeros((BM, BK), tl.float32)
    for start in range(0, NB * OH * OW, BP):
        p = start + tl.arange(0, BP)
        image, h, v = p // (OH * OW), p // OW % OH, p % OW
        live = p < NB * OH * OW
        g = tl.load(
            dy + (image[None, :] * OC + oc[:, None]) * (OH * OW) + (p % (OH * OW))[None, :],
            mask=live[None, :] & (oc < OC)[:, None], other=0.0,
        )  # fmt: skip
        ih, iw = h[:, None] * stride + r[None, :] - pad, v[:, None] * stride + s[None, :] - pad
        ok = live[:, None] & (c < C)[None, :] & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
        a = tl.load(x + ((image[:, None] * C + c[None, :]) * H + ih) * W + iw, mask=ok, other=0.0)
        acc += tl.dot(g, a, input_precision="ieee")
    K = C * KH * KW
    tl.store(dw + oc[:, None] * K + k[None, :], acc, mask=(oc < OC)[:, None] & (k < K)[None, :])


@case({"n": 2, "c": 3, "h": 6, "oc": 4}, {"n": 4, "c": 32, "h": 28, "oc": 64}, 1e-4)
def gradient_of_convolution_weights(new, n, c, h, oc) -> Pairs:
    x, dy, dw = new.normal(n, c, h, h), new.normal(n, oc, h, h), new.empty(oc, c, 3, 3)
    grid = (triton.cdiv(oc, 16), triton.cdiv(c * 9, 16))
    conv2d_weight_gradient_kernel[grid](
        x, dy, dw, n, c, h, h, oc, h, h, stride=1, pad=1, KH=3, KW=3, BM=16, BK=16, BP=32
    )
    (w,) = leaves(torch.zeros_like(dw))
    return [(dw, *gradients(F.conv2d(x.double(), w, padding=1), dy, w))]


@triton.jit
def depthwise_kernel(x, w, y, H: tl.constexpr, W: tl.constexpr, C, KS: tl.constexpr, BW: tl.constexpr):
    plane = tl.program_id(0)
    row = tl.program_id(1)
    col = tl.arange(0, BW)
    acc = tl.zeros((BW,), tl.float32)
    for r in tl.static_range(KS):
        for s in tl.static_range(KS):
            i, j = row + r - KS // 2, col + s - KS // 2
            ok = (i >= 0) and (i < H)
            v = tl.load(x + (plane * H + i) * W + j, mask=ok & (j >= 0) & (j < W), other=0.0)
            acc += v * tl.load(w + (plane % C) * KS * KS + r * KS + s)
    tl.store(y + (plane * H + row) * W + col, acc, mask=col < W)


@triton.jit
def depthwise_weight_gradient_kernel(
    x, dy, dw, H: tl.constexpr, W: tl.constexpr, C, KS: tl.constexpr, BW: tl.constexpr
):
    plane, tap = tl.program_id(0), tl.program_id(1)
    col = tl.arange(0, BW)
    j = col + tap % KS - KS // 2
    acc = tl.zeros((BW,), tl.float32)
    for row in range(H):
        i = row + tap // KS - KS // 2
        v = tl.load(x + (plane * H + i) * W + j, mask=(i >= 0) & (i < H) & (j >= 0) & (j < W), other=0.0)
        acc += v * tl.load(dy + (plane * H + row) * W + col, mask=col < W, other=0.0)
    tl.atomic_add(dw + (plane % C) * KS * KS + tap, tl.sum(acc))


@case({"n": 2, "c": 3, "h": 7}, {"n": 8, "c": 128, "h": 56})
def depthwise_convolution(new, n, c, h) -> Pairs:
    x, w, y = new.normal(n, c, h, h), new.normal(c, 1, 3, 3), new.empty(n, c, h, h)
    depthwise_kernel[(n * c, h)](x, w, y, h, h, c, KS=3, BW=triton.next_power_of_2(h))
    dy, dx, dw = new.normal(n, c, h, h), new.empty(n, c, h, h), new.zeros(c, 1, 3, 3)
    turned = w.flip(2, 3).contiguous()
    depthwise_kernel[(n * c, h)](dy, turned, dx, h, h, c, KS=3, BW=triton.next_power_of_2(h))
    depthwise_weight_gradient_kernel[(n * c, 9)](x, dy, dw, h, h, c, KS=3, BW=triton.next_power_of_2(h))
    a, b = leaves(x, w)
    want = F.conv2d(a, b, padding=1, groups=c)
    return [(y, want), *zip((dx, dw), gradients(want, dy, a, b), strict=True)]


@triton.jit
def max_pool_kernel(x, y, where_ptr, H, W, OH, OW, total, K: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = o < total
    plane, oh, ow = o // (OH * OW), o // OW % OH, o % OW
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    at = tl.zeros((BLOCK,), tl.int64)
    for r in range(K):
        for s in range(K):
            i, j = oh * S + r, ow * S + s
            v = tl.load(x + (plane * H + i) * W + j, mask=live & (i < H) & (j < W), other=float("-inf"))
            better = v > best
            best = tl.where(better, v, best)
            at = tl.where(better, (i * W + j).to(tl.int64), at)
    tl.store(y + o, best, mask=live)
    tl.store(where_ptr + o, at, mask=live)


@triton.jit
def max_pool_backward_kernel(dy, where_ptr, dx, plane_in, plane_out, total, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(where_ptr + o, mask=o < total, other=0)
    tl.atomic_add(dx + (o // plane_out) * plane_in + at, tl.load(dy + o, mask=o < total), mask=o < total)


@case({"p": 3, "h": 9}, {"p": 256, "h": 57})
def max_pooling_with_places(new, p, h) -> Pairs:
    x = new.normal(1, p, h, h)
    (a,) = leaves(x)
    want, index = F.max_pool2d(a, 3, stride=2, return_indices=True)
    oh = want.shape[-1]
    y, places, dy, dx = (
        new.empty(*want.shape),
        new.zeros(*want.shape, dtype=torch.int64),
        new.normal(*want.shape),
        new.zeros(1, p, h, h),
    )
    grid = (triton.cdiv(y.numel(), 32),)
    max_pool_kernel[grid](x, y, places, h, h, oh, oh, y.numel(), K=3, S=2, BLOCK=32)
    max_pool_backward_kernel[grid](dy, places, dx, h * h, oh * oh, y.numel(), BLOCK=32)
    return [(y, want), (places, index), (dx, *gradients(want, dy, a))]


@triton.jit
def upsample_kernel(x, y, H, W, OH, OW, total, BACK: tl.constexpr, BLOCK: tl.constexpr):
    """Bilinear, corners not aligned; back, each pixel of `y` adds its share to four of `x`."""
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = o < total
    plane, oh, ow = o // (OH * OW), o // OW % OH, o % OW
    fy = tl.maximum((oh + 0.5) * H / OH - 0.5, 0.0)
    fx = tl.maximum((ow + 0.5) * W / OW - 0.5, 0.0)
    y0, x0 = tl.floor(fy).to(tl.int32), tl.floor(fx).to(tl.int32)
    y1, x1 = tl.minimum(y0 + 1, H - 1), tl.minimum(x0 + 1, W - 1)
    ty, tx = fy - y0, fx - x0
    base = x + plane * H * W
    if BACK:
        d = tl.load(y + o, live, 0.0)
        tl.atomic_add(base + y0 * W + x0, d * (1 - ty) * (1 - tx), live)
        tl.atomic_add(base + y0 * W + x1, d * (1 - ty) * tx, live)
        tl.atomic_add(base + y1 * W + x0, d * ty * (1 - tx), live)
        tl.atomic_add(base + y1 * W + x1, d * ty * tx, live)
    else:
        top = tl.load(base + y0 * W + x0, live, 0.0) * (1 - tx) + tl.load(base + y0 * W + x1, live, 0.0) * tx
        low = tl.load(base + y1 * W + x0, live, 0.0) * (1 - tx) + tl.load(base + y1 * W + x1, live, 0.0) * tx
        tl.store(y + o, top * (1 - ty) + low * ty, live)


@case({"p": 2, "h": 5, "oh": 12}, {"p": 64, "h": 64, "oh": 128}, 1e-4)
def bilinear_resampling(new, p, h, oh) -> Pairs:
    x, y = new.normal(1, p, h, h), new.empty(1, p, oh, oh)
    dy, dx, grid = new.normal(*y.shape), new.zeros(*x.shape), (triton.cdiv(y.numel(), 64),)
    upsample_kernel[grid](x, y, h, h, oh, oh, y.numel(), BACK=False, BLOCK=64)
    upsample_kernel[grid](dx, dy, h, h, oh, oh, y.numel(), BACK=True, BLOCK=64)
    (a,) = leaves(x)
    want = F.interpolate(a, size=(oh, oh), mode="bilinear")
    return [(y, want), (dx, *gradients(want, dy, a))]


@triton.jit
def transposed_kernel(x, w, y, C, OC, H, W, STRIDE: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    """Scattered: each input pixel adds to the outputs that it reaches."""
    pixel = tl.program_id(0)
    image = tl.program_id(1)
    i, j = pixel // W, pixel % W
    o = tl.arange(0, BLOCK)
    inside = o < OC * K * K
    oc, r, s = o // (K * K), o // K % K, o % K
    acc = tl.zeros((BLOCK,), tl.float32)
    for c in range(C):
        acc += tl.load(x + ((image * C + c) * H + i) * W + j) * tl.load(w + c * OC * K * K + o, mask=inside, other=0.0)
    OH = (H - 1) * STRIDE + K
    OW = (W - 1) * STRIDE + K
    at = ((image * OC + oc) * OH + i * STRIDE + r) * OW + j * STRIDE + s
    tl.atomic_add(y + at, acc, mask=inside)


@case({"n": 2, "c": 3, "oc": 4, "h": 5}, {"n": 4, "c": 32, "oc": 16, "h": 32}, 1e-4)
def transposed_convolution_by_atomics(new, n, c, oc, h) -> Pairs:
    x, w = new.normal(n, c, h, h), new.normal(c, oc, 3, 3)
    a, b = leaves(x, w)
    want = F.conv_transpose2d(a, b, stride=2)
    y = new.zeros(*want.shape)
    transposed_kernel[(h * h, n)](x, w, y, c, oc, h, h, STRIDE=2, K=3, BLOCK=triton.next_power_of_2(oc * 9))
    # The gradients are those of a convolution with input and output exchanged, and its forward.
    dy, dx, dw, no_bias = new.normal(*want.shape), new.empty(*x.shape), new.empty(*w.shape), new.zeros(c)
    conv2d_kernel[(triton.cdiv(n * h * h, 32), triton.cdiv(c, 16))](
        dy, w, no_bias, dx, oc, *dy.shape[2:], c, h, h, n * h * h, stride=2, pad=0, KH=3, KW=3, BM=32, BN=16, BK=16
    )
    conv2d_weight_gradient_kernel[(triton.cdiv(c, 16), triton.cdiv(oc * 9, 16))](
        dy, x, dw, n, oc, *dy.shape[2:], c, h, h, stride=2, pad=0, KH=3, KW=3, BM=16, BK=16, BP=32
    )
    return [(y, want), *zip((dx, dw), gradients(want, dy, a, b), strict=True)]
