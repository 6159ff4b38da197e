"""Splat, expand_dims and broadcast: the three ops that give operands of an element-wise op one shape.

`broadcast_tensors` is what every user function calls on operands of different shapes; the
user-visible forms of these ops (``tl.broadcast_to``, ``x[:, None]``) are in `shape.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import prop_def, traits_def
from xdsl.traits import Pure

from tilewright.base.dtypes import MAX_TILE_NUMEL, BlockType
from tilewright.base.errors import LanguageTypeError, ShapeError
from tilewright.ir.attrs import I32
from tilewright.ir.traits import View
from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.values import property_int
from tilewright.ops import facts, folds, vjps
from tilewright.ops.builtin import Emitter
from tilewright.ops.dims import Dims, made
from tilewright.ops.elementwise_base import ConversionOp, define, tile
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register
from tilewright.ops.values import tensor

_VIEW = traits_def(Pure(), View())
SplatOp = define(ConversionOp, "tt.splat", "A tile whose every element is the scalar operand.", traits=_VIEW)
BroadcastOp = define(
    ConversionOp, "tt.broadcast", "A tile repeated along the dimensions in which it has size 1.", traits=_VIEW
)
ExpandDimsOp = define(
    ConversionOp,
    "tt.expand_dims",
    "A tile with one more dimension, of size 1, at `axis`.",
    traits=_VIEW,
    axis=prop_def(),
    ATTRS={"axis": I32},
)


# --- type rules ---------------------------------------------------------------------------------------


def _asked(call: Call, name: str) -> Attribute:
    """The result type that the caller asks for, with the element type of the operand."""
    if not call.result_types:
        raise ShapeError(f"{name} needs the result type")
    source, result = call.operand_types[0], call.result_types[0]
    assert source is not None
    if element_type(source) != element_type(result):
        raise LanguageTypeError(f"{name} keeps the element type: {source} does not become {result}")
    return result


def _infer_splat(call: Call) -> tuple[Attribute]:
    result = _asked(call, "tt.splat")
    if shape_of(call.operand_types[0]):  # type: ignore[arg-type]
        raise ShapeError(f"tt.splat takes a scalar, not {call.operand_types[0]}", hint="use tl.broadcast_to for a tile")
    return (result,)


def _infer_broadcast(call: Call) -> tuple[Attribute]:
    result = _asked(call, "tt.broadcast")
    source, target = shape_of(call.operand_types[0]), shape_of(result)  # type: ignore[arg-type]
    if len(source) != len(target) or any(a not in (1, b) for a, b in zip(source, target, strict=True)):
        raise ShapeError(f"cannot broadcast shape {source} to {target}", hint="only dimensions of size 1 are repeated")
    return (result,)


def _infer_expand_dims(call: Call) -> tuple[Attribute]:
    source, axis = call.operand_types[0], call.attrs["axis"]
    assert source is not None
    shape = shape_of(source)
    if not 0 <= axis <= len(shape):
        raise ShapeError(f"expand_dims axis {axis} is out of range for shape {shape}")
    return (tile_type((*shape[:axis], 1, *shape[axis:]), element_type(source)),)


# --- samples --------------------------------------------------------------------------------------------


def _splat_samples(rng: np.random.Generator) -> list[Sample]:
    from_types = ((np.float32, "f32", (8,)), (np.int32, "i32", (4, 2)), (np.bool_, "i1", (4,)))
    good = [
        Sample((np.asarray(rng.integers(0, 2), dtype=work),), (tile(name, ()),), result_types=(tile(name, shape),))
        for work, name, shape in from_types
    ]
    row = np.arange(4, dtype=np.int32)
    bad = Sample((row,), (tile("i32", (4,)),), result_types=(tile("i32", (4, 4)),), error="takes a scalar")
    return [*good, bad]


def _broadcast_samples(rng: np.random.Generator) -> list[Sample]:
    column = rng.standard_normal((4, 1)).astype(np.float32)
    row = rng.integers(-9, 9, (1, 8)).astype(np.int32)
    return [
        Sample((column,), (tile("f32", (4, 1)),), result_types=(tile("f32", (4, 8)),)),
        Sample((row,), (tile("i32", (1, 8)),), result_types=(tile("i32", (2, 8)),)),
        Sample((row,), (tile("i32", (1, 8)),), result_types=(tile("i32", (2, 4)),), error="cannot broadcast"),
        Sample((row,), (tile("i32", (1, 8)),), result_types=(tile("f32", (2, 8)),), error="keeps the element type"),
    ]


def _expand_samples(rng: np.random.Generator) -> list[Sample]:
    row = rng.integers(-9, 9, 8).astype(np.int32)
    good = [Sample((row,), (tile("i32", (8,)),), {"axis": axis}) for axis in (0, 1)]
    return [*good, Sample((row,), (tile("i32", (8,)),), {"axis": 3}, error="out of range")]


def _repeat(call: Call, value: Array) -> Array:
    return np.broadcast_to(value, shape_of(call.result_types[0])).copy()


def _broadcast_dims(op: ConversionOp) -> Dims:
    """A dim that is repeated is another than the one of one element."""
    source, target = shape_of(op.src.type), shape_of(op.result.type)
    rank = len(target)
    names = tuple(dim if source[dim] == target[dim] else rank + dim for dim in range(rank))
    return Dims((names,), (tuple(range(rank)),))


def _expand_dims(op: ConversionOp) -> Dims:
    axis, rank = property_int(op, "axis"), len(shape_of(op.src.type))
    return Dims((tuple(range(rank)),), ((*range(axis), rank, *range(axis, rank)),))


register(
    OpSpec(
        SplatOp,
        _infer_splat,
        _repeat,
        _splat_samples,
        facts.splat,
        summary="one number in every element",
        vjp=vjps.splat,
        dims=made,
    )
)
register(
    OpSpec(
        BroadcastOp,
        _infer_broadcast,
        _repeat,
        _broadcast_samples,
        facts.broadcast,
        folds.no_change,
        summary="a tile repeated along dimensions of size 1",
        vjp=vjps.broadcast,
        dims=_broadcast_dims,
    )
)
register(
    OpSpec(
        ExpandDimsOp,
        _infer_expand_dims,
        lambda call, value: np.expand_dims(value, call.attrs["axis"]),
        _expand_samples,
        facts.expand_dims,
        summary="insert a dim of size 1",
        vjp=vjps.expand_dims,
        dims=_expand_dims,
    )
)


# --- helpers for user functions ---------------------------------------------------------------------------


def checked_block(element: Any, shape: Sequence[Any]) -> Any:
    """The language type of a tile of `shape`, or `element` itself for the empty shape.

    Args:
        element: dtype or pointer type.
        shape: plain integers.

    Raises:
        LanguageTypeError: a dimension is not an integer.
        ShapeError: a dimension is not positive, or the tile has too many elements.
    """
    for index, dim in enumerate(shape):
        if not isinstance(dim, int) or isinstance(dim, bool):
            raise LanguageTypeError(
                f"Shape element {index} must have type `constexpr[int]`, got `constexpr[{type(dim)}]`"
                if not isinstance(dim, tensor)
                else f"Shape element {index} must have type `constexpr`, not a run-time value of type {dim.type}",
                hint="pass tile sizes as parameters annotated tl.constexpr",
            )
        if dim <= 0:
            raise ShapeError(f"Shape element {index} must be positive", hint=f"got {dim}")
    if not shape:
        return element
    block = BlockType(element, tuple(shape))
    if block.numel > MAX_TILE_NUMEL:
        raise ShapeError(
            f"numel ({block.numel}) exceeds triton maximum tensor numel ({MAX_TILE_NUMEL})",
            hint="use a smaller tile and a loop, or more programs",
        )
    return block


def splat_to(b: Emitter, value: tensor, shape: Sequence[int]) -> tensor:
    """Scalar `value` in every element of a tile of `shape`; a tile of that shape is returned as it is."""
    if value.block_shape == tuple(shape):
        return value
    return b.emit(SplatOp, checked_block(value.type, shape), value)


def expand_axis(b: Emitter, value: tensor, axis: int) -> tensor:
    """`value`, a tile, with a dimension of size 1 inserted at `axis` (0 to rank)."""
    shape = value.block_shape
    result = BlockType(value.dtype, (*shape[:axis], 1, *shape[axis:]))
    return b.emit(ExpandDimsOp, result, value, axis=axis)


def broadcast_to_shape(b: Emitter, value: tensor, shape: Sequence[int]) -> tensor:
    """`value` repeated to `shape`: a scalar is splat; a tile needs equal rank and dims equal or 1.

    Raises:
        ShapeError: the ranks differ or a dimension is neither 1 nor the wanted one.
    """
    source, target = value.block_shape, tuple(shape)
    if source == target:
        return value
    if not source:
        return splat_to(b, value, target)
    if len(source) != len(target):
        raise ShapeError(f"Cannot broadcast, rank mismatch: {list(source)}, {list(target)}")
    for index, (have, want) in enumerate(zip(source, target, strict=True)):
        if have not in (1, want):
            raise ShapeError(
                "Cannot broadcast, the expanded size of the tensor "
                f"({want}) must match the existing size ({have}) at non-singleton dimension {index}: "
                f"{list(source)}, {list(target)}"
            )
    return b.emit(BroadcastOp, checked_block(value.dtype, target), value)


def common_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape that both broadcast to; the shorter one is padded with 1 on the left."""
    if not a or tuple(a) == tuple(b):
        return tuple(b)
    rank = max(len(a), len(b))
    padded = ((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b))
    for index, (x, y) in enumerate(zip(*padded, strict=True)):
        if x != y and 1 not in (x, y):
            raise ShapeError(
                f"Cannot make_shape_compatible: incompatible dimensions at index {index}: {x} and {y}",
                hint=f"the shapes are {list(a)} and {list(b)}; insert dimensions with x[:, None] or x[None, :]",
            )
    return tuple(max(x, y) for x, y in zip(*padded, strict=True))


def broadcast_tensors(b: Emitter, *values: tensor) -> tuple[tensor, ...]:
    """All `values` in one shape, by splat, expand_dims and broadcast as needed.

    Raises:
        ShapeError: two dimensions differ and neither is 1.
    """
    target: tuple[int, ...] = ()
    for value in values:
        target = common_shape(target, value.block_shape)
    out = []
    for value in values:
        if value.block_shape == target:
            out.append(value)
            continue
        while value.block_shape and len(value.block_shape) < len(target):
            value = expand_axis(b, value, 0)
        out.append(broadcast_to_shape(b, value, target))
    return tuple(out)
