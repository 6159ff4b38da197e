"""Strip-mining of sums: what a loop adds up iteration by iteration is added up in blocks of iterations.

    for %k = %lb .. %ub: iter_args(%s[n])            for %b = %lb .. %middle by 64: iter_args(%s[n])
      %v = tt.load %x + %k * %stride + %j[n]           %v = tt.load %x + (%b + range)[64, n] * %stride + %j[n]
      %s' = addf %s, %v                         ->     %s' = addf %s, (tt.reduce (axis = 0, addf) %v)
      yield %s'                                        yield %s'
    }                                                }
                                                     for %k = %middle .. %ub: ..  (as it was)

The tile that the loop carries is read and written once in a block, not in every iteration; the block is summed in
registers, along whatever lies side by side in memory: also where that is the loop's own dim, and an iteration takes one
element of each row. A row times a matrix becomes a sum of products, which `contractions.py` knows, and a column
times a row becomes a product of matrices. Sums are added in another order, as reductions are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, Region, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.iteration_tiles import IterationTiles, has_tile
from tilewright.backends.cpu.plan.reduction_variables import Gain, Sum, carried_sums
from tilewright.backends.cpu.plan.subjects import STRIP_MINED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import shape_of
from tilewright.ir.walk import walk
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.elementwise import (
    AddIOp,
    DivSIOp,
    MulFOp,
    MulIOp,
    SubIOp,
)
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before, value_before


@dataclass(slots=True)
class _Loop:
    """A loop that can run in blocks.

    Args:
        op: the loop.
        carried: what becomes of each carried value: a sum, or what an integer gains in each iteration.
        iterations: of a block.
    """

    op: ForOp
    carried: list[Sum | Gain]
    iterations: int


def strip_mine_sums(function: FuncOp, decisions: Decisions, but: Collection[ForOp]) -> bool:
    """Rewrite all such loops of a function; says whether anything changed.

    Args:
        function: the function.
        decisions: what is said of each loop.
        but: loops that another planner has rewritten.
    """
    changed = False
    for loop in [op for op in walk(function) if isinstance(op, ForOp) and op not in but]:
        carried = carried_sums(loop)
        if carried is None or any(map(_is_reduced, loop.results)):
            continue
        if not any(isinstance(op, LoadOp) for op in loop.body.block.ops):
            continue
        found = decisions.note(STRIP_MINED, loop, _in_blocks(loop, carried))
        if found is not None:
            _Blocks(found).write()
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _is_reduced(result: SSAValue) -> bool:
    """Whether a loop's result is reduced after it: then the loop adds up tiles already (`reductions_into_loops.py`)."""
    return any(isinstance(use.operation, ReduceOp) for use in result.uses)


def _in_blocks(loop: ForOp, carried: list[Sum | Gain]) -> Answer[_Loop]:
    """Whether a loop can run in blocks of iterations, and should."""
    step, bounds = constant_of(loop.step), [constant_of(bound) for bound in loop.operands[:2]]
    if not isinstance(step, int) or step < 1 or loop.unsignedCmp is not None:
        return No("the step is not known, or the counter has no sign")
    for op in loop.body.block.ops:
        if op is not loop.body.block.last_op and not has_tile(op):
            return No(f"each iteration has {describe_op(op)}", op)
    shapes = [shape_of(r.type) for op in loop.body.block.ops for r in op.results]
    size = max(map(prod, shapes))
    if size > tuning.STRIP_ELEMENTS:
        return No("its tiles are so large that carrying them hardly matters")
    rank = max(map(len, shapes))
    iterations = tuning.STRIP_ITERATIONS if rank < 2 and size <= tuning.STRIP_ROW else tuning.STRIP_LEAST
    iterations = iterations if rank else 4 * iterations
    lower, upper = bounds
    if isinstance(lower, int) and isinstance(upper, int) and (count := len(range(lower, upper, step))) < iterations:
        if count < tuning.STRIP_LEAST:
            return No("it has few iterations")
        iterations = 1 << (count.bit_length() - 1)
    return Yes(_Loop(loop, carried, iterations), f"{iterations} iterations at a time")


class _Blocks(IterationTiles):
    """Writes a loop over blocks of iterations in front of one over iterations."""

    def __init__(self, found: _Loop) -> None:
        super().__init__(found.op, found.iterations)
        self.carried = found.carried

    def write(self) -> None:
        """Write the loop; the one that was begins where it ends."""
        loop, counter = self.loop, self.loop.induction_var.type
        stride = value_before(ConstantOp.of(self.iterations * int(constant_of(loop.step) or 1), counter), loop)
        middle = self._middle(stride)
        body = Block(arg_types=[arg.type for arg in loop.body.block.args])
        end = YieldOp.create(operands=list(body.args[1:]))
        body.add_op(end)
        made = ForOp.create(
            operands=[loop.lb, middle, stride, *loop.iter_args],
            result_types=loop.result_types,
            properties=dict(loop.properties),
            regions=[Region(body)],
        )
        insert_before(made, loop)
        end.location, self.last = loop.location, end
        place = self.range(counter)
        self.known[loop.induction_var] = self.grown(body.args[0], place, loop.step)
        for old, new, carried in zip(loop.carried, body.args[1:], self.carried, strict=True):
            if not isinstance(carried, Sum):
                self.known[old] = self.grown(new, self.range(old.type), self.outside(carried.value), carried.kind)
        end.operands = [self._next(new, carried) for new, carried in zip(body.args[1:], self.carried, strict=True)]
        loop.operands = [middle, *loop.operands[1:3], *made.results]

    def _middle(self, stride: SSAValue) -> SSAValue:
        """Where the last whole block ends."""
        loop = self.loop
        length = self.binary(SubIOp, loop.ub, loop.lb)
        return self.binary(AddIOp, loop.lb, self.binary(MulIOp, self.binary(DivSIOp, length, stride), stride))

    def _next(self, value: SSAValue, carried: Sum | Gain) -> SSAValue:
        """A carried value after a block."""
        if not isinstance(carried, Sum):
            times = value_before(ConstantOp.of(self.iterations, value.type), self.last)
            return self.binary(carried.kind, value, self.binary(MulIOp, self.outside(carried.value), times))
        terms = [self.block(term) for term in carried.terms]
        added = terms[0] if len(terms) == 1 else self.binary(MulFOp, *terms)
        return self.binary(carried.kind, value, self.added_up(carried.kind, added, value.type))
