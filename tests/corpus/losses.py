"""Losses with their gradients: whole rows, online passes, ignored rows, reductions by atomics."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves
from tilewright.language.extra import libdevice

F = torch.nn.functional


@triton.jit
def cross_entropy_forward(logits, labels, losses, lse_ptr, V, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    logits += row.to(tl.int64) * V
    label = tl.load(labels + row)
    m = -float("inf")
    s = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(logits + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        new_m = tl.maximum(m, tl.max(x, 0))
        s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), 0)
        m = new_m
    lse = m + tl.log(s)
    tl.store(lse_ptr + row, lse)
    if label != ignore:
        tl.store(losses + row, lse - tl.load(logits + label).to(tl.float32))
    else:
        tl.store(losses + row, 0.0)


@triton.jit
def cross_entropy_backward(dlogits, logits, labels, lse_ptr, dloss, V, ignore, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    cols = block * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(labels + row)
    scale = tl.where(label == ignore, 0.0, tl.load(dloss + row))
    offset = row.to(tl.int64) * V + cols
    p = tl.exp(tl.load(logits + offset, mask=cols < V, other=-float("inf")) - tl.load(lse_ptr + row))
    tl.store(dlogits + offset, scale * (p - (cols == label)), mask=cols < V)


@case({"m": 6, "v": 130}, {"m": 1024, "v": 32000})
def cross_entropy(new, m, v) -> Pairs:
    x, labels, dloss = new.normal(m, v), new.integers(v, m), new.normal(m)
    labels[1] = -100
    losses, lse, dx = new.empty(m), new.empty(m), new.empty(m, v)
    cross_entropy_forward[(m,)](x, labels, losses, lse, v, -100, BLOCK=64)
    cross_entropy_backward[(m, triton.cdiv(v, 64))](dx, x, labels, lse, dloss, v, -100, BLOCK=64)
    (a,) = leaves(x)
    out = F.cross_entropy(a, labels, reduction="none", ignore_index=-100)
    return [(losses, out), (lse, x.double().logsumexp(1)), (dx, *gradients(out, dloss, a))]


@triton.jit
def kl_kernel(P, Q, LOSS, GRAD, V, T, BLOCK: tl.constexpr, LOG_TARGET: tl.constexpr):
    """Sum of y (log y - x) over a row, its gradient in x."""
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for at in tl.range(0, V, BLOCK):
        c = at + tl.arange(0, BLOCK)
        ok = c < V
        x = tl.load(P + row * V + c, ok, 0.0)
        y = tl.load(Q + row * V + c, ok, 0.0)
        if LOG_TARGET:
            weight = tl.exp(y)
            part = weight * (y - x)
        else:
            weight = y
            part = y * (tl.log(tl.maximum(y, 1e-10)) - x)
        total += tl.where(ok, part, 0.0)
        tl.store(GRAD + row * V + c, -weight * T, ok)
    tl.store(LOSS + row, tl.sum(total) * T)


@case({"m": 4, "v": 75, "log": False}, {"m": 1024, "v": 20000, "log": True})
def kl_divergence(new, m, v, log) -> Pairs:
    x, y = new.normal(m, v).log_softmax(-1), new.normal(m, v).log_softmax(-1)
    y = y if log else y.exp()
    loss, grad = new.empty(m), new.empty(m, v)
    kl_kernel[(m,)](x, y, loss, grad, v, 0.5, BLOCK=32, LOG_TARGET=log)
    (a,) = leaves(x)
    out = F.kl_div(a, y.double(), reduction="none", log_target=log).sum(1) * 0.5
    return [(loss, out), (grad, *gradients(out, torch.ones_like(out), a))]


@triton.jit
def js_kernel(X, Y, LOSS, DX, N, beta: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    o = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + o, mask=o < N, other=-float("inf"))
    y = tl.load(Y + o, mask=o < N, other=-float("inf"))
    p, q = tl.exp(x), tl.exp(y)
    m = beta * q + (1 - beta) * p
    log_m = tl.where(o < N, tl.log(tl.where(m > 0, m, 1.0)), 0.0)
    loss = tl.where(o < N, beta * q * (y - log_m) + (1 - beta) * p * (x - log_m), 0.0)
    tl.atomic_add(LOSS, tl.sum(loss, axis=0))
    tl.store(DX + o, (1 - beta) * p * (x - log_m), mask=o < N)


@case({"m": 5, "v": 33}, {"m": 256, "v": 30000}, 1e-4)
def jensen_shannon_divergence(new, m, v) -> Pairs:
    x, y = new.normal(m, v).log_softmax(-1), new.normal(m, v).log_softmax(-1)
    loss, dx = new.zeros(1), new.empty(m, v)
    js_kernel[(triton.cdiv(m * v, 64),)](x, y, loss, dx, m * v, 0.3, BLOCK=64)
    (a,) = leaves(x)
    p, q = a.exp(), y.double().exp()
    mix = (0.3 * q + 0.7 * p).log()
    out = (0.3 * q * (y.double() - mix) + 0.7 * p * (a - mix)).sum()[None]
    return [(loss, out), (dx, *gradients(out, torch.ones_like(out), a))]


@triton.jit
def huber_kernel(A, B, OUT, n, delta, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(A + i, mask=i < n, other=0.0) - tl.load(B + i, mask=i < n, other=0.0)
    size = tl.abs(d)
    each = tl.where(size < delta, 0.5 * d * d, delta * (size - 0.5 * delta))
    tl.atomic_add(OUT + i * 0, each / n)


@triton.jit
def huber_backward_kernel(A, B, DA, n, delta, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(A + i, mask=i < n) - tl.load(B + i, mask=i < n)
    tl.store(DA + i, tl.clamp(d, -delta, delta) / n, mask=i < n)


@case({"n": 200}, {"n": 100000}, 1e-4)
def huber_loss_by_an_atomic_per_element(new, n) -> Pairs:
    a, b, out, da = new.normal(n) * 2, new.normal(n), new.zeros(1), new.empty(n)
    huber_kernel[(triton.cdiv(n, 64),)](a, b, out, n, 1.0, BLOCK=64)
    huber_backward_kernel[(triton.cdiv(n, 64),)](a, b, da, n, 1.0, BLOCK=64)
    (a64,) = leaves(a)
    loss = F.huber_loss(a64, b.double())[None]
    return [(out, loss), (da, *gradients(loss, torch.ones_like(out), a64))]


@triton.jit
def bce_kernel(x_ptr, y_ptr, loss_ptr, grad_ptr, n, weight, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    o = start + tl.arange(0, BLOCK)
    valid = o - n < 0
    x = tl.load(x_ptr + o, mask=valid, other=0.0)
    y = tl.load(y_ptr + o, mask=valid, other=0.0)
    soft = libdevice.log1p(tl.exp(-tl.abs(x))) + tl.maximum(-x, 0)
    w = 1 + (weight - 1) * y
    tl.store(loss_ptr + o, (1 - y) * x + w * soft, mask=valid)
    tl.store(grad_ptr + o, (1 - y) - w * (1 - tl.sigmoid(x)), mask=valid)


@case({"n": 90}, {"n": 1 << 22})
def binary_cross_entropy_of_logits(new, n) -> Pairs:
    x, y = new.normal(n) * 5, new.uniform(n)
    loss, grad = new.empty(n), new.empty(n)
    bce_kernel[(triton.cdiv(n, 128),)](x, y, loss, grad, n, 3.0, BLOCK=128)
    (a,) = leaves(x)
    weight = torch.tensor(3.0, dtype=torch.float64, device=x.device)
    out = F.binary_cross_entropy_with_logits(a, y.double(), pos_weight=weight, reduction="none")
    return [(loss, out), (grad, *gradients(out, torch.ones_like(out), a))]


@triton.jit
def focal_kernel(x_ptr, t_ptr, o_ptr, dx_ptr, n, alpha: tl.constexpr, gamma: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = o < n
    x, t = tl.load(x_ptr + o, ok, other=0.0), tl.load(t_ptr + o, ok, other=0)
    p = tl.sigmoid(x)
    right = tl.where(t != 0, p, 1 - p)
    power = 1.0
    for _ in tl.static_range(gamma):
        power *= 1 - right
    a = tl.where(t != 0, alpha, 1 - alpha)
    tl.store(o_ptr + o, -a * power * tl.log(right), ok)
    d = a * power * (gamma * right * tl.log(right) - (1 - right))
    tl.store(dx_ptr + o, tl.where(t != 0, d, -d), ok)


@case({"n": 70}, {"n": 1 << 20}, 1e-4)
def focal_loss(new, n) -> Pairs:
    x, t, out, dx = new.normal(n), new.integers(2, n, dtype=torch.int32), new.empty(n), new.empty(n)
    focal_kernel[(triton.cdiv(n, 64),)](x, t, out, dx, n, 0.25, 2, BLOCK=64)
    (x64,) = leaves(x)
    p = x64.sigmoid()
    right = torch.where(t != 0, p, 1 - p)
    alpha = torch.where(t != 0, 0.25, 0.75).double()
    want = -alpha * (1 - right) ** 2 * right.log()
    return [(out, want), (dx, *gradients(want, torch.ones_like(out), x64))]


@triton.jit
def contrastive_kernel(A, B, LOSS, LSE, M, tau, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Loss of each row of A against all rows of B, the same row being the right one; similarities are never stored."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    a = tl.load(A + rows[:, None] * D + d, mask=rows[:, None] < M, other=0.0)
    best = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    own = tl.zeros([BM], tl.float32)
    for start in range(0, M, BN):
        cols = start + tl.arange(0, BN)
        b = tl.load(B + cols[None, :] * D + d[:, None], mask=cols[None, :] < M, other=0.0)
        s = tl.dot(a, b, input_precision="ieee") / tau
        s = tl.where(cols[None, :] < M, s, float("-inf"))
        own += tl.sum(tl.where(rows[:, None] == cols[None, :], s, 0.0), 1)
        top = tl.maximum(best, tl.max(s, 1))
        total = total * tl.exp(best - top) + tl.sum(tl.exp(s - top[:, None]), 1)
        best = top
    tl.store(LSE + rows, best + tl.log(total), mask=rows < M)
    tl.store(LOSS + rows, best + tl.log(total) - own, mask=rows < M)


@triton.jit
def contrastive_backward_kernel(A, B, LSE, DLOSS, DA, DB, M, tau, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Similarities again; a block of rows adds to the gradients of all rows of B."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    a = tl.load(A + rows[:, None] * D + d, mask=rows[:, None] < M, other=0.0)
    lse = tl.load(LSE + rows, mask=rows < M, other=0.0)
    dloss = tl.load(DLOSS + rows, mask=rows < M, other=0.0) / tau
    da = tl.zeros([BM, D], tl.float32)
    for start in range(0, M, BN):
        cols = start + tl.arange(0, BN)
        b = tl.load(B + cols[:, None] * D + d, mask=cols[:, None] < M, other=0.0)
        p = tl.exp(tl.dot(a, b.T, input_precision="ieee") / tau - lse[:, None])
        ds = (p - (rows[:, None] == cols[None, :])) * dloss[:, None]
        da = tl.dot(ds, b, da, input_precision="ieee")
        tl.atomic_add(DB + cols[:, None] * D + d, tl.dot(ds.T, a, input_precision="ieee"), mask=cols[:, None] < M)
    tl.store(DA + rows[:, None] * D + d, da, mask=rows[:, None] < M)


@case({"m": 37, "d": 16}, {"m": 2000, "d": 64}, 1e-4)
def contrastive_loss_without_the_matrix(new, m, d) -> Pairs:
    a, b = F.normalize(new.normal(m, d)), F.normalize(new.normal(m, d))
    loss, lse, dloss, da, db = new.empty(m), new.empty(m), new.normal(m), new.empty(m, d), new.zeros(m, d)
    contrastive_kernel[(triton.cdiv(m, 16),)](a, b, loss, lse, m, 0.1, D=d, BM=16, BN=16)
    contrastive_backward_kernel[(triton.cdiv(m, 16),)](a, b, lse, dloss, da, db, m, 0.1, D=d, BM=16, BN=16)
    x, y = leaves(a, b)
    want = F.cross_entropy(x @ y.T / 0.1, torch.arange(m, device=a.device), reduction="none")
    return [(loss, want), *zip((da, db), gradients(want, dloss, x, y), strict=True)]


@triton.jit
def preference_kernel(chosen, rejected, ref_chosen, ref_rejected, loss, grad, n, beta, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK) + tl.program_id(0) * BLOCK
    m = i < n
    c = tl.load(chosen + i, mask=m, other=0.0) - tl.load(ref_chosen + i, mask=m, other=0.0)
    r = tl.load(rejected + i, mask=m, other=0.0) - tl.load(ref_rejected + i, mask=m, other=0.0)
    z = beta * (c - r)
    negative = tl.minimum(z, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(z)))
    tl.store(loss + i, -negative, mask=m)
    tl.store(grad + i, beta * (tl.sigmoid(z) - 1.0), mask=m)


@case({"n": 30}, {"n": 100000})
def preference_loss(new, n) -> Pairs:
    c, r, rc, rr = (new.normal(n) * 8 for _ in range(4))
    loss, grad = new.empty(n), new.empty(n)
    preference_kernel[(triton.cdiv(n, 32),)](c, r, rc, rr, loss, grad, n, 0.2, BLOCK=32)
    (a,) = leaves(c)
    out = -F.logsigmoid(0.2 * ((a - rc.double()) - (r.double() - rr.double())))
    return [(loss, out), (grad, *gradients(out, torch.ones_like(out), a))]
