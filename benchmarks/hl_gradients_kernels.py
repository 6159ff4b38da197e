"""Kernels of `benchmarks.hl_gradients` that `examples/hl` does not have, what they are in PyTorch, and their inputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tilewright import hl


@hl.kernel
def group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Of (batch, groups, channels of a group, positions); weights of (groups, channels of a group)."""
    out = torch.empty_like(x)
    count = x.size(2) * x.size(3)
    for n, g in hl.tile([x.size(0), x.size(1)]):
        values = x[n, g, :, :]
        mean = values.sum(-1).sum(-1) / count
        centred = values - mean[:, :, None, None]
        scale = torch.rsqrt((centred * centred).sum(-1).sum(-1) / count + eps)
        made = centred * scale[:, :, None, None]
        out[n, g, :, :] = made * weight[g, :][None, :, :, None] + bias[g, :][None, :, :, None]
    return out


def group_norm_reference(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The same in PyTorch."""
    n, groups, each, length = x.shape
    return F.group_norm(x.view(n, groups * each, length), groups, weight.view(-1), bias.view(-1), eps).view(x.shape)


@hl.kernel
def group_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """By hand: the parts of weight and bias of each sample are added by PyTorch."""
    made = torch.empty_like(x)
    for_weight, for_bias = x.new_empty(x.shape[:3]), x.new_empty(x.shape[:3])
    count = x.size(2) * x.size(3)
    for n, g in hl.tile([x.size(0), x.size(1)]):
        values, up = x[n, g, :, :], grad[n, g, :, :]
        mean = values.sum(-1).sum(-1) / count
        centred = values - mean[:, :, None, None]
        scale = torch.rsqrt((centred * centred).sum(-1).sum(-1) / count + eps)
        normal = centred * scale[:, :, None, None]
        weighed = up * weight[g, :][None, :, :, None]
        first, second = weighed.sum(-1).sum(-1) / count, (weighed * normal).sum(-1).sum(-1) / count
        made[n, g, :, :] = (weighed - first[:, :, None, None] - normal * second[:, :, None, None]) * scale[
            :, :, None, None
        ]
        for_weight[n, g, :] = (up * normal).sum(-1)
        for_bias[n, g, :] = up.sum(-1)
    return made, for_weight.sum(0), for_bias.sum(0)


@hl.kernel
def segment_sum(x: torch.Tensor, segments: torch.Tensor, count: hl.constexpr) -> torch.Tensor:
    """Sums of the rows of each segment, in any order."""
    out = torch.zeros([count, x.size(1)], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile(x.shape):
        hl.atomic_add(out, [segments[rows], columns], x[rows, columns])
    return out


def segment_sum_reference(x: Any, segments: Any, count: int) -> Any:
    """The same in PyTorch."""
    return x.new_zeros(count, x.size(1)).index_add(0, segments, x)


@hl.kernel
def linear_cross_entropy(x: torch.Tensor, table: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss of each row of `x @ table.t()`, which is never in memory."""
    (rows_all, width), classes = x.size(), table.size(0)
    width = hl.specialize(width)
    losses = x.new_empty([rows_all], dtype=torch.float32)
    for rows in hl.tile(rows_all):
        largest, total = hl.full([rows], float("-inf")), hl.zeros([rows])
        right, label, row = hl.zeros([rows]), labels[rows], x[rows, :]
        for columns in hl.tile(classes):
            logits = hl.dot(row, table[columns, :].transpose(0, 1), out_dtype=torch.float32)
            new = torch.maximum(largest, logits.amax(1))
            total = total * torch.exp(largest - new) + torch.exp(logits - new[:, None]).sum(1)
            right = right + torch.where(columns.index[None, :] == label[:, None], logits, 0.0).sum(1)
            largest = new
        losses[rows] = torch.log(total) + largest - right
    return losses


def linear_cross_entropy_reference(x: Any, table: Any, labels: Any) -> Any:
    """The same in PyTorch."""
    return F.cross_entropy((x @ table.t()).float(), labels, reduction="none")


def offsets(rows: int, most: int) -> Any:
    """Where rows of random lengths begin, and where the last one ends."""
    lengths = torch.randint(0, most, (rows,))
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def jagged_sum_reference(x: Any, starts: Any) -> Any:
    """Sums of rows of different lengths in PyTorch."""
    lengths = starts.diff()
    owners = torch.repeat_interleave(torch.arange(len(lengths), device=x.device), lengths)
    return x.new_zeros(len(lengths), x.size(1)).index_add(0, owners, x)
