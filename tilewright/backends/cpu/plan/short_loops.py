"""Loops of a few trips that add up tiles are written out, trip after trip.

    for %d = 0 .. 5: iter_args(%s = 0[n])             %1 = addf 0, (tt.load .. 0 ..)
      %s' = addf %s, (tt.load .. %d ..)         ->    %2 = addf %1, (tt.load .. 1 ..)
      yield %s'                                       ...

A tile that a loop carries lies in scratch between the trips. Where every operation of the body is computed where its
result is wanted, all trips become one pass over the elements, and the sums stay in registers. Windows, convolutions and
sums over a few parts are written like this.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.subjects import WRITTEN_OUT
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, spoken
from tilewright.ir.values import is_tile
from tilewright.ir.walk import walk
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before, replace, value_before


def write_out_short_loops(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function, inner ones first; says whether anything changed."""
    changed = False
    loops = [op for op in walk(function) if isinstance(op, ForOp) and any(map(is_tile, op.results))]
    for loop in reversed(loops):
        if any(isinstance(op, DotOp) for op in loop.body.block.ops):  # has planners of its own
            continue
        trips = _trips(loop)
        if trips is not None and decisions.note(WRITTEN_OUT, loop, _short(loop, trips)) is not None:
            _write_out(loop, trips)
            changed = True
    if changed:  # what a counter was part of is a number now, and several trips load and compute the same
        canonicalize(function)
        eliminate_common_subexpressions(function)
        eliminate_dead_code(function)
    return changed


def _trips(loop: ForOp) -> range | None:
    """The values of the counter, if they are known and few."""
    lower, upper, step = (constant_of(bound) for bound in loop.operands[:3])
    if not (isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int)) or step < 1:
        return None
    trips = range(lower, upper, step)
    return trips if loop.unsignedCmp is None and len(trips) <= tuning.WRITTEN_OUT_TRIPS else None


def _short(loop: ForOp, trips: range) -> Answer[range]:
    """Whether a loop should be written out."""
    body = [op for op in loop.body.block.ops if op is not loop.body.block.last_op]
    for op in body:
        if not is_lazy(op) or (isinstance(op, LoadOp) and "isVolatile" in op.properties):
            return No(f"each trip has a pass of its own for {spoken(op)}", op)
    if len(trips) * len(body) > tuning.WRITTEN_OUT_OPERATIONS:
        return No(f"that would be more than {tuning.WRITTEN_OUT_OPERATIONS} operations")
    return Yes(trips, "all trips are one pass over the elements")


def _write_out(loop: ForOp, trips: range) -> None:
    body, carried = loop.body.block, list(loop.iter_args)
    last = body.last_op
    assert last is not None
    for number in trips:
        counter = value_before(ConstantOp.of(number, loop.induction_var.type), loop)
        values: dict[SSAValue, SSAValue] = dict(zip(body.args, (counter, *carried), strict=True))
        for op in body.ops:
            if op is not last:
                _copy(op, values, loop)
        carried = [values.get(value, value) for value in last.operands]
    replace(loop, carried)


def _copy(op: Operation, values: dict[SSAValue, SSAValue], anchor: Operation) -> None:
    """A copy of an operation in front of `anchor`, made of `values` where they stand for its operands."""
    made = op.clone(values)
    insert_before(made, anchor)
    made.location = op.location
