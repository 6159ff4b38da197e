"""Unrolling: loops of a few iterations that add up tiles are written out, iteration after iteration.

    for %d = 0 .. 5: iter_args(%s = 0[n])             %1 = addf 0, (tt.load .. 0 ..)
      %s' = addf %s, (tt.load .. %d ..)         ->    %2 = addf %1, (tt.load .. 1 ..)
      yield %s'                                       ...

A tile that a loop carries lies in scratch between the iterations. Where every operation of the body is computed where
its result is wanted, all iterations become one pass over the elements, and the sums stay in registers. Windows,
convolutions and sums over a few parts are written like this.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.subjects import UNROLLED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.values import is_tile
from tilewright.ir.walk import among, every
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import is_volatile
from tilewright.passes.building import Builder
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import replace


def unroll_short_loops(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function, inner ones first; says whether anything changed."""
    changed = False
    loops = [op for op in every(function, ForOp) if any(map(is_tile, op.results))]
    for loop in reversed(loops):
        if any(among(loop.body.block.ops, DotOp)):  # has planners of its own
            continue
        iterations = _iterations(loop)
        if iterations is not None and decisions.note(UNROLLED, loop, _short(loop, iterations)) is not None:
            _unroll(loop, iterations)
            changed = True
    if changed:  # what a counter was part of is a number now, and several iterations load and compute the same
        canonicalize(function)
        eliminate_common_subexpressions(function)
        eliminate_dead_code(function)
    return changed


def _iterations(loop: ForOp) -> range | None:
    """The values of the counter, if they are known and few."""
    lower, upper, step = (constant_of(bound) for bound in loop.operands[:3])
    if not (isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int)) or step < 1:
        return None
    iterations = range(lower, upper, step)
    return iterations if loop.unsignedCmp is None and len(iterations) <= tuning.UNROLLED_ITERATIONS else None


def _short(loop: ForOp, iterations: range) -> Answer[range]:
    """Whether a loop should be written out."""
    body = [op for op in loop.body.block.ops if op is not loop.body.block.last_op]
    for op in body:
        if not is_lazy(op) or is_volatile(op):
            return No(f"each iteration has a pass of its own for {describe_op(op)}", op)
    if len(iterations) * len(body) > tuning.UNROLLED_OPERATIONS:
        return No(f"that would be more than {tuning.UNROLLED_OPERATIONS} operations")
    return Yes(iterations, "all iterations are one pass over the elements")


def _unroll(loop: ForOp, iterations: range) -> None:
    body, carried = loop.body.block, list(loop.iter_args)
    last = body.last_op
    assert last is not None
    for number in iterations:
        counter = Builder(loop).number(number, loop.induction_var.type)
        values: dict[SSAValue, SSAValue] = dict(zip(body.args, (counter, *carried), strict=True))
        for op in body.ops:
            if op is not last:
                Builder(loop).copy(op, values)
        carried = [values.get(value, value) for value in last.operands]
    replace(loop, carried)
