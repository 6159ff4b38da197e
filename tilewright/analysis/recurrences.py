"""What the iterations of a loop hand on, as far as people ask: how it runs, and whether it is one contraction."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.subjects import CONTRACTION, LOOP
from tilewright.ir.types import element_type, is_float
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import every
from tilewright.ops.control import ForOp, WhileOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, SubFOp
from tilewright.ops.function import FuncOp


def note_loops(function: FuncOp, decisions: Decisions) -> None:
    """Answer for every loop of a function how it runs, and why it is a contraction or none."""
    for op in every(function, ForOp, WhileOp):
        decisions.note(LOOP, op, how_it_runs(op))
        decisions.note(CONTRACTION, op, contraction(op))


def how_it_runs(loop: ForOp | WhileOp) -> Answer[int]:
    """The number of iterations as far as it is known (-1), and what goes from one to the next."""
    firsts = loop.firsts
    tiles = sum(map(is_tile, firsts))
    carried = f"; {tiles} tiles and {len(firsts) - tiles} scalars go on from one to the next" if firsts else ""
    if isinstance(loop, WhileOp):
        return Yes(-1, f"iterations until its condition is false{carried}")
    count = constant_of(loop.ub) if (constant_of(loop.lb), constant_of(loop.step)) == (0, 1) else None
    if isinstance(count, int):
        return Yes(count, f"{count} iterations{carried}")
    return Yes(-1, f"as many iterations as the launch tells{carried}")


def contraction(loop: ForOp | WhileOp) -> Answer[DotOp]:
    """The dot that all iterations add to; why there is none."""
    if isinstance(loop, WhileOp):
        return No("iterations until a condition is false are not known before them", instead="for k in tl.range(...)")
    end = loop.body.block.last_op
    numbers = [n for n, first in enumerate(loop.iter_args) if is_float(element_type(first.type))]
    if not numbers or end is None:
        return No("no floats go from an iteration to the next")
    added: list[Operation | None] = []
    for number in numbers:
        made = _added(end.operands[number], loop.carried[number])
        if isinstance(made, DotOp):
            return Yes(made, "a dot in each iteration adds to what goes on")
        added.append(made)
    last = next((op for op in added if op is not None), None)
    if last is not None:
        return No(f"what its iterations add is made by {describe_op(last)}, not by a dot", last)
    return No("what goes on is more than a sum", defining_op(end.operands[numbers[0]]))


def carried_sum(dot: DotOp) -> int | None:
    """Which of the values that its loop carries a dot adds to, and nobody else in the loop reads; None if none is."""
    loop, uses = dot.parent_op(), list(dot.d.uses)
    if not isinstance(loop, ForOp) or len(uses) != 1 or uses[0].operation is not loop.body.block.last_op:
        return None
    argument = loop.carried[uses[0].index]
    return uses[0].index if dot.c is argument and argument.has_one_use() else None


def _added(value: SSAValue, carried: SSAValue) -> Operation | None:
    """What makes the part of a value that is added to what a loop carries; None if the value is no such sum."""
    op = defining_op(value)
    if isinstance(op, DotOp):
        return op if op.c is carried or _added(op.c, carried) is not None else None
    if isinstance(op, AddFOp | SubFOp):
        for one, other in (op.operands, tuple(op.operands)[::-1]):
            if one is carried or _added(one, carried) is not None:
                return defining_op(other) or op
    if isinstance(op, ForOp):
        return op if carried in op.iter_args else None
    return None
