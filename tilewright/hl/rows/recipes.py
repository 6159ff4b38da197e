"""Operations written with other operations: ordinary PyTorch, traced like user code."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewright.hl.rows.table import recipe
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.state import device_trace, raw_shape


def dims_of(x: Any, dim: Any) -> list[int]:
    """The dimensions that `dim` means, counted from the front; None and [] mean all."""
    rank = x.dim()
    if dim is None or dim == []:
        return list(range(rank))
    return [item % rank for item in (dim if isinstance(dim, list | tuple) else [dim])]


def count(x: Any, dims: list[int]) -> Any:
    """How many valid elements the dimensions have: a number, or a 0-d tensor where that is not known yet."""
    trace = device_trace("a reduction")
    shape, total = raw_shape(x), 1
    for dim in dims:
        total = trace.valid(shape[dim]) * total
    return trace.scalar(total) if isinstance(total, Sym) else total


def wide(x: Any) -> Any:
    """`x` in the type in which sums are taken."""
    return x.float() if x.dtype.is_floating_point and x.dtype.itemsize < 4 else x


def largest(x: Any, dims: Any) -> Any:
    """The maximum, dimensions kept, for shifts: where there is a NaN, what is computed with it is NaN anyway."""
    trace = device_trace("a reduction")
    with trace.silence():
        sample = x.amax(dims, True)
    return trace.record("largest", (x, dims, True), sample)


@recipe("mean")
def mean(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Sum over count."""
    dims = dims_of(x, dim)
    y = wide(x if dtype is None else x.to(dtype))
    return (y.sum(dims, keepdim) / count(x, dims)).to(dtype or x.dtype)


@recipe("_softmax")
def softmax(x: Any, dim: int, half_to_float: Any = False) -> Any:
    """Shifted by the maximum, so that nothing overflows."""
    y = wide(x)
    e = torch.exp(y - largest(y, dim))
    return (e / e.sum(dim, True)).to(x.dtype)


@recipe("_log_softmax")
def log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    """Shifted by the maximum, so that nothing overflows."""
    y = wide(x)
    shifted = y - largest(y, dim)
    return (shifted - torch.log(torch.exp(shifted).sum(dim, True))).to(x.dtype)


@recipe("native_layer_norm")
def native_layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Centred and scaled over the last dimensions."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    n, y = count(x, dims), wide(x)
    centre = y.sum(dims, True) / n
    shifted = y - centre
    scale = torch.rsqrt((shifted * shifted).sum(dims, True) / n + eps)
    out = shifted * scale
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return out.to(x.dtype), centre, scale


@recipe("gelu")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    """By the error function, or by its approximation with tanh."""
    y = wide(x)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)
        return (0.5 * y * (1 + torch.tanh(inner))).to(x.dtype)
    return (0.5 * y * (1 + torch.erf(y * math.sqrt(0.5)))).to(x.dtype)


@recipe("silu")
def silu(x: Any) -> Any:
    """x · sigmoid(x)."""
    y = wide(x)
    return (y * torch.sigmoid(y)).to(x.dtype)
