"""Tensor descriptors as text: `tt.make_tensor_descriptor`, `tt.descriptor_load`, `tt.descriptor_store`.

Modules printed by Triton hold them, and those of our front end for targets with a copy engine that moves whole blocks;
for all others it takes descriptors apart while it builds (`ops/functions/tensor_descriptor.py`).
`passes/decompose.py` rewrites those that no back end takes as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    param_def,
    result_def,
    traits_def,
)
from xdsl.irdl import var_operand_def as variadic
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.base.errors import DTypeError, ShapeError
from tilewright.ir.asm import FlatOp, make, print_attrs, print_operands, resolve
from tilewright.ir.attrs import I32
from tilewright.ir.effect_traits import Accesses
from tilewright.ir.types import TilePointerType, i32, i64, pointer_type, shape_of, tile_type
from tilewright.ops.memory import CACHE_POLICY
from tilewright.ops.spec import Call, OpSpec, register

PAD_NAN = 2  # value of the attribute `padding`, as Triton numbers the options; absent: zero
DESCRIPTOR_STRIDE = "tilewright.descriptor_stride"  # of parameters of a kernel that makes a descriptor with them


@irdl_attr_definition
class TensorDescType(ParametrizedAttribute, TypeAttribute):
    """`!tt.tensordesc<16x32xf32>`: a tensor in memory that is read and written in blocks of that type."""

    name = "tt.tensordesc"
    block: Attribute = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        return [_parse_block(parser)]

    def print_parameters(self, printer: Printer) -> None:
        _print_block(printer, self.block)


def _parse_block(parser: AttrParser) -> Attribute:
    """`<16x32xf32>`."""
    with parser.in_angle_brackets():
        dims, element = parser.parse_ranked_shape()
    return tile_type(tuple(dims), element)


def _print_block(printer: Printer, block: Attribute) -> None:
    assert isinstance(block, TensorType)
    with printer.in_angle_brackets():
        printer.print_string("".join(f"{n}x" for n in block.get_shape()))
        printer.print_attribute(block.element_type)


def _parse_indices(parser: Parser) -> list[UnresolvedOperand]:
    return parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)


def _print_indices(printer: Printer, values: Sequence[SSAValue]) -> None:
    with printer.in_square_brackets():
        print_operands(printer, values)


@irdl_op_definition
class MakeTensorDescOp(FlatOp):
    """Descriptor of the tensor at a pointer; operands: base, then sizes (i32), then strides (i64)."""

    name = "tt.make_tensor_descriptor"
    ATTRS: ClassVar = {"padding": I32}
    base = operand_def()
    extents = variadic()
    result = result_def()
    padding = opt_prop_def()
    traits = traits_def(Pure())

    @property
    def rank(self) -> int:
        """Dimensions of the tensor."""
        return (len(self.operands) - 1) // 2

    @property
    def sizes(self) -> Sequence[SSAValue]:
        """Sizes of the tensor, i32."""
        return self.operands[1 : 1 + self.rank]

    @property
    def strides(self) -> Sequence[SSAValue]:
        """Distances between neighbours in elements, i64."""
        return self.operands[1 + self.rank :]

    @property
    def pads_nan(self) -> bool:
        """Whether what lies outside of the tensor reads as NaN."""
        return bool(self.attr_values()["padding"] == PAD_NAN)

    @classmethod
    def parse(cls, parser: Parser) -> MakeTensorDescOp:
        base = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        sizes = _parse_indices(parser)
        parser.parse_punctuation(",")
        strides = _parse_indices(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        with parser.in_angle_brackets():
            pointer = pointer_type(parser.parse_type())
        parser.parse_punctuation(",")
        result = TensorDescType(_parse_block(parser))
        types = [pointer, *[i32] * len(sizes), *[i64] * len(strides)]
        return make(cls, resolve(parser, [base, *sizes, *strides], types), [result], attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.base)
        for part in (self.sizes, self.strides):
            printer.print_string(", ")
            _print_indices(printer, part)
        print_attrs(printer, self)
        printer.print_string(" : ")
        pointer, result = self.base.type, self.result.type
        assert isinstance(pointer, TilePointerType) and isinstance(result, TensorDescType)
        with printer.in_angle_brackets():
            printer.print_attribute(pointer.pointee)
        printer.print_string(", ")
        _print_block(printer, result.block)


@irdl_op_definition
class DescriptorLoadOp(FlatOp):
    """Read the block at some indices; operands: descriptor, then one index per dimension of the tensor.

    A block has the last of these dimensions, and is one element long along the others.
    """

    name = "tt.descriptor_load"
    ATTRS: ClassVar = {"cachePolicy": CACHE_POLICY}
    desc = operand_def()
    indices = variadic()
    result = result_def()
    cachePolicy = opt_prop_def()
    traits = traits_def(Accesses(reads=True))

    @classmethod
    def parse(cls, parser: Parser) -> DescriptorLoadOp:
        desc, indices = parser.parse_unresolved_operand(), _parse_indices(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = [parser.parse_type(), *[i32] * len(indices)]
        parser.parse_punctuation("->")
        result = parser.parse_type()
        return make(cls, resolve(parser, [desc, *indices], types), [result], attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.desc)
        _print_indices(printer, self.operands[1:])
        print_attrs(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.desc.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)


@irdl_op_definition
class DescriptorStoreOp(FlatOp):
    """Write the block at some indices; operands: descriptor, value, then one index per dimension."""

    name = "tt.descriptor_store"
    desc = operand_def()
    src = operand_def()
    indices = variadic()
    traits = traits_def(Accesses(writes=True))

    @classmethod
    def parse(cls, parser: Parser) -> DescriptorStoreOp:
        desc, indices = parser.parse_unresolved_operand(), _parse_indices(parser)
        parser.parse_punctuation(",")
        value = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        types = [parser.parse_type()]
        parser.parse_punctuation(",")
        types += [parser.parse_type(), *[i32] * len(indices)]
        return make(cls, resolve(parser, [desc, value, *indices], types), (), attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.desc)
        _print_indices(printer, self.operands[2:])
        printer.print_string(", ")
        printer.print_operand(self.src)
        print_attrs(printer, self)
        printer.print_string(" : ")
        printer.print_attribute(self.desc.type)
        printer.print_string(", ")
        printer.print_attribute(self.src.type)


# --- type rules ----------------------------------------------------------------------------------------------


def _block(call: Call, indices: int) -> Attribute:
    """Block type of the descriptor that stands first, after a check of the number of indices."""
    desc = call.operand_types[0]
    if not isinstance(desc, TensorDescType):
        raise DTypeError(f"a tensor descriptor is needed, not {desc}")
    if len(shape_of(desc.block)) != indices:
        raise ShapeError(f"{indices} indices for a descriptor of blocks of type {desc.block}")
    return desc.block


def _infer_make(call: Call) -> Sequence[Attribute]:
    pointer, (result,) = call.operand_types[0], call.result_types
    if not isinstance(pointer, TilePointerType) or not isinstance(result, TensorDescType):
        raise DTypeError(f"a descriptor is made of a pointer, not of {pointer}")
    return call.result_types


def _infer_load(call: Call) -> Sequence[Attribute]:
    rank = len(shape_of(getattr(call.operand_types[0], "block", i32)))
    return (_block(call, min(len(call.operand_types) - 1, rank)),)


def _infer_store(call: Call) -> Sequence[Attribute]:
    block = _block(call, len(call.operand_types) - 2)
    if call.operand_types[1] != block:
        raise DTypeError(f"value of tt.descriptor_store has type {call.operand_types[1]} where {block} is needed")
    return ()


register(OpSpec(MakeTensorDescOp, _infer_make, None, summary="descriptor of a tensor in memory"))
register(OpSpec(DescriptorLoadOp, _infer_load, None, summary="read a block through a descriptor"))
register(OpSpec(DescriptorStoreOp, _infer_store, None, summary="write a block through a descriptor"))
