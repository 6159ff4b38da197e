"""Tensor descriptors: `tl.make_tensor_descriptor` and the loads, stores and atomics that go through one.

A descriptor is a record of a pointer, sizes (int32) and strides (int64): it may be a kernel argument, assigned, carried
by loops and passed to functions. Every access becomes ordinary pointers and a mask: what lies outside of the tensor
reads as padding and is never written. For GPUs with a copy engine loads and stores first stay operations of their own
(`ops/descriptor.py`), for the back end to choose.
"""

from __future__ import annotations

import builtins
from typing import Any

from xdsl.ir import SSAValue

from tilewright.base import dtypes
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ir.types import to_ir
from tilewright.ops.builtin import Builtin, Emitter, builtin, to_tensor
from tilewright.ops.casts import bitcast_to, cast_to
from tilewright.ops.descriptor import PAD_NAN, DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescOp, TensorDescType
from tilewright.ops.functions import atomic as atomics
from tilewright.ops.functions.block_access import (
    Block,
    block_shape_of,
    check_padding,
    checked_base,
    integer_offsets,
    is_one,
    scalars,
    store_value,
)
from tilewright.ops.functions.memory import load, store
from tilewright.ops.functions.operators import add, and_, equal, where
from tilewright.ops.functions.target import cuda_capability_geq
from tilewright.ops.tensor_descriptor import ALIGNMENT, MAX_RANK, tensor_descriptor
from tilewright.ops.values import constexpr, tensor, unwrap
from tilewright.ops.values import tuple as tile_tuple


def _block(b: Emitter, desc: tensor_descriptor, offsets: Any) -> Block:
    """The block of a descriptor at `offsets`."""
    shape = desc.block_type.shape
    checked = integer_offsets(b, offsets, len(shape), "a tensor descriptor")
    return Block(b, desc.base, desc.shape, desc.strides, checked, shape)


def checked_descriptor(desc: Any, what: str) -> tensor_descriptor:
    """`desc` if it is a tensor descriptor.

    Raises:
        LanguageTypeError: it is not.
    """
    if not isinstance(desc, tensor_descriptor):
        raise LanguageTypeError(
            f"{what} takes a tensor descriptor, got {desc!r}",
            hint="make one with tl.make_tensor_descriptor",
        )
    return desc


def _element_bytes(element: Any) -> int:
    return max(1, int(element.primitive_bitwidth) // 8)


def check_block(shape: builtins.tuple[int, ...], element: Any) -> None:
    """Raise unless blocks of `shape` can be described.

    Raises:
        ShapeError: no or too many dimensions, or rows shorter than 16 bytes.
    """
    if not 1 <= len(shape) <= MAX_RANK:
        raise ShapeError(f"Expected 1 <= ndim <= {MAX_RANK} but got {len(shape)} dimensions")
    row = shape[-1] * _element_bytes(element)
    if row < ALIGNMENT:
        raise ShapeError(
            f"Descriptor block shape must have at least {ALIGNMENT} bytes in the last dimension, "
            f"but got {shape[-1]} * {_element_bytes(element)} = {row} bytes"
        )


@builtin
def make_tensor_descriptor(
    b: Emitter,
    base: Any,
    shape: Any,
    strides: Any,
    block_shape: Any,
    padding_option: Any = "zero",
) -> Any:
    """A descriptor of a tensor in memory, which is then read and written in blocks.

    Args:
        base: pointer to the first element, aligned to 16 bytes.
        shape: sizes of the tensor, one to five.
        strides: distances between neighbours in elements; all but the last are multiples of 16 bytes, the last is 1.
        block_shape: sizes of a block, compile-time integers; a row of a block takes at least 16 bytes.
        padding_option: "zero" or "nan": what a load gives outside of the tensor.

    Returns:
        A `tl.tensor_descriptor` with `load(offsets)`, `store(offsets, value)`, `gather`, `scatter` and
        `atomic_add`, `_min`, `_max`, `_and`, `_or`, `_xor`.

    Raises:
        ShapeError: a bad number of dimensions, or rows of a block shorter than 16 bytes.
        LanguageValueError: the last stride is not the number 1, or a stride is not a multiple of 16 bytes.
    """
    pointer, block = (
        checked_base(base, "tl.make_tensor_descriptor"),
        block_shape_of(block_shape),
    )
    element = pointer.dtype.element_ty
    check_block(block, element)
    sizes = scalars(b, shape, "shape", dtypes.int32)
    steps = scalars(b, strides, "strides", dtypes.int64)
    if not len(sizes) == len(steps) == len(block):
        raise ShapeError(
            f"Expected shape and strides of {len(block)} dimensions, but got {len(sizes)} and {len(steps)}"
        )
    last = unwrap(unwrap(strides)[-1])
    if isinstance(last, tensor) or last != 1:
        raise LanguageValueError(
            f"Tensor descriptor last dim must be 1 but got {last.type if isinstance(last, tensor) else last}",
            hint="the last stride must be the number 1, known at compile time; transpose the tensor instead",
        )
    for value in unwrap(strides)[:-1]:
        stride = unwrap(value)
        if isinstance(stride, int) and stride * _element_bytes(element) % ALIGNMENT:
            raise LanguageValueError(
                f"Tensor descriptor strides must be multiples of {ALIGNMENT} bytes, got {stride} elements of {element}"
            )
    padding = check_padding(padding_option, element, ("zero", "nan"))
    parts = [
        pointer,
        sizes,
        tile_tuple([*steps[:-1], constexpr(1)]),
        tile_tuple(map(constexpr, block)),
    ]
    return tensor_descriptor._make([*parts, constexpr(padding), constexpr(False)])


# --- load and store ---------------------------------------------------------------------------------------------


def _stays_whole(b: Emitter, desc: tensor_descriptor) -> bool:
    """Whether accesses to blocks become operations of their own: the target may have better than pointers and masks.

    Capability 9.0 is the first with such a copy engine (PTX ISA, cp.async.bulk.tensor). What is evaluated at once has
    no use for them.
    """
    built = isinstance(desc.base.handle, SSAValue)
    return built and cuda_capability_geq(b.target, 9) and desc.dtype.primitive_bitwidth >= 8


def _whole(b: Emitter, desc: tensor_descriptor, offsets: Any) -> builtins.tuple[Any, list[Any]]:
    """A descriptor as one value, and offsets into it."""
    sizes = [cast_to(b, to_tensor(b, n), dtypes.int32).handle for n in desc.shape]
    one = b.constant(1, dtypes.int64)  # and not one that is widened, which would hide that it is known
    strides = [(one if is_one(n) else cast_to(b, to_tensor(b, n), dtypes.int64)).handle for n in desc.strides]
    checked = integer_offsets(b, offsets, len(sizes), "a tensor descriptor")
    type_ = TensorDescType(to_ir(desc.block_type))
    padding = PAD_NAN if desc.padding == "nan" else None
    (made,) = b.op(
        MakeTensorDescOp, desc.base.handle, sizes, strides, attrs={"padding": padding}, result_types=(type_,)
    )
    return made, [cast_to(b, offset, dtypes.int32).handle for offset in checked]


def _load(b: Emitter, desc: tensor_descriptor, block: Block) -> tensor:
    mask = block.mask(range(len(block.block_shape)))
    loaded: tensor = load.fn(b, block.pointers(), mask, block.padding(desc.padding, desc.dtype))
    return loaded


def _rounded(b: Emitter, desc: tensor_descriptor, loaded: tensor) -> tensor:
    return _rounded_to_tf32(b, loaded) if desc.rounds_to_tf32 else loaded


def _rounded_to_tf32(b: Emitter, x: tensor) -> tensor:
    """float32 rounded to 10 bits of mantissa, halves away from zero; NaN stays."""
    bits = add.fn(b, bitcast_to(b, x, dtypes.int32), 0x1000, sanitize_overflow=False)
    rounded = bitcast_to(b, and_.fn(b, bits, -0x2000), dtypes.float32)
    made: tensor = where.fn(b, equal.fn(b, x, x), rounded, x)
    return made


def _store(b: Emitter, desc: tensor_descriptor, block: Block, value: Any) -> None:
    made = store_value(b, value, desc.dtype, block.block_shape)
    store.fn(b, block.pointers(), made, block.mask(range(len(block.block_shape))))


@builtin
def load_tensor_descriptor(b: Emitter, desc: Any, offsets: Any) -> tensor:
    """Read the block of a tensor descriptor at some offsets; also ``desc.load(offsets)``.

    Args:
        desc: tensor descriptor.
        offsets: one int32 per dimension; they may be negative or beyond the tensor.

    Returns:
        A tile of the descriptor's block shape; elements outside of the tensor are its padding.

    Raises:
        ShapeError: another number of offsets. DTypeError: an offset of 64 bits.
    """
    made = checked_descriptor(desc, "tl.load_tensor_descriptor")
    if _stays_whole(b, made):
        whole, indices = _whole(b, made, offsets)
        (handle,) = b.op(DescriptorLoadOp, whole, indices)
        return _rounded(b, made, tensor(handle, made.block_type))
    return _rounded(b, made, _load(b, made, _block(b, made, offsets)))


@builtin
def store_tensor_descriptor(b: Emitter, desc: Any, offsets: Any, value: Any) -> None:
    """Write the block of a tensor descriptor at some offsets; also ``desc.store(offsets, value)``.

    Args:
        desc: tensor descriptor.
        offsets: one int32 per dimension; elements outside of the tensor are not written.
        value: tile of the descriptor's block shape, cast to its element type.

    Raises:
        ShapeError: another number of offsets, or a value of another shape. DTypeError: an offset of 64 bits.
    """
    made = checked_descriptor(desc, "tl.store_tensor_descriptor")
    if _stays_whole(b, made):
        stored = store_value(b, value, made.dtype, made.block_type.shape)
        whole, indices = _whole(b, made, offsets)
        b.op(DescriptorStoreOp, whole, stored.handle, indices)
        return
    _store(b, made, _block(b, made, offsets), value)


# --- gather and scatter -------------------------------------------------------------------------------------------


def _rows(b: Emitter, desc: tensor_descriptor, x_offsets: Any, y_offset: Any, what: str) -> Block:
    """The rows at `x_offsets`, from column `y_offset` on."""
    shape = desc.block_type.shape
    if len(shape) != 2 or shape[0] != 1:
        raise ShapeError(f"descriptor {what} needs a descriptor of blocks [1, N], got {list(shape)}")
    rows = to_tensor(b, x_offsets)
    if len(rows.block_shape) != 1 or rows.dtype not in (dtypes.int16, dtypes.int32):
        raise DTypeError(f"x offsets of descriptor {what} must be a tile of int32 with one dimension, got {rows.type}")
    if rows.block_shape[0] < 8:
        raise ShapeError(f"descriptor {what} must have at least 8 rows, but got {rows.block_shape[0]}")
    least = 32 // desc.dtype.primitive_bitwidth * 8
    if shape[1] < least:
        raise ShapeError(f"descriptor {what} of {desc.dtype} must have at least {least} columns, but got {shape[1]}")
    block = _block(b, desc, [0, y_offset])
    block.select(0, rows)
    return block


@builtin(export=False)
def descriptor_gather(b: Emitter, desc: Any, x_offsets: Any, y_offset: Any) -> tensor:
    """Rows of a two-dimensional tensor: ``result[i] = tensor[x_offsets[i], y_offset:y_offset + N]``.

    Args:
        desc: descriptor of blocks [1, N].
        x_offsets: int32 tile of at least 8 row numbers.
        y_offset: first column, int32.

    Returns:
        Tile [len(x_offsets), N]; rows and columns outside of the tensor are padding.

    Raises:
        ShapeError, DTypeError: the descriptor or the row numbers are not of these forms.
    """
    made = checked_descriptor(desc, "gather")
    return _rounded(b, made, _load(b, made, _rows(b, made, x_offsets, y_offset, "gather")))


@builtin(export=False)
def descriptor_scatter(b: Emitter, desc: Any, value: Any, x_offsets: Any, y_offset: Any) -> None:
    """Write rows: ``tensor[x_offsets[i], y_offset:y_offset + N] = value[i]``; else as `gather`."""
    made = checked_descriptor(desc, "scatter")
    _store(b, made, _rows(b, made, x_offsets, y_offset, "scatter"), value)


# --- atomics --------------------------------------------------------------------------------------------------------

_ADD = ("uint32", "int32", "uint64", "fp32", "fp16", "bf16")
_EXTREMUM = ("uint32", "int32", "uint64", "int64", "fp16", "bf16")
_BITS = ("uint32", "int32", "uint64", "int64")


def _atomic(name: str, function: Builtin, types: builtins.tuple[str, ...], meaning: str) -> Builtin:
    def method(b: Emitter, desc: Any, offsets: Any, value: Any) -> None:
        made = checked_descriptor(desc, name)
        if made.dtype.name not in types:
            raise DTypeError(
                f"descriptor {name} does not support {made.dtype}",
                hint=f"it takes {', '.join(types)}",
            )
        block = _block(b, made, offsets)
        stored = store_value(b, value, made.dtype, block.block_shape)
        function.fn(b, block.pointers(), stored, block.mask(range(len(block.block_shape))))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""{meaning} a block of the tensor and `value`, element by element, atomically; gives nothing.

    Args:
        desc: descriptor of elements of type {", ".join(types)}.
        offsets: one int32 per dimension; elements outside of the tensor are left alone.
        value: tile of the descriptor's block shape.

    Raises:
        DTypeError: another element type. ShapeError: a value of another shape.
    """
    made: Builtin = builtin(method, export=False)
    return made


DESCRIPTOR_METHODS: dict[str, Builtin] = {
    "load": load_tensor_descriptor,
    "store": store_tensor_descriptor,
    "gather": descriptor_gather,
    "scatter": descriptor_scatter,
    "atomic_add": _atomic("atomic_add", atomics.atomic_add, _ADD, "Sum of"),
    "atomic_min": _atomic("atomic_min", atomics.atomic_min, _EXTREMUM, "Minimum of"),
    "atomic_max": _atomic("atomic_max", atomics.atomic_max, _EXTREMUM, "Maximum of"),
    "atomic_and": _atomic("atomic_and", atomics.atomic_and, _BITS, "Bitwise and of"),
    "atomic_or": _atomic("atomic_or", atomics.atomic_or, _BITS, "Bitwise or of"),
    "atomic_xor": _atomic("atomic_xor", atomics.atomic_xor, _BITS, "Exclusive or of"),
}
for _name, _function in DESCRIPTOR_METHODS.items():
    setattr(tensor_descriptor, _name, _function)
