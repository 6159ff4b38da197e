"""Loop distribution: sums that a loop makes side by side get a loop each, if one of them is a product.

    for ..: iter_args(%s, %t) {                 for ..: iter_args(%s) {
      %s' = tt.dot A, B, %s                       yield tt.dot A, B, %s
      %t' = tt.dot A, C, %t             ->      }
      yield %s', %t'                            for ..: iter_args(%t) {
    }                                             yield tt.dot A, C, %t
                                                }

Planners join the iterations of a loop that does nothing but to add up one product (`k_strip_mining.py`). What both sums
are made of is loaded again, which the caches have; what costs more than that stays where it is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot_step import dot_plan
from tilewright.backends.cpu.plan.k_strip_mining import most_iterations
from tilewright.backends.cpu.plan.recompute import cost_of, is_lazy
from tilewright.backends.cpu.plan.subjects import DISTRIBUTED
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import element_type, is_integer, is_pointer
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, FuncOp, IfOp, WhileOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.rewriting import insert_before


@dataclass(slots=True)
class _Slice:
    """What one of the carried values is made of in an iteration: operations, and numbers of carried values."""

    ops: dict[Operation, None]
    carried: set[int]

    @property
    def counts(self) -> bool:
        """Whether it is arithmetic of scalars, which any loop may do along with something else."""
        return not any(
            isinstance(op, LoadOp) or any(is_tile(r) for r in (*op.operands, *op.results)) for op in self.ops
        )


def distribute_loops(function: FuncOp, isa: CpuFeatures, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether anything changed."""
    changed = False
    for loop in [op for op in walk(function) if isinstance(op, ForOp)]:
        if any(isinstance(op, ForOp | IfOp | WhileOp) for op in loop.body.block.ops):
            continue
        slices = [_slice(loop, number) for number in range(len(loop.results))]
        sums = [n for n, made in enumerate(slices) if is_tile(loop.results[n]) or not made.counts]
        dots = [n for n in sums if _is_dot(loop, n, isa)]
        if dots and len(sums) > 1:
            found = decisions.note(DISTRIBUTED, loop, _recognise(loop, slices, sums, dots))
            for number in found or ():
                _alone(loop, number)
                changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _is_dot(loop: ForOp, number: int, isa: CpuFeatures) -> bool:
    """Whether a loop adds up a product, of which several iterations could be joined."""
    last = loop.body.block.last_op
    assert last is not None
    dot = defining_op(last.operands[number])
    if not isinstance(dot, DotOp) or dot.parent is not loop.body.block or not dot.d.has_one_use():
        return False
    return dot.c is loop.carried[number] and dot.c.has_one_use() and most_iterations(dot_plan(isa, dot)) > 1


def _slice(loop: ForOp, number: int) -> _Slice:
    body, found = loop.body.block, _Slice({}, {number})
    last = body.last_op
    assert last is not None
    stack, numbers = [last.operands[number]], {argument: n for n, argument in enumerate(loop.carried)}
    while stack:
        value = stack.pop()
        op = defining_op(value)
        carried = numbers.get(value)
        if carried is not None and carried not in found.carried:
            found.carried.add(carried)
            stack.append(last.operands[carried])
        elif op is not None and op.parent is body and op not in found.ops:
            found.ops[op] = None
            stack += op.operands
    return found


def _recognise(loop: ForOp, slices: list[_Slice], sums: list[int], dots: list[int]) -> Answer[list[int]]:
    """The products that get loops of their own in front of this one."""
    for op in loop.body.block.ops:
        if op is not loop.body.block.last_op and not is_removable(op):
            return No(f"the loop also has {describe_op(op)}", op, "it outside of the loop")
    if any(other in slices[number].carried for number in sums for other in sums if other != number):
        return No("one sum is made of another")
    for number in dots:
        for other in sums:
            if other == number:
                continue
            shared = [op for op in slices[number].ops if op in slices[other].ops]
            costly = next((op for op in shared if not is_lazy(op)), None)
            if costly is not None or sum(map(_cost, shared)) > tuning.SHARED_COST:
                return No("what both sums are made of costs too much to be computed twice", costly or shared[0])
    rest = len(sums) > len(dots)
    return Yes(dots if rest else dots[:-1], "each in a loop of its own")


def _cost(op: Operation) -> float:
    """Cost of an element of what is computed, addresses and masks apart."""
    element = element_type(op.results[0].type)
    free = isinstance(op, LoadOp) or not is_tile(op.results[0]) or is_integer(element) or is_pointer(element)
    return 0.0 if free else cost_of(op)


def _alone(loop: ForOp, number: int) -> None:
    """Make one of the sums of a loop by a loop in front of it; what nobody wants of either is dead then."""
    made = loop.clone()
    insert_before(made, loop)
    loop.results[number].replace_all_uses_with(made.results[number])
