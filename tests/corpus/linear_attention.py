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
    decay = decay if decay.dim() == 3 else decay[..., None]
    for q_t, k_t, v_t, factor in zip(*(x.unbind(1) for x in (q, k, v, decay)), strict=True):
        state = factor[..., None] * state + k_t[..., None] * v_t[:, None]
        out.append((q_t[:, None] @ state)[:, 0])
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


def _chunked(q, key, value, gate, scale):
    """scale times the sum over s <= t of exp(gates after s up to t) (q_t . k_s) v_s, by the three kernels."""
    (h, t, k), v, nt = q.shape, value.shape[2], triton.cdiv(q.shape[1], 16)
    g, state, o = torch.empty_like(gate), q.new_empty(h, nt, k, v), torch.full_like(value, torch.nan)
    chunk_cumsum_kernel[(nt, h)](gate, g, t, REVERSE=False, BT=16)
    sizes = {"K": k, "V": v, "BT": 16, "BK": 16, "BV": 16}
    chunk_state_kernel[(triton.cdiv(k, 16), triton.cdiv(v, 16), h)](key, value, g, state, t, nt, **sizes)
    chunk_output_kernel[(triton.cdiv(v, 16), nt, h)](q, key, value, g, state, o, t, nt, scale, **sizes)
    return o


def _chunked_from_the_end(q, key, value, gate, scale):
    """The same over s >= t: time turned round, where a gate belongs to the step after it."""
    turned = (x.flip(1).contiguous() for x in (q, key, value, gate.roll(-1, 1)))
    return _chunked(*turned, scale).flip(1).contiguous()


@triton.jit
def gate_gradient_kernel(q, dq, k, dk, dg, T, K: tl.constexpr, BK: tl.constexpr, VECTOR: tl.constexpr):
    """Sums from the end of q dq - k dk, for a gate a channel or one for all."""
    c = tl.program_id(0) * BK + tl.arange(0, BK)
    head = tl.program_id(1)
    total = tl.zeros((BK,), tl.float32)
    for back in range(T):
        t = head * T + T - 1 - back
        a = tl.load(q + t * K + c, mask=c < K, other=0.0) * tl.load(dq + t * K + c, mask=c < K, other=0.0)
        b = tl.load(k + t * K + c, mask=c < K, other=0.0) * tl.load(dk + t * K + c, mask=c < K, other=0.0)
        total += a - b
        if VECTOR:
            tl.store(dg + t * K + c, total, mask=c < K)
        else:
            tl.atomic_add(dg + t, tl.sum(total))


@case({"h": 2, "t": 50, "k": 24, "v": 20}, {"h": 8, "t": 500, "k": 128, "v": 96}, 1e-4)
def gated_linear_attention_in_chunks(new, h, t, k, v) -> Pairs:
    q, key, value = new.normal(h, t, k), new.normal(h, t, k), new.normal(h, t, v)
    gate = -new.uniform(h, t, low=0.01, high=0.3)
    do, dgate = new.normal(h, t, v), new.zeros(h, t)
    o, dq = _chunked(q, key, value, gate, 0.5), _chunked(do, value, key, gate, 0.5)
    dk, dv = _chunked_from_the_end(value, do, q, gate, 0.5), _chunked_from_the_end(key, q, do, gate, 0.5)
    gate_gradient_kernel[(triton.cdiv(k, 16), h)](q, dq, key, dk, dgate, t, K=k, BK=16, VECTOR=False)
    inputs = [*leaves(q, key, value, gate)]
    want = recurrent(*inputs[:3], inputs[3].exp())[0] * 0.5
    return [(o, want), *zip((dq, dk, dv, dgate), gradients(want, do, *inputs), strict=True)]


@case({"h": 2, "t": 37}, {"h": 64, "t": 5000})
def sums_within_chunks_from_both_ends(new, h, t) -> Pairs:
    x, out, back, dout, dx = new.normal(h, t), new.empty(h, t), new.empty(h, t), new.normal(h, t), new.empty(h, t)
    for reverse, source, to in ((False, x, out), (True, x, back), (True, dout, dx)):
        chunk_cumsum_kernel[(triton.cdiv(t, 16), h)](source, to, t, REVERSE=reverse, BT=16)
    (a,) = leaves(x)
    padded = torch.nn.functional.pad(a, (0, -t % 16)).view(h, -1, 16)
    want = padded.cumsum(-1).view(h, -1)[:, :t]
    turned = padded.flip(-1).cumsum(-1).flip(-1).reshape(h, -1)[:, :t]
    return [(out, want), (back, turned), (dx, *gradients(want, dout, a))]


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


@triton.jit
def recurrent_backward_kernel(q, k, v, g, do, dq, dk, dv, T, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
    """From the start with the state, for queries, then from the end with its gradient, for keys and values."""
    i_v, i_h = tl.program_id(0), tl.program_id(1)
    o_k = tl.arange(0, K)
    o_v = i_v * BV + tl.arange(0, BV)
    m_v = o_v < V
    state = tl.zeros([K, BV], tl.float32)
    for t in range(i_h * T, i_h * T + T):
        b_v = tl.load(v + t * V + o_v, mask=m_v, other=0.0)
        state = state * tl.exp(tl.load(g + t * K + o_k))[:, None] + tl.load(k + t * K + o_k)[:, None] * b_v[None, :]
        b_do = tl.load(do + t * V + o_v, mask=m_v, other=0.0)
        tl.atomic_add(dq + t * K + o_k, tl.sum(state * b_do[None, :], 1))
    d_state = tl.zeros([K, BV], tl.float32)
    for t in range(i_h * T + T - 1, i_h * T - 1, -1):
        b_do = tl.load(do + t * V + o_v, mask=m_v, other=0.0)
        d_state += tl.load(q + t * K + o_k)[:, None] * b_do[None, :]
        b_v = tl.load(v + t * V + o_v, mask=m_v, other=0.0)
        tl.atomic_add(dk + t * K + o_k, tl.sum(d_state * b_v[None, :], 1))
        tl.store(dv + t * V + o_v, tl.sum(d_state * tl.load(k + t * K + o_k)[:, None], 0), mask=m_v)
        d_state *= tl.exp(tl.load(g + t * K + o_k))[:, None]


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
    do, dq, dk, dv, dg = new.normal(h, t, v), *(new.zeros(h, t, n) for n in (k, k, v, k))
    recurrent_backward_kernel[grid](q, key, value, gate, do, dq, dk, dv, t, K=k, V=v, BV=8)
    gate_gradient_kernel[(triton.cdiv(k, 8), h)](q, dq, key, dk, dg, t, K=k, BK=8, VECTOR=True)
    inputs = [*leaves(q, key, value, gate)]
    want = recurrent(*inputs[:3], inputs[3].exp())[0]
    return [*pairs, *zip((dq, dk, dv, dg), gradients(want, do, *inputs), strict=True)]


@triton.jit
def delta_rule_kernel(q, k, v, beta, o, written, last, T, K: tl.constexpr, V: tl.constexpr):
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
        tl.store(written + (head * T + t) * V + c, fresh)
        p_k, p_q, p_v, p_o = p_k + K, p_q + K, p_v + V, p_o + V
    tl.store(last + (head * K + r[:, None]) * V + c[None, :], state)


@triton.jit
def delta_rule_backward_kernel(
    q, k, v, beta, do, written, last, dq, dk, dv, dbeta, T, K: tl.constexpr, V: tl.constexpr
):
    """From the last state back: what was written at a step is taken out of it again."""
    head = tl.program_id(0)
    r, c = tl.arange(0, K), tl.arange(0, V)
    state = tl.load(last + (head * K + r[:, None]) * V + c[None, :])
    d_state = tl.zeros((K, V), tl.float32)
    for t in tl.range(head * T + T - 1, head * T - 1, -1):
        key, d_out = tl.load(k + t * K + r), tl.load(do + t * V + c)
        fresh, strength = tl.load(written + t * V + c), tl.load(beta + t)
        tl.store(dq + t * K + r, tl.sum(state * d_out[None, :], 1))
        d_state += tl.load(q + t * K + r)[:, None] * d_out[None, :]
        d_fresh = tl.sum(d_state * key[:, None], 0)
        state -= key[:, None] * fresh[None, :]
        left = tl.load(v + t * V + c) - tl.sum(state * key[:, None], 0)
        tl.store(dbeta + t, tl.sum(d_fresh * left))
        d_left = d_fresh * strength
        tl.store(dv + t * V + c, d_left)
        tl.store(dk + t * K + r, tl.sum(d_state * fresh[None, :] - state * d_left[None, :], 1))
        d_state -= key[:, None] * d_left[None, :]


@case({"h": 2, "t": 9, "k": 8}, {"h": 16, "t": 256, "k": 64}, 1e-3)
def delta_rule(new, h, t, k) -> Pairs:
    q, key = new.normal(h, t, k), torch.nn.functional.normalize(new.normal(h, t, k), dim=-1)
    value, beta, o, written = new.normal(h, t, k), new.uniform(h, t), new.empty(h, t, k), new.empty(h, t, k)
    last, do, dq, dk, dv = new.empty(h, k, k), new.normal(h, t, k), *(new.empty(h, t, k) for _ in range(3))
    dbeta = new.empty(h, t)
    delta_rule_kernel[(h,)](q, key, value, beta, o, written, last, t, K=k, V=k)
    delta_rule_backward_kernel[(h,)](q, key, value, beta, do, written, last, dq, dk, dv, dbeta, t, K=k, V=k)
    a, b, c, d = leaves(q, key, value, beta)
    state, want = torch.zeros(h, k, k, dtype=torch.float64, device=q.device), []
    for i in range(t):
        fresh = (c[:, i] - (b[:, i, None] @ state)[:, 0]) * d[:, i, None]
        state = state + b[:, i, :, None] * fresh[:, None]
        want.append((a[:, i, None] @ state)[:, 0])
    out = torch.stack(want, 1)
    return [(o, out), (last, state), *zip((dq, dk, dv, dbeta), gradients(out, do, a, b, c, d), strict=True)]


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


@triton.jit
def solve_backward_kernel(X, DX, DA, BT: tl.constexpr):
    """-X^T dX X^T, below the diagonal."""
    i = tl.arange(0, BT)
    at = (tl.program_id(0) * BT + i)[:, None] * BT + i[None, :]
    x = tl.trans(tl.load(X + at))
    d = tl.dot(tl.dot(x, tl.load(DX + at), input_precision="ieee"), x, input_precision="ieee")
    tl.store(DA + at, tl.where(i[:, None] > i[None, :], -d, 0.0))


@case({"n": 2}, {"n": 200}, 1e-4)
def inverse_of_unit_triangles(new, n) -> Pairs:
    a, out, dout, da = new.normal(n * 16, 16) * 0.3, new.empty(n * 16, 16), new.normal(n, 16, 16), new.empty(n * 16, 16)
    solve_kernel[(n,)](a, out, n * 16, BT=16)
    solve_backward_kernel[(n,)](out, dout, da, BT=16)
    (x,) = leaves(a)
    want = (x.view(n, 16, 16).tril(-1) + torch.eye(16, device=a.device)).inverse()
    return [(out.view(n, 16, 16), want), (da, *gradients(want, dout, x))]


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


@triton.jit
def selective_scan_backward_kernel(
    u, delta, A, B, C, D, z, dout, states, du, ddelta, dA, dB, dC, dD, dz, T, N: tl.constexpr, DIM: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    """The states are made again and kept, then met from the end."""
    batch = tl.program_id(1)
    d = tl.program_id(0) * BD + tl.arange(0, BD)
    n = tl.arange(0, N)
    ok = d < DIM
    a = -tl.exp(tl.load(A + d[:, None] * N + n[None, :], mask=ok[:, None], other=0.0))
    skip = tl.load(D + d, mask=ok, other=0.0)
    x = tl.zeros((BD, N), tl.float32)
    for t in range(T):
        at = (batch * T + t) * DIM + d
        tl.store(states + at[:, None] * N + n[None, :], x, mask=ok[:, None])
        step = tl.load(delta + at, mask=ok, other=0.0)
        step = tl.where(step > 20.0, step, tl.log(1.0 + tl.exp(step)))
        v = tl.load(u + at, mask=ok, other=0.0)
        x = x * tl.exp(step[:, None] * a) + (step * v)[:, None] * tl.load(B + (batch * T + t) * N + n)[None, :]
    dx = tl.zeros((BD, N), tl.float32)
    da = tl.zeros((BD, N), tl.float32)
    dskip = tl.zeros((BD,), tl.float32)
    for back in range(T):
        row = batch * T + T - 1 - back
        at = row * DIM + d
        raw = tl.load(delta + at, mask=ok, other=0.0)
        step = tl.where(raw > 20.0, raw, tl.log(1.0 + tl.exp(raw)))
        v = tl.load(u + at, mask=ok, other=0.0)
        b, c = tl.load(B + row * N + n)[None, :], tl.load(C + row * N + n)[None, :]
        before = tl.load(states + at[:, None] * N + n[None, :], mask=ok[:, None], other=0.0)
        fade = tl.exp(step[:, None] * a)
        x = before * fade + (step * v)[:, None] * b
        gate, g = tl.load(z + at, mask=ok, other=0.0), tl.load(dout + at, mask=ok, other=0.0)
        s = tl.sigmoid(gate)
        tl.store(dz + at, g * (tl.sum(x * c, 1) + skip * v) * s * (1 + gate * (1 - s)), mask=ok)
        dy = g * gate * s
        dskip += dy * v
        tl.atomic_add(dC + row * N + n, tl.sum(dy[:, None] * x, 0))
        dx += dy[:, None] * c
        dfade = dx * before * fade
        da += dfade * step[:, None]
        db = tl.sum(dx * b, 1)
        tl.store(ddelta + at, (tl.sum(dfade * a, 1) + db * v) * tl.sigmoid(raw), mask=ok)
        tl.store(du + at, dy * skip + db * step, mask=ok)
        tl.atomic_add(dB + row * N + n, tl.sum(dx * (step * v)[:, None], 0))
        dx *= fade
    tl.atomic_add(dA + d[:, None] * N + n[None, :], da * a, mask=ok[:, None])
    tl.atomic_add(dD + d, dskip, mask=ok)


@case({"b": 2, "t": 6, "d": 10, "n": 4}, {"b": 2, "t": 200, "d": 512, "n": 16}, 1e-4)
def selective_state_space_scan(new, b, t, d, n) -> Pairs:
    u, delta, z, out = new.normal(b, t, d), new.normal(b, t, d), new.normal(b, t, d), new.empty(b, t, d)
    a, bb, cc, skip = new.normal(d, n), new.normal(b, t, n), new.normal(b, t, n), new.normal(d)
    selective_scan_kernel[(triton.cdiv(d, 8), b)](u, delta, a, bb, cc, skip, z, out, t, N=n, DIM=d, BD=8)
    inputs, dout, states = (u, delta, a, bb, cc, skip, z), new.normal(b, t, d), new.empty(b, t, d, n)
    made = [new.zeros(*x.shape) for x in inputs]
    selective_scan_backward_kernel[(triton.cdiv(d, 8), b)](*inputs, dout, states, *made, t, N=n, DIM=d, BD=8)
    u, delta, a, bb, cc, skip, z = doubles = [*leaves(*inputs)]
    step = torch.nn.functional.softplus(delta)
    x, want = torch.zeros(b, d, n, dtype=torch.float64, device=u.device), []
    for i in range(t):
        x = x * (step[:, i, :, None] * -a.exp()).exp() + (step[:, i] * u[:, i])[:, :, None] * bb[:, i, None]
        want.append((x * cc[:, i, None]).sum(-1) + skip * u[:, i])
    y = torch.stack(want, 1) * torch.nn.functional.silu(z)
    return [(out, y), *zip(made, gradients(y, dout, *doubles), strict=True)]


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
    q, k, v, do = (new.normal(h, t, d) for _ in range(4))

    def retained(*inputs):
        out = new.empty(h, t, d)
        retention_kernel[(triton.cdiv(t, 16), h)](*inputs, out, t, D=d, B=16)
        return out

    # Backward is forward with the roles exchanged, for keys and values with time turned round.
    o, dq = retained(q, k, v), retained(do, v, k)
    qt, kt, vt, dot = (x.flip(1).contiguous() for x in (q, k, v, do))
    dk, dv = retained(vt, dot, qt).flip(1), retained(kt, qt, dot).flip(1)
    decay = 1 - 2.0 ** (-5 - torch.arange(h, device=q.device, dtype=torch.float64))
    inputs = [*leaves(q, k, v)]
    want, _ = recurrent(*inputs, decay[:, None].expand(h, t))
    return [(o, want), *zip((dq, dk, dv), gradients(want, do, *inputs), strict=True)]
