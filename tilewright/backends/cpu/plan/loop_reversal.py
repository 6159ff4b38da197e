"""Loop reversal: loops of dots that go through K downwards go upwards.

    for %i = 0 to %n: iter_args(%s)                          for %i = 0 to %n: iter_args(%s)
      %k = %K - 64 - 64 * %i                                   %r = %n - 1 - %i
      %s' = tt.dot A[:, %k ..], B[%k .., :], %s       ->       %k = %K - 64 - 64 * %r
      yield %s'                                                %s' = tt.dot A[:, %k ..], B[%k .., :], %s

Iterations that only add up dots may run in any order: sums are added in another one, as reductions are. Upwards, the
operands of one iteration lie behind those of the iteration before, and `k_strip_mining.py` takes several as one.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.iterations import is_unit
from tilewright.analysis.matrices import memory_operand
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.backends.cpu.plan.subjects import REVERSED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import is_integer, shape_of
from tilewright.ir.values import is_tile
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddIOp, MulIOp, SubIOp
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.rewriting import value_before
from tilewright.passes.trip_count import Preheader

_Gains = dict[int, Poly]  # by numbers of carried scalars


def reverse_loops(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether anything changed."""
    changed = False
    for dot in [op for op in walk(function) if isinstance(op, DotOp)]:
        loop = dot.parent_op()
        if isinstance(loop, ForOp) and is_unit(loop) and _goes_down(loop, dot):
            gains = decisions.note(REVERSED, loop, _order_is_free(loop, dot))
            if gains is not None:
                _reverse(loop, gains)
                changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _goes_down(loop: ForOp, dot: DotOp) -> bool:
    """Whether an operand of an iteration lies before that of the iteration before, and none behind it."""
    evolution, ways = ScalarEvolution(loop), set[int]()
    for value, dim in ((dot.a, 1), (dot.b, 0)):
        answer = memory_operand(value, (), AffineAnalysis(lambda value: False))  # none has a batch
        if isinstance(answer, Yes):
            gain = evolution.gain(answer.plan.offset)
            whole = evolution.expanded(answer.plan.strides[dim] * Poly.of(shape_of(value.type)[dim]))
            if gain is not None and whole is not None:
                ways.add(-1 if gain == -whole else int(gain == whole))
    return -1 in ways and 1 not in ways


def _order_is_free(loop: ForOp, dot: DotOp) -> Answer[_Gains]:
    """Whether the iterations may run in any order, and what carried scalars gain in each."""
    body, evolution, gains = loop.body.block, ScalarEvolution(loop), _Gains()
    last = body.last_op
    assert last is not None
    for op in body.ops:
        if op is not last and (op.regions or not is_removable(op)):
            return No(f"the loop also has {describe_op(op)}", op)
    for number, (argument, value, result) in enumerate(zip(loop.carried, last.operands, loop.results, strict=True)):
        if value is dot.d and argument is dot.c and argument.has_one_use() and dot.d.has_one_use():
            continue
        gain = evolution.gain(Poly.atom(argument)) if is_integer(argument.type) and not is_tile(argument) else None
        if gain is None or result.first_use is not None:
            return No("the loop carries more than the dot's sum and scalars that grow evenly", loop)
        gains[number] = gain
    return Yes(gains, "counts up, through operands that lie side by side")


def _reverse(loop: ForOp, gains: _Gains) -> None:
    """Let the number of an iteration be that of the last one less its own."""
    preheader, start = Preheader(loop, loop.ub.type), loop.body.block.first_op
    assert start is not None
    index = loop.induction_var
    left = _made(SubIOp, preheader.apply(SubIOp, loop.ub, 1), index, start)
    index.replace_uses_with_if(left, lambda use: use.operation is not left.owner)
    for number, gain in gains.items():
        argument, first = loop.carried[number], loop.iter_args[number]
        outside = Preheader(loop, argument.type)
        place = Preheader(start, argument.type).converted(left)
        way = _made(MulIOp, place, outside.sum(gain), start)
        argument.replace_all_uses_with(_made(AddIOp, way, first, start))


def _made(kind: type[Operation], a: SSAValue, b: SSAValue, anchor: Operation) -> SSAValue:
    return value_before(kind.create(operands=[a, b], result_types=[a.type]), anchor)
