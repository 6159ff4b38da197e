"""Steps of optimisers on flat parameters: one or several tensors a launch, states in other types, clipping."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case


@triton.jit
def adamw_kernel(p_ptr, g_ptr, m_ptr, v_ptr, lr, b1, b2, eps, decay, c1, c2, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    mask = offs < n
    p = tl.load(p_ptr + offs, mask=mask)
    g = tl.load(g_ptr + offs, mask=mask)
    m = tl.load(m_ptr + offs, mask=mask)
    v = tl.load(v_ptr + offs, mask=mask)
    p *= 1 - lr * decay
    m += (g - m) * (1 - b1)
    v = v * b2 + (1 - b2) * g * g
    p -= lr * (m / c1) / (tl.sqrt(v / c2) + eps)
    tl.store(p_ptr + offs, p, mask=mask)
    tl.store(m_ptr + offs, m, mask=mask)
    tl.store(v_ptr + offs, v, mask=mask)


def _by_torch(make, p, gradients):
    """What an optimiser of PyTorch makes of a parameter, in float64."""
    parameter = torch.nn.Parameter(p.double())
    optimiser = make([parameter])
    for g in gradients:
        parameter.grad = g.double()
        optimiser.step()
    return parameter.detach()


@case({"n": 300}, {"n": 1 << 22}, 2e-6)
def adamw(new, n) -> Pairs:
    p, m, v = new.normal(n), new.zeros(n), new.zeros(n)
    steps = [new.normal(n) for _ in range(3)]
    want = _by_torch(lambda ps: torch.optim.AdamW(ps, lr=1e-2, weight_decay=0.1), p, steps)
    for t, g in enumerate(steps, 1):
        c1, c2 = 1 - 0.9**t, 1 - 0.999**t
        adamw_kernel[(triton.cdiv(n, 128),)](p, g, m, v, 1e-2, 0.9, 0.999, 1e-8, 0.1, c1, c2, n, BLOCK=128)
    return [(p, want)]


@triton.jit
def sgd_kernel(P, G, BUF, n, lr, momentum, decay, NESTEROV: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = i < n
    p, g = tl.load(P + i, ok), tl.load(G + i, ok)
    g = g + decay * p
    buf = g if FIRST else momentum * tl.load(BUF + i, ok) + g
    tl.store(BUF + i, buf, ok)
    tl.store(P + i, p - lr * ((g + momentum * buf) if NESTEROV else buf), ok)


@case({"n": 100, "nesterov": True}, {"n": 1 << 20, "nesterov": False}, 2e-6)
def sgd_with_momentum(new, n, nesterov) -> Pairs:
    p, buf, steps = new.normal(n), new.empty(n), [new.normal(n) for _ in range(3)]
    make = lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01, nesterov=nesterov)
    want = _by_torch(make, p, steps)
    for t, g in enumerate(steps):
        sgd_kernel[(triton.cdiv(n, 64),)](p, g, buf, n, 0.1, 0.9, 0.01, nesterov, t == 0, BLOCK=64)
    return [(p, want)]


@triton.jit
def lion_kernel(p_ptr, g_ptr, m_ptr, lr, decay, beta1, beta2, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = o < n
    p = tl.load(p_ptr + o, mask=ok)
    g = tl.load(g_ptr + o, mask=ok)
    m = tl.load(m_ptr + o, mask=ok).to(tl.float32)
    u = m * beta1 + g * (1 - beta1)
    step = tl.where(u > 0, lr, tl.where(u < 0, -lr, 0.0))
    tl.store(p_ptr + o, p * (1 - lr * decay) - step, mask=ok)
    tl.store(m_ptr + o, (m * beta2 + g * (1 - beta2)).to(tl.bfloat16), mask=ok)


@case({"n": 90}, {"n": 1 << 20}, 5e-3)
def lion_with_bfloat16_state(new, n) -> Pairs:
    p, g, m = new.normal(n), new.normal(n), new.normal(n, dtype=torch.bfloat16)
    u = m.double() * 0.9 + g.double() * 0.1
    want = p.double() * (1 - 1e-3) - 1e-2 * u.sign()
    momentum = m.double() * 0.99 + g.double() * 0.01
    lion_kernel[(triton.cdiv(n, 64),)](p, g, m, 1e-2, 0.1, 0.9, 0.99, n, BLOCK=64)
    return [(p, want), (m, momentum)]


@triton.jit
def adafactor_stats(G, ROW, COL, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Means of squares along both axes at once."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = (m < M)[:, None] & (n < N)[None, :]
    g = tl.load(G + m[:, None] * N + n[None, :], mask=ok, other=0.0)
    tl.atomic_add(ROW + m, tl.sum(g * g, 1) / N, mask=m < M)
    tl.atomic_add(COL + n, tl.sum(g * g, 0) / M, mask=n < N)


@triton.jit
def adafactor_step(P, G, ROW, COL, mean_ptr, lr, M, N, BN: tl.constexpr):
    row = tl.program_id(0)
    r = tl.load(ROW + row) / tl.load(mean_ptr)
    n = 0
    while n < N:
        c = n + tl.arange(0, BN)
        g = tl.load(G + row * N + c, mask=c < N)
        step = g * tl.rsqrt(r * tl.load(COL + c, mask=c < N) + 1e-30)
        tl.store(P + row * N + c, tl.load(P + row * N + c, mask=c < N) - lr * step, mask=c < N)
        n += BN


@case({"m": 13, "n": 21}, {"m": 1000, "n": 1500})
def adafactor(new, m, n) -> Pairs:
    p, g, row, col = new.normal(m, n), new.normal(m, n), new.zeros(m), new.zeros(n)
    squares = g.double().square()
    r, c = squares.mean(1), squares.mean(0)
    want = p.double() - 0.1 * g.double() * (r[:, None] / r.mean() * c[None, :]).rsqrt()
    adafactor_stats[(triton.cdiv(m, 8), triton.cdiv(n, 16))](g, row, col, m, n, BM=8, BN=16)
    adafactor_step[(m,)](p, g, row, col, row.mean(), 0.1, m, n, BN=16)
    return [(row, r), (col, c), (p, want)]


@triton.jit
def norm_parts_kernel(g_ptr, parts_ptr, n, BLOCK: tl.constexpr):
    pid, count = tl.program_id(0), tl.num_programs(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(pid * BLOCK, n, count * BLOCK):
        o = start + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + o, mask=o < n, other=0.0)
        acc = tl.fma(g, g, acc)
    tl.store(parts_ptr + pid, tl.sum(acc))


@triton.jit
def clip_kernel(g_ptr, parts_ptr, limit, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    norm = tl.sqrt(tl.sum(tl.load(parts_ptr + tl.arange(0, PARTS))))
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if norm > limit:
        g = tl.load(g_ptr + o, mask=o < n)
        tl.store(g_ptr + o, g * (limit / norm), mask=o < n)


@case({"n": 1000}, {"n": 1 << 22})
def gradient_clipping_by_norm(new, n) -> Pairs:
    g, parts = new.normal(n), new.empty(8)
    size = g.double().norm()
    want = g.double() / size
    norm_parts_kernel[(8,)](g, parts, n, BLOCK=64)
    norm = parts.sum().sqrt()
    clip_kernel[(triton.cdiv(n, 256),)](g, parts, 1.0, n, PARTS=8, BLOCK=256)
    return [(g, want), (norm, size)]


@triton.jit
def multi_tensor_kernel(addresses, sizes, scale, BLOCK: tl.constexpr):
    """Tensors by their addresses, one a program of the first axis."""
    which = tl.program_id(0)
    p = tl.load(addresses + which).to(tl.pointer_type(tl.float32))
    n = tl.load(sizes + which)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p + o, tl.load(p + o, mask=o < n) * scale, mask=o < n)


@case({"sizes": (5, 70, 33)}, {"sizes": (100000, 7, 345678)})
def scaling_of_tensors_by_address(new, sizes) -> Pairs:
    tensors = [new.normal(s) for s in sizes]
    want = [t.double() * 0.5 for t in tensors]
    addresses = torch.tensor([t.data_ptr() for t in tensors], device=new.device)
    lengths = torch.tensor(sizes, device=new.device)
    multi_tensor_kernel[(len(sizes), triton.cdiv(max(sizes), 64))](addresses, lengths, 0.5, BLOCK=64)
    return list(zip(tensors, want, strict=True))


@triton.jit
def orthogonal_step_kernel(X, OUT, a, b, c, N: tl.constexpr):
    """One Newton-Schulz step of a square matrix."""
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(X + i * N + j)
    g = tl.dot(x, tl.trans(x), input_precision="ieee")
    h = b * g + c * tl.dot(g, g, input_precision="ieee")
    tl.store(OUT + i * N + j, a * x + tl.dot(h, x, input_precision="ieee"))


@case({"n": 16}, {"n": 64}, 1e-4)
def newton_schulz_step(new, n) -> Pairs:
    x = new.normal(n, n)
    x, out = x / x.norm(), new.empty(n, n)
    orthogonal_step_kernel[(1,)](x, out, 3.4445, -4.775, 2.0315, N=n)
    d = x.double()
    g = d @ d.T
    return [(out, 3.4445 * d + (-4.775 * g + 2.0315 * g @ g) @ d)]


@triton.jit
def ema_kernel(average, value, n, decay: tl.constexpr, HAS_MASK: tl.constexpr, flags, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = o < n
    if HAS_MASK:
        keep = keep and tl.load(flags + o, mask=o < n, other=0) > 0
    tl.store(
        average + o, decay * tl.load(average + o, mask=keep) + (1 - decay) * tl.load(value + o, mask=keep), mask=keep
    )


@case({"n": 100}, {"n": 1 << 20})
def moving_average_where_flags_are_set(new, n) -> Pairs:
    average, value, flags = new.normal(n), new.normal(n), new.integers(2, n, dtype=torch.int8)
    moved = 0.9 * average.double() + 0.1 * value.double()
    want = torch.where(flags > 0, moved, average.double())
    first = average.clone()
    ema_kernel[(triton.cdiv(n, 64),)](average, value, n, 0.9, True, flags, BLOCK=64)
    ema_kernel[(triton.cdiv(n, 64),)](first, value, n, 0.9, False, None, BLOCK=64)
    return [(average, want), (first, moved)]
