"""Normalisations, forward and backward: by rows, groups, channels; statistics online, in two passes, by atomics."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves

F = torch.nn.functional


@triton.jit
def rms_norm_kernel(X, W, Y, RSTD, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc += x * x
    rstd = 1 / tl.sqrt(tl.sum(acc, axis=0) / N + eps)
    tl.store(RSTD + row, rstd)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < N
        x = tl.load(X + cols, keep, 0.0).to(tl.float32)
        w = tl.load(W + cols, keep)
        tl.store(Y + cols, x * rstd * w, keep)


@triton.jit
def rms_norm_backward_kernel(DY, X, W, RSTD, DX, DW, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * ROWS
    cols = tl.arange(0, BLOCK)
    inside = cols < N
    w = tl.load(W + cols, mask=inside, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, min(first + ROWS, M)):
        x = tl.load(X + row * N + cols, mask=inside, other=0.0)
        dy = tl.load(DY + row * N + cols, mask=inside, other=0.0)
        rstd = tl.load(RSTD + row)
        hat = x * rstd
        wdy = w * dy
        c = tl.sum(hat * wdy, 0) / N
        tl.store(DX + row * N + cols, (wdy - hat * c) * rstd, mask=inside)
        dw += dy * hat
    tl.atomic_add(DW + cols, dw, mask=inside)


@case({"m": 7, "n": 100}, {"m": 4096, "n": 4096}, 2e-5)
def rms_norm(new, m, n) -> Pairs:
    x, w, dy = new.normal(m, n), new.uniform(n), new.normal(m, n)
    y, rstd, dx, dw = new.empty(m, n), new.empty(m), new.empty(m, n), new.zeros(n)
    rms_norm_kernel[(m,)](x, w, y, rstd, x.stride(0), n, 1e-5, BLOCK=min(1024, triton.next_power_of_2(n) // 2))
    rows = 4
    rms_norm_backward_kernel[(triton.cdiv(m, rows),)](
        dy, x, w, rstd, dx, dw, m, n, ROWS=rows, BLOCK=triton.next_power_of_2(n)
    )
    a, b = leaves(x, w)
    out = a * (a.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * b
    return [(y, out), *zip((dx, dw), gradients(out, dy, a, b), strict=True)]


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, M, N, eps, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.arange(0, BN)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1, keep_dims=True) / N
    centred = tl.where(mask, x - mean, 0.0)
    var = tl.sum(centred * centred, axis=1, keep_dims=True) / N
    rstd = tl.rsqrt(var + eps)
    y = centred * rstd * tl.load(w_ptr + cols, cols < N) + tl.load(b_ptr + cols, cols < N)
    tl.store(y_ptr + rows * N + cols, y.to(y_ptr.dtype.element_ty), mask)
    tl.store(mean_ptr + rows, mean, rows < M)
    tl.store(rstd_ptr + rows, rstd, rows < M)


@triton.jit
def layer_norm_backward_kernel(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, N, BN: tl.constexpr):
    """A row a program; gradients of the weights are summed by atomics."""
    row, cols = tl.program_id(0), tl.arange(0, BN)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * N + cols, mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    hat = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    g = dy * tl.load(w_ptr + cols, mask, other=0.0)
    dx = (g - tl.sum(g) / N - hat * (tl.sum(g * hat) / N)) * rstd
    tl.store(dx_ptr + row * N + cols, dx.to(dx_ptr.dtype.element_ty), mask)
    tl.atomic_add(dw_ptr + cols, dy * hat, mask)
    tl.atomic_add(db_ptr + cols, dy, mask)


@case({"m": 9, "n": 50}, {"m": 8192, "n": 1000}, 1e-2)
def layer_norm_of_bfloat16_in_blocks_of_rows(new, m, n) -> Pairs:
    x, w, b = new.normal(m, n, dtype=torch.bfloat16), new.uniform(n), new.normal(n)
    y, mean, rstd = new.empty(m, n, dtype=torch.bfloat16), new.empty(m), new.empty(m)
    layer_norm_kernel[(triton.cdiv(m, 4),)](x, w, b, y, mean, rstd, m, n, 1e-5, 4, triton.next_power_of_2(n))
    dy, dx = new.normal(m, n, dtype=torch.bfloat16), new.empty(m, n, dtype=torch.bfloat16)
    dw, db = new.zeros(n), new.zeros(n)
    layer_norm_backward_kernel[(m,)](dy, x, w, mean, rstd, dx, dw, db, n, triton.next_power_of_2(n))
    x64, w64, b64 = leaves(x, w, b)
    want = F.layer_norm(x64, (n,), w64, b64)
    return [
        (y, want), (mean, x.double().mean(1)), (rstd, (x.double().var(1, correction=0) + 1e-5).rsqrt()),
        *zip((dx, dw, db), gradients(want, dy, x64, w64, b64), strict=True),
    ]  # fmt: skip


@triton.jit
def _combine(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    delta = mean_b - mean_a
    share = tl.where(count == 0.0, 0.0, count_b / count)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@triton.jit
def welford_kernel(x_ptr, mean_ptr, var_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    mean = tl.zeros((BLOCK,), tl.float32)
    m2 = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    start = 0
    while start < n:
        index = start + tl.arange(0, BLOCK)
        here = index < n
        x = tl.load(x_ptr + row * n + index, mask=here, other=0.0)
        count += here.to(tl.float32)
        delta = x - mean
        mean = tl.where(here, mean + delta / tl.maximum(count, 1.0), mean)
        m2 = tl.where(here, m2 + delta * (x - mean), m2)
        start += BLOCK
    mean_all, m2_all, total = tl.reduce((mean, m2, count), 0, _combine)
    tl.store(mean_ptr + row, mean_all)
    tl.store(var_ptr + row, m2_all / total)


@triton.jit
def moments_backward_kernel(x_ptr, mean_ptr, dmean_ptr, dvar_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    centred = tl.load(x_ptr + row * n + index, mask=index < n) - tl.load(mean_ptr + row)
    dx = (tl.load(dmean_ptr + row) + 2 * centred * tl.load(dvar_ptr + row)) / n
    tl.store(dx_ptr + row * n + index, dx, mask=index < n)


@case({"m": 5, "n": 77}, {"m": 2048, "n": 10000})
def variance_by_welford(new, m, n) -> Pairs:
    x, mean, var = new.normal(m, n) + 100, new.empty(m), new.empty(m)
    welford_kernel[(m,)](x, mean, var, n, BLOCK=32)
    dmean, dvar, dx = new.normal(m), new.normal(m), new.empty(m, n)
    moments_backward_kernel[(m, triton.cdiv(n, 32))](x, mean, dmean, dvar, dx, n, BLOCK=32)
    (a,) = leaves(x)
    want = torch.stack([a.mean(1), a.var(1, correction=0)])
    return [(mean, want[0]), (var, want[1]), (dx, *gradients(want, torch.stack([dmean, dvar]), a))]


@triton.jit
def group_norm_kernel(X, Y, G, B, MEAN, INV, C, HW, eps, GROUPS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    n, g = tl.program_id(0), tl.program_id(1)
    base = (n * C + g * SIZE) * HW
    total = SIZE * HW
    s = 0.0
    q = 0.0
    for i in tl.range(0, total, BLOCK):
        o = i + tl.arange(0, BLOCK)
        v = tl.load(X + base + o, mask=o < total, other=0.0)
        s += tl.sum(v)
        q += tl.sum(v * v)
    mean = s / total
    inv = tl.rsqrt(q / total - mean * mean + eps)
    tl.store(MEAN + n * GROUPS + g, mean)
    tl.store(INV + n * GROUPS + g, inv)
    for i in tl.range(0, total, BLOCK):
        o = i + tl.arange(0, BLOCK)
        channel = g * SIZE + o // HW
        live = o < total
        v = tl.load(X + base + o, mask=live)
        v = (v - mean) * inv * tl.load(G + channel, mask=live) + tl.load(B + channel, mask=live)
        tl.store(Y + base + o, v * tl.sigmoid(v), mask=live)


@triton.jit
def group_norm_backward_kernel(
    X, DY, G, B, MEAN, INV, DX, DG, DB, C, HW, GROUPS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    """Sums over the group, then its gradient; those of the weights by an atomic a number."""
    n, g = tl.program_id(0), tl.program_id(1)
    base = (n * C + g * SIZE) * HW
    total = SIZE * HW
    mean, inv = tl.load(MEAN + n * GROUPS + g), tl.load(INV + n * GROUPS + g)
    s = 0.0
    q = 0.0
    for i in tl.range(0, total, BLOCK):
        o = i + tl.arange(0, BLOCK)
        live = o < total
        channel = g * SIZE + o // HW
        hat = (tl.load(X + base + o, mask=live, other=0.0) - mean) * inv
        weight = tl.load(G + channel, mask=live, other=0.0)
        v = hat * weight + tl.load(B + channel, mask=live, other=0.0)
        sig = tl.sigmoid(v)
        dv = tl.load(DY + base + o, mask=live, other=0.0) * sig * (1 + v * (1 - sig))
        tl.atomic_add(DG + channel, dv * hat, mask=live)
        tl.atomic_add(DB + channel, dv, mask=live)
        s += tl.sum(dv * weight)
        q += tl.sum(dv * weight * hat)
        tl.store(DX + base + o, dv * weight * inv, mask=live)
    for i in tl.range(0, total, BLOCK):
        o = i + tl.arange(0, BLOCK)
        hat = (tl.load(X + base + o, mask=o < total) - mean) * inv
        dx = tl.load(DX + base + o, mask=o < total)
        tl.store(DX + base + o, dx - (s + hat * q) / total * inv, mask=o < total)


@case({"n": 2, "c": 6, "h": 5}, {"n": 8, "c": 96, "h": 64}, 2e-5)
def group_norm_with_silu(new, n, c, h) -> Pairs:
    x, g, b = new.normal(n, c, h, h), new.uniform(c), new.normal(c)
    y, dy, dx, dg, db = new.empty(n, c, h, h), new.normal(n, c, h, h), new.empty(n, c, h, h), new.zeros(c), new.zeros(c)
    mean, inv, sizes = new.empty(n, 3), new.empty(n, 3), {"GROUPS": 3, "SIZE": c // 3, "BLOCK": 64}
    group_norm_kernel[(n, 3)](x, y, g, b, mean, inv, c, h * h, 1e-5, **sizes)
    group_norm_backward_kernel[(n, 3)](x, dy, g, b, mean, inv, dx, dg, db, c, h * h, **sizes)
    p, q, r = leaves(x, g, b)
    want = F.silu(F.group_norm(p, 3, q, r))
    return [(y, want), *zip((dx, dg, db), gradients(want, dy, p, q, r), strict=True)]


@triton.jit
def batch_norm_stats(X, SUM, SQUARES, N, C, HW, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    part = tl.program_id(1)
    index = part * BLOCK + tl.arange(0, BLOCK)
    ok = index < N * HW
    image, pixel = index // HW, index % HW
    x = tl.load(X + (image * C + channel) * HW + pixel, mask=ok, other=0)
    tl.atomic_add(SUM + channel, tl.sum(x), sem="relaxed")
    tl.atomic_add(SQUARES + channel, tl.sum(x * x), sem="relaxed")


@triton.jit
def batch_norm_apply(X, Y, SUM, SQUARES, W, B, count, C, HW, total, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < total
    c = (i // HW) % C
    mean = tl.load(SUM + c, ok, 0.0) / count
    var = tl.load(SQUARES + c, ok, 0.0) / count - mean * mean
    y = (tl.load(X + i, ok) - mean) / tl.sqrt(var + eps) * tl.load(W + c, ok) + tl.load(B + c, ok)
    tl.store(Y + i, y, ok)


@triton.jit
def batch_norm_backward_kernel(X, DY, SUM, SQUARES, W, DX, DW, DB, N, C, HW, eps, BLOCK: tl.constexpr):
    """A channel a program, twice over its numbers."""
    channel = tl.program_id(0)
    count = N * HW
    mean = tl.load(SUM + channel) / count
    inv = tl.rsqrt(tl.load(SQUARES + channel) / count - mean * mean + eps)
    db = tl.zeros((BLOCK,), tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        at = (i // HW * C + channel) * HW + i % HW
        dy = tl.load(DY + at, mask=i < count, other=0.0)
        db += dy
        dw += dy * (tl.load(X + at, mask=i < count, other=0.0) - mean) * inv
    sum_dy, sum_dw = tl.sum(db), tl.sum(dw)
    tl.store(DB + channel, sum_dy)
    tl.store(DW + channel, sum_dw)
    for start in range(0, count, BLOCK):
        i = start + tl.arange(0, BLOCK)
        at = (i // HW * C + channel) * HW + i % HW
        hat = (tl.load(X + at, mask=i < count) - mean) * inv
        d = tl.load(DY + at, mask=i < count) - (sum_dy + hat * sum_dw) / count
        tl.store(DX + at, d * inv * tl.load(W + channel), mask=i < count)


@case({"n": 3, "c": 4, "h": 6}, {"n": 32, "c": 64, "h": 32}, 1e-4)
def batch_norm(new, n, c, h) -> Pairs:
    x, w, b = new.normal(n, c, h, h), new.uniform(c), new.normal(c)
    y, s, q = new.empty(n, c, h, h), new.zeros(c), new.zeros(c)
    batch_norm_stats[(c, triton.cdiv(n * h * h, 64))](x, s, q, n, c, h * h, BLOCK=64)
    batch_norm_apply[(triton.cdiv(x.numel(), 128),)](x, y, s, q, w, b, n * h * h, c, h * h, x.numel(), 1e-5, BLOCK=128)
    dy, dx, dw, db = new.normal(n, c, h, h), new.empty(n, c, h, h), new.empty(c), new.empty(c)
    batch_norm_backward_kernel[(c,)](x, dy, s, q, w, dx, dw, db, n, c, h * h, 1e-5, BLOCK=64)
    x64, w64, b64 = leaves(x, w, b)
    want = F.batch_norm(x64, None, None, w64, b64, training=True)
    return [(y, want), *zip((dx, dw, db), gradients(want, dy, x64, w64, b64), strict=True)]


@triton.jit
def add_norm_kernel(x_ptr, r_ptr, w_ptr, y_ptr, n: tl.constexpr, eps: tl.constexpr, GEMMA: tl.constexpr):
    pid = tl.program_id(0)
    BLOCK: tl.constexpr = triton.next_power_of_2(n)
    o = tl.arange(0, BLOCK)
    m = o < n if BLOCK != n else None
    h = tl.load(x_ptr + pid * n + o, mask=m).to(tl.float32) + tl.load(r_ptr + pid * n + o, mask=m).to(tl.float32)
    if m is not None:
        h = tl.where(o < n, h, 0.0)
    tl.store(r_ptr + pid * n + o, h.to(r_ptr.dtype.element_ty), mask=m)
    w = tl.load(w_ptr + o, mask=m)
    if GEMMA:
        w += 1.0
    tl.store(y_ptr + pid * n + o, h * tl.rsqrt(tl.sum(h * h) / n + eps) * w, mask=m)


@triton.jit
def add_norm_backward_kernel(
    h_ptr, w_ptr, dy_ptr, dh_ptr, dw_ptr, n: tl.constexpr, eps: tl.constexpr, GEMMA: tl.constexpr
):
    """`dh` comes with the gradient of the residual stream, to which that of the norm is added."""
    at = tl.program_id(0) * n
    o = tl.arange(0, triton.next_power_of_2(n))
    m = o < n
    h = tl.load(h_ptr + at + o, mask=m, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + at + o, mask=m, other=0.0)
    rstd = tl.rsqrt(tl.sum(h * h) / n + eps)
    tl.atomic_add(dw_ptr + o, dy * h * rstd, mask=m)
    d = dy * (tl.load(w_ptr + o, mask=m, other=0.0) + (1.0 if GEMMA else 0.0))
    dh = rstd * (d - h * (rstd * rstd * tl.sum(d * h) / n))
    tl.store(dh_ptr + at + o, tl.load(dh_ptr + at + o, mask=m) + dh, mask=m)


@case({"m": 3, "n": 40, "gemma": True}, {"m": 4096, "n": 2048, "gemma": False}, 2e-3)
def residual_added_in_place_then_norm(new, m, n, gemma) -> Pairs:
    x, r = new.normal(m, n, dtype=torch.float16), new.normal(m, n, dtype=torch.float16)
    w, y = new.uniform(n), new.empty(m, n)
    h, w64 = leaves(x.double() + r.double(), w)
    add_norm_kernel[(m,)](x, r, w, y, n, 1e-6, gemma)
    dy, dr, dw = new.normal(m, n), new.normal(m, n), new.zeros(n)
    dh = dr.clone()
    add_norm_backward_kernel[(m,)](r, w, dy, dh, dw, n, 1e-6, gemma)
    want = h * (h.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (w64 + (1 if gemma else 0))
    both = gradients(torch.cat([want, h]), torch.cat([dy, dr]), h, w64)
    return [(r, h), (y, want), *zip((dh, dw), both, strict=True)]


@triton.jit
def l2_norm_kernel(X, Y, M, D: tl.constexpr, BM: tl.constexpr):
    p = tl.make_block_ptr(X, (M, D), (D, 1), (tl.program_id(0) * BM, 0), (BM, D), (1, 0))
    q = tl.make_block_ptr(Y, (M, D), (D, 1), (tl.program_id(0) * BM, 0), (BM, D), (1, 0))
    x = tl.load(p, boundary_check=(0,)).to(tl.float32)
    tl.store(q, (x / tl.sqrt(tl.sum(x * x, 1) + 1e-6)[:, None]).to(Y.dtype.element_ty), boundary_check=(0,))


@triton.jit
def l2_norm_backward_kernel(X, DY, DX, M, D: tl.constexpr, BM: tl.constexpr):
    p = tl.make_block_ptr(X, (M, D), (D, 1), (tl.program_id(0) * BM, 0), (BM, D), (1, 0))
    q = tl.make_block_ptr(DY, (M, D), (D, 1), (tl.program_id(0) * BM, 0), (BM, D), (1, 0))
    r = tl.make_block_ptr(DX, (M, D), (D, 1), (tl.program_id(0) * BM, 0), (BM, D), (1, 0))
    x = tl.load(p, boundary_check=(0,), padding_option="zero").to(tl.float32)
    dy = tl.load(q, boundary_check=(0,), padding_option="zero").to(tl.float32)
    inv = tl.rsqrt(tl.sum(x * x, 1) + 1e-6)[:, None]
    dx = (dy - x * inv * inv * tl.sum(x * dy, 1, keep_dims=True)) * inv
    tl.store(r, dx.to(DX.dtype.element_ty), boundary_check=(0,))


@case({"m": 21, "d": 16}, {"m": 100000, "d": 128}, 2e-3)
def unit_length_of_heads_with_block_pointers(new, m, d) -> Pairs:
    x, y = new.normal(m, d, dtype=torch.float16), new.empty(m, d, dtype=torch.float16)
    l2_norm_kernel[(triton.cdiv(m, 8),)](x, y, m, D=d, BM=8)
    dy, dx = new.normal(m, d, dtype=torch.float16), new.empty(m, d, dtype=torch.float16)
    l2_norm_backward_kernel[(triton.cdiv(m, 8),)](x, dy, dx, m, D=d, BM=8)
    (a,) = leaves(x)
    want = a / (a.square().sum(1, keepdim=True) + 1e-6).sqrt()
    return [(y, want), (dx, *gradients(want, dy, a))]


@triton.jit
def softmax_kernel(out, inp, n_rows, n_cols, stride, BLOCK: tl.constexpr):
    step = tl.num_programs(0)
    for row in tl.range(tl.program_id(0), n_rows, step, num_stages=2):
        cols = tl.arange(0, BLOCK)
        x = tl.load(inp + row * stride + cols, mask=cols < n_cols, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out + row * stride + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dx, y, dy, n_cols, BLOCK: tl.constexpr):
    base = tl.program_id(0) * n_cols
    cols = tl.arange(0, BLOCK)
    yv = tl.load(y + base + cols, mask=cols < n_cols, other=0.0)
    dv = tl.load(dy + base + cols, mask=cols < n_cols, other=0.0)
    tl.store(dx + base + cols, yv * (dv - tl.sum(yv * dv)), mask=cols < n_cols)


@case({"m": 10, "n": 45}, {"m": 4096, "n": 3000})
def softmax_by_persistent_programs(new, m, n) -> Pairs:
    x, dy, y, dx = new.normal(m, n), new.normal(m, n), new.empty(m, n), new.empty(m, n)
    softmax_kernel[(4,)](y, x, m, n, n, BLOCK=triton.next_power_of_2(n))
    softmax_backward_kernel[(m,)](dx, y, dy, n, BLOCK=triton.next_power_of_2(n))
    (a,) = leaves(x)
    out = a.softmax(-1)
    return [(y, out), (dx, *gradients(out, dy, a))]
