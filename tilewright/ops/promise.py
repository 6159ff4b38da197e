"""`tt.promise`: what a user promises of a value, kept where it was said, for kernels whose promises are checked.

    tt.promise "multiple_of" %x {numbers = [16]} : i32          tt.promise "assume" %holds {numbers = []} : i1

Elsewhere promises are attributes of the value's operation, and `llvm.intr.assume`, on which plans rely. In a kernel
with checks the front end makes this instead, so nothing relies on what is to be checked (`passes/check_promises.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryWriteEffect

from tilewright.base.errors import DTypeError
from tilewright.ir.asm import FlatOp, make, print_attrs, resolve
from tilewright.ir.attrs import I32_ARRAY, STR
from tilewright.ir.types import element_type, i32, is_integer, is_pointer, shape_of
from tilewright.ops.spec import Call, OpSpec, Sample, register


@irdl_op_definition
class PromiseOp(FlatOp):
    """A promise about a value, with a number for each of its dims; of `assume` there are none."""

    name = "tt.promise"
    ATTRS: ClassVar = {"kind": STR, "numbers": I32_ARRAY}
    value = operand_def()
    kind = prop_def(StringAttr)
    numbers = prop_def()
    traits = traits_def(MemoryWriteEffect())

    @classmethod
    def parse(cls, parser: Parser) -> PromiseOp:
        kind = StringAttr(parser.parse_str_literal())
        value = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return make(cls, resolve(parser, [value], [parser.parse_type()]), (), attributes, {"kind": kind})

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.kind)
        printer.print_string(" ")
        printer.print_operand(self.value)
        print_attrs(printer, self, ("kind",))
        printer.print_string(" : ")
        printer.print_attribute(self.value.type)


def _infer(call: Call) -> Sequence[Attribute]:
    (type_,) = call.operand_types
    assert type_ is not None
    if not (is_integer(element_type(type_)) or is_pointer(element_type(type_))):
        raise DTypeError(f"a promise is about integers or pointers, not {type_}")
    wanted = 0 if call.attrs["kind"] == "assume" else max(1, len(shape_of(type_)))
    if len(call.attrs["numbers"]) != wanted:
        raise DTypeError(f"a promise about {type_} has {wanted} numbers, not {len(call.attrs['numbers'])}")
    return ()


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    yield Sample((np.asarray(32, np.int32),), (i32,), {"kind": "multiple_of", "numbers": [16]})
    yield Sample((np.asarray(32, np.int32),), (i32,), {"kind": "multiple_of", "numbers": []}, error="has 1 numbers")


register(OpSpec(PromiseOp, _infer, lambda call, value: None, _samples, summary="what a user promises of a value"))
