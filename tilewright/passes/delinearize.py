"""Delinearization: loops through the iterations of many tiles become a loop of tiles and one of iterations.

    for %t = 0 to %n: iter_args(%k = -1, ..)             for %g = 0 to %n / %p
      %j = select (%k == %p - 1), 0, %k + 1                what the first iteration alone does
      if %j == 0 { a new tile }                            for %j = 0 to %p
      A(%j)                                        ->        A(%j)
      if %j == %p - 1 { store }                            what the last iteration alone does
      yield %j, ..                                       for %t = (%n / %p) * %p to %n: what is left, as it was

A number that begins anew after `%p` iterations may be carried, or be `%t % %p`. One loop for both keeps the pipeline of
a GPU filled; here no planner sees through the branches. Nothing is left in most programs: `%n` is a multiple of `%p`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly, expanded
from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.values import defining_op, is_inside, is_made_inside, result_number
from tilewright.ir.walk import every, operations
from tilewright.ops.control import ForOp, FuncOp, IfOp
from tilewright.ops.elementwise import AddIOp, DivSIOp, MaxSIOp, MulIOp, RemSIOp, SelectOp, SubIOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.induction_variables import simplify_induction_variables
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.loop_peeling import peel_first, peel_last, zero_where
from tilewright.passes.rewriting import erase, replace
from tilewright.passes.subjects import DELINEARIZED
from tilewright.passes.trip_count import COUNTS, Preheader


@dataclass(slots=True)
class _Cycle:
    """A number of a loop's iteration that begins anew.

    Args:
        period: after how many iterations, if that is positive.
        value: the number, in the loop's body.
        carried: which of the carried values it comes from; None if it is a remainder of the counter.
    """

    period: Poly
    value: SSAValue
    carried: int | None


def delinearize_loops(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such `scf.for` loops of a function, inner ones first; says whether anything changed."""
    changed = False
    for loop in reversed(every(function, ForOp)):
        if _cycle(loop) is not None and decisions.note(DELINEARIZED, loop, _nested(loop)) is not None:
            changed = True
    if changed:
        simplify_induction_variables(function)
        hoist_loop_invariants(function)  # what stays the same in the iterations of a tile
        eliminate_dead_code(function)
    return changed


# --- recognising -------------------------------------------------------------------------------------------------


def _cycle(loop: ForOp) -> _Cycle | None:
    """The first number of a loop that begins anew, if it decides what an iteration does."""
    if loop.lb.type not in COUNTS or not is_unit(loop):
        return None
    ops = operations(loop.body.block)
    if not any(isinstance(op, IfOp | SelectOp) for op in ops):
        return None
    last = ops[-1]
    for number, (argument, value) in enumerate(zip(loop.carried, last.operands, strict=True)):
        if argument.type == loop.lb.type and (found := _carried(loop, number, argument, value)) is not None:
            return found
    for op in ops:
        counted = isinstance(op, RemSIOp) and op.operands[0] is loop.induction_var
        if counted and not is_made_inside(op.operands[1], loop):
            return _Cycle(Poly.atom(op.operands[1]), op.results[0], None)
    return None


def _carried(loop: ForOp, number: int, argument: SSAValue, value: SSAValue) -> _Cycle | None:
    """A carried value that is one more in each iteration, and zero again where it would be the period."""
    op = defining_op(value)
    if not isinstance(op, IfOp | SelectOp) or op.parent is not loop.body.block:
        return None
    one_more, sides = Poly.atom(argument) + Poly.of(1), _sides(op, value)
    for left, negated in zero_where(op.operands[0]):
        anew, following = sides[::-1] if negated else sides
        period = left + one_more
        begins_anew = constant_of(anew) == 0 and expanded(Poly.atom(following)) == one_more
        if begins_anew and not any(is_made_inside(atom, loop) for atom in period.atoms()):
            return _begun(loop, number, argument, value, period)
    return None


def _sides(op: Operation, value: SSAValue) -> tuple[SSAValue, SSAValue]:
    if isinstance(op, SelectOp):
        return op.operands[1], op.operands[2]
    at = result_number(value)
    first, second = (region.block.last_op for region in op.regions)
    assert first is not None and second is not None
    return first.operands[at], second.operands[at]


def _begun(loop: ForOp, number: int, argument: SSAValue, value: SSAValue, period: Poly) -> _Cycle | None:
    """Which of the two numbers of an iteration, before and after it is made one more, begins with zero."""
    first = constant_of(loop.iter_args[number])
    if first == 0:
        return _Cycle(period, argument, number)
    return _Cycle(period, value, number) if first == -1 and _is_for_its_next(argument, value) else None


def _is_for_its_next(argument: SSAValue, value: SSAValue) -> bool:
    """Whether a carried number is used for nothing but the next one."""
    op = defining_op(value)
    assert op is not None
    for use in argument.uses:
        user = use.operation
        if user is op or is_inside(user, op):
            continue
        if not all(inner.operation is op for result in user.results for inner in result.uses) or user.regions:
            return False
    return True


# --- rewriting ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Nest:
    """The loops of a nest, and the counts that they go by.

    Args:
        outer, inner: the loops.
        cycle: of the inner one.
        period: iterations of the inner loop.
        groups: iterations of the outer one.
    """

    outer: ForOp
    inner: ForOp
    cycle: _Cycle
    period: SSAValue
    groups: SSAValue


def _nested(loop: ForOp) -> Answer[ForOp]:
    """Make a nest of a loop, if that leaves its iterations without branches."""
    nest = _made(loop)
    inner, preheader = nest.inner, Preheader(nest.outer, loop.lb.type)
    iteration, period = expanded(Poly.atom(inner.induction_var)), nest.cycle.period
    moved, unread = peel_first(inner, iteration)
    simplify_induction_variables(nest.outer)
    counter = preheader.apply(SubIOp, nest.period, 1)
    behind = peel_last(inner, period + -iteration + Poly.of(-1), counter)
    if not moved and behind is None:
        erase(nest.outer)
        return No("no branch is taken in the first or the last iteration of a tile alone", loop)
    last = nest.outer.body.block.last_op
    assert last is not None
    for number, value in (behind or {}).items():
        last.operands[number] = value
    _leave_rest(loop, nest, _ends(nest.outer), unread)
    return Yes(nest.outer, "a loop of tiles, and one of their iterations")


def _made(loop: ForOp) -> _Nest:
    """A nest in front of a loop, whose inner body is a copy of the loop's."""
    preheader, inner = Preheader(loop, loop.lb.type), loop.clone()
    found = _cycle(loop)
    assert found is not None
    period = preheader.sum(found.period)
    positive = _is_positive(period, loop)
    safe = preheader.apply(MaxSIOp, period, 1)
    whole = preheader.apply(DivSIOp, preheader.apply(MaxSIOp, loop.ub, 0), safe)
    groups = preheader.choose(positive, whole, preheader.known(0))
    zero, one = preheader.known(0), preheader.known(1)
    outer = preheader.loop([zero, groups, one], loop.iter_args)
    last = outer.body.block.last_op
    assert last is not None
    outer.body.block.insert_op_before(inner, last)
    inner.operands = [zero, period, one, *outer.carried]
    last.operands = inner.results
    cycle = _count_anew(inner, outer.induction_var, period, found)
    return _Nest(outer, inner, cycle, period, groups)


def _is_positive(value: SSAValue, anchor: Operation) -> SSAValue:
    preheader = Preheader(anchor, value.type)
    return preheader.compare("sgt", value, preheader.known(0))


def _count_anew(inner: ForOp, group: SSAValue, period: SSAValue, found: _Cycle) -> _Cycle:
    """Let the inner loop's counter be the number that begins anew, and what the counter was a sum of both counters."""
    number, counter = found.carried, inner.induction_var
    start = inner.body.block.first_op
    assert start is not None
    begun = Preheader(inner, counter.type).apply(MulIOp, group, period)
    place = Preheader(start, counter.type).apply(AddIOp, begun, counter)
    sum_ = defining_op(place)
    for use in list(counter.uses):
        op = use.operation
        if op is sum_:
            continue
        divides = isinstance(op, RemSIOp | DivSIOp) and use.index == 0
        if number is None and divides and expanded(Poly.atom(op.operands[1])) == expanded(found.period):
            op.results[0].replace_all_uses_with(counter if isinstance(op, RemSIOp) else group)
        else:
            op.operands[use.index] = place
    if number is not None:
        last = inner.body.block.last_op
        assert last is not None
        value = inner.carried[number] if defining_op(found.value) is None else last.operands[number]
        value.replace_all_uses_with(counter)
        last.operands[number] = inner.carried[number]
    return _Cycle(expanded(found.period), counter, number)


def _ends(loop: ForOp) -> list[SSAValue]:
    """What a loop hands behind it: where it begins with a number and hands that on in each iteration, the number."""
    ends: list[SSAValue] = list(loop.results)
    for n, (first, following) in enumerate(zip(loop.iter_args, loop.yielded, strict=True)):
        number = constant_of(first)
        if number is not None and repr(number) == repr(constant_of(following)):  # -0.0 is another
            loop.carried[n].replace_all_uses_with(first)
            ends[n] = first
    return ends


def _leave_rest(loop: ForOp, nest: _Nest, results: list[SSAValue], unread: list[int]) -> None:
    """Let a loop, behind its nest, make the iterations that are left."""
    number = nest.cycle.carried
    for n in unread:  # what is left begins a tile
        if not list(loop.results[n].uses):
            results[n] = loop.iter_args[n]
    preheader = Preheader(loop, loop.lb.type)
    if number is not None:
        begun = loop.iter_args[number]
        if constant_of(begun) != 0:
            done = _is_positive(nest.groups, loop)
            end = preheader.apply(SubIOp, nest.period, 1)
            begun = preheader.choose(done, end, begun)
        results[number] = begun
        last = nest.outer.body.block.last_op
        assert last is not None
        last.operands[number] = nest.outer.carried[number]
    if _is_multiple(loop.ub, nest.cycle.period):
        replace(loop, results)
        return
    loop.operands[0] = preheader.apply(MulIOp, nest.groups, nest.period)
    for n, value in enumerate(results):
        loop.operands[3 + n] = value


def _is_multiple(iterations: SSAValue, period: Poly) -> bool:
    """Whether no iteration is left: the number of iterations is a multiple of a period that is surely positive."""
    by = period.constant
    if by is None or by <= 0:
        return False
    return all(number % by == 0 for number in expanded(Poly.atom(iterations)).terms.values())
