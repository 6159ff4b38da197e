"""What is done to a dot onto zero is folded into the dot: it is transposed, or something is added to it.

    tt.trans (tt.dot (tt.trans %b), %a, 0)         tt.dot (tt.trans %a), %b, 0
    arith.addf %x, (tt.dot %a, %b, 0)        ->    tt.dot %a, %b, %x
    math.fma %y, %z, (tt.dot %a, %b, 0)            tt.dot %a, %b, (arith.mulf %y, %z)

(B^T A)^T = A^T B, and the same products are summed. All ways of writing `acc += a @ b` are then one to every planner:
an accumulator that stays where it is, products that are in flight while the next operands come. The sum is rounded once
less than it says. A product that names how many additions may be imprecise (`max_num_imprecise_acc`) keeps its own sum,
as the limit is on that.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.values import defining_op
from tilewright.ir.walk import walk
from tilewright.ops.constant import ConstantOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, AddIOp, FmaOp, MulFOp
from tilewright.ops.shape import TransOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import erase, replace


def fold_into_dots(root: Operation) -> bool:
    """Rewrite every such operation below `root`, in place; says whether there was one."""
    changed = False
    for op in list(walk(root)):
        if isinstance(op, TransOp) and (dot := _dot_of_transposition(op)) is not None:
            _fuse(op, dot, [Builder(dot).transposed(value) for value in (dot.b, dot.a, dot.c)], dot)
        elif isinstance(op, (AddFOp, AddIOp)) and (found := _dot_of_sum(op)) is not None:
            product, other = found
            _fuse(op, product, [product.a, product.b, other], op)
        elif isinstance(op, FmaOp) and (addend := _onto_zero(op.operands[2], op)) is not None:
            scaled = Builder(op).op(MulFOp, *op.operands[:2])
            _fuse(op, addend, [addend.a, addend.b, scaled], op)
        else:
            continue
        changed = True
    return changed


def _dot_of_transposition(op: TransOp) -> DotOp | None:
    """The dot of a transposition, if nobody else reads it, and no tile is transposed instead."""
    dot = defining_op(op.src)
    if not isinstance(dot, DotOp) or not dot.d.has_one_use() or list(op.attr_values()["order"]) != [1, 0]:
        return None
    turned = any(isinstance(value.owner, TransOp) for value in (dot.a, dot.b))
    return dot if turned and isinstance(dot.c.owner, ConstantOp | TransOp) else None


def _dot_of_sum(add: Operation) -> tuple[DotOp, SSAValue] | None:
    """The dot onto zero of a sum, the right operand first, and what it is added to."""
    left, right = add.operands
    for value, other in ((right, left), (left, right)):
        dot = _onto_zero(value, add)
        if dot is not None:
            return dot, other
    return None


def _onto_zero(product: SSAValue, add: Operation) -> DotOp | None:
    """A dot onto zero that nothing but `add`, in the same block, reads."""
    dot = defining_op(product)
    if not isinstance(dot, DotOp) or dot.parent_block() is not add.parent_block() or not product.has_one_use():
        return None
    return dot if constant_of(dot.c) == 0 and not dot.attr_values()["maxNumImpreciseAcc"] else None


def _fuse(op: Operation, dot: DotOp, operands: list[SSAValue], place: Operation) -> None:
    """Put a dot of other operands in the place of what is done to one, in front of `place`."""
    fused = DotOp.create(operands=operands, result_types=[op.results[0].type], properties=dot.properties)
    value = Builder(place).put(fused)
    fused.location = dot.location
    replace(op, [value])
    erase(dot)
