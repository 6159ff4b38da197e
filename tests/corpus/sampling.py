"""Choosing the next token: largest, temperature, penalties, top k, top p, verification of drafts."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case


@triton.jit
def argmax_kernel(x_ptr, ids, values, V, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = float("-inf")
    at = 0
    for start in range(0, V, BLOCK):
        o = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + o, mask=o < V, other=float("-inf"))
        v, i = tl.max(x, 0, return_indices=True)
        if v > best:
            best = v
            at = start + i
    tl.store(ids + row, at)
    tl.store(values + row, best)


@case({"m": 4, "v": 100}, {"m": 256, "v": 128000})
def greedy_choice(new, m, v) -> Pairs:
    x, ids, values = new.normal(m, v), new.empty(m, dtype=torch.int64), new.empty(m)
    argmax_kernel[(m,)](x, ids, values, v, BLOCK=32)
    best, at = x.max(1)
    return [(ids, at), (values, best)]


@triton.jit
def penalty_kernel(logits, tokens, counts, V, L, repetition, frequency, presence, BLOCK: tl.constexpr):
    """Counts tokens that were there, then changes their logits."""
    row = tl.program_id(0)
    for s in range(0, L, BLOCK):
        o = s + tl.arange(0, BLOCK)
        t = tl.load(tokens + row * L + o, mask=o < L, other=-1)
        tl.atomic_add(counts + row * V + t, 1, mask=t >= 0)
    tl.debug_barrier()
    for s in range(0, V, BLOCK):
        o = s + tl.arange(0, BLOCK)
        n = tl.load(counts + row * V + o, mask=o < V, other=0)
        x = tl.load(logits + row * V + o, mask=o < V)
        x = tl.where(n > 0, tl.where(x > 0, x / repetition, x * repetition), x)
        x -= frequency * n + presence * (n > 0)
        tl.store(logits + row * V + o, x, mask=o < V)


@case({"m": 3, "v": 40, "t": 20}, {"m": 64, "v": 32000, "t": 1000})
def penalties_of_repetition(new, m, v, t) -> Pairs:
    x, tokens, counts = new.normal(m, v), new.integers(v, m, t), new.zeros(m, v, dtype=torch.int32)
    tokens[:, -3:] = -1
    n = torch.stack([row[row >= 0].bincount(minlength=v) for row in tokens]).double()
    d = x.double()
    want = torch.where(n > 0, torch.where(d > 0, d / 1.3, d * 1.3), d) - 0.5 * n - 0.25 * (n > 0)
    penalty_kernel[(m,)](x, tokens, counts, v, t, 1.3, 0.5, 0.25, BLOCK=16)
    return [(counts, n.to(torch.int32)), (x, want)]


@triton.jit
def temperature_kernel(x_ptr, y_ptr, t_ptr, V, BLOCK: tl.constexpr):
    """Softmax with a temperature a row; zero takes the largest alone."""
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + o, mask=o < V, other=float("-inf"))
    t = tl.load(t_ptr + row)
    if t == 0.0:
        y = (o == tl.argmax(x, 0)).to(tl.float32)
    else:
        y = tl.softmax(x / t)
    tl.store(y_ptr + row * V + o, y, mask=o < V)


@case({"m": 4, "v": 50}, {"m": 256, "v": 8000})
def softmax_with_temperatures(new, m, v) -> Pairs:
    x, t, y = new.normal(m, v) * 3, new.uniform(m, low=0.3, high=2.0), new.empty(m, v)
    t[1] = 0
    temperature_kernel[(m,)](x, y, t, v, BLOCK=triton.next_power_of_2(v))
    want = (x.double() / t.double()[:, None].clamp(min=1e-6)).softmax(-1)
    want[1] = torch.nn.functional.one_hot(x[1].argmax(), v).double()
    return [(y, want)]


@triton.jit
def gumbel_kernel(x_ptr, noise, ids, V, TEMPERATURE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    at = tl.zeros((BLOCK,), tl.int32)
    s = 0
    while s < V:
        o = s + tl.arange(0, BLOCK)
        u = tl.load(noise + row * V + o, mask=o < V, other=0.5)
        g = -tl.log(-tl.log(u))
        x = tl.load(x_ptr + row * V + o, mask=o < V, other=float("-inf")) / TEMPERATURE + g
        at = tl.where(x > best, o, at)
        best = tl.maximum(x, best)
        s += BLOCK
    tl.store(ids + row, tl.sum(tl.where(tl.arange(0, BLOCK) == tl.argmax(best, 0), at, 0)))


@case({"m": 5, "v": 70}, {"m": 512, "v": 32000})
def sample_by_gumbel_noise(new, m, v) -> Pairs:
    x, u, ids = new.normal(m, v), new.uniform(m, v, low=1e-4, high=0.999), new.empty(m, dtype=torch.int64)
    gumbel_kernel[(m,)](x, u, ids, v, TEMPERATURE=0.5, BLOCK=16)
    return [(ids, (x.double() / 0.5 - (-u.double().log()).log()).argmax(1))]


@triton.jit
def top_k_kernel(x_ptr, y_ptr, V, K: tl.constexpr, BLOCK: tl.constexpr):
    """Keeps the K largest; the K-th is the last of `topk`."""
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + o, mask=o < V, other=float("-inf"))
    edge = tl.min(tl.topk(x, K), 0)
    tl.store(y_ptr + row * V + o, tl.where(x >= edge, x, float("-inf")), mask=o < V)


@case({"m": 3, "v": 30}, {"m": 256, "v": 4000})
def logits_of_the_k_best(new, m, v) -> Pairs:
    x, y = new.normal(m, v), new.empty(m, v)
    top_k_kernel[(m,)](x, y, v, K=8, BLOCK=triton.next_power_of_2(v))
    return [(y, torch.where(x >= x.topk(8).values[:, -1:], x.double(), -torch.inf))]


@triton.jit
def top_p_kernel(p_ptr, edge_ptr, V, limit, BLOCK: tl.constexpr):
    """The least probability of the smallest set that holds `limit`: by sorting and summing."""
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + row * V + o, mask=o < V, other=0.0)
    s = tl.sort(p, descending=True)
    before = tl.cumsum(s, 0) - s
    tl.store(edge_ptr + row, tl.min(tl.where(before < limit, s, 2.0), 0))


@case({"m": 4, "v": 28}, {"m": 64, "v": 2000})
def edge_of_the_nucleus(new, m, v) -> Pairs:
    p, edge = (new.normal(m, v) * 2).softmax(-1), new.empty(m)
    top_p_kernel[(m,)](p, edge, v, 0.8, BLOCK=triton.next_power_of_2(v))
    s = p.double().sort(-1, descending=True).values
    return [(edge, torch.where(s.cumsum(-1) - s < 0.8, s, 2.0).amin(-1))]


@triton.jit
def bisect_kernel(x_ptr, edge_ptr, V, K, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """A number with exactly K elements at or above it, by halving an interval."""
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + o, mask=o < V, other=-1e30)
    low, high = tl.min(tl.where(o < V, x, 1e30), 0), tl.max(x, 0) + 1.0
    for _ in range(STEPS):
        middle = (low + high) * 0.5
        enough = tl.sum((x >= middle).to(tl.int32), 0) >= K
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    tl.store(edge_ptr + row, tl.min(tl.where(x >= low, x, 1e30), 0))


@case({"m": 4, "v": 60}, {"m": 128, "v": 10000})
def the_kth_largest_by_bisection(new, m, v) -> Pairs:
    x, edge = new.normal(m, v), new.empty(m)
    bisect_kernel[(m,)](x, edge, v, 7, STEPS=40, BLOCK=triton.next_power_of_2(v))
    return [(edge, x.topk(7).values[:, -1])]


@triton.jit
def verify_kernel(draft, target, tokens, u, accepted, V, STEPS: tl.constexpr):
    """How many drafted tokens stand: each with the ratio of probabilities, until the first that falls."""
    row = tl.program_id(0)
    going = True
    count = 0
    for s in range(STEPS):
        if going:
            t = tl.load(tokens + row * STEPS + s)
            p = tl.load(target + (row * STEPS + s) * V + t)
            q = tl.load(draft + (row * STEPS + s) * V + t)
            if tl.load(u + row * STEPS + s) * q <= p:
                count += 1
            else:
                going = False
    tl.store(accepted + row, count)


@case({"m": 9, "v": 12, "steps": 4}, {"m": 512, "v": 1000, "steps": 8})
def drafted_tokens_that_stand(new, m, v, steps) -> Pairs:
    draft, target = new.normal(m, steps, v).softmax(-1), new.normal(m, steps, v).softmax(-1)
    tokens, u, accepted = new.integers(v, m, steps), new.uniform(m, steps), new.empty(m, dtype=torch.int32)
    verify_kernel[(m,)](draft, target, tokens, u, accepted, v, STEPS=steps)
    p, q = (t.gather(2, tokens[..., None])[..., 0] for t in (target, draft))
    return [(accepted, (u * q <= p).int().cumprod(1).sum(1).to(torch.int32))]
