"""Loops that carry tiles of pointers become loops that carry one scalar offset.

    for .. iter_args(%p = %p0)                 for .. iter_args(%o = 0 : i64)
      use %p                                     %p = addptr %p0, splat %o
      yield addptr(%p, splat %s)         ->      use %p
                                                 yield %o + %s
    %r                                         %r = addptr %p0, splat %o_end

The same for integer tiles that are advanced by `addi`. Increments must be the same for all elements; they may differ
from iteration to iteration. After the rewrite the address of every iteration is affine in the loop's scalars.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis.uniform import scalar_of
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import reached
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import bit_width, element_type, i32, i64, is_float, is_integer, is_pointer, with_element
from tilewright.ir.values import defining_op, is_tile, users_of
from tilewright.ir.walk import every
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp, WhileOp
from tilewright.ops.elementwise import AddIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import loop_carrying
from tilewright.passes.subjects import CARRIED


@dataclass(slots=True)
class _Carried:
    """A carried tile that only moves: its number among the iter_args, and the uniform increments of an iteration."""

    number: int
    increments: list[SSAValue | int]


def make_offsets_scalar(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all `scf.for` loops of a function, inner ones first; says whether anything changed."""
    loops = every(function, ForOp, WhileOp)
    changed = False
    for loop in reversed(loops):
        found = []
        arguments = loop.regions[-1].block.args
        for number, argument in enumerate(arguments[isinstance(loop, ForOp) :]):  # a counter comes first
            answer = _recognise(loop, argument, number)
            if isinstance(answer, Yes) or _moves(argument):
                carried = decisions.note(CARRIED, _advance(loop, number), answer)
                found += [carried] if carried is not None else []
        if found and isinstance(loop, ForOp):
            _rewrite(loop, found)
            changed = True
    return changed


def _recognise(loop: ForOp | WhileOp, argument: SSAValue, number: int) -> Answer[_Carried]:
    """How a loop moves a tile that it carries, if it moves all elements by one scalar."""
    element = element_type(argument.type)
    if not is_tile(argument) or not (is_pointer(element) or (is_integer(element) and bit_width(element) >= 32)):
        return No("it is no tile of pointers or of wide integers")
    if isinstance(loop, WhileOp):
        return No("only for loops are known to move a tile alike in every iteration", loop, "for k in tl.range(...)")
    advance = AddPtrOp if is_pointer(element) else AddIOp
    value = _yielded(loop, number)
    increments: list[SSAValue | int] = []
    while value is not argument:
        op = defining_op(value)
        if not isinstance(op, advance):
            return No("it is not the old tile plus something", op, "pointers += step")
        step = scalar_of(op.operands[1])
        value = op.operands[0]
        if step is None:
            return No("the step differs between elements", op, "pointers += step, with one step for all")
        increments.append(step)
    return Yes(_Carried(number, increments), "one offset instead of a tile")


def _yielded(loop: Operation, number: int) -> SSAValue:
    """What the next iteration gets as its value `number`."""
    last = loop.regions[-1].block.last_op
    assert last is not None
    return last.operands[number]


def _advance(loop: Operation, number: int) -> Operation:
    """Where a carried value changes."""
    return defining_op(_yielded(loop, number)) or loop


def _moves(argument: SSAValue) -> bool:
    """Whether addresses are made of a carried tile."""
    if not is_tile(argument) or is_float(element_type(argument.type)):
        return False

    def made_of_it(value: SSAValue) -> list[SSAValue]:
        return [result for user in users_of(value) if is_removable(user) for result in user.results]

    return any(is_pointer(element_type(value.type)) for value in reached([argument], made_of_it))


def _rewrite(loop: ForOp, found: list[_Carried]) -> None:
    """Replace the carried tiles of `found` by offsets."""
    body, block = loop.body.block, loop.parent
    assert block is not None
    last = body.last_op
    assert last is not None
    firsts = list(loop.iter_args)
    for carried in found:
        first, argument = firsts[carried.number], body.args[carried.number + 1]
        t = _offset_type(argument.type)
        start = ConstantOp.of(0, t)
        block.insert_op_before(start, loop)
        offset = body.insert_arg(t, carried.number + 1)
        moved = _moved(first, offset)
        anchor = body.first_op
        assert anchor is not None
        body.insert_ops_before(moved, anchor)
        argument.replace_all_uses_with(moved[-1].results[0])
        body.erase_arg(argument)
        firsts[carried.number] = start.results[0]
        last.operands[carried.number] = _advanced(body, last, offset, carried.increments)
    new = loop_carrying(loop, firsts)
    _replace_results(block, loop, new, {carried.number for carried in found})
    block.erase_op(loop)


def _replace_results(block: Block, old: ForOp, new: ForOp, moved: set[int]) -> None:
    """Users of the old loop's results read the new one's, or the first tile moved by the final offset."""
    for number, (result, replacement) in enumerate(zip(old.results, new.results, strict=True)):
        if number not in moved:
            result.replace_all_uses_with(replacement)
        elif result.uses:
            ops = _moved(old.iter_args[number], replacement)
            block.insert_ops_before(ops, old)
            result.replace_all_uses_with(ops[-1].results[0])


def _offset_type(type_: Attribute) -> Attribute:
    element = element_type(type_)
    return i64 if is_pointer(element) else element


def _moved(first: SSAValue, offset: SSAValue) -> list[Operation]:
    """Operations that compute the tile `first` moved by a scalar."""
    splat = SplatOp.create(operands=[offset], result_types=[with_element(first.type, offset.type)])
    step = AddPtrOp if is_pointer(element_type(first.type)) else AddIOp
    return [splat, step.create(operands=[first, splat.results[0]], result_types=[first.type])]


def _advanced(body: Block, last: Operation, offset: SSAValue, increments: list[SSAValue | int]) -> SSAValue:
    """The offset of the next iteration."""
    for increment in increments:
        ops: list[Operation] = []
        if isinstance(increment, int):
            ops.append(ConstantOp.of(increment, offset.type))
            value: SSAValue = ops[-1].results[0]
        elif increment.type == i32 and offset.type == i64:
            ops.append(ExtSIOp.create(operands=[increment], result_types=[i64]))
            value = ops[-1].results[0]
        else:
            value = increment
        ops.append(AddIOp.create(operands=[offset, value], result_types=[offset.type]))
        body.insert_ops_before(ops, last)
        offset = ops[-1].results[0]
    return offset
