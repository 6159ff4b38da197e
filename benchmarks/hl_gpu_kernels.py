"""Functions of `benchmarks.hl_gpu`: programs of hl, and of Helion where the line that imports `hl` is changed."""

from __future__ import annotations

import torch

from tilewright import hl


def softmax(x):  # type: ignore[no-untyped-def]
    """Softmax of rows."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=-1)
    return out


def layer_norm(x, weight, bias):  # type: ignore[no-untyped-def]
    """Layer norm of rows."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :].to(torch.float32)
        centred = values - values.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
        out[rows, :] = (centred * scale * weight[:] + bias[:]).to(out.dtype)
    return out


def matmul(x, y):  # type: ignore[no-untyped-def]
    """Product of matrices."""
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


def attention(q, k, v):  # type: ignore[no-untyped-def]
    """Attention of one head after another; products are rounded to the type of their operands, as eager ones are."""
    out = torch.empty_like(q)
    scale = q.size(-1) ** -0.5 * 1.44269504  # powers of 2 instead of e
    length, width = q.size(1), hl.specialize(q.size(2))
    keys = k.transpose(1, 2)
    for tile_b, tile_m in hl.tile([q.size(0), length]):
        largest = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, width], dtype=torch.float32)
        rows = q[tile_b, tile_m, :]
        for tile_n in hl.tile(k.size(1)):
            scores = torch.bmm(rows, keys[tile_b, :, tile_n]) * scale
            new = torch.maximum(largest, torch.amax(scores, -1).to(torch.float32))
            weights = torch.exp2(scores - new[:, :, None])
            kept = torch.exp2(largest - new)
            total = total * kept + weights.sum(-1)
            acc = torch.baddbmm(acc * kept[:, :, None], weights.to(v.dtype), v[tile_b, tile_n, :])
            largest = new
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out


def attention_wide(q, k, v):  # type: ignore[no-untyped-def]
    """Attention whose products stay float32, as in `examples/attention.py`."""
    out = torch.empty_like(q)
    scale = q.size(-1) ** -0.5 * 1.4426950408889634
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        largest = hl.full([tile_b, tile_m], float("-inf"))
        total = hl.zeros([tile_b, tile_m])
        acc = hl.zeros([tile_b, tile_m, q.size(2)])
        rows = q[tile_b, tile_m, :]
        for tile_n in hl.tile(k.size(1)):
            scores = hl.dot(rows, k[tile_b, tile_n, :].transpose(1, 2), out_dtype=torch.float32)
            new = torch.maximum(largest, torch.amax(scores, -1) * scale)
            weights = torch.exp2(scores * scale - new[:, :, None])
            kept = torch.exp2(largest - new)
            total = total * kept + weights.sum(-1)
            acc = torch.baddbmm(acc * kept[:, :, None], weights.to(v.dtype), v[tile_b, tile_n, :])
            largest = new
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out
