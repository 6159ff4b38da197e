"""User functions that change the shape of tiles: reshape, trans, join, split, cat, broadcast_to and the like.

Each is a short composition of the operations of `ops/shape.py` and `ops/broadcast.py`.
Shapes are given as one tuple or as separate arguments; their entries are compile-time integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.base.dtypes import BlockType
from tilewright.base.errors import LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ops.broadcast import (
    broadcast_tensors,
    broadcast_to_shape,
    checked_block,
    expand_axis,
    splat_to,
)
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp, UnsplatOp
from tilewright.ops.values import Flag, Operand, Size, shape_ints, tensor, unwrap
from tilewright.ops.values import tuple as tl_tuple

# --- pieces used by other families ----------------------------------------------------------------------------


def reshape_to(b: Emitter, value: tensor, shape: Sequence[int], *, reorder: bool = False) -> tensor:
    """`value` under another shape of as many elements; () gives a scalar. `reorder` frees the order of elements."""
    shape = tuple(shape)
    target = checked_block(value.dtype, shape)
    have = math.prod(value.block_shape)
    if math.prod(shape) != have:
        raise ShapeError(
            f"reshape() cannot change total number of elements in tensor: {list(value.block_shape)} has {have} "
            f"elements, {list(shape)} has {math.prod(shape)}"
        )
    if not shape:
        return value if not value.block_shape else b.emit(UnsplatOp, value.dtype, value)
    if not value.block_shape:
        return splat_to(b, value, shape)
    if shape == value.block_shape and not reorder:
        return value
    return b.emit(ReshapeOp, target, value, allow_reorder=reorder)


def flatten(b: Emitter, value: tensor) -> tensor:
    """All elements of a tile in one dimension, in any order."""
    if len(value.block_shape) == 1:
        return value
    return reshape_to(b, value, (math.prod(value.block_shape),), reorder=True)


def permute_to(b: Emitter, value: tensor, order: Sequence[int]) -> tensor:
    """`value` with dimension i taken from dimension ``order[i]``."""
    if list(order) == list(range(len(value.block_shape))):
        return value
    shape = tuple(value.block_shape[axis] for axis in order)
    return b.emit(TransOp, BlockType(value.dtype, shape), value, order=tuple(order))


def _shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """A shape argument as integers; a tensor among them is a mistake of its own."""
    dims: tuple[Any, ...] = shape_ints(shape)
    for index, dim in enumerate(dims):
        if isinstance(dim, tensor) or not isinstance(dim, int):
            kind = f"a run-time value of type {dim.type}" if isinstance(dim, tensor) else repr(dim)
            raise LanguageTypeError(
                f"Shape element {index} must have type `constexpr[int]`, not {kind}",
                hint="pass tile sizes as parameters annotated tl.constexpr",
            )
    return dims


def _axis(axis: Size, rank: int, what: str) -> int:
    number = unwrap(axis)
    if not isinstance(number, int) or not -rank <= number < rank:
        raise LanguageValueError(f"{what}: axis {number} is out of range for rank {rank}")
    return number % rank


# --- broadcasting -----------------------------------------------------------------------------------------------


@builtin
def broadcast(b: Emitter, input: Operand, other: Operand) -> Any:
    """Both tensors in their common shape.

    Args:
        input, other: tensors; dimensions of size 1 repeat, missing leading dimensions are added.

    Returns:
        A tuple of two tensors of one shape.

    Example:
        >>> tl.broadcast(tl.arange(0, 2), 5)
        [0 1]
        [5 5]
    """
    return tl_tuple(broadcast_tensors(b, to_tensor(b, input), to_tensor(b, other)))


@builtin(method=True)
def broadcast_to(b: Emitter, input: Operand, *shape: Any) -> tensor:
    """`input` repeated to `shape`.

    Args:
        input: scalar, or a tile of the rank of `shape` whose dimensions are 1 or as wanted.
        shape: compile-time integers.

    Example:
        >>> tl.broadcast_to(5, 4)
        [5 5 5 5]
    """
    target = _shape(shape)
    checked_block(to_tensor(b, input).dtype, target)
    return broadcast_to_shape(b, to_tensor(b, input), target)


@builtin(method=True)
def expand_dims(b: Emitter, input: Operand, axis: Size) -> tensor:
    """Insert dimensions of size 1.

    Args:
        input: tensor; a scalar becomes a tile of one element.
        axis: position in the result, or several; negative ones count from the end.

    Example:
        >>> tl.expand_dims(tl.arange(0, 4), 0)
        [[0 1 2 3]]
    """
    value, given = to_tensor(b, input), unwrap(axis)
    axes = list(given) if isinstance(given, (tuple, list)) else [given]
    rank = len(value.block_shape) + len(axes)
    numbers = [_axis(a, rank, "expand_dims") for a in axes]
    if len(set(numbers)) != len(numbers):
        raise LanguageValueError(f"expand_dims received duplicate axes, normalized axes = {numbers}")
    if not value.block_shape:
        return splat_to(b, value, (1,) * len(numbers))
    for number in sorted(numbers):
        value = expand_axis(b, value, number)
    return value


@builtin
def unsqueeze(b: Emitter, x: Operand, dim: Size) -> tensor:
    """Insert one dimension of size 1 at `dim`, counted in the result.

    Example:
        >>> tl.unsqueeze(tl.arange(0, 2), 0)
        [[0 1]]
    """
    value = to_tensor(b, x)
    made: tensor = expand_dims.fn(b, value, _axis(dim, len(value.block_shape) + 1, "unsqueeze"))
    return made


@builtin
def squeeze(b: Emitter, x: Operand, dim: Size) -> tensor:
    """Remove dimension `dim`, which must have size 1.

    Example:
        >>> tl.squeeze(tl.expand_dims(tl.arange(0, 4), 0), 0)
        [0 1 2 3]
    """
    value = to_tensor(b, x)
    number = _axis(dim, len(value.block_shape), "squeeze")
    if value.block_shape[number] != 1:
        raise ShapeError(f"squeeze needs a dimension of size 1, but dimension {number} has {value.block_shape[number]}")
    return reshape_to(b, value, value.block_shape[:number] + value.block_shape[number + 1 :])


# --- order and shape ----------------------------------------------------------------------------------------------


@builtin(method=True)
def reshape(b: Emitter, input: Operand, *shape: Any, can_reorder: Flag = False) -> tensor:
    """The same elements in row-major order under another shape.

    Args:
        input: tensor.
        shape: compile-time integers with the same product; () gives a scalar.
        can_reorder: deprecated; lets the compiler choose the order of elements.

    Example:
        >>> tl.reshape(tl.arange(0, 4), 1, 4)
        [[0 1 2 3]]
    """
    return reshape_to(b, to_tensor(b, input), _shape(shape), reorder=bool(unwrap(can_reorder)))


@builtin(method=True)
def view(b: Emitter, input: Operand, *shape: Any) -> tensor:
    """Deprecated form of :func:`reshape` that lets the compiler choose the order of elements."""
    b.warn("view is deprecated, please use reshape with can_reorder being true.")
    return reshape_to(b, to_tensor(b, input), _shape(shape), reorder=True)


@builtin(method=True)
def ravel(b: Emitter, x: Operand, can_reorder: Flag = False) -> tensor:
    """All elements in one dimension, in row-major order.

    Example:
        >>> tl.ravel(tl.reshape(tl.arange(0, 4), 2, 2))
        [0 1 2 3]
    """
    value = to_tensor(b, x)
    return reshape_to(b, value, (math.prod(value.block_shape),), reorder=bool(unwrap(can_reorder)))


@builtin(method=True)
def item(b: Emitter, input: Operand) -> tensor:
    """The only element of a tile, as a scalar.

    Example:
        >>> tl.item(tl.full((1, 1), 7, tl.int32))
        7
    """
    value = to_tensor(b, input)
    if math.prod(value.block_shape) != 1:
        raise ShapeError(f"item needs a tile of one element, got {value.type}")
    return reshape_to(b, value, ())


@builtin(method=True)
def permute(b: Emitter, input: Operand, *dims: Any) -> tensor:
    """Dimensions in another order.

    Args:
        input: tile.
        dims: permutation of its dimensions: dimension i of the result is dimension ``dims[i]``.

    Example:
        >>> tl.ravel(tl.permute(tl.reshape(tl.arange(0, 8), 2, 4), 1, 0))
        [0 4 1 5 2 6 3 7]
    """
    value, order = to_tensor(b, input), shape_ints(dims)
    rank = len(value.block_shape)
    if len(order) != rank:
        raise LanguageValueError(f"permute dims must have the same length as shape: {list(order)}, {value.type}")
    numbers = [_axis(axis, rank, "permute") for axis in order]
    if sorted(numbers) != list(range(rank)):
        raise LanguageValueError(f"permute dims must be a permutation of 0, 1, ..., n-1, but were {list(order)}")
    return permute_to(b, value, numbers)


@builtin(method=True)
def trans(b: Emitter, input: Operand, *dims: Any) -> tensor:
    """Transpose: the last two dimensions change places, or all follow `dims` as in :func:`permute`.

    Example:
        >>> tl.ravel(tl.trans(tl.reshape(tl.arange(0, 4), 2, 2)))
        [0 2 1 3]
    """
    value = to_tensor(b, input)
    rank = len(value.block_shape)
    if shape_ints(dims) if dims else False:
        permuted: tensor = permute.fn(b, value, *dims)
        return permuted
    if rank < 2:
        raise LanguageValueError(f"tl.trans invoked with a {rank}-dimensional tensor; it needs two or more dimensions")
    return permute_to(b, value, [*range(rank - 2), rank - 1, rank - 2])


# --- joining and splitting ------------------------------------------------------------------------------------------


def _join(b: Emitter, lhs: tensor, rhs: tensor) -> tensor:
    return b.emit(JoinOp, checked_block(lhs.dtype, (*lhs.block_shape, 2)), lhs, rhs)


@builtin
def join(emitter: Emitter, a: Operand, b: Operand) -> tensor:
    """Two tensors side by side along a new last dimension of size 2.

    Args:
        a, b: tensors of one data type; they are broadcast to one shape. Two scalars give shape [2].

    Example:
        >>> tl.ravel(tl.join(tl.arange(0, 2), 9))
        [0 9 1 9]
    """
    lhs, rhs = broadcast_tensors(emitter, to_tensor(emitter, a), to_tensor(emitter, b))
    if lhs.dtype != rhs.dtype:
        raise LanguageTypeError(f"join needs tensors of one data type, got {lhs.dtype} and {rhs.dtype}")
    if lhs.block_shape:
        return _join(emitter, lhs, rhs)
    return reshape_to(emitter, _join(emitter, splat_to(emitter, lhs, (1,)), splat_to(emitter, rhs, (1,))), (2,))


@builtin(method=True)
def split(b: Emitter, a: Operand) -> Any:
    """The two halves of a tile whose last dimension has size 2.

    Returns:
        A tuple of two tiles without that dimension; of two scalars where the tile has shape [2].

    Example:
        >>> tl.split(tl.reshape(tl.arange(0, 4), 2, 2))
        [0 2]
        [1 3]
    """
    value = to_tensor(b, a)
    shape = value.block_shape
    if not shape or shape[-1] != 2:
        raise ShapeError(
            f"split needs a last dimension of size 2, got {value.type}", hint="reshape it to [..., 2] first"
        )
    flat = len(shape) == 1
    if flat:
        value = expand_axis(b, value, 0)
    result = BlockType(value.dtype, value.block_shape[:-1])
    handles = b.op(SplitOp, value.handle)
    halves = [tensor(h, result) for h in handles]
    return tl_tuple([reshape_to(b, half, ()) for half in halves] if flat else halves)


@builtin
def interleave(emitter: Emitter, a: Operand, b: Operand) -> tensor:
    """Elements of two tiles in turn along the last dimension, which doubles; of two scalars, a tile [2].

    Args:
        a, b: tensors of one data type; they are broadcast to one shape.

    Example:
        >>> tl.interleave(tl.arange(0, 4), -1)
        [ 0 -1  1 -1  2 -1  3 -1]
    """
    joined: tensor = join.fn(emitter, a, b)
    if len(joined.block_shape) == 1:
        return joined
    return reshape_to(emitter, joined, (*joined.block_shape[:-2], 2 * joined.block_shape[-2]))


@builtin
def cat(b: Emitter, input: Operand, other: Operand, can_reorder: Flag = False, dim: Size = 0) -> tensor:
    """Two tiles of one type, one after the other.

    Args:
        input, other: tiles of one shape and data type.
        can_reorder: let the compiler choose the order of elements; needs tiles of one dimension.
        dim: dimension along which they are laid.

    Example:
        >>> tl.cat(tl.arange(0, 4), tl.arange(4, 8))
        [0 1 2 3 4 5 6 7]
    """
    lhs, rhs = to_tensor(b, input), to_tensor(b, other)
    if lhs.type != rhs.type or not lhs.block_shape:
        raise ShapeError(f"cat needs two tiles of the same shape and data type, got {lhs.type} and {rhs.type}")
    rank = len(lhs.block_shape)
    axis = _axis(dim, rank, "cat")
    if unwrap(can_reorder):
        if rank != 1:
            raise ShapeError(f"cat with can_reorder needs tiles of one dimension, got {lhs.type}")
        return b.emit(CatOp, checked_block(lhs.dtype, (2 * lhs.block_shape[0],)), lhs, rhs)
    joined = permute_to(b, _join(b, lhs, rhs), [*range(axis), rank, *range(axis, rank)])
    doubled = [2 * n if i == axis else n for i, n in enumerate(lhs.block_shape)]
    return reshape_to(b, joined, doubled)


# Operators of `tensor` for the interpreter; the front end reads them from the syntax.
setattr(tensor, "T", property(lambda self: trans(self)))  # noqa: B010
