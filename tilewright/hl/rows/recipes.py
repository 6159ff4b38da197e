"""Operations written with other operations: ordinary PyTorch, traced like user code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.rows.table import recipe
from tilewright.hl.symbols import Sym
from tilewright.hl.trace.state import device_trace, raw_shape

Dims: TypeAlias = int | Sequence[int] | None
Operand: TypeAlias = Tensor | float

_CONSTANTS = 32  # elements of a tensor that is written out in a loop


def dims_of(x: Tensor, dim: Dims) -> list[int]:
    """The dimensions that `dim` means, counted from the front; None and [] mean all."""
    rank = x.dim()
    if dim is None or dim == []:
        return list(range(rank))
    return [item % rank for item in (dim if isinstance(dim, list | tuple) else [dim])]


def count(x: Tensor, dims: list[int], keepdim: bool = True) -> Any:
    """How many valid elements the dimensions have.

    Returns:
        A number; a 0-d tensor where it is not known yet; of jagged dimensions, whose rows differ, a tensor that
        broadcasts against a reduction of `x` (`keepdim` says of which form).
    """
    trace = device_trace("a reduction")
    shape, rows = raw_shape(x), []
    value = trace.value(x)
    dims_in = trace.factors.dims(shape) if value is None else value.dims
    total: Any = 1
    for dim in dims:
        axis = jagged_axis(shape[dim])
        if axis is None:
            total = trace.valid(dims_in[dim]) * total
        else:
            rows.append(_row_lengths(x, axis))
    made = trace.scalar(total) if isinstance(total, Sym) else total
    for lengths in rows:
        made = lengths * made
    return made.squeeze(dims) if rows and not keepdim else made


def same_rows(x: Tensor, dims: list[int], what: str) -> None:
    """Refuse dimensions whose rows have different lengths.

    Raises:
        UnsupportedOperation: one of `dims` is a jagged tile.
    """
    for dim in dims:
        axis = jagged_axis(raw_shape(x)[dim])
        if axis is not None:
            raise exc.UnsupportedOperation(
                f"{what} along {axis.name}, whose rows have different lengths", hint="loop over the rows with hl.grid"
            )


def jagged_axis(extent: int) -> Axis | None:
    """The jagged axis that an extent of samples is, if it is one."""
    trace = device_trace("a reduction")
    atom = trace.factors.dim(extent).atom
    axis = trace.axes[int(atom.key)] if atom is not None and atom.kind == "block" else None
    return axis if axis is not None and axis.kind == "jagged" else None


def _row_lengths(x: Tensor, axis: Axis) -> Any:
    """How many lanes of a jagged tile each row has, with the dimensions of `x`.

    Raises:
        UnsupportedOperation: `x` does not have the dimensions of the rows.
    """
    trace = device_trace("a reduction")
    ends = trace.bounds[axis.id][1]
    have, want = raw_shape(x), raw_shape(ends)
    first = next((at for at in range(len(have)) if have[at : at + len(want)] == want), None)
    if first is None:
        raise exc.UnsupportedOperation(
            f"how many elements {axis.name} has differs from row to row, and the rows are no dimension of the tile",
            hint="divide a sum by the lengths",
        )
    begin = trace.scalar(Sym.of(axis.offset)).to(ends.dtype)
    lengths = torch.minimum(ends - begin, trace.scalar(Sym.of(axis.size)).to(ends.dtype)).clamp_min(0)
    return lengths.view([*[1] * first, *want, *[1] * (len(have) - first - len(want))])


def wide(x: Tensor) -> Any:
    """`x` in the type in which sums are taken."""
    return x.float() if x.dtype.is_floating_point and x.dtype.itemsize < 4 else x


def largest(x: Tensor, dims: Dims) -> Any:
    """The maximum, dimensions kept, for shifts: where there is a NaN, what is computed with it is NaN anyway."""
    trace = device_trace("a reduction")
    with trace.silence():
        sample = x.amax(dims, True)
    return trace.record("largest", (x, dims, True), sample)


@recipe("mean")
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """Sum over count."""
    dims = dims_of(x, dim)
    y = wide(x if dtype is None else x.to(dtype))
    return (y.sum(dims, keepdim) / count(x, dims, keepdim)).to(dtype or x.dtype)


@recipe("lift_fresh")
def constants(x: Tensor) -> Any:
    """`torch.tensor(...)` of numbers: constants of the code.

    Raises:
        UnsupportedOperation: there are many of them.
    """
    with device_trace("torch.tensor").silence():
        numbers = x.flatten().tolist()
    if len(numbers) > _CONSTANTS:
        raise exc.UnsupportedOperation(
            f"a tensor of {len(numbers)} constants inside a loop", hint="make it before the loop, and subscript it"
        )
    made = torch.full(x.shape, numbers[0], dtype=x.dtype)
    if len(set(numbers)) > 1:
        at = torch.arange(len(numbers)).reshape(x.shape)
        for number, value in enumerate(numbers):
            made = torch.where(at == number, value, made) if value != numbers[0] else made
    return made.to(x.dtype)


@recipe("_softmax")
def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Any:
    """Shifted by the maximum, so that nothing overflows."""
    y = wide(x)
    e = torch.exp(y - largest(y, dim))
    return (e / e.sum(dim, True)).to(x.dtype)


@recipe("_safe_softmax")
def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Zero in rows of minus infinities alone, as in masked attention."""
    y = wide(x if dtype is None else x.to(dtype))
    most = largest(y, dim)
    e = torch.exp(y - torch.where(most == float("-inf"), 0.0, most))
    total = e.sum(dim, True)
    return (e / torch.where(total == 0, 1.0, total)).to(dtype or x.dtype)


@recipe("_log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Any:
    """Shifted by the maximum, so that nothing overflows."""
    y = wide(x)
    shifted = y - largest(y, dim)
    return (shifted - torch.log(torch.exp(shifted).sum(dim, True))).to(x.dtype)


@recipe("native_layer_norm")
def native_layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor, bias: Tensor, eps: float) -> Any:
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
def gelu(x: Tensor, *, approximate: str = "none") -> Any:
    """By the error function, or by its approximation with tanh."""
    y = wide(x)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)
        return (0.5 * y * (1 + torch.tanh(inner))).to(x.dtype)
    return (0.5 * y * (1 + torch.erf(y * math.sqrt(0.5)))).to(x.dtype)


@recipe("silu")
def silu(x: Tensor) -> Any:
    """x · sigmoid(x)."""
    y = wide(x)
    return (y * torch.sigmoid(y)).to(x.dtype)
