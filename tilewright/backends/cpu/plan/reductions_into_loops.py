"""Reductions moved into loops: tiles that a loop adds up and that are reduced after it.

    for ..: iter_args(%s = %first[m, n])            %f = tt.reduce (axis = 1, maxnumf) %first
      %s' = maxnumf %s, %v                          for ..: iter_args(%t = %f[m])
      yield %s'                              ->       %t' = maxnumf %t, (tt.reduce (axis = 1, maxnumf) %v)
    }                                                 yield %t'
    tt.reduce (axis = 1, maxnumf) %s                }

The tile lies in scratch, read and written in every iteration; what is reduced in an iteration stays in registers. That
pays unless the lanes of many short rows would be folded in every iteration. The choice `where(m, s + v, s)` of a sum
counts as `v` where `m` holds. Sums are added in another order, as reductions are.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.lanes import loaded_along
from tilewright.backends.cpu.plan.subjects import REDUCED_IN_LOOP
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import bit_width, element_type, shape_of
from tilewright.ir.values import defining_op, property_int
from tilewright.ir.walk import walk
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.elementwise import AddFOp, FmaOp, MulFOp, SelectOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.spec import spec_of
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before, loop_carrying, replace, value_before


@dataclass(slots=True)
class Carried:
    """A tile that is reduced after its loop.

    Args:
        loop, number: which of the loop's carried tiles it is.
        reduction: of the loop's result.
        last: what the loop hands on.
        added: what makes a new tile of the carried one: the reduction's operation, or a multiply-add.
        mask: where it does; None for everywhere.
    """

    loop: ForOp
    number: int
    reduction: ReduceOp
    last: Operation
    added: Operation
    mask: SSAValue | None


def move_reductions_into_loops(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether anything changed."""
    changed = False
    for op in [op for op in walk(function) if isinstance(op, ReduceOp)]:
        found = carried_by(op)
        if found is not None and decisions.note(REDUCED_IN_LOOP, op, _pays(found)) is not None:
            reduce_each(found)
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def carried_by(op: ReduceOp) -> Carried | None:
    """The carried tile that a reduction, and nothing else, reads."""
    loop, kind = defining_op(op.operands[0]), single_operation(op.regions[0].block)
    if not isinstance(loop, ForOp) or kind is None or spec_of(kind).monoid is None or not op.operands[0].has_one_use():
        return None
    number = loop.results.index(op.operands[0])
    argument, end = loop.carried[number], loop.body.block.last_op
    assert end is not None
    last = defining_op(end.operands[number])
    if last is None or last.parent is not loop.body.block or not last.results[0].has_one_use():
        return None
    added, mask = last, None
    if isinstance(last, SelectOp) and last.operands[2] is argument:
        inner = defining_op(last.operands[1])
        if inner is None or inner.parent is not loop.body.block or not inner.results[0].has_one_use():
            return None
        added, mask = inner, last.operands[0]
    reads = {use.operation for use in argument.uses}
    if reads != ({last, added} if mask is not None else {added}) or not _adds(added, argument, kind):
        return None
    return Carried(loop, number, op, last, added, mask)


def _adds(op: Operation, argument: SSAValue, kind: Operation) -> bool:
    """Whether an operation combines a carried tile with something, as `kind` does."""
    if isinstance(op, FmaOp):
        return isinstance(kind, AddFOp) and op.operands[2] is argument and argument not in op.operands[:2]
    return type(op) is type(kind) and list(op.operands).count(argument) == 1


def _pays(found: Carried) -> Answer[Carried]:
    """Whether what is folded in each iteration is less than what is read and written."""
    axis, tile = property_int(found.reduction, "axis"), found.reduction.operands[0]
    shape = shape_of(tile.type)
    if shape[axis] >= tuning.FOLDED_ROW:
        return Yes(found, "its rows are long")
    along = loaded_along(found.last.results[0], {}, AffineAnalysis(lambda value: False))
    if along == axis:
        return No("the lanes of each row would be folded in every iteration")
    return Yes(found, "its lanes are kept apart")


def reduce_each(found: Carried) -> None:
    """Let a loop reduce what it adds up in each iteration."""
    loop, number, body = found.loop, found.number, found.loop.body.block
    argument, kind = body.args[number + 1], found.reduction.results[0].type
    start = _reduced(found, loop.iter_args[number], loop)
    loop.operands[number + 3] = start
    total = _reduced(found, _term(found), found.last)
    new = body.insert_arg(kind, argument.index)
    combine = single_operation(found.reduction.regions[0].block)
    assert combine is not None
    made = type(combine).create(operands=[new, total], result_types=[kind], properties=dict(combine.properties))
    insert_before(made, found.last)
    replace(found.last, [made.results[0]])
    if found.mask is not None:
        replace(found.added, [made.results[0]])  # which nobody reads
    body.erase_arg(argument)
    results = list(loop_carrying(loop, loop.iter_args).results)
    replace(found.reduction, [results[number]])
    replace(loop, results)


def added_by(found: Carried) -> SSAValue:
    """What an iteration adds, where it does."""
    op, argument = found.added, found.loop.carried[found.number]
    if isinstance(op, FmaOp):
        product = MulFOp.create(operands=op.operands[:2], result_types=[op.results[0].type])
        return value_before(product, found.last)
    return op.operands[1] if op.operands[0] is argument else op.operands[0]


def _term(found: Carried) -> SSAValue:
    """What an iteration adds: nothing, the neutral element, where the mask does not hold."""
    term = added_by(found)
    if found.mask is None:
        return term
    combine = single_operation(found.reduction.regions[0].block)
    assert combine is not None
    monoid = spec_of(combine).monoid
    assert monoid is not None
    neutral = monoid.identity(bit_width(element_type(term.type)))
    other = value_before(ConstantOp.of(neutral, term.type), found.last)
    chosen = SelectOp.create(operands=[found.mask, term, other], result_types=[term.type])
    return value_before(chosen, found.last)


def _reduced(found: Carried, value: SSAValue, anchor: Operation) -> SSAValue:
    """A tile reduced as the carried one is."""
    op = found.reduction
    made = ReduceOp.create(
        operands=[value],
        result_types=[op.results[0].type],
        properties=dict(op.properties),
        regions=[op.regions[0].clone()],
    )
    return value_before(made, anchor)
