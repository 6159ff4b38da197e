"""Kernels of the hl rows: six that race against eager PyTorch, and three of which binding and emission are timed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tilewright import hl


@hl.kernel
def softmax(x, out):  # type: ignore[no-untyped-def]
    """Softmax of rows."""
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=-1)
    return out


@hl.kernel
def layer_norm(x, weight, bias):  # type: ignore[no-untyped-def]
    """Layer norm of rows."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = F.layer_norm(x[rows, :], [x.size(1)], weight[:], bias[:], 1e-5)
    return out


@hl.kernel
def rms_norm(x, weight):  # type: ignore[no-untyped-def]
    """RMS norm of rows."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        out[rows, :] = values * torch.rsqrt((values * values).mean(-1, keepdim=True) + 1e-5) * weight[:]
    return out


@hl.kernel
def cross_entropy(logits, labels):  # type: ignore[no-untyped-def]
    """Negative log likelihood of each row's label."""
    losses = torch.empty([logits.size(0)], dtype=logits.dtype, device=logits.device)
    flat = logits.view(-1)
    for rows in hl.tile(logits.size(0)):
        chosen = flat[rows.index * logits.size(1) + labels[rows]]
        losses[rows] = torch.logsumexp(logits[rows, :], dim=-1) - chosen
    return losses.mean()


@hl.kernel
def geglu(a, b):  # type: ignore[no-untyped-def]
    """Gated unit."""
    out = torch.empty_like(a)
    for tile in hl.tile(a.size(0)):
        out[tile] = F.gelu(a[tile], approximate="tanh") * b[tile]
    return out


@hl.kernel
def jagged_softmax(values, offsets):  # type: ignore[no-untyped-def]
    """Softmax of rows of different lengths that lie one behind the other."""
    out = torch.empty_like(values)
    for row in hl.grid(offsets.size(0) - 1):
        begin, end = offsets[row], offsets[row + 1]
        largest = hl.full([], float("-inf"))
        total = hl.zeros([])
        for part in hl.tile(begin, end):
            new = torch.maximum(largest, values[part].amax(0))
            total = total * torch.exp(largest - new) + torch.exp(values[part] - new).sum(0)
            largest = new
        for part in hl.tile(begin, end):
            out[part] = torch.exp(values[part] - largest) / total
    return out


@hl.kernel
def matmul(x, y, out):  # type: ignore[no-untyped-def]
    """Product of matrices."""
    for tile_m, tile_n in hl.tile(out.shape):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@hl.kernel
def attention(q, k, v):  # type: ignore[no-untyped-def]
    """Attention of one head after another, rows of keys visited once."""
    out = torch.empty_like(q)
    scale = q.size(-1) ** -0.5 * 1.4426950408889634  # powers of 2 instead of e
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        largest = hl.full([tile_b, tile_m], float("-inf"))
        total = hl.zeros([tile_b, tile_m])
        acc = hl.zeros([tile_b, tile_m, q.size(2)])
        rows = q[tile_b, tile_m, :]
        for tile_n in hl.tile(k.size(1)):
            scores = torch.bmm(rows, k[tile_b, tile_n, :].transpose(1, 2))
            new = torch.maximum(largest, torch.amax(scores, -1) * scale)
            weights = torch.exp2(scores * scale - new[:, :, None])
            kept = torch.exp2(largest - new)
            total = total * kept + weights.sum(-1)
            acc = torch.baddbmm(acc * kept[:, :, None], weights, v[tile_b, tile_n, :])
            largest = new
        out[tile_b, tile_m, :] = acc / total[:, :, None]
    return out
