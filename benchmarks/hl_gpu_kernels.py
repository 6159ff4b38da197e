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


def cross_entropy(logits, labels):  # type: ignore[no-untyped-def]
    """Negative log likelihood of each row's label."""
    losses = torch.empty([logits.size(0)], dtype=logits.dtype, device=logits.device)
    flat = logits.view(-1)
    for rows in hl.tile(logits.size(0)):
        chosen = flat[rows.index * logits.size(1) + labels[rows]]
        values = logits[rows, :]
        largest = torch.amax(values, dim=-1, keepdim=True)
        losses[rows] = torch.log(torch.exp(values - largest).sum(dim=-1)) + largest.squeeze(-1) - chosen
    return losses


def jagged_softmax(x, offsets):  # type: ignore[no-untyped-def]
    """Softmax along rows of different lengths that lie one behind the other."""
    out = torch.empty_like(x)
    for row in hl.grid(offsets.size(0) - 1):
        begin, end = offsets[row], offsets[row + 1]
        for tile_n in hl.tile(x.size(1)):
            largest = hl.full([tile_n], float("-inf"), dtype=torch.float32)
            total = hl.zeros([tile_n], dtype=torch.float32)
            for tile_k in hl.tile(begin, end):
                values = x[tile_k, tile_n]
                new = torch.maximum(largest, torch.amax(values, 0))
                total = total * torch.exp(largest - new) + torch.exp(values - new[None, :]).sum(0)
                largest = new
            for tile_k in hl.tile(begin, end):
                out[tile_k, tile_n] = torch.exp(x[tile_k, tile_n] - largest[None, :]) / total[None, :]
    return out


def grouped_product(x, weights, offsets):  # type: ignore[no-untyped-def]
    """Products of groups of rows, each with a matrix of its own."""
    groups, width, columns = weights.size()
    out = torch.empty([x.size(0), columns], dtype=x.dtype, device=x.device)
    for group in hl.grid(groups):
        begin, end = offsets[group], offsets[group + 1]
        if begin < end:
            for tile_m in hl.tile(begin, end):
                for tile_n in hl.tile(columns):
                    acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                    for tile_k in hl.tile(width):
                        acc = torch.addmm(acc, x[tile_m, tile_k], weights[group, tile_k, tile_n])
                    out[tile_m, tile_n] = acc.to(out.dtype)
    return out


def int4_product(x, packed):  # type: ignore[no-untyped-def]
    """Product with weights of 4 bits, two of a column in a byte."""
    m, k = x.size()
    n = packed.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    block = hl.register_block_size(k // 2)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_b in hl.tile(k // 2, block_size=block):
            both = packed[tile_b, tile_n]
            pairs = torch.stack([(both << 4) >> 4, both >> 4], dim=1)
            weights = pairs.reshape(block * 2, tile_n.block_size).to(x.dtype)
            first = tile_b.begin * 2
            acc = hl.dot(x[tile_m, first : first + block * 2], weights, acc=acc)
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out
