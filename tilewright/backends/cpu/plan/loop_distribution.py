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

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.recurrences import carried_sum
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot_step import dot_plan
from tilewright.backends.cpu.plan.k_strip_mining import most_iterations
from tilewright.backends.cpu.plan.recompute import cost_of, is_lazy
from tilewright.backends.cpu.plan.subjects import DISTRIBUTED
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import reached
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, is_integer, is_pointer, shape_of
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import every
from tilewright.loops.blocks import beside
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import insert_before


def distribute_loops(function: FuncOp, isa: CpuFeatures, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether anything changed."""
    changed = False
    for dot in every(function, DotOp):
        number, loop = carried_sum(dot), dot.parent_op()
        if number is None or not isinstance(loop, ForOp) or len(shape_of(dot.d.type)) != 2:
            continue
        if loop.results[number].first_use is None:
            continue
        mine = _slice(loop, number)
        others = _others(loop, number, mine)
        if not others or most_iterations(dot_plan(isa, dot)) <= 1:
            continue
        if decisions.note(DISTRIBUTED, dot, _apart(loop, mine, others)) is not None:
            made = loop.clone()
            insert_before(made, loop)
            loop.results[number].replace_all_uses_with(made.results[number])
            changed = True
    if changed:
        eliminate_dead_code(function)  # what nobody wants of either loop
    return changed


def _others(loop: ForOp, number: int, mine: dict[Operation, None]) -> list[dict[Operation, None]]:
    """What other sums of tiles are made of that are wanted, behind the loop or for `mine`."""
    found = list[dict[Operation, None]]()
    for other, result in enumerate(loop.results):
        made = _slice(loop, other) if other != number else {}
        wanted = result.first_use is not None or made.keys() <= mine.keys()
        if wanted and any(map(_is_of_tiles, made)):  # any loop may count along
            found.append(made)
    return found


def _slice(loop: ForOp, number: int) -> dict[Operation, None]:
    """What one of the carried values is made of in an iteration, and in those before."""
    following = dict(zip(loop.carried, loop.yielded, strict=True))

    def maker(value: SSAValue) -> Operation | None:
        op = defining_op(following.get(value, value))
        return op if op is not None and op.parent is loop.body.block else None

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        op = maker(value)
        return op.operands if op is not None else ()

    return dict.fromkeys(filter(None, map(maker, reached([loop.yielded[number]], made_of))))


def _is_of_tiles(op: Operation) -> bool:
    return isinstance(op, LoadOp) or any(is_tile(value) for value in (*op.operands, *op.results))


def _apart(loop: ForOp, dot: dict[Operation, None], others: list[dict[Operation, None]]) -> Answer[ForOp]:
    """Whether a dot and other sums are better made in loops of their own."""
    no = beside(loop, (), "sums", (ReduceOp,), len(loop.results))
    for made in others if no is None else ():
        if made.keys() <= dot.keys():
            return No("one sum is made of another")
        shared = [op for op in made if op in dot]
        costly = next((op for op in shared if not is_lazy(op)), None)
        if costly is not None or sum(map(_cost, shared)) > tuning.SHARED_COST:
            return No("what both sums are made of costs too much to be computed twice", costly or shared[0])
    return no or Yes(loop, "in a loop of its own")


def _cost(op: Operation) -> float:
    """Cost of an element of what is computed, addresses and masks apart."""
    element = element_type(op.results[0].type)
    free = isinstance(op, LoadOp) or not is_tile(op.results[0]) or is_integer(element) or is_pointer(element)
    return 0.0 if free else cost_of(op)
