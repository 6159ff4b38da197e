"""Dots lowered to sums: a row times a computed matrix is summed in the pass that computes the matrix.

    %s' = tt.dot %x[1, k], %w[k, n], %s[1, n]      ->      %p = mulf (broadcast %x^T[k, 1]), %w
                                                           %s' = addf %s, (tt.reduce (axis = 0, addf) %p)

For so few rows nothing is gained from packed panels, and a matrix that a product reads has to be written to scratch
first. The matrix of a product in memory stays one.
"""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.matrices import memory_operand, strip_views
from tilewright.backends.cpu.plan.recompute import is_lazy
from tilewright.backends.cpu.plan.subjects import DOT_AS_SUM
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import bit_width, element_type, ir_name, shape_of, tile_type
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp
from tilewright.ops.casts import ExtFOp, SIToFPOp, TruncFOp, UIToFPOp
from tilewright.ops.control import FuncOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, MulFOp
from tilewright.ops.shape import TransOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import replace

_EXACT = {"bf16": 8, "f16": 11}  # bits of an integer that the type holds


def lower_row_dots_to_sums(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such products of a function; says whether there was one."""
    changed = False
    for dot in every(function, DotOp):
        if _is_one_row(dot) and decisions.note(DOT_AS_SUM, dot, _computed(dot)) is not None:
            _sum(dot)
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _is_one_row(dot: DotOp) -> bool:
    """Whether it is a product of a row, of floats that f32 holds, and its matrix is not loaded as it is."""
    shape, kinds = shape_of(dot.a.type), [element_type(value.type) for value in dot.operands]
    if len(shape) != 2 or shape[0] != 1 or kinds[2] != f32 or not all(bit_width(k) in (16, 32) for k in kinds[:2]):
        return False
    return not isinstance(memory_operand(dot.b, (), AffineAnalysis()), Yes)


def _computed(dot: DotOp) -> Answer[DotOp]:
    """Whether the matrix is computed for nobody else than the product, element by element."""
    source, _ = strip_views(dot.b)
    op = defining_op(source)
    if op is None or op.parent is not dot.parent or not is_lazy(op):
        return No("the matrix is not computed beside the dot", op)
    if not dot.b.has_one_use() or not source.has_one_use():
        return No("something else uses the matrix, too")
    if isinstance(op, TruncFOp) and _integer(source) is None:
        return No("the matrix is rounded, which takes a pass of its own as long", op)
    return Yes(dot, "summed in the pass that computes the matrix")


def _sum(dot: DotOp) -> None:
    (_, k), n, b = shape_of(dot.a.type), shape_of(dot.b.type)[1], Builder(dot)
    column = b.make(TransOp, tile_type((k, 1), element_type(dot.a.type)), dot.a, order=[1, 0])
    whole = tile_type((k, n), f32)
    product = b.op(MulFOp, b.make(BroadcastOp, whole, _wide(column, b)), _wide(dot.b, b))
    total = b.make(ExpandDimsOp, dot.d.type, b.reduced(AddFOp, product, 0), axis=0)
    replace(dot, [b.op(AddFOp, dot.c, total)])


def _wide(value: SSAValue, b: Builder) -> SSAValue:
    """A tile of f32; what was small integers before it was a half is made of these."""
    kind, number = tile_type(shape_of(value.type), f32), _integer(value)
    if value.type == kind:
        return value
    return b.make(ExtFOp, kind, value) if number is None else b.again(number, kind, *number.operands)


def _integer(value: SSAValue) -> Operation | None:
    """The conversion that makes a half of integers all of which it holds."""
    op = defining_op(value)
    op = defining_op(op.operands[0]) if isinstance(op, TruncFOp) else op
    if not isinstance(op, SIToFPOp | UIToFPOp):
        return None
    bits = bit_width(element_type(op.operands[0].type))
    return op if bits <= _EXACT.get(ir_name(element_type(value.type)), 0) else None
