"""Pointer arithmetic: `tt.addptr` moves a pointer by a number of elements.

Pointers are 64-bit addresses; offsets are signed integers of any width, sign-extended and
scaled by the size of the pointee.
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base.errors import ShapeError
from tilewright.ir.op import TileOp
from tilewright.ir.types import (
    TilePointerType,
    bit_width,
    element_type,
    is_integer,
    is_pointer,
    pointer_type,
    scalar_type,
    shape_of,
    tile_type,
)
from tilewright.ops import facts, folds
from tilewright.ops.dims import lanewise
from tilewright.ops.elementwise_base import (
    expect_kind,
    finish_parse,
    parse_attributes,
    parse_operands,
    print_operands,
    print_types,
    tile,
)
from tilewright.ops.elementwise_reference import quiet
from tilewright.ops.elementwise_samples import integers
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register


@irdl_op_definition
class AddPtrOp(TileOp):
    """``tt.addptr %pointer, %offset : P, I``: the address `offset` elements further."""

    name = "tt.addptr"
    ptr = operand_def()
    offset = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        print_operands(printer, self)
        printer.print_op_attributes(self.attributes)
        print_types(printer, [operand.type for operand in self.operands], "", ())

    @classmethod
    def parse(cls, parser: Parser) -> AddPtrOp:
        names = parse_operands(parser, 2)
        attributes = parse_attributes(parser)
        parser.parse_punctuation(":")
        pointer = parser.parse_type()
        parser.parse_punctuation(",")
        return finish_parse(cls, parser, names, [pointer, parser.parse_type()], [pointer], attributes)


def element_bytes(pointer: Attribute) -> int:
    """Bytes from one pointee of `pointer` to the next; an i1 takes a byte."""
    assert isinstance(pointer, TilePointerType)
    return max(1, bit_width(pointer.pointee) // 8)


def _infer(call: Call) -> tuple[Attribute]:
    pointer, offset = call.operand_types
    assert pointer is not None and offset is not None
    expect_kind("tt.addptr", pointer, is_pointer)
    if not is_integer(element_type(offset)):
        expect_kind("the offset of tt.addptr", offset, is_integer)
    if shape_of(pointer) != shape_of(offset):
        raise ShapeError(f"tt.addptr: pointer has shape {shape_of(pointer)}, offset has {shape_of(offset)}")
    return (pointer,)


def _reference(call: Call, pointer: Array, offset: Array) -> Array:
    size = element_bytes(element_type(call.operand_types[0]))  # type: ignore[arg-type]
    return np.asarray(pointer + offset.astype(np.int64) * size)


def _samples(rng: np.random.Generator) -> list[Sample]:
    out = []
    addresses = rng.integers(1 << 20, 1 << 40, 8).astype(np.int64)
    for pointee in ("f32", "bf16", "i8", "i1", "f64"):
        pointer = pointer_type(scalar_type(pointee))
        for width in ("i32", "i64"):
            offsets = rng.integers(-1000, 1000, 8).astype(f"int{width[1:]}")
            out.append(Sample((addresses, offsets), (tile_type((8,), pointer), tile(width))))
    scalar = np.asarray(addresses[0]), np.asarray(offsets[0])
    out.append(Sample(scalar, (pointer, tile("i64", ()))))
    out.append(Sample((addresses, offsets[:4]), (tile_type((8,), pointer), tile("i64", (4,))), error="offset has"))
    floats = addresses.astype(np.float32)
    out.append(Sample((addresses, floats), (tile_type((8,), pointer), tile("f32")), error="takes integer"))
    out.append(Sample((integers(rng, "i64", 8), offsets), (tile("i64"), tile("i64")), error="takes pointer"))
    return out


register(
    OpSpec(
        AddPtrOp,
        _infer,
        quiet(_reference),
        _samples,
        facts.addptr,
        folds.no_offset,
        summary="pointer moved by a number of elements",
        dims=lanewise,
    )
)
