"""Printing, assertions, barriers and inline assembly.

`tt.print` and `tt.assert` act once per program on whole tiles. `ttg.barrier` orders the threads of a
program on a GPU; a CPU program has one thread. User functions are in `ops/functions/debug.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, f32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def, var_operand_def, var_result_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, MemoryReadEffect, MemoryWriteEffect

from tilewright.base.errors import DTypeError
from tilewright.ir.asm import (
    FlatOp,
    make,
    parse_operand_list,
    parse_type_list,
    print_attrs,
    print_operands,
    print_types,
    resolve,
)
from tilewright.ir.attrs import BOOL, I32, I32_ARRAY, STR
from tilewright.ir.effect_traits import AccessesAny
from tilewright.ir.types import bit_width, element_type, i1, is_float, is_pointer, tile_type
from tilewright.ops.dims import lanewise
from tilewright.ops.function import infer_asked, infer_nothing
from tilewright.ops.spec import Array, Call, NoGradient, OpSpec, Sample, register


@irdl_op_definition
class PrintOp(FlatOp):
    """Print a prefix and values."""

    name = "tt.print"
    ATTRS: ClassVar = {"prefix": STR, "hex": BOOL, "isSigned": I32_ARRAY}
    args_ = var_operand_def()
    prefix = prop_def(StringAttr)
    hex = prop_def()
    isSigned = prop_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())

    @classmethod
    def parse(cls, parser: Parser) -> PrintOp:
        prefix = StringAttr(parser.parse_str_literal())
        attributes = parser.parse_optional_attr_dict()
        operands = []
        if parser.parse_optional_punctuation(":") is not None:
            names = parse_operand_list(parser)
            parser.parse_punctuation(":")
            operands = resolve(parser, names, parse_type_list(parser))
        return make(cls, operands, (), attributes, {"prefix": prefix})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.prefix)
        print_attrs(printer, self, ("prefix",))
        if self.operands:
            printer.print_string(" : ")
            print_operands(printer, self.operands)
            printer.print_string(" : ")
            print_types(printer, self.operand_types)


@irdl_op_definition
class AssertOp(FlatOp):
    """Fail the launch with a message unless every element of the condition holds."""

    name = "tt.assert"
    ATTRS: ClassVar = {"message": STR}
    condition = operand_def()
    message = prop_def(StringAttr)
    traits = traits_def(MemoryWriteEffect())

    @classmethod
    def parse(cls, parser: Parser) -> AssertOp:
        condition = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        message = StringAttr(parser.parse_str_literal())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        operands = resolve(parser, [condition], [parser.parse_type()])
        return make(cls, operands, (), attributes, {"message": message})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.condition)
        printer.print_string(", ")
        printer.print_attribute(self.message)
        print_attrs(printer, self, ("message",))
        printer.print_string(" : ")
        printer.print_attribute(self.condition.type)


class _BarrierEffect(MemoryEffect):
    """A barrier is ordered with every access to memory."""

    @classmethod
    def get_effects(cls, op: Any) -> frozenset[EffectInstance]:
        return frozenset((EffectInstance(MemoryEffectKind.READ), EffectInstance(MemoryEffectKind.WRITE)))


@irdl_op_definition
class BarrierOp(FlatOp):
    """All threads of a program wait for each other and see each other's accesses."""

    name = "ttg.barrier"
    ATTRS: ClassVar = {"space": STR}
    space = prop_def(StringAttr)
    traits = traits_def(_BarrierEffect())

    @classmethod
    def parse(cls, parser: Parser) -> BarrierOp:
        space = StringAttr(parser.parse_identifier())
        return make(cls, (), (), parser.parse_optional_attr_dict(), {"space": space})

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.space.data}")
        print_attrs(printer, self, ("space",))


@irdl_op_definition
class InlineAsmOp(FlatOp):
    """Inline assembly of the target, applied to `packed_element` elements at a time."""

    name = "tt.elementwise_inline_asm"
    ATTRS: ClassVar = {"asm_string": STR, "constraints": STR, "pure": BOOL, "packed_element": I32}
    args_ = var_operand_def()
    result = var_result_def()
    asm_string = prop_def(StringAttr)
    constraints = prop_def(StringAttr)
    pure = prop_def()
    packed_element = prop_def()
    traits = traits_def(AccessesAny(lambda op: bool(BOOL.decode(op.properties.get("pure")))))

    @classmethod
    def parse(cls, parser: Parser) -> InlineAsmOp:
        asm = StringAttr(parser.parse_str_literal())
        attributes = parser.parse_optional_attr_dict()
        names, types = [], []
        first = parser.parse_optional_unresolved_operand()
        if first is not None:
            names = [first]
            while parser.parse_optional_punctuation(",") is not None:
                names.append(parser.parse_unresolved_operand())
            parser.parse_punctuation(":")
            types = parse_type_list(parser)
        parser.parse_punctuation("->")
        results = parse_type_list(parser)
        return make(cls, resolve(parser, names, types), results, attributes, {"asm_string": asm})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.asm_string)
        print_attrs(printer, self, ("asm_string",))
        if self.operands:
            printer.print_string(" ")
            print_operands(printer, self.operands)
            printer.print_string(" : ")
            print_types(printer, self.operand_types)
        printer.print_string(" -> ")
        print_types(printer, self.result_types)


# --- type rules and references ------------------------------------------------------------------------------


def _infer_assert(call: Call) -> Sequence[Attribute]:
    (condition,) = call.operand_types
    assert condition is not None
    if element_type(condition) != i1:
        raise DTypeError(f"the condition of tt.assert must be int1, not {condition}")
    return ()


def _reference_print(call: Call, *values: Array) -> None:
    """One line per element: the program, the index, the prefix, which operand if there are several, the value."""
    assert call.machine is not None
    pid = ", ".join(str(call.machine.program_id(axis)) for axis in range(3))
    prefix, signs = call.attrs["prefix"], call.attrs["isSigned"]
    if not values:
        call.machine.print(f"pid ({pid}){prefix}\n")
    for number, (value, type_) in enumerate(zip(values, call.operand_types, strict=True)):
        operand = f"(operand {number}) " if len(values) > 1 else ""
        widths = [len(str(dim - 1)) for dim in np.shape(value)]
        signed = bool(signs[number]) if number < len(signs) else True
        for index in np.ndindex(np.shape(value)):
            place = ", ".join(f"{i:{width}}" for i, width in zip(index, widths, strict=True))
            text = format_element(np.asarray(value)[index], type_, signed, call.attrs["hex"])
            call.machine.print(f"pid ({pid}) idx ({place}){prefix}{operand}{text}\n")


def format_element(value: Any, type_: Attribute | None, signed: bool, hexadecimal: bool) -> str:
    """An element as `device_print` shows it: six decimals for floats, the address of pointers."""
    assert type_ is not None
    element = element_type(type_)
    if is_float(element):
        return f"{float(value):f}"
    bits = bit_width(element)
    number = int(value)
    if is_pointer(element) or hexadecimal:
        digits = f"{number % (1 << 64):x}" if is_pointer(element) else f"{number % (1 << bits):0{max(2, bits // 4)}x}"
        return f"0x{digits}"
    return str(number if signed else number % (1 << bits))


def _reference_assert(call: Call, condition: Array) -> None:
    if not np.all(condition):
        raise RuntimeError(f"device-side assert: {call.attrs['message']}")


def _reference_barrier(call: Call) -> None:
    return None


def _samples_assert(rng: np.random.Generator) -> Iterable[Sample]:
    values = np.zeros(4, np.float32)
    yield Sample((values,), (tile_type((4,), f32),), {"message": "positive"}, error="must be int1")
    yield Sample((np.ones(4, bool),), (tile_type((4,), i1),), {"message": "always"})


register(OpSpec(PrintOp, infer_nothing, _reference_print, summary="print values"))
register(
    OpSpec(AssertOp, _infer_assert, _reference_assert, _samples_assert, summary="fail unless all hold", dims=lanewise)
)
register(OpSpec(BarrierOp, infer_nothing, _reference_barrier, summary="wait for all threads of the program"))
register(
    OpSpec(
        InlineAsmOp,
        infer_asked,
        None,
        summary="inline assembly of the target",
        vjp=NoGradient("it is assembly", "write it in the language"),
    )
)
