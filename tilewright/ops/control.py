"""Structured control flow: `scf.for`, `scf.if`, `scf.while`, and the loop markers of the language.

Text forms are Triton's. The evaluator of `backends/reference` walks the regions; there is no numpy
reference per operation. `range`, `static_range` and `condition` mark loops for the front end.

    scf.for:   iv = lb; while iv < ub: xs = body(iv, xs); iv += step        step > 0; any but 0 if marked ANY_STEP
    scf.while: loop: (c, ys) = before(xs); if not c: return ys; xs = after(ys)
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure, RecursivelySpeculatable, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from tilewright.base.builtin import is_interpreting
from tilewright.base.errors import DTypeError, LanguageTypeError, OutsideKernelError
from tilewright.ir.asm import (
    FLAG,
    FlatOp,
    make,
    parse_signature,
    parse_type_list,
    print_attrs,
    print_operands,
    print_signature,
    print_types,
    resolve,
)
from tilewright.ir.op import TileOp
from tilewright.ir.types import i1, is_integer
from tilewright.ir.values import operands_of
from tilewright.ops.function import (
    BranchOp,
    CallOp,
    CondBranchOp,
    FuncOp,
    PoisonOp,
    ReturnOp,
    TerminatorOp,
    UnreachableOp,
    infer_asked,
    infer_condition_first,
    infer_nothing,
    register_control,
)
from tilewright.ops.spec import Call
from tilewright.ops.values import unwrap

ANY_STEP = "tt.any_step"
"""Marks an `scf.for` of which only a run tells which way it counts; `passes/unit_loops.py` leaves none of them."""


@irdl_op_definition
class YieldOp(TerminatorOp):
    """End of a body of `scf.for`, `scf.if` or of the second region of `scf.while`."""

    name = "scf.yield"
    arguments = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())


@irdl_op_definition
class ConditionOp(FlatOp):
    """End of the first region of `scf.while`: whether to go on, and the values handed over."""

    name = "scf.condition"
    cond = operand_def(i1)
    arguments = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())

    @classmethod
    def parse(cls, parser: Parser) -> ConditionOp:
        with parser.in_parens():
            cond = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        operands = [cond]
        types: list[Attribute] = [i1]
        first = parser.parse_optional_unresolved_operand()
        if first is not None:
            operands.append(first)
            while parser.parse_optional_punctuation(",") is not None:
                operands.append(parser.parse_unresolved_operand())
            parser.parse_punctuation(":")
            types += parse_type_list(parser)
        return make(cls, resolve(parser, operands, types), (), attributes)

    def print(self, printer: Printer) -> None:
        with printer.in_parens():
            printer.print_operand(self.cond)
        print_attrs(printer, self)
        if self.arguments:
            printer.print_string(" ")
            print_operands(printer, self.arguments)
            printer.print_string(" : ")
            print_types(printer, [a.type for a in self.arguments])


@dataclass(frozen=True, slots=True)
class Flow:
    """Values that become others where control flow goes from one block to the next, one each.

    Args:
        op: that hands them on: a loop before its first iteration, or the end of a region.
        start: number of its first operand that goes on.
        targets: what they become.
    """

    op: Operation
    start: int
    targets: Sequence[SSAValue]

    @property
    def sources(self) -> Sequence[SSAValue]:
        return operands_of(self.op)[self.start :]


class ControlOp(FlatOp):
    """An operation whose regions are code of the kernel: a loop or a branch."""

    def flows(self) -> list[Flow]:
        """Where the values come from that its results and the arguments of its regions may be."""
        raise NotImplementedError


class LoopOp(ControlOp):
    """A loop, which has values that go on from one iteration to the next."""

    @property
    def firsts(self) -> Sequence[SSAValue]:
        """What the first iteration begins with."""
        raise NotImplementedError

    @property
    def carried(self) -> Sequence[SSAValue]:
        """What an iteration begins with, for each of `firsts`."""
        raise NotImplementedError


def _end(region: Region) -> Operation:
    """The terminator of a region of one block."""
    last = region.block.last_op
    assert last is not None
    return last


def _parse_body(parser: Parser, args: Sequence[Parser.Argument] | None = None) -> Region:
    """A region whose `scf.yield` without operands may be left out of the text."""
    region = parser.parse_region(args)
    block = region.blocks.last
    if block is None:
        block = Block()
        region.add_block(block)
    if block.last_op is None or not block.last_op.has_trait(IsTerminator):
        block.add_op(YieldOp.create())
    return region


def _parse_carried(parser: Parser) -> tuple[list[Parser.UnresolvedArgument], list[UnresolvedOperand]]:
    """`(%a = %x, %b = %y)`: names of region arguments and their first values."""

    def pair() -> tuple[Parser.UnresolvedArgument, UnresolvedOperand]:
        arg = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        return arg, parser.parse_unresolved_operand()

    pairs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, pair)
    return [arg for arg, _ in pairs], [operand for _, operand in pairs]


def _print_carried(printer: Printer, args: Sequence[SSAValue], firsts: Sequence[SSAValue]) -> None:
    def pair(both: tuple[SSAValue, SSAValue]) -> None:
        printer.print_ssa_value(both[0])
        printer.print_string(" = ")
        printer.print_ssa_value(both[1])

    with printer.in_parens():
        printer.print_list(list(zip(args, firsts, strict=True)), pair)


def _verify_yield(op: TileOp, region: Region, expected: Sequence[Attribute]) -> None:
    block = region.blocks.last
    last = None if block is None else block.last_op
    if not isinstance(last, YieldOp):
        raise VerifyException(f"a body of {op.name} does not end with scf.yield")
    if tuple(last.operand_types) != tuple(expected):
        raise VerifyException(f"scf.yield of {op.name} hands over types that differ from its results")


@irdl_op_definition
class ForOp(LoopOp):
    """Counted loop; the body gets the counter and the carried values and yields their next values."""

    name = "scf.for"
    lb = operand_def()
    ub = operand_def()
    step = operand_def()
    iter_args = var_operand_def()
    res = var_result_def()
    body = region_def("single_block")
    unsignedCmp = opt_prop_def()
    traits = traits_def(RecursiveMemoryEffect())

    ATTRS: ClassVar = {"unsignedCmp": FLAG}

    @property
    def induction_var(self) -> SSAValue:
        return self.body.block.args[0]

    @property
    def firsts(self) -> Sequence[SSAValue]:
        return self.iter_args

    @property
    def carried(self) -> Sequence[SSAValue]:
        """The body's arguments after the counter."""
        return self.body.block.args[1:]

    @property
    def yielded(self) -> Sequence[SSAValue]:
        """What an iteration hands on, for each of `carried` its next value."""
        return _end(self.body).operands

    def flows(self) -> list[Flow]:
        last = _end(self.body)
        return [Flow(op, start, to) for to in (self.results, self.carried) for op, start in ((self, 3), (last, 0))]

    @classmethod
    def parse(cls, parser: Parser) -> ForOp:
        unsigned = parser.parse_optional_keyword("unsigned") is not None
        counter = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        bounds = [parser.parse_unresolved_operand()]
        for keyword in ("to", "step"):
            parser.parse_keyword(keyword)
            bounds.append(parser.parse_unresolved_operand())
        args: list[Parser.UnresolvedArgument] = []
        firsts: list[UnresolvedOperand] = []
        types: list[Attribute] = []
        if parser.parse_optional_keyword("iter_args") is not None:
            args, firsts = _parse_carried(parser)
            parser.parse_punctuation("->")
            types = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        parser.parse_punctuation(":")
        counter_type = parser.parse_type()
        operands = resolve(parser, [*bounds, *firsts], [counter_type] * 3 + types)
        named = [counter.resolve(counter_type), *(a.resolve(t) for a, t in zip(args, types, strict=True))]
        region = _parse_body(parser, named)
        properties = {"unsignedCmp": FLAG.encode(True)} if unsigned else {}
        return make(cls, operands, types, parser.parse_optional_attr_dict(), properties, [region])  # type: ignore[arg-type]

    def print(self, printer: Printer) -> None:
        printer.print_string(" unsigned " if self.unsignedCmp is not None else " ")
        printer.print_ssa_value(self.induction_var)
        for text, value in ((" = ", self.lb), (" to ", self.ub), (" step ", self.step)):
            printer.print_string(text)
            printer.print_operand(value)
        if self.iter_args:
            printer.print_string(" iter_args")
            _print_carried(printer, self.carried, self.iter_args)
            printer.print_string(" -> ")
            with printer.in_parens():
                print_types(printer, self.result_types)
        printer.print_string("  : ")
        printer.print_attribute(self.induction_var.type)
        printer.print_string(" ")
        _print_body(printer, self.body, yields=bool(self.iter_args))
        print_attrs(printer, self, ("unsignedCmp",))

    def verify_(self) -> None:
        expected = [self.lb.type, *(a.type for a in self.iter_args)]
        if [a.type for a in self.body.block.args] != expected or list(self.result_types) != expected[1:]:
            raise VerifyException("body arguments, carried values and results of scf.for differ in type")
        _verify_yield(self, self.body, self.result_types)


def _print_body(printer: Printer, region: Region, *, yields: bool) -> None:
    printer.print_region(region, print_entry_block_args=False, print_empty_block=False, print_block_terminators=yields)


@irdl_op_definition
class IfOp(ControlOp):
    """One of two bodies; with results, both yield them."""

    name = "scf.if"
    cond = operand_def(i1)
    res = var_result_def()
    then_region = region_def("single_block")
    else_region = region_def()
    traits = traits_def(RecursiveMemoryEffect(), RecursivelySpeculatable())

    def flows(self) -> list[Flow]:
        return [Flow(_end(region), 0, self.results) for region in self.regions if region.blocks]

    @classmethod
    def parse(cls, parser: Parser) -> IfOp:
        cond = resolve(parser, [parser.parse_unresolved_operand()], [i1])
        results: list[Attribute] = []
        if parser.parse_optional_punctuation("->") is not None:
            results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        then_region = _parse_body(parser)
        else_region = _parse_body(parser) if parser.parse_optional_keyword("else") is not None else Region()
        return make(cls, cond, results, parser.parse_optional_attr_dict(), regions=[then_region, else_region])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_operand(self.cond)
        if self.res:
            printer.print_string(" -> ")
            with printer.in_parens():
                print_types(printer, self.result_types)
        printer.print_string(" ")
        _print_body(printer, self.then_region, yields=bool(self.res))
        if self.else_region.blocks:
            printer.print_string(" else ")
            _print_body(printer, self.else_region, yields=bool(self.res))
        print_attrs(printer, self)

    def verify_(self) -> None:
        _verify_yield(self, self.then_region, self.result_types)
        if self.else_region.blocks:
            _verify_yield(self, self.else_region, self.result_types)
        elif self.res:
            raise VerifyException("scf.if has results but no else body")


@irdl_op_definition
class WhileOp(LoopOp):
    """Loop with a condition computed before each iteration."""

    name = "scf.while"
    inits = var_operand_def()
    res = var_result_def()
    before = region_def("single_block")
    after = region_def("single_block")
    traits = traits_def(RecursiveMemoryEffect())

    @property
    def firsts(self) -> Sequence[SSAValue]:
        return self.inits

    @property
    def carried(self) -> Sequence[SSAValue]:
        return self.before.block.args

    def flows(self) -> list[Flow]:
        asked = _end(self.before)
        goes_on = [Flow(asked, 1, to) for to in (self.results, self.after.block.args)]
        return [*goes_on, Flow(self, 0, self.carried), Flow(_end(self.after), 0, self.carried)]

    @classmethod
    def parse(cls, parser: Parser) -> WhileOp:
        args: list[Parser.UnresolvedArgument] = []
        firsts: list[UnresolvedOperand] = []
        if parser.parse_optional_punctuation(":") is None:
            args, firsts = _parse_carried(parser)
            parser.parse_punctuation(":")
        inputs, outputs = parse_signature(parser)
        operands = resolve(parser, firsts, inputs)
        before = parser.parse_region([a.resolve(t) for a, t in zip(args, inputs, strict=True)])
        parser.parse_keyword("do")
        after = _parse_body(parser)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        return make(cls, operands, outputs, attributes.data if attributes else None, regions=[before, after])

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        if self.inits:
            _print_carried(printer, self.before.block.args, self.inits)
            printer.print_string(" ")
        printer.print_string(": ")
        print_signature(printer, self.operand_types, self.result_types)
        printer.print_string(" ")
        printer.print_region(self.before, print_entry_block_args=False)
        printer.print_string(" do ")
        printer.print_region(self.after)
        print_attrs(printer, self, keyword=True)

    def verify_(self) -> None:
        if [a.type for a in self.before.block.args] != list(self.operand_types):
            raise VerifyException("arguments of the first body of scf.while differ from its operands")
        if [a.type for a in self.after.block.args] != list(self.result_types):
            raise VerifyException("arguments of the second body of scf.while differ from its results")
        last = self.before.block.last_op
        if not isinstance(last, ConditionOp) or [a.type for a in last.arguments] != list(self.result_types):
            raise VerifyException("scf.condition must end the first body and hand over the types of the results")
        _verify_yield(self, self.after, self.operand_types)


# --- specs ------------------------------------------------------------------------------------------------------


def _infer_for(call: Call) -> Sequence[Attribute]:
    lb, ub, step, *carried = call.operand_types
    if lb is None or not lb == ub == step or not is_integer(lb):
        raise DTypeError(f"For loop bounds and step must all be ints of one type, are ({lb}, {ub}, {step})")
    return [t for t in carried if t is not None]


register_control(ForOp, _infer_for, "counted loop with carried values")
register_control(IfOp, infer_condition_first, "one of two bodies")
register_control(WhileOp, infer_asked, "loop with a condition computed before each iteration")
register_control(YieldOp, infer_nothing, "end of a body of structured control flow")
register_control(ConditionOp, infer_condition_first, "end of the first body of scf.while")


# --- loops of the language ------------------------------------------------------------------------------------------


class range:
    """Loop counter of a run-time loop: ``for i in tl.range(0, n, 2):``.

    Args:
        arg1: start; the end when `arg2` is absent.
        arg2: end, exclusive.
        step: step, negative to count down; 0, if only a run finds it, makes no iteration, and fails with `debug`.
        num_stages: depth of the software pipeline (GPU).
        loop_unroll_factor: unroll the loop so many times.
        disallow_acc_multi_buffer: do not double-buffer a dot's accumulator (GPU).
        flatten: merge with the loop inside (GPU).
        warp_specialize: split the body between warps (GPU).
        disable_licm: do not move invariant code out of the loop.
    """

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: Any = None,
        loop_unroll_factor: Any = None,
        disallow_acc_multi_buffer: Any = False,
        flatten: Any = False,
        warp_specialize: Any = False,
        disable_licm: Any = False,
    ) -> None:
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step
        self.num_stages = num_stages
        self.loop_unroll_factor = loop_unroll_factor
        self.disallow_acc_multi_buffer = disallow_acc_multi_buffer
        self.flatten = flatten
        self.warp_specialize = warp_specialize
        self.disable_licm = disable_licm

    def __iter__(self) -> Iterator[Any]:
        """For functions such as `enumerate` in a kernel that runs as Python."""
        bounds = [unwrap(value) for value in (self.start, self.end, self.step)]
        if is_interpreting() and all(isinstance(value, int) for value in bounds):
            return iter(builtins.range(*bounds))
        raise OutsideKernelError("tl.range can only be used in @jit'd functions")


class static_range:
    """Loop counter of a loop that is unrolled; the counter is a constexpr.

    Args:
        arg1: start; the end when `arg2` is absent.
        arg2: end, exclusive.
        step: step.
    All three must be compile-time constants, else `LanguageTypeError`.
    """

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None) -> None:
        start, end = (0, arg1) if arg2 is None else (arg1, arg2)
        self.start = self._constant(start, "start")
        self.end = self._constant(end, "end")
        self.step = self._constant(1 if step is None else step, "step")

    @staticmethod
    def _constant(value: Any, role: str) -> int:
        value = unwrap(value)
        if not isinstance(value, int):
            raise LanguageTypeError(
                f"{value} used as tl.static_range {role} value is not a constexpr",
                hint="pass a tl.constexpr, or loop with tl.range",
            )
        return value

    def __iter__(self) -> Iterator[Any]:
        raise OutsideKernelError("tl.static_range can only be used in @jit'd functions")


class condition:
    """Condition of a `while` loop with options: ``while tl.condition(i < n, disable_licm=True):``.

    Args:
        arg1: the condition, a scalar.
        disable_licm: do not move invariant code out of the loop.
    """

    def __init__(self, arg1: Any, disable_licm: Any = False) -> None:
        self.condition = arg1
        self.disable_licm = disable_licm


__all__ = [
    "BranchOp", "CallOp", "CondBranchOp", "ConditionOp", "ControlOp", "Flow", "ForOp", "FuncOp", "IfOp", "LoopOp",
    "PoisonOp", "ReturnOp", "UnreachableOp", "WhileOp", "YieldOp", "condition", "range", "static_range",
]  # fmt: skip
