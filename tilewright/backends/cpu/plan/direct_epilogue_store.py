"""Direct stores of dots: sums are written to the tensor that a store would copy them to.

    acc = tl.dot(x, y, acc), in a loop                   the accumulator is the tensor,
    tl.store(c + m[:, None] * N + n[None, :], acc)       and nothing is left to do

Whether it is, is decided at run time: a tensor that is an operand as well goes by way of scratch, and so does a part of
a tile where instructions cannot leave the rest alone. Between the product and the store nothing may happen, and the
types must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.matrices import MemoryOperand, stored_matrix
from tilewright.analysis.origins import may_meet, parameters_apart
from tilewright.backends.cpu.plan.collect import FunctionContext
from tilewright.backends.cpu.plan.dot import writes_parts
from tilewright.backends.cpu.plan.dot_step import DotDetail, accumulating_dot, dot_plan, joined_dot
from tilewright.backends.cpu.plan.steps import DotStep, ScalarStep, Step, memory_bytes
from tilewright.backends.cpu.plan.subjects import DIRECT_STORE
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import shape_of
from tilewright.ir.walk import every
from tilewright.ops.control import ForOp
from tilewright.ops.memory import LoadOp, StoreOp


@dataclass(eq=False, slots=True)
class DirectStore:
    """Where sums go that need not be copied.

    Args:
        place: the matrix that the store writes.
        shape: extents of the tile.
        parts: whether the product writes any part of the tile, and leaves the rest of the tensor alone.
        apart: pairs of pointers, parameters of the kernel, which must differ: of the tensor, and of what is loaded.
    """

    place: MemoryOperand
    shape: tuple[int, ...]
    parts: bool
    apart: list[tuple[SSAValue, SSAValue]]


def store_directly(context: FunctionContext, order: list[Step]) -> None:
    """Find the products of a block that may write to the tensor of the store behind them.

    Args:
        context: of the function.
        order: the steps of the block; scalars between a product and its store go first.
    """
    for step in [step for step in order if (isinstance(step, DotStep) or isinstance(step.op, ForOp))]:
        made = _product(step)
        if made is None:
            continue
        at = order.index(step)
        end = next(n for n, other in enumerate(order[at + 1 :], at + 1) if not isinstance(other, ScalarStep))
        store, (dot, detail, result) = order[end], made
        sink = store.sinks[0] if len(store.sinks) == 1 else None
        if sink is None or not isinstance(sink.op, StoreOp) or sink.roots[1] is not result:
            continue
        answer = _where(context, sink.op, dot, detail, step, order[at + 1 : end])
        detail.direct = store.detail = context.decisions.note(DIRECT_STORE, sink.op, answer)
        if detail.direct is not None:
            order[at:end] = [*order[at + 1 : end], step]


def _product(step: Step) -> tuple[Operation, DotDetail, SSAValue] | None:
    """The product of matrices, begun with zero, that a step makes, and what its sums are called behind the step."""
    assert step.op is not None
    if isinstance(step, DotStep):
        return (step.op, step.detail, step.op.results[0]) if step.detail.fresh else None
    detail = joined_dot(step)
    if detail is None or not detail.afresh:
        return None
    number = next(n for n, buffer in step.detail.items() if buffer is detail.acc)
    dot = accumulating_dot(step.op, number)
    return None if dot is None else (dot, detail, step.op.results[number])


def _where(
    context: FunctionContext, store: StoreOp, dot: Operation, detail: DotDetail, step: Step, scalars: list[Step]
) -> Answer[DirectStore]:
    """Where a store puts the sums of a step, if the product can write there; `scalars` are steps between the two."""
    answer = stored_matrix(store, context.demands.placed, context.analysis)
    if isinstance(answer, No):
        return answer
    place, shape = answer.plan, shape_of(store.operands[1].type)
    if not store.operands[1].has_one_use():
        return No("the sums are used elsewhere")
    if place.elem != detail.acc.elem:
        return No(f"sums of {detail.acc.elem} are stored as {place.elem}")
    if place.strides[1] != Poly.of(memory_bytes(place.elem)):
        return No("columns do not lie side by side")
    if detail.acc.size != math.prod(shape) * memory_bytes(place.elem):
        return No("instructions take more rows or columns than the tile has")
    assert step.op is not None
    late = set(step.op.results)
    if any(part.writes or late & set(part.needs) for part in scalars) or late & set(_scalars(place)):
        return No("where they are stored is known only after the dot", step.op)
    apart: list[tuple[SSAValue, SSAValue]] = []
    for load in _loads(context, step):
        if may_meet(store.operands[0], load.operands[0]):
            return No("an operand may be of the tensor that is stored to", load)
        apart += parameters_apart(store.operands[0], load.operands[0])
    masked = any(place.bounds) or bool(place.conditions)
    parts = masked and writes_parts(dot_plan(context.isa, dot), context.isa)
    what = "written by the product itself" + (", where no element is masked" if masked and not parts else "")
    return Yes(DirectStore(place, shape, parts, list(dict.fromkeys(apart))), what)


def _loads(context: FunctionContext, step: Step) -> Iterator[Operation]:
    """The loads that a step performs."""
    assert step.op is not None
    if isinstance(step, DotStep):
        for value in step.op.operands[:2]:
            yield from context.demands.loads(value)
    else:
        yield from (op for op in every(step.op, LoadOp))
        for value in context.captured.tiles(step.op):
            yield from context.demands.loads(value)


def _scalars(place: MemoryOperand) -> list[SSAValue]:
    """What it takes to know where a matrix lies."""
    polys = [place.offset, *place.strides, *(bound for bounds in place.bounds for bound in bounds)]
    return [place.base, *place.conditions, *(atom for poly in polys for atom in poly.atoms())]
