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
from tilewright.backends.cpu.plan.steps import memory_bytes
from tilewright.backends.cpu.plan.subjects import SWAPPED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import shape_of
from tilewright.ir.walk import every
from tilewright.ops.control import ForOp, FuncOp
from tilewright.ops.dot import DotOp
from tilewright.passes.rewriting import insert_before, loop_carrying, replace, transposed


def swap_dot_operands(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such products of loops of a function; says whether anything changed."""
    changed = False
    for dot in every(function, DotOp):
        number = _carried(dot)
        if number is not None and _lies_across(dot.a) and decisions.note(SWAPPED, dot, _swapped(dot)) is not None:
            _swap(dot, number)
            changed = True
    return changed


def _carried(dot: DotOp) -> int | None:
    """Which of the values that its loop carries is the sum that nobody else in the loop reads; None if none is."""
    loop, uses = dot.parent_op(), list(dot.results[0].uses)
    if not isinstance(loop, ForOp) or len(shape_of(dot.d.type)) != 2 or len(uses) != 1:
        return None
    if uses[0].operation is not loop.body.block.last_op:
        return None
    argument = loop.carried[uses[0].index]
    return uses[0].index if dot.c is argument and argument.has_one_use() else None


def _lies_across(value: SSAValue) -> bool:
    """Whether an operand is in memory, and its neighbours there are those of a column."""
    answer = memory_operand(value, (), AffineAnalysis(lambda value: False))
    return isinstance(answer, Yes) and answer.plan.strides[0] == Poly.of(memory_bytes(answer.plan.elem))


def _swapped(dot: DotOp) -> Answer[DotOp]:
    """Whether a product is the better for it whose left operand lies across."""
    if not _lies_across(dot.b):
        return No("operand b lies along, and would be packed across")
    return Yes(dot, "both operands lie across")


def _swap(dot: DotOp, number: int) -> None:
    loop = dot.parent_op()
    assert isinstance(loop, ForOp)
    first, argument = loop.iter_args[number], loop.body.block.args[number + 1]
    start = transposed(first, loop)
    loop.operands[number + 3] = start
    body = loop.body.block
    new = body.insert_arg(start.type, argument.index)
    made = DotOp.create(
        operands=[transposed(dot.b, dot), transposed(dot.a, dot), new],
        result_types=[start.type],
        properties=dot.properties,
    )
    insert_before(made, dot)
    replace(dot, [made.d])
    body.erase_arg(argument)
    results: list[SSAValue] = list(loop_carrying(loop, loop.iter_args).results)
    results[number] = transposed(results[number], loop)
    replace(loop, results)
