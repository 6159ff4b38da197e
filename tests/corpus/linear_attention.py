"""Linear attention and recurrences: gates, decay, chunks with carried state, the delta rule, selective scans."""

from __future__ import annotations

import torch

import tilewright as triton
import tilewright.language as tl
from tests.corpus.case import Pairs, case, gradients, leaves


def recurrent(q, k, v, decay):
    """o_t = q_t S_t, S_t = decay_t S_(t-1) + k_t v_t^T, in float64; decay is [H, T] or [H, T, K]."""
    q, k, v, decay = (t.double() for t in (q, k, v, decay))
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])
    out = []
    for t in range(q.shape[1]):
        factor = decay[:, t, :, None] if decay.dim() == 3 else decay[:, t, None, None]
        state = factor * state + k[:, t, :, None] * v[:, t, None, :]
        out.append((q[:, t, None, :] @ state)[:, 0])
    return torch.stack(out, 1), state


@triton.jit
def chunk_cumsum_kernel(g, out, T, REVERSE: tl.constexpr, BT: tl.constexpr):
    head, chunk = tl.program_id(1), tl.program_id(0)
    t = chunk * BT + tl.arange(0, BT)
    x = tl.load(g + head * T + t, mask=t < T, other=0.0).to(tl.float32)
    s = tl.cumsum(x, axis=0)
    if REVERSE:
        s = tl.sum(x, axis=0) - s + x
    tl.store(out + head * T + t, s, mask=t < T)


@triton.jit
def chunk_state_kernel(
    k, v, g, h, T, NT, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    """The state before each chunk, carried along the sequence."""
    i_k, i_v, i_h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    state = tl.zeros([BK, BV], dtype=tl.float32)
    for i_t in range(NT):
        p_h = tl.make_block_ptr(h + (i_h * NT + i_t) * K * V, (K, V), (V, 1), (i_k * BK, i_v * BV), (BK, BV), (1, 0))
        tl.store(p_h, state.to(p_h.dtype.element_ty.element_ty), boundary_check=(0, 1))
        p_k = tl.make_block_ptr(k + i_h * T * K, (K, T), (1, K), (i_k * BK, i_t * BT), (BK, BT), (0, 1))
        p_v = tl.make_block_ptr(v + i_h * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
        last = tl.minimum((i_t + 1) * BT, T) - 1
        o_t = i_t * BT + tl.arange(0, BT)
        b_last = tl.load(g + i_h * T + last)
        b_g = tl.load(g + i_h * T + o_t, mask=o_t < T, other=0.0)
        b_v = tl.load(p_v, boundary_check=(0, 1))
        b_v = (b_v * tl.where(o_t < T, tl.exp(b_last - b_g), 0.0)[:, None]).to(b_v.dtype)
        b_k = tl.load(p_k, boundary_check=(0, 1))
        state = state * tl.exp(b_last) + tl.dot(b_k, b_v, input_precision="ieee")


@triton.jit
def chunk_output_kernel(
    q, k, v, g, h, o, T, NT, scale, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr,
):  # fmt: skip
    i_v, i_t, i_h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_i = i_t * BT + tl.arange(0, BT)
    m_t = o_i < T
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    b_a = tl.zeros([BT, BT], dtype=tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        o_k = i_k * BK + tl.arange(0, BK)
        m_k = o_k < K
        b_q = tl.load(q + (i_h * T + o_i)[:, None] * K + o_k[None, :], mask=m_t[:, None] & m_k[None, :], other=0)
        b_k = tl.load(k + (i_h * T + o_i)[None, :] * K + o_k[:, None], mask=m_t[None, :] & m_k[:, None], other=0)
        o_v = i_v * BV + tl.arange(0, BV)
        at = h + (i_h * NT + i_t) * K * V + o_k[:, None] * V + o_v[None, :]
        b_h = tl.load(at, mask=m_k[:, None] & (o_v < V)[None, :], other=0)
        b_o += tl.dot(b_q, b_h, input_precision="ieee")
        b_a += tl.dot(b_q, b_k, input_precision="ieee")
    b_g = tl.load(g + i_h * T + o_i, mask=m_t, other=0)
    b_o *= tl.exp(b_g)[:, None]
    lower = (o_i[:, None] >= o_i[None, :]) & (m_t[:, None] & m_t[None, :])
    b_a = tl.where(lower, b_a * tl.exp(tl.where(lower, b_g[:, None] - b_g[None, :], 0.0)), 0.0)
    o_v = i_v * BV + tl.arange(0, BV)
    m_o = m_t[:, None] & (o_v < V)[None, :]
    b_v = tl.load(v + (i_h * T + o_i)[:, None] * V + o_v[None, :], mask=m_o, other=0)
    b_o = (b_o + tl.dot(b_a.to(b_v.dtype), b_v, input_precision="ieee")) * scale
    tl.store(o + (i_h * T + o_i)[:, None] * V + o_v[None, :], b_o, mask=m_o)


@case({"h": 2, "t": 50, "k": 24, "v": 20}, {"h": 8, "t": 500, "k": 128, "v": 96}, 1e-4)
def gated_linear_attention_in_chunks(new, h, t, k, v) -> Pairs:
    q, key, value = new.normal(h, t, k), new.normal(h, t, k), new.normal(h, t, v)
    gate = -new.uniform(h, t, low=0.01, high=0.3)
    nt = triton.cdiv(t, 16)
    g, state, o = new.empty(h, t), new.empty(h, nt, k, v), new.empty(h, t, v)
    chunk_cumsum_kernel[(nt, h)](gate, g, t, REVERSE=False, BT=16)
    sizes = {"K": k, "V": v, "BT": 16, "BK": 16, "BV": 16}
    chunk_state_kernel[(triton.cdiv(k, 16), triton.cdiv(v, 16), h)](key, value, g, state, t, nt, **sizes)
    chunk_output_kernel[(triton.cdiv(v, 16), nt, h)](q, key, value, g, state, o, t, nt, 0.5, **sizes)
    want, _ = recurrent(q, key, value, gate.exp())
    return [(o, want * 0.5)]


@case({"h": 2, "t": 37}, {"h": 64, "t": 5000})
def sums_within_chunks_from_both_ends(new, h, t) -> Pairs:
    x, out, back = new.normal(h, t), new.empty(h, t), new.empty(h, t)
    for reverse, to in ((False, out), (True, back)):
        chunk_cumsum_kernel[(triton.cdiv(t, 16), h)](x, to, t, REVERSE=reverse, BT=16)
    padded = torch.nn.functional.pad(x.double(), (0, -t % 16)).view(h, -1, 16)
    want = padded.cumsum(-1).view(h, -1)[:, :t]
    return [(out, want), (back, padded.flip(-1).cumsum(-1).flip(-1).reshape(h, -1)[:, :t])]


@triton.jit
def recurrent_kernel(
    q, k, v, g, o, h0, ht, T, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, BACKWARD_TIME: tl.constexpr
):
    """Token by token, a vector of gates a step; from the end to the start if asked to."""
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    o_k = tl.arange(0, K)
    o_v = i_v * BV + tl.arange(0, BV)
    m_v = o_v < V
    state = tl.zeros([K, BV], dtype=tl.float32)
    if h0 is not None:
        state += tl.load(h0 + i_h * K * V + o_k[:, None] * V + o_v[None, :], mask=m_v[None, :], other=0.0)
    step: tl.constexpr = -1 if BACKWARD_TIME else 1
    t = i_h * T + ((T - 1) if BACKWARD_TIME else 0)
    for _ in range(0, T):
        b_k = tl.load(k + t * K + o_k)
        b_v = tl.load(v + t * V + o_v, mask=m_v, other=0.0)
        b_g = tl.exp(tl.load(g + t * K + o_k))
        state = state * b_g[:, None] + b_k[:, None] * b_v[None, :]
        b_o = tl.sum(state * tl.load(q + t * K + o_k)[:, None], axis=0)
        tl.store(o + t * V + o_v, b_o.to(o.dtype.element_ty), mask=m_v)
        t += step
    tl.store(ht + i_h * K * V + o_k[:, None] * V + o_v[None, :], state, mask=m_v[None, :])


@case({"h": 2, "t": 7, "k": 8, "v": 10}, {"h": 16, "t": 200, "k": 64, "v": 100}, 1e-4)
def recurrent_gated_attention_both_ways(new, h, t, k, v) -> Pairs:
    q, key, value, gate = new.normal(h, t, k), new.normal(h, t, k), new.normal(h, t, v), -new.uniform(h, t, k)
    pairs = []
    for backward in (False, True):
        o, state = new.empty(h, t, v), new.empty(h, k, v)
        grid = (triton.cdiv(v, 8), h)
        recurrent_kernel[grid](q, key, value, gate, o, None, state, t, K=k, V=v, BV=8, BACKWARD_TIME=backward)
        turn = (lambda x: x.flip(1)) if backward else (lambda x: x)
        want, last = recurrent(turn(q), turn(key), turn(value), turn(gate.exp()))
        pairs += [(o, turn(want)), (state, last)]
    return pairs


@triton.jit
def delta_rule_kernel(q, k, v, beta, o, T, K: tl.constexpr, V: tl.constexpr):
    """S += beta k (v - k S): what the state already says of the key is taken from the value."""
    head = tl.program_id(0)
    r, c = tl.arange(0, K), tl.arange(0, V)
    state = tl.zeros((K, V), tl.float32)
    p_k = k + head * T * K + r
    p_q = q + head * T * K + r
    p_v = v + head * T * V + c
    p_o = o + head * T * V + c
    for t in tl.range(T):
        key = tl.load(p_k)
        seen = tl.sum(state * key[:, None], 0)
        fresh = (tl.load(p_v) - seen) * tl.load(beta + head * T + t)
        state += key[:, None] * fresh[None, :]
        tl.store(p_o, tl.sum(state * tl.load(p_q)[:, None], 0))
        p_k, p_q, p_v, p_o = p_k + K, p_q + K, p_v + V, p_o + V


@case({"h": 2, "t": 9, "k": 8}, {"h": 16, "t": 256, "k": 64}, 1e-3)
def delta_rule(new, h, t, k) -> Pairs:
    q, key = new.normal(h, t, k), torch.nn.functional.normalize(new.normal(h, t, k), dim=-1)
    value, beta, o = new.normal(h, t, k), new.uniform(h, t), new.empty(h, t, k)
    delta_rule_kernel[(h,)](q, key, value, beta, o, t, K=k, V=k)
    state, want = torch.zeros(h, k, k, dtype=torch.float64, device=q.device), []
    for i in range(t):
        kk = key[:, i].double()
        fresh = (value[:, i].double() - (kk[:, None] @ state)[:, 0]) * beta[:, i, None].double()
        state = state + kk[:, :, None] * fresh[:, None]
        want.append((q[:, i, None].double() @ state)[:, 0])
    return [(o, torch.stack(want, 1))]


@triton.jit
def solve_kernel(A, OUT, T, BT: tl.constexpr):
    """Inverse of 1 + A for a strictly lower triangle, row by row."""
    at = tl.program_id(0) * BT
    i = tl.arange(0, BT)
    ok = ((at + i) < T)[:, None] & (i[None, :] < BT)
    x = -tl.where(i[:, None] > i[None, :], tl.load(A + (at + i)[:, None] * BT + i[None, :], mask=ok, other=0.0), 0.0)
    for row in range(2, BT):
        this = tl.sum(tl.where((i == row)[:, None], x, 0.0), 0)
        this += tl.sum(this[:, None] * x, 0) * (i < row)
        x = tl.where((i == row)[:, None], this, x)
    x += i[:, None] == i[None, :]
    tl.store(OUT + (at + i)[:, None] * BT + i[None, :], x, mask=ok)


@case({"n": 2}, {"n": 200}, 1e-4)
def inverse_of_unit_triangles(new, n) -> Pairs:
    a, out = new.normal(n * 16, 16) * 0.3, new.empty(n * 16, 16)
    solve_kernel[(n,)](a, out, n * 16, BT=16)
    lower = a.double().view(n, 16, 16).tril(-1) + torch.eye(16, device=a.device)
    return [(out.view(n, 16, 16), lower.inverse())]


@triton.jit
def _linear_step(a1, b1, a2, b2):
    return a2 * a1, a2 * b1 + b2


@triton.jit
def linear_scan_kernel(a_ptr, b_ptr, h_ptr, T, C, BT: tl.constexpr, BC: tl.constexpr):
    """h_t = a_t h_(t-1) + b_t by an associative scan of pairs, blocks of time one after another."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    h = tl.zeros((BC,), tl.float32)
    for start in range(0, T, BT):
        t = start + tl.arange(0, BT)
        at = t[:, None] * C + c[None, :]
        live = (t[:, None] < T) & (c[None, :] < C)
        a = tl.load(a_ptr + at, mask=live, other=1.0)
        b = tl.load(b_ptr + at, mask=live, other=0.0)
        aa, bb = tl.associative_scan((a, b), 0, _linear_step)
        y = aa * h[None, :] + bb
        tl.store(h_ptr + at, y, mask=live)
        h = tl.sum(tl.where((tl.arange(0, BT) == BT - 1)[:, None], y, 0.0), 0)


@triton.jit
def linear_scan_backward_kernel(a_ptr, h_ptr, dh_ptr, da_ptr, db_ptr, T, C, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    ok = c < C
    carried = tl.zeros((BC,), tl.float32)
    t = T - 1
    while t >= 0:
        carried += tl.load(dh_ptr + t * C + c, mask=ok, other=0.0)
        before = tl.load(h_ptr + (t - 1) * C + c, mask=ok & (t > 0), other=0.0)
        tl.store(da_ptr + t * C + c, carried * before, mask=ok)
        tl.store(db_ptr + t * C + c, carried, mask=ok)
        carried *= tl.load(a_ptr + t * C + c, mask=ok, other=0.0)
        t -= 1


@case({"t": 21, "c": 10}, {"t": 1000, "c": 500}, 1e-4)
def linear_recurrence_by_scan(new, t, c) -> Pairs:
    a, b, dh, h = new.uniform(t, c), new.normal(t, c), new.normal(t, c), new.empty(t, c)
    da, db = new.empty(t, c), new.empty(t, c)
    linear_scan_kernel[(triton.cdiv(c, 8),)](a, b, h, t, c, BT=8, BC=8)
    linear_scan_backward_kernel[(triton.cdiv(c, 16),)](a, h, dh, da, db, t, c, BC=16)
    x, y = leaves(a, b)
    states = [y[0]]
    for i in range(1, t):
        states.append(x[i] * states[-1] + y[i])
    want = torch.stack(states)
    return [(h, want), *zip((da, db), gradients(want, dh, x, y), strict=True)]


@triton.jit
def selective_scan_kernel(u, delta, A, B, C, D, z, out, T, N: tl.constexpr, DIM: tl.constexpr, BD: tl.constexpr):
    """A state of N numbers a channel, input, step and gate depending on time."""
    batch = tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    n = tl.arange(0, N)
    ok = d < DIM
    a = -tl.exp(tl.load(A + d[:, None] * N + n[None, :], mask=ok[:, None], other=0.0))
    skip = tl.load(D + d, mask=ok, other=0.0)
    x = tl.zeros((BD, N), tl.float32)
    for t in range(T):
        at = (batch * T + t) * DIM + d
        step = tl.load(delta + at, mask=ok, other=0.0)
        step = tl.where(step > 20.0, step, tl.log(1.0 + tl.exp(step)))
        v = tl.load(u + at, mask=ok, other=0.0)
        b = tl.load(B + (batch * T + t) * N + n)
        x = x * tl.exp(step[:, None] * a) + (step * v)[:, None] * b[None, :]
        y = tl.sum(x * tl.load(C + (batch * T + t) * N + n)[None, :], axis=1) + skip * v
        gate = tl.load(z + at, mask=ok, other=0.0)
        tl.store(out + at, y * gate * tl.sigmoid(gate), mask=ok)


@case({"b": 2, "t": 6, "d": 10, "n": 4}, {"b": 2, "t": 200, "d": 512, "n": 16}, 1e-4)
def selective_state_space_scan(new, b, t, d, n) -> Pairs:
    u, delta, z, out = new.normal(b, t, d), new.normal(b, t, d), new.normal(b, t, d), new.empty(b, t, d)
    a, bb, cc, skip = new.normal(d, n), new.normal(b, t, n), new.normal(b, t, n), new.normal(d)
    selective_scan_kernel[(triton.cdiv(d, 8), b)](u, delta, a, bb, cc, skip, z, out, t, N=n, DIM=d, BD=8)
    step = torch.nn.functional.softplus(delta.double())
    x, want = torch.zeros(b, d, n, dtype=torch.float64, device=u.device), []
    for i in range(t):
        x = x * (step[:, i, :, None] * -a.double().exp()).exp()
        x = x + (step[:, i] * u[:, i].double())[:, :, None] * bb[:, i, None].double()
        want.append((x * cc[:, i, None].double()).sum(-1) + skip.double() * u[:, i].double())
    return [(out, torch.stack(want, 1) * torch.nn.functional.silu(z.double()))]


@triton.jit
def retention_kernel(Q, K, V, O, T, D: tl.constexpr, B: tl.constexpr):
    """Decay of the head by its number, all pairs of blocks."""
    head = tl.program_id(1)
    log_decay = tl.log2(1 - tl.exp2(-5 - head * 1.0))
    rm = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    q = tl.load(Q + (head * T + rm)[:, None] * D + d, mask=rm[:, None] < T, other=0.0)
    acc = tl.zeros((B, D), tl.float32)
    for n in range(0, (tl.program_id(0) + 1) * B, B):
        rn = n + tl.arange(0, B)
        k = tl.load(K + (head * T + rn)[:, None] * D + d, mask=rn[:, None] < T, other=0.0)
        v = tl.load(V + (head * T + rn)[:, None] * D + d, mask=rn[:, None] < T, other=0.0)
        away = (rm[:, None] - rn[None, :]).to(tl.float32)
        w = tl.where(away >= 0, tl.exp2(tl.maximum(away, 0.0) * log_decay), 0.0)
        acc += tl.dot(tl.dot(q, k.trans(), input_precision="ieee") * w, v, input_precision="ieee")
    tl.store(O + (head * T + rm)[:, None] * D + d, acc, mask=rm[:, None] < T)


@case({"h": 2, "t": 20, "d": 16}, {"h": 4, "t": 400, "d": 64}, 1e-4)
def retention(new, h, t, d) -> Pairs:
    q, k, v, o = *(new.normal(h, t, d) for _ in range(3)), new.empty(h, t, d)
    retention_kernel[(triton.cdiv(t, 16), h)](q, k, v, o, t, D=d, B=16)
    decay = 1 - 2.0 ** (-5 - torch.arange(h, device=q.device, dtype=torch.float64))
    return [(o, recurrent(q, k, v, decay[:, None].expand(h, t))[0])]
