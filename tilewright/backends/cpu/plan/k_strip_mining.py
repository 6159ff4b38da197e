"""K strip-mining: several iterations of a loop that only multiplies run as one dot with a larger K.

    for k in 0 .. n:                          for t in 0 .. n by U:        u = min(U, n - t)
      acc += A[:, k BK : (k+1) BK] @ ...  ->    acc += A[:, t BK : (t+u) BK] @ B[t BK : (t+u) BK, :]
      pointers += BK                            pointers += u BK

The accumulator tile is then loaded and stored once for U iterations, and the micro-kernels run longer. Legal when the
body holds one dot and nothing else but what its operands are made of, and when carried scalars grow evenly. An operand
in memory must lie side by side along K in consecutive iterations, with a bound along K that shrinks by BK from
iteration to iteration. One that is computed, element by element, is computed and packed iteration after iteration, so
nothing is asked of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.analysis.affine import Poly
from tilewright.analysis.matrices import MemoryOperand
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.dot import ELEM, DotPlan
from tilewright.backends.cpu.plan.dot_operands import Operand
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import describe_op
from tilewright.ir.values import is_tile
from tilewright.ops.control import ForOp, IfOp, WhileOp
from tilewright.ops.elementwise import AddFOp
from tilewright.ops.memory import is_volatile


@dataclass(eq=False, slots=True)
class KStrips:
    """How a loop's iterations are joined.

    Args:
        loop: the loop.
        factor: most iterations in one product.
        steps: what each carried scalar gains in an iteration, in their order.
    """

    loop: ForOp
    factor: int
    steps: list[Poly]


def most_iterations(plan: DotPlan) -> int:
    """How many iterations of a product are worth joining."""
    panel = tuning.JOINED_PANEL_BYTES // (plan.panel_columns * ELEM[plan.operand].bytes)
    return (tuning.THIN_K if plan.thin else panel) // plan.k


def plan_k_strips(dot: Operation, a: Operand, b: Operand, plan: DotPlan) -> Answer[KStrips]:
    """How the iterations of the loop around `dot` are joined, where that is possible and pays.

    Operands in scratch must be such as are filled in each iteration.
    """
    in_memory = [operand for operand in (a, b) if isinstance(operand, MemoryOperand)]
    loop = dot.parent_op()
    if not isinstance(loop, ForOp) or dot.parent is not loop.body.block:
        return No("it is not in the body of a for loop", loop if isinstance(loop, WhileOp | IfOp) else None)
    if plan.k != plan.padded_k(plan.k):
        return No(f"a K block of {plan.k} is no multiple of the {plan.k_block} that an instruction takes")
    factor = most_iterations(plan)
    if factor < 2 and len(in_memory) == 2:
        return No(f"a K block of {plan.k} is large enough by itself")
    if plan.thin and len(in_memory) < 2:
        return No("for so few rows a computed operand is computed as a whole")
    if any(operand.conditions for operand in in_memory):
        return No("a scalar condition is a part of a mask", next(o.load for o in in_memory if o.conditions))
    no = _something_else(loop, dot)
    if no is not None:
        return no
    evolution = ScalarEvolution(loop)
    steps = evolution.carried_steps()
    if steps is None:
        return No("the loop carries a scalar that does not grow evenly")
    apart = [
        _apart(evolution, operand, dim, plan.k)
        for operand, dim in ((a, 1), (b, 0))
        if isinstance(operand, MemoryOperand)
    ]
    no = next((no for no in apart if no is not None), None)
    factor = max(1, factor)
    return no or Yes(KStrips(loop, factor, steps), f"up to {factor} iterations as one dot")


def _apart(evolution: ScalarEvolution, operand: MemoryOperand, dim: int, k: int) -> No | None:
    """Why blocks of consecutive iterations do not lie side by side along K, its dim `dim`; None if they do."""
    if evolution.gain(operand.offset) != evolution.expanded(operand.strides[dim] * Poly.of(k)):
        return No("the operands of consecutive iterations do not lie side by side along K")
    if any(evolution.gain(bound) != Poly.of(-k) for bound in operand.bounds[dim]):
        return No("the bound along K does not shrink by a block in each iteration")
    if any(evolution.gain(poly) != Poly({}) for poly in (*operand.bounds[1 - dim], *operand.strides)):
        return No("a stride, or the bound of rows or columns, changes from iteration to iteration")
    return None


def _something_else(loop: ForOp, dot: Operation) -> No | None:
    """What a body does but to accumulate `dot` and to advance scalars; None if it is nothing."""
    body = loop.body.block
    last = body.last_op
    assert last is not None
    for number, value in enumerate(last.operands):
        if is_tile(value) and value is not dot.results[0] and value is not body.args[number + 1]:
            adds = isinstance(value.owner, AddFOp)
            instead = "acc = tl.dot(a, b, acc)" if adds and dot.results[0] in value.owner.operands else ""  # type: ignore[union-attr]
            return No("the loop carries a tile that is not the dot's sum", value.owner, instead)
    if len(list(dot.results[0].uses)) != 1 or dot.operands[2] not in body.args:
        return No("it does not sum into what the loop carries", instead="acc = tl.dot(a, b, acc)")
    for op in body.ops:
        if op is dot or op is last:
            continue
        if op.regions or not is_lazy(op) or is_volatile(op):
            return No(f"the loop also has {describe_op(op)}", op, "it outside of the loop")
    return None
