"""Blocks of a tensor in memory: the addresses and masks behind block pointers and tensor descriptors.

A block is a rectangle of a strided tensor, given by the scalar offsets of its first element:

    pointer[i, j] = (base + off0 * s0 + off1 * s1) + i * s0 + j * s1        mask[i, j] = 0 <= off0 + i < n0 and ...

The part in parentheses is one scalar, so that a loop which moves a block moves one pointer. All of it is ordinary
arithmetic, loads and stores: no back end knows that blocks exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ops.broadcast import broadcast_to_shape, expand_axis
from tilewright.ops.builtin import Emitter, to_tensor
from tilewright.ops.casts import cast_to
from tilewright.ops.creation import arange
from tilewright.ops.functions.operators import add, and_, greater_equal, less_than, mul
from tilewright.ops.values import tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple

PADDINGS = ("", "zero", "nan")


def scalars(b: Emitter, values: Any, what: str, type_: dtypes.dtype | None = None) -> tile_tuple:
    """A list of sizes, strides or offsets as scalar integer tensors.

    Args:
        values: tuple or list of integers and scalar tensors.
        what: "shape", "strides" or "offsets", for the messages.
        type_: what they are cast to; by default the type that each has.

    Raises:
        LanguageTypeError: not a sequence of scalar integers.
    """
    items = unwrap(values)
    if not isinstance(items, (tuple, list)):
        raise LanguageTypeError(f"{what} must be a tuple of integers, got {values!r}")
    made = []
    for item in items:
        value = to_tensor(b, item)
        if value.block_shape or value.dtype.is_ptr() or not value.dtype.is_int():
            raise LanguageTypeError(
                f"{what} must be scalar integers, got a value of type {value.type}",
                hint="reduce a tile to a scalar",
            )
        made.append(value if type_ is None else cast_to(b, value, type_))
    return tile_tuple(made)


def block_shape_of(values: Any) -> tuple[int, ...]:
    """The shape of a block as plain integers.

    Raises:
        LanguageTypeError: a dimension is not a compile-time integer.
    """
    items = unwrap(values)
    if not isinstance(items, (tuple, list)) or not all(isinstance(n, int) and n > 0 for n in items):
        raise LanguageTypeError(
            f"a block shape must be compile-time integers, got {values!r}",
            hint="pass tile sizes as parameters annotated tl.constexpr",
        )
    return tuple(items)


def check_padding(padding: Any, element: Any, allowed: Sequence[str] = PADDINGS) -> str:
    """The padding option, if `element` can be padded so.

    Raises:
        LanguageValueError: an unknown option, or NaN for integers.
    """
    option = unwrap(padding) or ""
    if option not in allowed:
        known = ", ".join(map(repr, allowed))
        raise LanguageValueError(f"Unsupported padding option {option!r}", hint=f"one of {known}")
    if option == "nan" and not element.is_floating():
        raise LanguageValueError(f"Padding option `nan` is not supported for elements of type {element}")
    return str(option)


def along(b: Emitter, row: tensor, dim: int, rank: int) -> tensor:
    """A one-dimensional tile as one of `rank` dimensions, laid along `dim`."""
    for axis in range(rank):
        if axis != dim:
            row = expand_axis(b, row, axis)
    return row


def is_one(value: Any) -> bool:
    """Whether `value` is the number 1, known at compile time."""
    number = unwrap(value)
    return isinstance(number, int) and number == 1


def _index(b: Emitter, size: int) -> tensor:
    """0, 1, ... as int64."""
    return cast_to(b, arange.fn(b, 0, size), dtypes.int64)


class Block:
    """A rectangle of a tensor in memory.

    Args:
        b: emitter.
        base: pointer to the tensor's first element.
        shape: sizes of the tensor, scalar integers.
        strides: distances between neighbours in elements, scalar integers; one that is the number 1 costs nothing.
        offsets: index of the block's first element, scalar integers.
        block_shape: sizes of the block.
    """

    def __init__(
        self,
        b: Emitter,
        base: tensor,
        shape: Sequence[Any],
        strides: Sequence[Any],
        offsets: Sequence[Any],
        block_shape: Sequence[int],
    ) -> None:
        rank = len(block_shape)
        if not len(shape) == len(strides) == len(offsets) == rank:
            raise ShapeError(
                f"a block of {rank} dimensions needs as many offsets, got {len(offsets)}",
                hint=f"the block has shape {list(block_shape)}",
            )
        self.b, self.base, self.block_shape = b, base, tuple(block_shape)
        self.shape = [cast_to(b, to_tensor(b, n), dtypes.int64) for n in shape]
        self.strides = [1 if is_one(s) else cast_to(b, to_tensor(b, s), dtypes.int64) for s in strides]
        self.offsets = [cast_to(b, to_tensor(b, o), dtypes.int64) for o in offsets]
        self.rows = [_index(b, n) for n in self.block_shape]

    def select(self, dim: int, indices: tensor) -> None:
        """Take the elements at `indices`, a one-dimensional integer tile, along `dim`, instead of neighbours."""
        self.offsets[dim] = self.b.constant(0, dtypes.int64)
        self.rows[dim] = cast_to(self.b, indices, dtypes.int64)
        self.block_shape = (
            *self.block_shape[:dim],
            indices.block_shape[0],
            *self.block_shape[dim + 1 :],
        )

    def _scaled(self, value: tensor, stride: Any) -> tensor:
        return value if isinstance(stride, int) else mul.fn(self.b, value, stride)

    def pointers(self) -> tensor:
        """The tile of pointers to the block's elements."""
        b, rank = self.b, len(self.block_shape)
        start = self.base
        for offset, stride in zip(self.offsets, self.strides, strict=True):
            start = add.fn(b, start, self._scaled(offset, stride))
        total: Any = None
        for dim, (row, stride) in enumerate(zip(self.rows, self.strides, strict=True)):
            part = along(b, self._scaled(row, stride), dim, rank)
            total = part if total is None else add.fn(b, total, part)
        result: tensor = add.fn(b, start, total)
        return result

    def mask(self, dims: Sequence[int]) -> tensor | None:
        """Where the block lies inside the tensor along `dims`; `None` when there are none."""
        b, rank, result = self.b, len(self.block_shape), None
        zero = b.constant(0, dtypes.int64)
        for dim in dims:
            index = add.fn(b, self.offsets[dim], self.rows[dim])
            inside = and_.fn(
                b,
                greater_equal.fn(b, index, zero),
                less_than.fn(b, index, self.shape[dim]),
            )
            part = along(b, inside, dim, rank)
            result = part if result is None else and_.fn(b, result, part)
        return None if result is None else broadcast_to_shape(b, result, self.block_shape)

    def padding(self, option: str, element: dtypes.dtype) -> Any:
        """Tile of the values outside the tensor, or `None`."""
        if not option:
            return None
        zero = 0.0 if element.is_floating() else False if element.is_bool() else 0
        number = float("nan") if option == "nan" else zero
        return self.b.constant(number, BlockType(element, self.block_shape))


def store_value(b: Emitter, value: Any, element: Any, block_shape: Sequence[int]) -> tensor:
    """`value` in the element type and, broadcast, in the shape of a block.

    Raises:
        ShapeError: it does not broadcast.
    """
    made = to_tensor(b, value)
    if made.block_shape and made.block_shape != tuple(block_shape):
        raise ShapeError(
            f"a value of shape {list(made.block_shape)} is stored to a block of shape {list(block_shape)}",
            hint="reshape or broadcast it first",
        )
    return broadcast_to_shape(b, cast_to(b, made, element), block_shape)


def checked_base(base: Any, what: str) -> tensor:
    """`base` if it is a scalar pointer.

    Raises:
        LanguageTypeError: it is not.
    """
    value = unwrap(base)
    if not isinstance(value, tensor) or not value.dtype.is_ptr() or value.block_shape:
        shown = value.type if isinstance(value, tensor) else repr(value)
        raise LanguageTypeError(
            f"Expected `base` of {what} to be a scalar pointer, got {shown}",
            hint="pass the pointer parameter itself",
        )
    return value


def integer_offsets(b: Emitter, offsets: Any, rank: int, what: str) -> tile_tuple:
    """Offsets into a tensor descriptor: one int32 per dimension.

    Raises:
        ShapeError: another number of offsets. DTypeError: one is wider than 32 bits.
    """
    made = scalars(b, offsets, "offsets")
    if len(made) != rank:
        raise ShapeError(f"{what} expects {rank} offsets, but got {len(made)}")
    for value in made:
        if value.dtype.int_bitwidth > 32:
            raise DTypeError(
                f"Expected a 32-bit integer; add a `.to(tl.int32)` to convert the value of type {value.dtype}"
            )
    return made
