"""Recurrences of `benchmarks.hl_gradients`, step by step, and what they are in PyTorch.

A pass of a loop does `AT_ONCE` steps, so that their loads are under way together, and the way back keeps the state of
one step of that many.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright import hl

AT_ONCE = 4


@hl.kernel(config=hl.Config(block_sizes=[8], num_warps=1))
def delta_rule(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """For every step the state [keys, values] is corrected by what it answers to the key, and asked the query.

    `q` and `k` are of (batch, steps, heads, keys), `v` of (.., values), `beta` of (batch, steps, heads).
    """
    batch, steps, heads, keys = q.size()
    out = torch.empty_like(v)
    for one, head, columns in hl.tile([batch, heads, v.size(3)], block_size=[1, 1, None]):
        b, h = one.begin, head.begin
        state = hl.zeros([keys, columns])
        for several in hl.grid(steps // AT_ONCE):
            for one_of in hl.static_range(AT_ONCE):
                step = several * AT_ONCE + one_of
                key = k[b, step, h, :].to(torch.float32)
                answer = (state * key[:, None]).sum(0)
                write = (v[b, step, h, columns].to(torch.float32) - answer) * beta[b, step, h].to(torch.float32)
                state = state + key[:, None] * write[None, :]
                out[b, step, h, columns] = (state * q[b, step, h, :].to(torch.float32)[:, None]).sum(0)
    return out


def delta_rule_reference(q: Any, k: Any, v: Any, beta: Any) -> Any:
    """The same in PyTorch."""
    state, outs = q.new_zeros(*q.shape[:1], *q.shape[2:], v.size(3), dtype=torch.float32), []
    for query, key, value, rate in zip(*(x.float().unbind(1) for x in (q, k, v, beta)), strict=True):
        write = (value - (state * key[..., None]).sum(-2)) * rate[..., None]
        state = state + key[..., None] * write[..., None, :]
        outs.append((state * query[..., None]).sum(-2))
    return torch.stack(outs, 1).to(v.dtype)


@hl.kernel(config=hl.Config(block_sizes=[64], num_warps=2))
def gated_recurrence(x: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """`h = exp(gate) * h + x`, step by step; both are of (batch, steps, width)."""
    out = torch.empty_like(x)
    for one, columns in hl.tile([x.size(0), x.size(2)], block_size=[1, None]):
        state = hl.zeros([columns])
        for several in hl.grid(x.size(1) // AT_ONCE):
            for one_of in hl.static_range(AT_ONCE):
                step = several * AT_ONCE + one_of
                gate = torch.exp(gates[one.begin, step, columns].to(torch.float32))
                state = state * gate + x[one.begin, step, columns].to(torch.float32)
                out[one.begin, step, columns] = state
    return out


def gated_recurrence_reference(x: Any, gates: Any) -> Any:
    """The same in PyTorch."""
    state, outs = torch.zeros_like(x[:, 0], dtype=torch.float32), []
    for one, gate in zip(x.float().unbind(1), gates.float().exp().unbind(1), strict=True):
        state = state * gate + one
        outs.append(state)
    return torch.stack(outs, 1).to(x.dtype)


@hl.kernel(config=hl.Config(block_sizes=[8], num_warps=1))
def selective_scan(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """A state space whose state [keys, values] each head lets decay by `exp(decay)`: forms as of `delta_rule`."""
    batch, steps, heads, keys = q.size()
    out = torch.empty_like(v)
    for one, head, columns in hl.tile([batch, heads, v.size(3)], block_size=[1, 1, None]):
        b, h = one.begin, head.begin
        state = hl.zeros([keys, columns])
        for several in hl.grid(steps // AT_ONCE):
            for one_of in hl.static_range(AT_ONCE):
                step = several * AT_ONCE + one_of
                key, value = k[b, step, h, :].to(torch.float32), v[b, step, h, columns].to(torch.float32)
                state = state * torch.exp(decay[b, step, h].to(torch.float32)) + key[:, None] * value[None, :]
                out[b, step, h, columns] = (state * q[b, step, h, :].to(torch.float32)[:, None]).sum(0)
    return out


def selective_scan_reference(q: Any, k: Any, v: Any, decay: Any) -> Any:
    """The same in PyTorch."""
    state, outs = q.new_zeros(*q.shape[:1], *q.shape[2:], v.size(3), dtype=torch.float32), []
    for query, key, value, rate in zip(*(x.float().unbind(1) for x in (q, k, v, decay.exp())), strict=True):
        state = state * rate[..., None, None] + key[..., None] * value[..., None, :]
        outs.append((state * query[..., None]).sum(-2))
    return torch.stack(outs, 1).to(v.dtype)
