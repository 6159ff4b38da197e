"""Contraction of floats: sums take products in, `x * y + z` becomes one operation that rounds once.

    %p = arith.mulf %x, %y        %s = math.fma %x, %y, %z
    %s = arith.addf %p, %z   ->

The rule is `ops/fp_contraction.py`, which the interpreter follows too; it speaks of the program as it is written, so
this pass comes before those that move operations. Back ends join nothing further: all round alike.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from tilewright.ir.walk import operations, walk
from tilewright.ops import fp_contraction
from tilewright.ops.elementwise import FmaOp, NegFOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace


def contract_floats(root: Operation) -> bool:
    """Rewrite every such sum below `root`, in place; says whether there was one."""
    changed = False
    for op in list(walk(root)):
        for region in op.regions:
            for block in region.blocks:
                changed |= _contract(block)
    return changed


def _contract(block: Block) -> bool:
    made: dict[SSAValue, int] = {}  # products that may be taken, and when each was made
    changed = False
    for number, op in enumerate(operations(block)):
        if isinstance(op, fp_contraction.BOUNDARIES):
            made.clear()
            continue
        if len(op.results) != 1:
            continue
        result = op.results[0]
        if fp_contraction.is_product(type(op), result.type):
            made[result] = number
        elif made and fp_contraction.is_sum(type(op), result.type):
            which = fp_contraction.taken(*[made.get(operand) for operand in op.operands])
            if which is not None:
                _take(op, which)
                changed = True
    return changed


def _take(add: Operation, which: int) -> None:
    """Put the fused operation in the place of a sum that takes its operand `which`."""
    product = add.operands[which].owner
    assert isinstance(product, Operation)
    of_product, of_other = fp_contraction.signs(type(add), which)
    x, y = product.operands
    z = add.operands[1 - which]
    b = Builder(add)
    x, z = (b.op(NegFOp, value) if turned else value for value, turned in ((x, of_product), (z, of_other)))
    replace(add, [b.op(FmaOp, x, y, z)])
