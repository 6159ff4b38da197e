"""Contests of `benchmarks.hl_gradients`: stencils, sparse products, attention of many lengths, sums by lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import hl_gradients_kernels as own
from tilewright import hl


@hl.kernel
def box_blur(x: torch.Tensor) -> torch.Tensor:
    """Means of 3 by 3 elements."""
    m, n = x.shape
    out = torch.empty([m - 2, n - 2], dtype=x.dtype, device=x.device)
    for i, j in hl.tile([m - 2, n - 2]):
        total = hl.zeros([i, j], dtype=torch.float32)
        for down in hl.static_range(3):
            for right in hl.static_range(3):
                total = total + x[i.index + down, j.index + right]
        out[i, j] = total / 9
    return out


def box_blur_reference(x: Any) -> Any:
    """The same in PyTorch."""
    return F.avg_pool2d(x[None, None], 3, 1)[0, 0]


@hl.kernel
def sparse_product(starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A matrix in CSR form times a dense one."""
    rows, width = starts.size(0) - 1, b.size(1)
    out = torch.empty([rows, width], dtype=b.dtype, device=b.device)
    for row in hl.grid(rows):
        total = hl.zeros([width], dtype=torch.float32)
        for part in hl.tile(starts[row], starts[row + 1]):
            total = total + (values[part][:, None] * b[columns[part], :]).sum(0)
        out[row, :] = total
    return out


def sparse_product_reference(starts: Any, columns: Any, values: Any, b: Any) -> Any:
    """The same in PyTorch."""
    rows = torch.repeat_interleave(torch.arange(starts.size(0) - 1, device=b.device), starts.diff())
    return b.new_zeros([starts.size(0) - 1, b.size(1)]).index_add(0, rows, values[:, None] * b[columns])


@hl.kernel
def ragged_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Attention within sequences that lie one behind the other."""
    out = torch.empty_like(q)
    width = hl.specialize(q.size(1))
    scale = width**-0.5
    for sequence in hl.grid(starts.size(0) - 1):
        for rows in hl.tile(starts[sequence], starts[sequence + 1]):
            query = q[rows, :]
            largest, total = hl.full([rows], float("-inf")), hl.zeros([rows])
            acc = hl.zeros([rows, width])
            for others in hl.tile(starts[sequence], starts[sequence + 1]):
                scores = hl.dot(query, k[others, :].T) * scale
                new = torch.maximum(largest, scores.amax(1))
                weights, shrink = torch.exp(scores - new[:, None]), torch.exp(largest - new)
                total = total * shrink + weights.sum(1)
                acc = hl.dot(weights.to(v.dtype), v[others, :], acc=acc * shrink[:, None])
                largest = new
            out[rows, :] = (acc / total[:, None]).to(out.dtype)
    return out


def ragged_attention_reference(q: Any, k: Any, v: Any, starts: Any) -> Any:
    """The same in PyTorch."""
    parts = (tensor.tensor_split(starts[1:-1].cpu()) for tensor in (q, k, v))
    return torch.cat(
        [F.scaled_dot_product_attention(*(part[None] for part in one))[0] for one in zip(*parts, strict=True)]
    )


@hl.kernel
def sum_by_lanes(x: torch.Tensor) -> torch.Tensor:
    """Sums of exponentials of rows, lane by lane of a block that the program registers."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    block = hl.register_block_size(x.size(1))
    for rows in hl.tile(x.size(0)):
        acc = hl.zeros([rows, block], dtype=torch.float32)
        for columns in hl.tile(x.size(1), block_size=block):
            acc += torch.exp(x[rows, columns])
        out[rows] = acc.sum(-1)
    return out


def contests(backward: Callable[..., Any], many: int) -> dict[str, Callable[[], Any]]:
    """By name: what makes the derived backward pass and that of eager autograd, of `many` times the rows."""

    def blur() -> Any:
        x = torch.randn(2048, 2048)
        return {"derived": backward(box_blur, x), "eager": backward(box_blur_reference, x)}

    def sparse() -> Any:
        starts = own.offsets(2048 * many, 64)
        columns, values = torch.randint(0, 1024, (int(starts[-1]),)), torch.randn(int(starts[-1]))
        args = starts, columns, values, torch.randn(1024, 128)
        return {
            "derived": backward(sparse_product, *args),
            "eager": backward(sparse_product_reference, *args),
        }

    def ragged() -> Any:
        starts = own.offsets(16 * many, 256)
        args = *(torch.randn(int(starts[-1]), 64) for _ in range(3)), starts
        return {
            "derived": backward(ragged_attention, *args),
            "eager": backward(ragged_attention_reference, *args),
        }

    def lanes() -> Any:
        x = torch.randn(256 * many, 16384)
        return {"derived": backward(sum_by_lanes, x), "eager": backward(lambda x: x.exp().sum(-1), x)}

    return {
        "box blur": blur,
        "sparse product": sparse,
        "attention over rows of different lengths": ragged,
        "sum by lanes": lanes,
    }
