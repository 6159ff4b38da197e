"""Mixture of experts: gates, counting and sorting of tokens, products by groups, gathers and weighted returns."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves


@triton.jit
def gate_kernel(logits, weights, ids, tokens, E: tl.constexpr, K: tl.constexpr, NORMALISE: tl.constexpr):
    """The K largest of a softmax, one maximum after another."""
    t = tl.program_id(0)
    e = tl.arange(0, triton.next_power_of_2(E))
    x = tl.load(logits + t * E + e, mask=e < E, other=-float("inf"))
    p = tl.exp(x - tl.max(x, 0))
    p /= tl.sum(p, 0)
    total = 0.0
    for k in tl.static_range(K):
        best = tl.argmax(p, 0)
        value = tl.max(p, 0)
        tl.store(ids + t * K + k, best)
        tl.store(weights + t * K + k, value)
        total += value
        p = tl.where(e == best, -1.0, p)
    if NORMALISE:
        tl.debug_barrier()
        k = tl.arange(0, K)
        tl.store(weights + t * K + k, tl.load(weights + t * K + k) / total)


@triton.jit
def gate_backward_kernel(weights, ids, dweights, dlogits, E: tl.constexpr, K: tl.constexpr):
    """Weights that sum to one are a softmax of the chosen logits; the others get nothing."""
    t = tl.program_id(0)
    e = tl.arange(0, triton.next_power_of_2(E))
    k = tl.arange(0, K)
    w = tl.load(weights + t * K + k)
    d = tl.load(dweights + t * K + k)
    d = w * (d - tl.sum(w * d))
    chosen = e[:, None] == tl.load(ids + t * K + k)[None, :]
    tl.store(dlogits + t * E + e, tl.sum(tl.where(chosen, d[None, :], 0.0), 1), mask=e < E)


@case({"t": 9, "e": 6, "k": 2}, {"t": 4096, "e": 60, "k": 4})
def gates_of_the_best_experts(new, t, e, k) -> Pairs:
    x, w, ids = new.normal(t, e), new.empty(t, k), new.empty(t, k, dtype=torch.int32)
    gate_kernel[(t,)](x, w, ids, t, E=e, K=k, NORMALISE=True)
    dw, dx = new.normal(t, k), new.empty(t, e)
    gate_backward_kernel[(t,)](w, ids, dw, dx, E=e, K=k)
    (a,) = leaves(x)
    values, order = a.softmax(-1).topk(k)
    want = values / values.sum(-1, keepdim=True)
    return [(ids, order.to(torch.int32)), (w, want), (dx, *gradients(want, dw, a))]


@triton.jit
def count_kernel(ids, counts, n, E: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    e = tl.load(ids + o, mask=o < n, other=0)
    here = tl.histogram(e, E, mask=o < n)
    tl.atomic_add(counts + tl.arange(0, E), here)


@triton.jit
def ranks_kernel(ids, counts, starts, places, n, E: tl.constexpr, BLOCK: tl.constexpr):
    """Where each pair of token and expert goes when they are sorted by expert, in order, one program."""
    e = tl.arange(0, E)
    per = tl.load(counts + e)
    first = tl.cumsum(per, 0) - per
    tl.store(starts + e, first)
    running = first
    for at in range(0, n, BLOCK):
        o = at + tl.arange(0, BLOCK)
        mine = tl.load(ids + o, mask=o < n, other=-1)
        hit = (mine[:, None] == e[None, :]).to(tl.int32)
        before = tl.cumsum(hit, axis=0) - hit
        place = tl.sum(hit * (before + running[None, :]), 1)
        tl.store(places + o, place, mask=o < n)
        running += tl.sum(hit, 0)


@case({"n": 50, "e": 8}, {"n": 8192, "e": 64})
def tokens_sorted_by_expert(new, n, e) -> Pairs:
    ids, counts = new.integers(e, n, dtype=torch.int32), new.zeros(e, dtype=torch.int32)
    starts, places = new.empty(e, dtype=torch.int32), new.empty(n, dtype=torch.int32)
    count_kernel[(triton.cdiv(n, 32),)](ids, counts, n, E=e, BLOCK=32)
    ranks_kernel[(1,)](ids, counts, starts, places, n, E=e, BLOCK=16)
    order = ids.long().argsort(stable=True)
    want = torch.empty_like(order)
    want[order] = torch.arange(n, device=ids.device)
    many = ids.long().bincount(minlength=e)
    return [
        (counts, many.to(torch.int32)),
        (starts, (many.cumsum(0) - many).to(torch.int32)),
        (places, want.to(torch.int32)),
    ]


@triton.jit
def fused_moe_kernel(
    a_ptr, b_ptr, c_ptr, weights, sorted_ids, expert_ids, N, K, count, stride_be, TOP: tl.constexpr,
    WEIGHTED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Blocks of sorted pairs, all of a block for one expert; ids beyond the end are padding."""
    blocks_n = tl.cdiv(N, BN)
    pid = tl.program_id(0)
    pid_m, pid_n = pid // blocks_n, pid % blocks_n
    ids = tl.load(sorted_ids + pid_m * BM + tl.arange(0, BM)).to(tl.int64)
    real = ids < count
    expert = tl.load(expert_ids + pid_m).to(tl.int64)
    rn = (pid_n * BN + tl.arange(0, BN).to(tl.int64)) % N
    rk = tl.arange(0, BK)
    a = a_ptr + (ids // TOP)[:, None] * K + rk[None, :]
    b = b_ptr + expert * stride_be + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = K - k * BK
        av = tl.load(a, mask=real[:, None] & (rk[None, :] < left), other=0.0)
        bv = tl.load(b, mask=rk[:, None] < left, other=0.0)
        acc += tl.dot(av, bv)
        a += BK
        b += BK * N
    if WEIGHTED:
        acc = acc * tl.load(weights + ids, mask=real, other=0)[:, None]
    on = pid_n * BN + tl.arange(0, BN)
    tl.store(c_ptr + ids[:, None] * N + on[None, :], acc, mask=real[:, None] & (on[None, :] < N))


@triton.jit
def fused_moe_weight_gradient_kernel(
    a_ptr, dc_ptr, db_ptr, weights, sorted_ids, expert_ids, N, K, count, TOP: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A block of pairs adds to a tile of its expert's matrix."""
    ids = tl.load(sorted_ids + tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    real = ids < count
    rk = tl.program_id(1) * BK + tl.arange(0, BK)
    rn = tl.program_id(2) * BN + tl.arange(0, BN)
    a = tl.load(a_ptr + (ids // TOP)[None, :] * K + rk[:, None], mask=real[None, :] & (rk < K)[:, None], other=0.0)
    dc = tl.load(dc_ptr + ids[:, None] * N + rn[None, :], mask=real[:, None] & (rn < N)[None, :], other=0.0)
    dc = (dc * tl.load(weights + ids, mask=real, other=0.0)[:, None]).to(a.dtype)
    at = db_ptr + tl.load(expert_ids + tl.program_id(0)).to(tl.int64) * K * N + rk[:, None] * N + rn[None, :]
    tl.atomic_add(at, tl.dot(a, dc), mask=(rk < K)[:, None] & (rn < N)[None, :])


def _aligned(ids: torch.Tensor, experts: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs sorted by expert, each expert's padded to whole blocks; the expert of each block."""
    flat, rows, owners = ids.flatten().tolist(), [], []
    for e in range(experts):
        mine = [i for i, other in enumerate(flat) if other == e]
        mine += [len(flat)] * (-len(mine) % block)
        rows += mine
        owners += [e] * (len(mine) // block)
    return torch.tensor(rows, device=ids.device), torch.tensor(owners, device=ids.device)


@case({"t": 11, "n": 20, "k": 24, "e": 3}, {"t": 512, "n": 512, "k": 1000, "e": 8}, 5e-3)
def product_of_tokens_with_their_experts(new, t, n, k, e) -> Pairs:
    a, b, w = new.normal(t, k, dtype=torch.float16), new.normal(e, k, n, dtype=torch.float16), new.uniform(t, 2)
    ids = torch.stack([new.permutation(e)[:2] for _ in range(t)])
    rows, owners = _aligned(ids, e, 16)
    c = new.empty(t * 2, n)
    fused_moe_kernel[(len(owners) * triton.cdiv(n, 16),)](
        a, b, c, w, rows, owners, n, k, t * 2, b.stride(0), TOP=2, WEIGHTED=True, BM=16, BN=16, BK=16
    )
    # Rows get back the products of their pairs with the turned matrices: the same kernel, a pair a row.
    dc, da, db = new.normal(t * 2, n, dtype=torch.float16), new.empty(t * 2, k), new.zeros(e, k, n)
    back = b.transpose(1, 2).contiguous()
    fused_moe_kernel[(len(owners) * triton.cdiv(k, 16),)](
        dc, back, da, w, rows, owners, k, n, t * 2, back.stride(0), TOP=1, WEIGHTED=True, BM=16, BN=16, BK=16
    )
    fused_moe_weight_gradient_kernel[(len(owners), triton.cdiv(k, 16), triton.cdiv(n, 16))](
        a, dc, db, w, rows, owners, n, k, t * 2, TOP=2, BM=16, BN=16, BK=16
    )
    x, y = leaves(a, b)
    want = torch.einsum("tk,tjkn->tjn", x, y[ids]) * w.double()[..., None]
    dx, dy = gradients(want, dc.view(t, 2, n), x, y)
    return [(c.view(t, 2, n), want), (da.view(t, 2, k).sum(1), dx), (db, dy)]


@triton.jit
def grouped_kernel(A, B, C, starts, G: tl.constexpr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products of groups of rows with a matrix each; programs walk over all tiles of all groups."""
    tile = tl.program_id(0)
    done = 0
    across = tl.cdiv(N, BN)
    for g in range(G):
        begin = tl.load(starts + g)
        size = tl.load(starts + g + 1) - begin
        tiles = tl.cdiv(size, BM) * across
        while (tile >= done) and (tile < done + tiles):
            local = tile - done
            rm = (local // across) * BM + tl.arange(0, BM)
            rn = (local % across) * BN + tl.arange(0, BN)
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(0, K, BK):
                rk = k + tl.arange(0, BK)
                m_a = (rm < size)[:, None] & (rk < K)[None, :]
                m_b = (rk < K)[:, None] & (rn < N)[None, :]
                x = tl.load(A + (begin + rm)[:, None] * K + rk[None, :], mask=m_a, other=0.0)
                y = tl.load(B + g * K * N + rk[:, None] * N + rn[None, :], mask=m_b, other=0.0)
                acc = tl.dot(x, y, acc, input_precision="ieee")
            tl.store(C + (begin + rm)[:, None] * N + rn[None, :], acc, mask=(rm < size)[:, None] & (rn < N)[None, :])
            tile += tl.num_programs(0)
        done += tiles


@triton.jit
def grouped_weight_gradient_kernel(A, DC, DB, starts, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A tile of the matrix of one group: sums over its rows; a group of none gets zeros."""
    g = tl.program_id(0)
    rk = tl.program_id(1) * BK + tl.arange(0, BK)
    rn = tl.program_id(2) * BN + tl.arange(0, BN)
    acc = tl.zeros((BK, BN), tl.float32)
    end = tl.load(starts + g + 1)
    for m in range(tl.load(starts + g), end, BM):
        rm = m + tl.arange(0, BM)
        x = tl.load(A + rm[None, :] * K + rk[:, None], mask=(rm < end)[None, :] & (rk < K)[:, None], other=0.0)
        y = tl.load(DC + rm[:, None] * N + rn[None, :], mask=(rm < end)[:, None] & (rn < N)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    tl.store(DB + g * K * N + rk[:, None] * N + rn[None, :], acc, mask=(rk < K)[:, None] & (rn < N)[None, :])


@case({"sizes": (5, 0, 33, 16), "n": 20, "k": 18}, {"sizes": (500, 3, 0, 1000), "n": 384, "k": 256}, 1e-4)
def grouped_product_by_persistent_programs(new, sizes, n, k) -> Pairs:
    a, b, c = new.normal(sum(sizes), k), new.normal(len(sizes), k, n), new.empty(sum(sizes), n)
    starts = new.offsets(list(sizes))
    grouped_kernel[(3,)](a, b, c, starts, len(sizes), n, k, BM=16, BN=16, BK=16)
    dc, da, db = new.normal(*c.shape), new.empty(*a.shape), new.empty(*b.shape)
    grouped_kernel[(3,)](dc, b.transpose(1, 2).contiguous(), da, starts, len(sizes), k, n, BM=16, BN=16, BK=16)
    grid = (len(sizes), triton.cdiv(k, 16), triton.cdiv(n, 16))
    grouped_weight_gradient_kernel[grid](a, dc, db, starts, n, k, BM=16, BN=16, BK=16)
    p, q = leaves(a, b)
    want = torch.cat([x @ y for x, y in zip(p.split(list(sizes)), q, strict=True)])
    return [(c, want), *zip((da, db), gradients(want, dc, p, q), strict=True)]


@triton.jit
def permute_kernel(x_ptr, y_ptr, places, D, TOP: tl.constexpr, BLOCK: tl.constexpr):
    """Copies of each token to the places of its pairs."""
    token = tl.program_id(0)
    for start in tl.range(0, D, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + token * D + c, mask=c < D)
        for j in tl.static_range(TOP):
            place = tl.load(places + token * TOP + j)
            if place >= 0:
                tl.store(y_ptr + place * D + c, x, mask=c < D)


@triton.jit
def unpermute_kernel(y_ptr, x_ptr, places, weights, D: tl.constexpr, TOP: tl.constexpr):
    token = tl.program_id(0)
    c = tl.arange(0, triton.next_power_of_2(D))
    acc = tl.zeros((triton.next_power_of_2(D),), tl.float32)
    for j in range(TOP):
        place = tl.load(places + token * TOP + j)
        w = tl.load(weights + token * TOP + j)
        acc += tl.load(y_ptr + place * D + c, mask=(place >= 0) & (c < D), other=0.0) * w
    tl.store(x_ptr + token * D + c, acc, mask=c < D)


@triton.jit
def unpermute_backward_kernel(y_ptr, dx_ptr, dy_ptr, places, weights, dweights, D: tl.constexpr, TOP: tl.constexpr):
    token = tl.program_id(0)
    c = tl.arange(0, triton.next_power_of_2(D))
    d = tl.load(dx_ptr + token * D + c, mask=c < D, other=0.0)
    for j in range(TOP):
        place = tl.load(places + token * TOP + j)
        real = (place >= 0) & (c < D)
        tl.store(dy_ptr + place * D + c, d * tl.load(weights + token * TOP + j), mask=real)
        y = tl.load(y_ptr + place * D + c, mask=real, other=0.0)
        tl.store(dweights + token * TOP + j, tl.sum(y * d))


@case({"t": 7, "d": 20}, {"t": 4096, "d": 1000})
def tokens_to_their_places_and_back(new, t, d) -> Pairs:
    x, w, places = new.normal(t, d), new.uniform(t, 2), new.permutation(2 * t).view(t, 2)
    places[1, 1] = -1
    y, back = new.zeros(2 * t, d), new.empty(t, d)
    permute_kernel[(t,)](x, y, places, d, TOP=2, BLOCK=16)
    unpermute_kernel[(t,)](y, back, places, w, D=d, TOP=2)
    moved = torch.zeros(2 * t, d, dtype=torch.float64, device=x.device)
    keep = places.flatten() >= 0
    moved[places.flatten()[keep]] = x.double().repeat_interleave(2, 0)[keep]
    # The way there is undone by the sum on the way back, with weights of one.
    dback, dy, dw, dx = new.normal(t, d), new.zeros(2 * t, d), new.empty(t, 2), new.empty(t, d)
    unpermute_backward_kernel[(t,)](y, dback, dy, places, w, dw, D=d, TOP=2)
    unpermute_kernel[(t,)](dy, dx, places, torch.ones_like(w), D=d, TOP=2)
    a, b = leaves(x, w)
    want = a * (b * (places >= 0)).sum(1, keepdim=True)
    return [(y, moved), (back, want), *zip((dx, dw), gradients(want, dback, a, b), strict=True)]


@triton.jit
def balance_kernel(probs, ids, out, shares, T, E: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    """E times the sum over experts of (share of tokens) x (mean probability)."""
    e = tl.arange(0, E)
    share = tl.zeros((E,), tl.float32)
    mean = tl.zeros((E,), tl.float32)
    t = 0
    while t < T:
        r = t + tl.arange(0, BLOCK)
        mean += tl.sum(tl.load(probs + r[:, None] * E + e[None, :], mask=r[:, None] < T, other=0.0), axis=0)
        for k in tl.static_range(K):
            chosen = tl.load(ids + r * K + k, mask=r < T, other=E)
            share += tl.sum((chosen[:, None] == e[None, :]).to(tl.float32), axis=0)
        t += BLOCK
    tl.store(out, E * tl.sum(share / (T * K) * (mean / T)))
    tl.store(shares + e, share / (T * K))


@triton.jit
def balance_backward_kernel(shares, dout, dprobs, T, E: tl.constexpr):
    e = tl.arange(0, E)
    tl.store(dprobs + tl.program_id(0) * E + e, tl.load(shares + e) * (E * tl.load(dout) / T))


@case({"t": 21, "e": 4}, {"t": 5000, "e": 32})
def balance_of_experts(new, t, e) -> Pairs:
    p, out, shares, dout, dp = new.normal(t, e).softmax(-1), new.empty(1), new.empty(e), new.normal(1), new.empty(t, e)
    ids = p.topk(2).indices
    balance_kernel[(1,)](p, ids, out, shares, t, E=e, K=2, BLOCK=8)
    balance_backward_kernel[(t,)](shares, dout, dp, t, E=e)
    share = ids.flatten().bincount(minlength=e).double() / ids.numel()
    (a,) = leaves(p)
    want = (e * (share * a.mean(0)).sum())[None]
    return [(out, want), (dp, *gradients(want, dout, a))]


@triton.jit
def group_limited_kernel(scores, bias, ids, E: tl.constexpr, GROUPS: tl.constexpr, KEEP: tl.constexpr, K: tl.constexpr):
    """The best groups by the sum of their two best, then the best experts within them."""
    t = tl.program_id(0)
    size: tl.constexpr = E // GROUPS
    e = tl.arange(0, E)
    s = tl.sigmoid(tl.load(scores + t * E + e)) + tl.load(bias + e)
    grid = s.reshape(GROUPS, size)
    first = tl.max(grid, axis=1)
    where = tl.argmax(grid, axis=1)
    rest = tl.where(tl.arange(0, size)[None, :] == where[:, None], float("-inf"), grid)
    group = first + tl.max(rest, axis=1)
    g = tl.arange(0, GROUPS)
    better = tl.sum((group[None, :] > group[:, None]).to(tl.int32), axis=1)
    open_groups = (better < KEEP)[:, None] & (tl.arange(0, size) >= 0)[None, :]
    s = tl.where(open_groups, grid, float("-inf")).reshape(E)
    for k in tl.static_range(K):
        best = tl.argmax(s, 0)
        tl.store(ids + t * K + k, best)
        s = tl.where(e == best, float("-inf"), s)


@case({"t": 6, "e": 16}, {"t": 2048, "e": 256})
def experts_of_the_best_groups(new, t, e) -> Pairs:
    x, bias, ids = new.normal(t, e), new.normal(e) * 0.1, new.empty(t, 3, dtype=torch.int64)
    group_limited_kernel[(t,)](x, bias, ids, E=e, GROUPS=4, KEEP=2, K=3)
    s = (x.sigmoid() + bias).view(t, 4, -1)
    groups = s.topk(2, -1).values.sum(-1).topk(2).indices
    mask = torch.zeros(t, 4, dtype=torch.bool, device=x.device).scatter_(1, groups, True)
    return [(ids, s.masked_fill(~mask[..., None], -torch.inf).flatten(1).topk(3).indices)]
