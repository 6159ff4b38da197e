"""Numbers and signs out of sums: what a loop adds up is multiplied once, behind it.

    for ..: iter_args(%s = %0) {                              for ..: iter_args(%t = 0) {
      yield %s - (tt.reduce (addf) (0.5 * %x * %w))    ->       yield %t + (tt.reduce (addf) (%x * %w))
    }                                                         }
                                                              %0 - 0.5 * %t

A sum is linear in what is added, so the number may be anywhere on the way from a factor to the loop's result: before
a reduction, a dot, a view or a choice of zero. Rounding changes as little as by another order of the sum, so only sums
of no order are taken: reductions and dots that a loop adds up, and what a reduction reads behind the loop. A tile to
which a loop adds is rounded as it says. What is 0 keeps its sign: a loop that begins with 0 never comes to -0, so what
it takes away is taken from 0 behind it, and a sum of such differences from 0 too. What reads sums (`reductions.py`,
`dot_loops.py`) need not know of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.base.order import operands_first
from tilewright.ir.types import element_type
from tilewright.ir.values import defining_op, users_of
from tilewright.ir.walk import every
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, FmaOp, MulFOp, NegFOp, SelectOp, SubFOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import ReshapeOp, TransOp, UnsplatOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.fold_dots import fold_into_dots

_LARGEST = 1 << 20  # number that is taken out of a sum, and one over the smallest: neither overflows by it
_VIEWS = (BroadcastOp, ExpandDimsOp, ReshapeOp, SplatOp, TransOp, UnsplatOp)


def take_numbers_out_of_sums(function: FuncOp) -> bool:
    """Rewrite all sums of f32 that the loops of a function add up; says whether anything changed."""
    changed = False
    for loop in reversed(every(function, ForOp)):
        for number in range(len(loop.results)):
            changed |= _scale_behind(loop, number)
    if changed:
        for reduce in every(function, ReduceOp):  # tiles of sums that are folded behind the loop
            result = reduce.results[0]
            by = _number(result)
            if by != 1 and _is_taken(by) and (by > 0 or _has_difference(result)):
                result.replace_all_uses_with(_plus(None, by, _without_number(result), reduce))
        eliminate_dead_code(function)
        fold_into_dots(function)
    return changed


def _is_taken(number: float) -> bool:
    return 1 / _LARGEST <= abs(number) <= _LARGEST


def _scale_behind(loop: ForOp, number: int) -> bool:
    """Let a loop add up what it adds without the number that this is multiplied by."""
    last, result, first = loop.body.block.last_op, loop.results[number], loop.iter_args[number]
    assert last is not None
    end, argument = defining_op(last.operands[number]), loop.carried[number]
    sign, factors = _added(end, argument)
    numbers = [sign, *map(_number, factors)]
    by = math.prod(numbers)
    if {*numbers} <= {1.0} or not _is_taken(by) or all(constant_of(factor) is not None for factor in factors):
        return False
    assert end is not None
    if not end.results[0].has_one_use():  # the loop reads what it has added up so far
        return False
    if not _is_reduced(result) and not any(map(_has_no_order, factors)):
        return False
    left = [value for value in map(_without_number, factors) if constant_of(value) != 1]
    kind = AddFOp if len(left) == 1 else FmaOp
    last.operands[number] = Builder(end).op(kind, *left, argument)
    behind, uses = loop.next_op, list(result.uses)
    if by == 1 or behind is None:
        return True
    loop.operands[3 + number] = Builder(loop).number(0.0, first.type)
    total = _plus(None if constant_of(first) == 0 else first, by, result, behind)
    for use in uses:
        use.operation.operands[use.index] = total
    return True


def _has_no_order(value: SSAValue) -> bool:
    """Whether a value is what a reduction or a dot adds up, times numbers."""
    op = defining_op(value)
    return isinstance(op, ReduceOp | DotOp) or any(map(_has_no_order, _factors(value)))


def _is_reduced(value: SSAValue) -> bool:
    """Whether nobody reads more of a value than a sum of its elements."""
    users = users_of(value)
    return bool(users) and all(
        _is_reduced(op.results[0]) if isinstance(op, _VIEWS) else isinstance(op, ReduceOp) and _is_sum(op)
        for op in users
    )


def _is_sum(op: ReduceOp) -> bool:
    return isinstance(single_operation(op.regions[0].block), AddFOp)


def _taken_from_zero(value: SSAValue) -> SSAValue | None:
    """What a value is the difference of from zero, which is never -0; None if it is none."""
    op = defining_op(value)
    return op.operands[1] if isinstance(op, SubFOp) and constant_of(op.operands[0]) == 0 else None


def _has_difference(value: SSAValue) -> bool:
    """Whether a value is a difference from zero, times numbers."""
    return _taken_from_zero(value) is not None or any(map(_has_difference, _factors(value)))


def _plus(first: SSAValue | None, number: float, value: SSAValue, anchor: Operation) -> SSAValue:
    """`first`, which is 0 if there is none, and a number of times a value that is not -0."""
    b = Builder(anchor)
    if abs(number) != 1:
        value = b.op(MulFOp, value, b.number(abs(number), value.type))
    if first is None and number > 0:
        return value
    return b.op(AddFOp if number > 0 else SubFOp, first or b.number(0.0, value.type), value)


def _added(end: Operation | None, argument: SSAValue) -> tuple[float, Sequence[SSAValue]]:
    """What an operation adds to a carried value: a sign, and factors; none of these if it does something else."""
    if element_type(argument.type) == f32 and argument.has_one_use():
        if isinstance(end, AddFOp) and argument in end.operands:
            return 1.0, [end.operands[1] if end.operands[0] is argument else end.operands[0]]
        if isinstance(end, SubFOp) and end.operands[0] is argument:
            return -1.0, [end.operands[1]]
        if isinstance(end, FmaOp) and end.operands[2] is argument:
            return 1.0, end.operands[:2]
    return 1.0, []


def _factors(value: SSAValue) -> list[SSAValue]:
    """The operands of a value that is the product of some numbers and what it is without the numbers in these."""
    op = defining_op(value)
    if op is None or element_type(value.type) != f32 or constant_of(value) is not None:
        return []
    if isinstance(op, (*_VIEWS, NegFOp)):
        return [op.operands[0]]
    if (taken := _taken_from_zero(value)) is not None:
        return [taken]
    if not value.has_one_use():
        return []
    if isinstance(op, MulFOp):
        return list(op.operands)
    if isinstance(op, SelectOp):
        return [op.operands[1]] if constant_of(op.operands[2]) == 0 else []
    if isinstance(op, ReduceOp):
        return [op.operands[0]] if _is_sum(op) else []
    return [op.a, op.b] if isinstance(op, DotOp) and constant_of(op.c) == 0 else []


def _number(value: SSAValue) -> float:
    """The number that a value is multiplied by."""
    known: dict[SSAValue, float] = {}
    for each in operands_first(value, _factors, known):
        own = constant_of(each) if element_type(each.type) == f32 else None
        is_negated = isinstance(defining_op(each), NegFOp) or _taken_from_zero(each) is not None
        product = math.prod([known[factor] for factor in _factors(each)])
        known[each] = float(own) if own is not None else -product if is_negated else product
    return known[value]


def _without_number(value: SSAValue) -> SSAValue:
    """A value but for the number that it is multiplied by."""
    made: dict[SSAValue, SSAValue] = {}
    for each in operands_first(value, _factors, made):
        op, factors = defining_op(each), _factors(each)
        if constant_of(each) is not None and op is not None and element_type(each.type) == f32:
            made[each] = Builder(op).number(1.0, each.type)
            continue
        ones = [factor for factor in factors if constant_of(made[factor]) != 1]
        if (isinstance(op, MulFOp | NegFOp) or _taken_from_zero(each) is not None) and len(ones) == 1:
            made[each] = made[ones[0]]
        elif op is None or all(made[factor] is factor for factor in factors):
            made[each] = each
        else:
            made[each] = Builder(op).put(op.clone({factor: made[factor] for factor in factors}))
    return made[value]
