"""Types of tile IR and their correspondence with the data types of the language.

Tiles are MLIR ranked tensors, pointers are `!tt.ptr<T>`; integers are signless, so
the sign lives in the operations. Types are interned: building one twice is a dict hit.
"""

from __future__ import annotations

import functools
from typing import Any

from xdsl.dialects.builtin import (
    IntegerType,
    NoneAttr,
    TensorType,
    bf16,
    f8E4M3B11FNUZ,
    f8E4M3FN,
    f8E4M3FNUZ,
    f8E5M2,
    f8E5M2FNUZ,
    f16,
    f32,
    f64,
)
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from tilewright.base import dtypes
from tilewright.base.errors import InternalError, VerificationError


@irdl_attr_definition
class TilePointerType(ParametrizedAttribute, TypeAttribute):
    """`!tt.ptr<T>` or `!tt.ptr<T, space>`: the address of elements of type T (space 1 is global memory)."""

    name = "tt.ptr"
    pointee: Attribute = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            pointee = parser.parse_type()
            if parser.parse_optional_punctuation(",") is not None:
                parser.parse_integer()
        return [pointee]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.pointee)


i1, i8, i16, i32, i64 = (IntegerType(n) for n in (1, 8, 16, 32, 64))
_SCALARS: dict[str, Attribute] = {
    "i1": i1, "i8": i8, "i16": i16, "i32": i32, "i64": i64, "f16": f16, "bf16": bf16, "f32": f32, "f64": f64,
    "f8E4M3FN": f8E4M3FN, "f8E5M2": f8E5M2, "f8E4M3B11FNUZ": f8E4M3B11FNUZ, "f8E4M3FNUZ": f8E4M3FNUZ,
    "f8E5M2FNUZ": f8E5M2FNUZ,
}  # fmt: skip
_NAMES: dict[Attribute, str] = {attribute: name for name, attribute in _SCALARS.items()}
_FLOAT_DTYPES = {d.ir_name: d for d in dtypes.ALL_DTYPES if d.is_floating()}
# By class: attributes are hashed by what is in them, and those of all floating-point types by nothing.
_FLOATS: dict[type[Attribute], dtypes.dtype] = {type(_SCALARS[name]): d for name, d in _FLOAT_DTYPES.items()}


@functools.cache
def scalar_type(name: str) -> Attribute:
    """Element type by its IR name, e.g. "i32", "bf16"."""
    return _SCALARS[name]


@functools.cache
def pointer_type(pointee: Attribute) -> TilePointerType:
    """Pointer to elements of type `pointee`."""
    return TilePointerType(pointee)


@functools.cache
def tile_type(shape: tuple[int, ...], element: Attribute) -> Attribute:
    """A tile of `shape`; the empty shape gives the scalar `element` itself."""
    return TensorType(element, shape) if shape else element


def element_type(type_: Attribute) -> Attribute:
    """Element type of a tile; a scalar type is its own element."""
    return type_.element_type if type(type_) is TensorType else type_


def shape_of(type_: Attribute) -> tuple[int, ...]:
    """Shape of a tile; () for a scalar."""
    return tuple([size.data for size in type_.shape.data]) if type(type_) is TensorType else ()


def with_element(type_: Attribute, element: Attribute) -> Attribute:
    """`type_` with another element type, the same shape and, where it has one, the same layout."""
    if isinstance(type_, TensorType) and not isinstance(type_.encoding, NoneAttr):
        return TensorType(element, type_.get_shape(), type_.encoding)
    return tile_type(shape_of(type_), element)


def ir_name(element: Attribute) -> str:
    """IR name of a scalar type ("i32", "f32"); "ptr" for pointers."""
    if type(element) is TilePointerType:
        return "ptr"
    known = _FLOATS.get(type(element))
    return _NAMES[element] if known is None else str(known.ir_name)


def is_float(element: Attribute) -> bool:
    """Whether a scalar type is a floating-point type."""
    return type(element) in _FLOATS


def is_integer(element: Attribute) -> bool:
    """Whether a scalar type is an integer type; i1 is one."""
    return type(element) is IntegerType


def is_pointer(element: Attribute) -> bool:
    """Whether a scalar type is a pointer."""
    return type(element) is TilePointerType


def bit_width(element: Attribute) -> int:
    """Bits of one element; pointers have 64."""
    if type(element) is TilePointerType:
        return 64
    if type(element) is IntegerType:
        return int(element.width.data)
    return _FLOATS[type(element)].primitive_bitwidth


def pointee_bytes(type_: Attribute) -> int:
    """Bytes in memory of what a pointer, or a tile of pointers, points to; an i1 takes one."""
    element = element_type(type_)
    if type(element) is not TilePointerType:
        raise InternalError(f"{type_} is not a pointer")
    return max(1, bit_width(element.pointee) // 8)


def dtype_of(element: Attribute, *, unsigned: bool = False) -> dtypes.dtype:
    """Language data type of a scalar IR type; integers are signed unless `unsigned`."""
    if type(element) in _FLOATS:
        return _FLOATS[type(element)]
    name = _NAMES.get(element)
    if name is None:
        raise VerificationError(f"{element} is not the type of a number")
    if name == "i1":
        return dtypes.int1
    return dtypes.dtype(("uint" if unsigned else "int") + name[1:])


@functools.cache
def to_ir(type_: Any) -> Attribute:
    """IR type of a language type (dtype, `PointerType`, `BlockType`)."""
    if isinstance(type_, dtypes.BlockType):
        return tile_type(type_.shape, to_ir(type_.element_ty))
    if isinstance(type_, dtypes.PointerType):
        return pointer_type(to_ir(type_.element_ty))
    return _SCALARS[type_.ir_name]
