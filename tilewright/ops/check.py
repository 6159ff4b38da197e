"""`tt.check`: what must hold for every element, or a record says where it did not.

    tt.check %holds, %records, %shown {site = 3, ends = true} : tensor<64xi1>, !tt.ptr<i64>, tensor<64xi64>

A check is an assertion that does not stop the launch. `%records` is an array of 64-bit words with a row for each site;
the first element that fails, of the first program, leaves its program, its coordinates and what is shown, every further
one counts. Behind a check that `ends` its program nothing more of that program runs: what the check guards must not
happen.
Passes write checks (`passes/checks.py`); users have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, traits_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryWriteEffect

from tilewright.base.errors import DTypeError, ShapeError
from tilewright.ir.asm import (
    FLAG,
    FlatOp,
    make,
    parse_operand_list,
    parse_type_list,
    print_attrs,
    print_operands,
    print_types,
    resolve,
)
from tilewright.ir.attrs import I32
from tilewright.ir.types import element_type, i1, i64, pointer_type, shape_of, tile_type
from tilewright.ops.spec import Array, Call, OpSpec, Sample, register

ROW = 16
"""Words of a row of the records."""
COUNT, LAST_PROGRAM, PROGRAMS, PROGRAM, SHOWN, PLACE = 0, 1, 2, 3, 6, 8
"""Where in a row: how often; 1 + number of the last program, how many; the first failure's program, values, place."""
FIRST, BUSY = 13, 14
"""1 + number of the first program at fault, of the grid's order; whether a thread is writing the row."""
MOST_SHOWN, MOST_DIMS = 2, 5


@irdl_op_definition
class CheckOp(FlatOp):
    """Record where a condition does not hold; operands: condition, records, then at most two values to show.

    Of a scalar condition further values are the place in the tile: one for each dim.
    """

    name = "tt.check"
    ATTRS: ClassVar = {"site": I32, "ends": FLAG}
    args_ = var_operand_def()
    site = prop_def()
    ends = opt_prop_def()
    traits = traits_def(MemoryWriteEffect())

    @property
    def condition(self) -> SSAValue:
        return self.operands[0]

    @property
    def records(self) -> SSAValue:
        return self.operands[1]

    @property
    def shown(self) -> Sequence[SSAValue]:
        return self.operands[2:]

    @classmethod
    def parse(cls, parser: Parser) -> CheckOp:
        operands = parse_operand_list(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return make(cls, resolve(parser, operands, parse_type_list(parser)), (), attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_operands(printer, self.operands)
        print_attrs(printer, self)
        printer.print_string(" : ")
        print_types(printer, self.operand_types)


def _infer(call: Call) -> Sequence[Attribute]:
    condition, records, *shown = call.operand_types
    assert condition is not None
    if element_type(condition) != i1:
        raise DTypeError(f"the condition of tt.check must be int1, not {condition}")
    if records != pointer_type(i64):
        raise DTypeError(f"the records of tt.check must be a pointer to int64, not {records}")
    for type_ in shown:
        assert type_ is not None
        if shape_of(type_) != shape_of(condition):
            raise ShapeError(f"tt.check shows {type_} for a condition of {condition}")
    return ()


def _reference(call: Call, condition: Array, records: Array, *shown: Array) -> None:
    """The row as compiled code leaves it."""
    assert call.machine is not None
    failing = np.argwhere(~np.asarray(condition, np.bool_))
    if not len(failing):
        return
    machine = call.machine
    row = int(records) + 8 * ROW * int(call.attrs["site"])
    every = row + 8 * np.arange(ROW, dtype=np.int64)
    words = machine.load(every, np.dtype(np.int64), None)
    program = [machine.program_id(axis) for axis in range(3)]
    number = 1 + program[0] + machine.num_programs(0) * (program[1] + machine.num_programs(1) * program[2])
    if not words[COUNT]:
        first = tuple(failing[0])
        words[FIRST] = number
        values = [int(np.asarray(value)[first]) for value in shown]
        values, place = (values[:MOST_SHOWN], [*first]) if first else (values[:MOST_SHOWN], values[MOST_SHOWN:])
        for at, found in ((PROGRAM, program), (SHOWN, values), (PLACE, place)):
            words[at : at + len(found)] = found
    words[PROGRAMS] += words[LAST_PROGRAM] != number
    words[LAST_PROGRAM] = number
    words[COUNT] += len(failing)
    machine.store(every, words, None)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    records: Any = np.zeros(1, np.int64)
    kinds = (tile_type((4,), i1), pointer_type(i64))
    yield Sample((np.ones(4, bool), records[0]), kinds, {"site": 0})
    wrong = (tile_type((4,), i64), pointer_type(i64))
    yield Sample((np.zeros(4, np.int64), records[0]), wrong, {"site": 0}, error="must be int1")


register(OpSpec(CheckOp, _infer, _reference, _samples, summary="record where a condition does not hold"))
