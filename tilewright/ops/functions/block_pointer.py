"""Block pointers: `tl.make_block_ptr`, `tl.advance`, and what `tl.load` and `tl.store` do with one.

A block pointer is a record of scalars: it may be assigned, carried by loops and passed to functions, and becomes
ordinary pointers and masks where it is used. These are the semantics of Triton up to 3.7; later versions refuse it.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType, PointerType
from tilewright.base.errors import LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ops.builtin import Emitter, builtin
from tilewright.ops.functions.block_access import Block, block_shape_of, check_padding, checked_base, scalars
from tilewright.ops.functions.operators import add
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple


class block_pointer(builtins.tuple[Any, ...]):
    """Value of `tl.make_block_ptr`: base, shape, strides, offsets, block shape, order."""

    __slots__ = ()

    @classmethod
    def _make(cls, parts: Iterable[Any]) -> block_pointer:
        return super().__new__(cls, parts)

    @property
    def base(self) -> tensor:
        """Pointer to the first element of the tensor."""
        return self[0]  # type: ignore[no-any-return]

    @property
    def shape(self) -> Any:
        """Sizes of the tensor, int64."""
        return self[1]

    @property
    def strides(self) -> Any:
        """Distances between neighbours, in elements."""
        return self[2]

    @property
    def offsets(self) -> Any:
        """Index of the block's first element."""
        return self[3]

    @property
    def block_shape(self) -> builtins.tuple[int, ...]:
        """Sizes of the block."""
        return builtins.tuple(unwrap(n) for n in self[4])

    @property
    def type(self) -> PointerType:
        """A pointer to a block."""
        return PointerType(BlockType(self.base.dtype.element_ty, self.block_shape))

    @property
    def dtype(self) -> PointerType:
        """As :attr:`type`."""
        return self.type

    def __repr__(self) -> str:
        return f"block_pointer({self.type})"

    def moved(self, offsets: Any) -> block_pointer:
        """The same with other offsets."""
        return block_pointer._make([*self[:3], offsets, *self[4:]])

    def block(self, b: Emitter) -> Block:
        """The block that it points to."""
        return Block(b, self.base, self.shape, self.strides, self.offsets, self.block_shape)


def dims_to_check(value: Any, pointer: block_pointer) -> list[int]:
    """The dimensions named by `boundary_check`.

    Raises:
        LanguageValueError: a dimension that the block does not have, or one twice.
    """
    dims = unwrap(value)
    dims = [dims] if isinstance(dims, int) else list(dims or ())
    rank = len(pointer.block_shape)
    if any(not isinstance(d, int) or not 0 <= d < rank for d in dims) or len(set(dims)) != len(dims):
        raise LanguageValueError(
            f"boundary_check must name different dimensions below {rank}, got {tuple(dims)}",
            hint="e.g. boundary_check=(0, 1)",
        )
    return sorted(dims)


def pointers_and_mask(
    b: Emitter, pointer: block_pointer, boundary_check: Any, padding_option: Any = ""
) -> builtins.tuple[tensor, tensor | None, tensor | None]:
    """Pointers, mask and values outside of the tensor of an access through a block pointer.

    Raises:
        LanguageValueError: a bad dimension or padding option.
    """
    block, element = pointer.block(b), pointer.base.dtype.element_ty
    option = check_padding(padding_option, element)
    mask = block.mask(dims_to_check(boundary_check, pointer))
    return (
        block.pointers(),
        mask,
        None if mask is None else block.padding(option, element),
    )


@builtin
def make_block_ptr(
    b: Emitter,
    base: Any,
    shape: Any,
    strides: Any,
    offsets: Any,
    block_shape: Any,
    order: Any,
) -> Any:
    """A pointer to a rectangle of a strided tensor, for `tl.load`, `tl.store` and `tl.advance`.

    Args:
        base: pointer to the tensor's first element.
        shape: sizes of the tensor.
        strides: distance between neighbours along each dimension, in elements.
        offsets: index of the block's first element.
        block_shape: sizes of the block, compile-time integers.
        order: dimensions from the one that varies fastest in memory; a hint.

    Returns:
        A block pointer. It has no value of its own: loops carry it, functions take and return it.

    Raises:
        LanguageTypeError: `base` is not a scalar pointer, or a size is not an integer.
        ShapeError: the lists differ in length. LanguageValueError: `order` is not a permutation.
    """
    pointer, block = (
        checked_base(base, "tl.make_block_ptr"),
        block_shape_of(block_shape),
    )
    sizes = scalars(b, shape, "shape", dtypes.int64)
    lists = {
        "shape": sizes,
        "strides": unwrap(strides),
        "offsets": unwrap(offsets),
        "order": unwrap(order),
    }
    if any(len(values) != len(block) for values in lists.values()):
        lengths = ", ".join(f"{name} {len(values)}" for name, values in lists.items())
        raise ShapeError(f"Expected shape/strides/offsets/order of {len(block)} dimensions, got {lengths}")
    if sorted(unwrap(order)) != list(range(len(block))):
        raise LanguageValueError(f"Expected a permutation of {list(range(len(block)))} in order, got {unwrap(order)}")
    parts = [
        pointer,
        sizes,
        scalars(b, strides, "strides", dtypes.int64),
        scalars(b, offsets, "offsets", dtypes.int64),
    ]
    return block_pointer._make(
        [
            *parts,
            tile_tuple(map(constexpr, block)),
            tile_tuple(map(constexpr, unwrap(order))),
        ]
    )


@builtin(method=True)
def advance(b: Emitter, base: Any, offsets: Any) -> Any:
    """A block pointer moved by a number of elements along each dimension.

    Args:
        base: block pointer; it stays as it is.
        offsets: how far to move along each dimension.

    Returns:
        The moved block pointer, which must be assigned to have an effect.

    Raises:
        LanguageTypeError: not a block pointer. ShapeError: another number of offsets than dimensions.
    """
    if not isinstance(base, block_pointer):
        raise LanguageTypeError(
            f"tl.advance takes a block pointer, got {base!r}",
            hint="add offsets to plain pointers",
        )
    steps = scalars(b, offsets, "offsets", dtypes.int64)
    if len(steps) != len(base.block_shape):
        raise ShapeError(f"tl.advance of a block of {len(base.block_shape)} dimensions got {len(steps)} offsets")
    moved = [add.fn(b, old, step) for old, step in zip(base.offsets, steps, strict=True)]
    return base.moved(tile_tuple(moved))


advance.only_returns = True


setattr(block_pointer, "advance", advance)  # noqa: B010
