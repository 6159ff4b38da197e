"""Sums of products go into the accumulator of the product.

    %d = tt.dot %a, %b, 0                 %s = tt.dot %a, %b, %x
    %s = arith.addf %x, %d        ->
    %s = math.fma %y, %z, %d      ->      %s = tt.dot %a, %b, (arith.mulf %y, %z)

Both ways of writing `acc += a @ b` are then one to every planner: an accumulator that stays where it is, products that
are in flight while the next operands come. The sum is rounded once less than it says. A product that names how many
additions may be imprecise (`max_num_imprecise_acc`) keeps its own sum, as the limit is on that.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.walk import walk
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, AddIOp, FmaOp, MulFOp
from tilewright.passes.rewriting import erase, insert_before, replace


def accumulate_in_dots(root: Operation) -> bool:
    """Rewrite every such sum below `root`, in place; says whether there was one."""
    changed = False
    for op in list(walk(root)):
        if isinstance(op, (AddFOp, AddIOp)):
            for product, other in (op.operands[::-1], tuple(op.operands)):
                if _adds_to_nothing(product, op):
                    _fuse(op, product, other)
                    changed = True
                    break
        elif isinstance(op, FmaOp) and _adds_to_nothing(op.operands[2], op):
            scaled = MulFOp.create(operands=op.operands[:2], result_types=[op.results[0].type])
            insert_before(scaled, op)
            _fuse(op, op.operands[2], scaled.results[0])
            changed = True
    return changed


def _adds_to_nothing(product: SSAValue, add: Operation) -> bool:
    """Whether `product` is a dot onto zero that nothing but `add`, in the same block, reads."""
    dot = product.owner
    return (
        isinstance(dot, DotOp)
        and dot.parent_block() is add.parent_block()
        and len(list(product.uses)) == 1
        and constant_of(dot.c) == 0
        and not dot.attr_values()["maxNumImpreciseAcc"]
    )


def _fuse(add: Operation, product: SSAValue, other: SSAValue) -> None:
    """Put the product in the place of the sum, where `other` is known."""
    dot = product.owner
    assert isinstance(dot, DotOp)
    fused = DotOp.create(operands=[dot.a, dot.b, other], result_types=[add.results[0].type], properties=dot.properties)
    insert_before(fused, add)
    fused.location = dot.location
    replace(add, [fused.d])
    erase(dot)
