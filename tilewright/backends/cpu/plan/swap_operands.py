"""Swapped operands: products whose operands both lie across are computed transposed.

    for ..: iter_args(%s = zero[m, n]) {            for ..: iter_args(%t = zero[n, m]) {
      %s' = tt.dot %a[m, k], %b[k, n], %s    ->       %t' = tt.dot (tt.trans %b), (tt.trans %a), %t
    }                                               }
    %r                                              tt.trans %r

C^T = B^T A^T. Where neighbours in memory are rows of A and positions of K in B, both would have to be packed across;
turned over, A is read where it lies and B is packed in whole vectors. Only the sum is turned, once, by who reads it.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tilewright.analysis.affine import AffineAnalysis, Poly
from tilewright.analysis.matrices import memory_operand
from tilewright.analysis.recurrences import carried_sum
from tilewright.backends.cpu.plan.steps import memory_bytes
from tilewright.backends.cpu.plan.subjects import SWAPPED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import shape_of
from tilewright.ir.walk import every
from tilewright.ops.control import FuncOp
from tilewright.ops.dot import DotOp
from tilewright.passes.building import Builder
from tilewright.passes.transposed_sums import sum_transposed


def swap_dot_operands(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such products of loops of a function; says whether anything changed."""
    changed = False
    for dot in every(function, DotOp):
        number = carried_sum(dot)
        matrix = len(shape_of(dot.d.type)) == 2
        if number is None or not matrix or not (_is_column(dot) or _lies_across(dot.a)):
            continue
        if decisions.note(SWAPPED, dot, _swapped(dot)) is not None:
            sum_transposed(dot, number, *(Builder(dot).transposed(value) for value in (dot.b, dot.a)))
            changed = True
    return changed


def _lies_across(value: SSAValue) -> bool:
    """Whether an operand is in memory, and its neighbours there are those of a column."""
    answer = memory_operand(value, (), AffineAnalysis())
    return isinstance(answer, Yes) and answer.plan.strides[0] == Poly.of(memory_bytes(answer.plan.elem))


def _is_column(dot: DotOp) -> bool:
    """Whether a product is a matrix in memory times one column, which had better be a row."""
    m, n = shape_of(dot.d.type)
    if n > 1 or m == 1:
        return False
    return all(isinstance(memory_operand(v, (), AffineAnalysis()), Yes) for v in (dot.a, dot.b))


def _swapped(dot: DotOp) -> Answer[DotOp]:
    """Whether a product is the better for it whose left operand lies across."""
    if _is_column(dot):
        return Yes(dot, "a column is multiplied as a row")
    if not _lies_across(dot.b):
        return No("operand b lies along, and would be packed across")
    return Yes(dot, "both operands lie across")
