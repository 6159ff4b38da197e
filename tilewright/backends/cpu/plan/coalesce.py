"""K-coalescing: several trips of a loop that only multiplies run as one product with a larger K.

    for k in 0 .. n:                          for t in 0 .. n by U:        u = min(U, n - t)
      acc += A[:, k BK : (k+1) BK] @ ...  ->    acc += A[:, t BK : (t+u) BK] @ B[t BK : (t+u) BK, :]
      pointers += BK                            pointers += u BK

The accumulator tile is then loaded and stored once for U trips, and the micro-kernels run longer. Legal when the body
holds one dot of two operands in memory and nothing else but scalar arithmetic, when the operands of consecutive trips
lie side by side along K, and when a bound along K shrinks by BK from trip to trip.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.analysis.affine import Poly
from tilewright.analysis.trips import Trip
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot import ELEM, DotPlan
from tilewright.backends.cpu.plan.dot_operands import MemoryOperand, Operand
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import spoken
from tilewright.ir.values import is_tile
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.elementwise import AddFOp
from tilewright.ops.memory import LoadOp


@dataclass(eq=False, slots=True)
class Coalescing:
    """How a loop's trips are joined.

    Args:
        loop: the loop.
        factor: most trips in one product.
        steps: what each carried scalar gains in a trip, in their order.
    """

    loop: ForOp
    factor: int
    steps: list[Poly]


def plan_coalescing(dot: Operation, a: Operand, b: Operand, plan: DotPlan) -> Answer[Coalescing]:
    """How the trips of the loop around `dot` are joined, where that is possible and pays."""
    if not isinstance(a, MemoryOperand) or not isinstance(b, MemoryOperand):
        return No(f"operand {'b' if isinstance(a, MemoryOperand) else 'a'} is not read from memory")
    loop = dot.parent_op()
    if not isinstance(loop, ForOp) or dot.parent is not loop.body.block:
        return No("it is not in the body of a for loop", loop if isinstance(loop, WhileOp | IfOp) else None)
    if plan.k != plan.padded_k(plan.k):
        return No(f"a K block of {plan.k} is no multiple of the {plan.k_block} that an instruction takes")
    panel = tuning.JOINED_PANEL_BYTES // (plan.panel_columns * ELEM[plan.operand].bytes)
    factor = (tuning.THIN_K if plan.thin else panel) // plan.k
    if factor < 2:
        return No(f"a K block of {plan.k} is large enough by itself")
    if a.conditions or b.conditions:
        return No("a scalar condition is a part of a mask", (a if a.conditions else b).load)
    no = _something_else(loop, dot)
    return no or _side_by_side(loop, a, b, plan, factor)


def _side_by_side(loop: ForOp, a: MemoryOperand, b: MemoryOperand, plan: DotPlan, factor: int) -> Answer[Coalescing]:
    """The plan, if the operands of consecutive trips lie side by side along K, and bounds shrink with them."""
    trip = Trip(loop)
    steps = trip.carried_steps()
    along_k = (a.strides[1], b.strides[0])
    aligned = all(
        trip.gain(operand.offset) == trip.expanded(stride * Poly.of(plan.k))
        for operand, stride in zip((a, b), along_k, strict=True)
    )
    if steps is None:
        return No("the loop carries a scalar that does not grow evenly")
    if not aligned:
        return No("the operands of consecutive trips do not lie side by side along K")
    shrinking, fixed = (*a.bounds[1], *b.bounds[0]), (*a.bounds[0], *b.bounds[1], *a.strides, *b.strides)
    if any(trip.gain(bound) != Poly.of(-plan.k) for bound in shrinking):
        return No("the bound along K does not shrink by a block in each trip")
    if any(trip.gain(poly) != Poly({}) for poly in fixed):
        return No("a stride, or the bound of rows or columns, changes from trip to trip")
    return Yes(Coalescing(loop, factor, steps), f"up to {factor} trips as one product")


def _something_else(loop: ForOp, dot: Operation) -> No | None:
    """What a body does but to accumulate `dot` and to advance scalars; None if it is nothing."""
    body = loop.body.block
    last = body.last_op
    assert last is not None
    for number, value in enumerate(last.operands):
        if is_tile(value) and value is not dot.results[0] and value is not body.args[number + 1]:
            adds = isinstance(value.owner, AddFOp)
            instead = "acc = tl.dot(a, b, acc)" if adds and dot.results[0] in value.owner.operands else ""  # type: ignore[union-attr]
            return No("the loop carries a tile that is not the product's sum", value.owner, instead)
    if len(list(dot.results[0].uses)) != 1 or dot.operands[2] not in body.args:
        return No("it does not sum into what the loop carries", instead="acc = tl.dot(a, b, acc)")
    for op in body.ops:
        if op is dot or op is last:
            continue
        tile = any(is_tile(result) for result in op.results)
        if op.regions or not is_lazy(op) or (isinstance(op, LoadOp) and not tile):
            return No(f"the loop also has {spoken(op)}", op, "it outside of the loop")
    return None
