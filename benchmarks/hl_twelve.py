"""Twelve kernels that mean the same to hl and to Helion; `TILEWRIGHT_BENCH_HELION=1` takes the names from Helion.

Each has arguments and configurations for `benchmarks.hl_against_helion`, which compiles them and runs none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

if os.environ.get("TILEWRIGHT_BENCH_HELION"):
    import helion
    import helion.language as hl
else:
    import tilewright.hl as helion
    import tilewright.hl as hl


@helion.kernel
def add(x, y):  # type: ignore[no-untyped-def]
    """Sum of two vectors."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel
def bias_gelu(x, bias):  # type: ignore[no-untyped-def]
    """Bias and activation."""
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([x.size(0), x.size(1)]):
        out[tile_m, tile_n] = F.gelu(x[tile_m, tile_n] + bias[tile_n])
    return out


@helion.kernel
def softmax(x):  # type: ignore[no-untyped-def]
    """Softmax of rows."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=-1)
    return out


@helion.kernel
def softmax_online(x):  # type: ignore[no-untyped-def]
    """Softmax of rows that are visited twice, in chunks."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        largest = hl.full([rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([rows], dtype=torch.float32)
        for columns in hl.tile(x.size(1)):
            values = x[rows, columns]
            new = torch.maximum(largest, torch.amax(values, dim=1))
            total = total * torch.exp(largest - new) + torch.exp(values - new[:, None]).sum(dim=1)
            largest = new
        for columns in hl.tile(x.size(1)):
            out[rows, columns] = torch.exp(x[rows, columns] - largest[:, None]) / total[:, None]
    return out


@helion.kernel
def layer_norm(x, weight, bias):  # type: ignore[no-untyped-def]
    """Layer norm of rows."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        centred = values - values.mean(-1, keepdim=True)
        scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
        out[rows, :] = centred * scale * weight[:] + bias[:]
    return out


@helion.kernel
def rms_norm(x, weight):  # type: ignore[no-untyped-def]
    """RMS norm of rows."""
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        out[rows, :] = values * torch.rsqrt((values * values).mean(-1, keepdim=True) + 1e-5) * weight[:]
    return out


@helion.kernel
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


@helion.kernel
def embedding(table, tokens):  # type: ignore[no-untyped-def]
    """Rows of a table."""
    out = torch.empty([tokens.size(0), table.size(1)], dtype=table.dtype, device=table.device)
    for rows, columns in hl.tile([tokens.size(0), table.size(1)]):
        out[rows, columns] = table[tokens[rows], columns]
    return out


@helion.kernel
def segment_means(values, offsets):  # type: ignore[no-untyped-def]
    """Means of rows of different lengths that lie one behind the other."""
    out = torch.empty([offsets.size(0) - 1], dtype=values.dtype, device=values.device)
    for row in hl.grid(offsets.size(0) - 1):
        begin, end = offsets[row], offsets[row + 1]
        total = hl.zeros([], dtype=torch.float32)
        for part in hl.tile(begin, end):
            total = total + values[part].sum(0)
        out[row] = total / (end - begin)
    return out


@helion.kernel
def matmul(x, y):  # type: ignore[no-untyped-def]
    """Product of matrices with an activation."""
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = torch.relu(acc)
    return out


@helion.kernel
def bmm(x, y):  # type: ignore[no-untyped-def]
    """Products of batches."""
    out = torch.empty([x.size(0), x.size(1), y.size(2)], dtype=x.dtype, device=x.device)
    for tile_b, tile_m, tile_n in hl.tile([x.size(0), x.size(1), y.size(2)]):
        acc = hl.zeros([tile_b, tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(2)):
            acc = torch.baddbmm(acc, x[tile_b, tile_m, tile_k], y[tile_b, tile_k, tile_n])
        out[tile_b, tile_m, tile_n] = acc
    return out


@helion.kernel
def attention(q, k, v):  # type: ignore[no-untyped-def]
    """Attention of one head after another."""
    out = torch.empty_like(q)
    keys = k.transpose(1, 2)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        largest = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, q.size(2)], dtype=torch.float32)
        rows = q[tile_b, tile_m, :]
        for tile_n in hl.tile(k.size(1)):
            scores = torch.bmm(rows, keys[tile_b, :, tile_n]) * 0.125
            new = torch.maximum(largest, torch.amax(scores, -1))
            weights = torch.exp(scores - new[:, :, None])
            kept = torch.exp(largest - new)
            total = total * kept + weights.sum(-1)
            acc = torch.baddbmm(acc * kept[:, :, None], weights, v[tile_b, tile_n, :])
            largest = new
        out[tile_b, tile_m, :] = acc / total[:, :, None]
    return out


@dataclass(frozen=True)
class Work:
    """A kernel with what it is compiled for.

    Args:
        kernel: of this module.
        args: makes its arguments.
        configs: configurations.
    """

    kernel: Any
    args: Callable[[], tuple[Any, ...]]
    configs: tuple[dict[str, Any], ...]


def _blocks(*configs: list[int], **rest: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"block_sizes": config, **rest} for config in configs)


def _labels() -> torch.Tensor:
    return torch.zeros(256, dtype=torch.int64)


WORKS: dict[str, Work] = {
    "add": Work(add, lambda: (torch.ones(1 << 16), torch.ones(1 << 16)), _blocks([1024], [2048])),
    "bias and gelu": Work(bias_gelu, lambda: (torch.ones(500, 700), torch.ones(700)), _blocks([32, 64], [16, 128])),
    "softmax": Work(softmax, lambda: (torch.ones(256, 1000),), _blocks([1], [4])),
    "softmax in chunks": Work(softmax_online, lambda: (torch.ones(256, 1000),), _blocks([4, 256, 256], [8, 128, 128])),
    "layer norm": Work(
        layer_norm, lambda: (torch.ones(256, 1024), torch.ones(1024), torch.ones(1024)), _blocks([1], [4])
    ),
    "rms norm": Work(rms_norm, lambda: (torch.ones(256, 1024), torch.ones(1024)), _blocks([1], [4])),
    "cross entropy": Work(cross_entropy, lambda: (torch.ones(256, 1000), _labels()), _blocks([1], [4])),
    "embedding": Work(embedding, lambda: (torch.ones(1000, 512), _labels()), _blocks([8, 128], [16, 64])),
    "means of segments": Work(segment_means, lambda: (torch.ones(9000), _labels()), _blocks([256], [1024])),
    "matmul": Work(
        matmul, lambda: (torch.ones(500, 300), torch.ones(300, 700)), _blocks([64, 64, 32], [128, 64, 32], num_warps=4)
    ),
    "bmm": Work(
        bmm, lambda: (torch.ones(4, 256, 128), torch.ones(4, 128, 256)), _blocks([1, 64, 64, 32], [1, 64, 128, 32])
    ),
    "attention": Work(
        attention, lambda: tuple(torch.ones(4, 256, 64) for _ in "qkv"), _blocks([1, 64, 64], [1, 64, 32])
    ),
}
