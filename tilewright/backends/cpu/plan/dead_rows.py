"""Dead rows and columns of a product, at which no store looks: as a rule those that masks leave out.

    x = tl.load(a, (m < M) & ..., 0.0)
    tl.store(c, tl.dot(x, y), (m < M) & ...)        rows from M on need not be multiplied

What they hold is then neither computed nor defined. That they would be zero says nothing: an infinity of the other
operand makes them NaN, so it is the stores that decide (`analysis/unread.py`,
docs/decisions/cpu_contractions.md#dead-rows-and-columns).
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation

from tilewright.analysis.affine import AffineAnalysis, Form, Poly
from tilewright.analysis.index import whole
from tilewright.analysis.matrices import MemoryOperand
from tilewright.analysis.slices import slices_of
from tilewright.analysis.unread import asked_for
from tilewright.backends.cpu.plan.dot import BY_ROWS, DotPlan
from tilewright.backends.cpu.plan.dot_operands import Operand, ScratchOperand
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.types import shape_of


def dead_dims(dot: Operation, plan: DotPlan, a: Operand, b: Operand) -> Iterator[Answer[int]]:
    """For each dim of the result along which an operand's mask has a bound, whether the product leaves out what is
    beyond: rows (0) by the mask of A, columns (1) by that of B.
    """
    if plan.thin or (plan.acc != "f32" and plan.family not in BY_ROWS):
        return
    alone = plan.family not in BY_ROWS
    for dim, operand in enumerate((a,) if alone else (a, b)):
        if not isinstance(operand, MemoryOperand) or not operand.bounds[dim] or operand.conditions:
            continue
        if alone and not row_alone(plan, a, b):
            yield No("an operand is computed iteration by iteration, where it is packed")
        else:
            yield _dead(dot, operand.bounds[dim], dim, alone=alone)


def row_alone(plan: DotPlan, a: Operand, b: Operand) -> bool:
    """Whether a row that is left is multiplied from where operands lie: of what is computed one iteration's lies
    there."""
    filled = any(isinstance(operand, ScratchOperand) and operand.fill is not None for operand in (a, b))
    return plan.acc == "f32" and not filled


def _dead(dot: Operation, bounds: list[Poly], dim: int, *, alone: bool) -> Answer[int]:
    """Whether no store looks past any of the bounds of the result's coordinate along `dim`.

    Args:
        dot: the product.
        bounds: of its coordinate.
        dim: rows or columns of the result.
        alone: whether only a single row that is left makes a difference.
    """
    what = "columns" if dim else "rows"
    slices = slices_of(dot.results[0], dim)
    rows = whole(0, shape_of(dot.results[0].type)[dim])
    forms = [Form(-bound, {rows: Poly.of(1)}) for bound in bounds]
    no = asked_for(slices, forms, AffineAnalysis(), f"{what} of the result")
    if no is not None:
        return no
    if slices.loads:
        return No("addresses are made of the result", next(iter(slices.loads)))
    if alone:
        return Yes(dim, "where one row is left it is multiplied alone, as no other is stored")
    return Yes(dim, f"{what} past the end are not multiplied, as they are not stored")
