"""Products of matrices: all become one node of ours, `product`, whose accumulator is float32 for 16-bit operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Node, Value
from tilewright.hl.rows.table import Emitter, Need, Row, recipe, row
from tilewright.hl.trace.equal import equate
from tilewright.hl.trace.messages import type_text
from tilewright.hl.trace.samples import sample_of
from tilewright.hl.trace.state import Trace, device_trace, raw_shape


@dataclass(frozen=True)
class Dot(Row):
    """`product(a, b, acc)`: the product of the last two dimensions, added to `acc` where it is not None."""

    def needs(self, node: Node) -> list[Need]:
        a, b, _ = node.args
        rank = len(a.dims)
        return [Need(a, (rank - 1,), 0), Need(b, (rank - 2,), 0)]

    def emit(self, emitter: Emitter, node: Node) -> None:
        a, b, acc = node.args
        out = node.out
        inner = accumulator_type(out.dtype)
        texts = [emitter.operand(a), emitter.operand(b)]
        if acc is not None:
            texts.append(emitter.operand(acc, inner))
        flat = len(a.dims) == 3 and emitter.extent(a.dims[0]) == 1
        if flat:  # one matrix in a batch of one
            tiles = (a, b, out)[: len(texts)]
            texts = [
                f"tl.reshape({text}, {emitter.shape(tile.dims[1:])})" for text, tile in zip(texts, tiles, strict=True)
            ]
        made = f"tl.dot({', '.join(texts)}{_precision(node)})"
        if inner != torch.float32:
            made = f"{made[:-1]}, out_dtype={emitter.dtype(inner)})"
        if flat:
            made = f"tl.reshape({made}, {emitter.shape(out.dims)})"
        if inner != out.dtype:
            made = f"{made}.to({emitter.dtype(out.dtype)})"
        emitter.assign(out, made)


def _precision(node: Node) -> str:
    asked = node.kwargs.get("precision")
    return f', input_precision="{asked}"' if asked else ""


@dataclass(frozen=True)
class ScaledDot(Row):
    """`scaled_product(a, a_scale, b, b_scale, acc, formats)`."""

    def needs(self, node: Node) -> list[Need]:
        return [Need(node.args[0], (1,), 0), Need(node.args[2], (0,), 0)]

    def emit(self, emitter: Emitter, node: Node) -> None:
        a, a_scale, b, b_scale, acc, (left, right) = node.args
        texts = [emitter.operand(a), emitter.operand(a_scale), repr(left)]
        texts += [emitter.operand(b), emitter.operand(b_scale), repr(right)]
        if acc is not None:
            texts.append(emitter.operand(acc, torch.float32))
        made = f"tl.dot_scaled({', '.join(texts)})"
        if node.out.dtype != torch.float32:
            made = f"{made}.to({emitter.dtype(node.out.dtype)})"
        emitter.assign(node.out, made)


row(Dot("product"))
row(ScaledDot("scaled_product"))


def accumulator_type(dtype: torch.dtype) -> Any:
    """The type in which products of which the result is `dtype` are summed."""
    return torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype


def dot(a: Tensor, b: Tensor, acc: Any = None, out_dtype: torch.dtype | None = None) -> Any:
    """Record a product.

    Args:
        a: tile of shape [m, k] or [batch, m, k].
        b: tile of shape [k, n] or [batch, k, n].
        acc: tile that the product is added to, or None.
        out_dtype: type of the result; None for the operands' own.

    Raises:
        ShapeMismatch: the shapes do not fit together.
        TorchOpTracingError: the types of the elements differ.
        UnsupportedOperation: they are integers of more than 8 bits, or without a sign.
    """
    trace = device_trace("a product of matrices")
    left, right = raw_shape(a), raw_shape(b)
    matrices = len(left) == len(right) in (2, 3)
    if matrices:
        equate(trace, left[-1], right[-2])
    fits = matrices and left[-1] == right[-2]
    if fits and len(left) == 3 and left[0] != right[0]:
        a, b = _common_batch(trace, a, b)
        left, right = raw_shape(a), raw_shape(b)
    if not fits:
        raise exc.ShapeMismatch(
            f"the product of {_shown(trace, a)} and {_shown(trace, b)}",
            hint="the last extent of the first and the one before the last of the second must be one and the same axis",
        )
    if a.dtype != b.dtype and not (a.dtype.itemsize == b.dtype.itemsize == 1):  # 8-bit floats may differ
        raise exc.TorchOpTracingError(
            f"the product of {_shown(trace, a)} and {_shown(trace, b)}: the types of their elements differ",
            hint="convert one of them, as in a.to(b.dtype)",
        )
    if not a.dtype.is_floating_point and a.dtype != torch.int8:
        raise exc.UnsupportedOperation(
            f"the product of {_shown(trace, a)} and {_shown(trace, b)}: products are of floats, or of int8",
            hint="convert both, as in a.to(torch.float32), or write (a[:, :, None] * b[None, :, :]).sum(1)",
        )
    shape = (*left[:-1], right[-1])
    dtype = out_dtype or a.dtype
    if acc is not None and raw_shape(acc) != shape:
        acc = acc.expand(shape)
    if left[-1] == 0:
        return torch.zeros(shape, dtype=dtype) if acc is None else acc.to(dtype)
    if a.dtype == torch.float64 and dtype != torch.float64:  # summed in float64, and converted in the end
        made = dot(a, b, None if acc is None else acc.to(a.dtype), a.dtype)
        return made.to(dtype)
    with trace.silence():
        sample = sample_of(trace, shape, dtype)
    return trace.record("product", (a, b, acc), sample)


def scaled(a: Tensor, a_scale: Any, b: Tensor, b_scale: Any, acc: Any, formats: tuple[str, str], out_dtype: Any) -> Any:
    """Record a product of scaled small floats; see `hl.dot_scaled`."""
    trace = device_trace("hl.dot_scaled")
    left, right = raw_shape(a), raw_shape(b)
    depths = [left[1] * (2 if formats[0] == "e2m1" else 1), right[0] * (2 if formats[1] == "e2m1" else 1)]
    equate(trace, *depths)
    if depths[0] != depths[1]:
        raise exc.ShapeMismatch(
            f"the scaled product of {_shown(trace, a)} ({formats[0]}) and {_shown(trace, b)} ({formats[1]})",
            hint="the inner extents must be equal; a byte of e2m1 holds two elements",
        )
    with trace.silence():
        sample = sample_of(trace, (left[0], right[1]), out_dtype)
    return trace.record("scaled_product", (a, a_scale, b, b_scale, acc, list(formats)), sample)


def _common_batch(trace: Trace, a: Tensor, b: Tensor) -> tuple[Any, Any]:
    left, right = raw_shape(a), raw_shape(b)
    if 1 not in (left[0], right[0]):
        equate(trace, left[0], right[0])
        raise exc.DotBatchDimensionMismatch(
            f"the product of {_shown(trace, a)} and {_shown(trace, b)}: the batches differ",
            hint="the first extents must be equal, or one of them 1",
        )
    batch = max(left[0], right[0])
    return a.expand(batch, *left[1:]), b.expand(batch, *right[1:])


def _shown(trace: Trace, tensor: Tensor) -> str:
    value = trace.lift(tensor)
    return type_text(trace, value) if isinstance(value, Value) else repr(value)


@recipe("mm", "bmm")
def mm(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Any:
    """Product of two matrices, or of two batches of them."""
    return dot(a, b, None, out_dtype)


@recipe("addmm", "baddbmm")
def addmm(
    c: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None, *, beta: float = 1, alpha: float = 1
) -> Any:
    """`beta * c + alpha * (a @ b)`."""
    if beta == 1 and alpha == 1:
        return dot(a, b, c, out_dtype or c.dtype)
    wide = accumulator_type(c.dtype)
    return (dot(a, b, None, wide) * alpha + c.to(wide) * beta).to(out_dtype or c.dtype)


@recipe("mv")
def mv(a: Tensor, v: Tensor) -> Any:
    """Product of a matrix and a vector."""
    return (a.to(accumulator_type(a.dtype)) * v).sum(-1).to(a.dtype)


@recipe("dot")
def inner(u: Tensor, v: Tensor) -> Any:
    """Product of two vectors."""
    return (u.to(accumulator_type(u.dtype)) * v).sum().to(u.dtype)
