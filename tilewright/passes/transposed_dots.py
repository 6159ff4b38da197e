"""Transposed dots: a transposed product of transposed matrices is the product of the matrices.

    tt.trans (tt.dot (tt.trans %b), %a, 0)    ->    tt.dot (tt.trans %a), %b, 0

(B^T A)^T = A^T B, and the same products are summed. A sum around it is then one of the product (`accumulate.py`).
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.walk import every
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.shape import TransOp
from tilewright.passes.rewriting import erase, insert_before, replace, retype, transposed, value_before


def fold_transposed_dots(root: Operation) -> bool:
    """Rewrite every such product below `root`, in place; says whether there was one."""
    changed = False
    for op in every(root, TransOp):
        if _is_foldable(op):
            _rewrite(op)
            changed = True
    return changed


def sum_transposed(dot: DotOp, number: int, a: SSAValue, b: SSAValue) -> None:
    """Have a loop sum up the transposed product, and transpose what it leaves.

    Args:
        dot: adds to what its loop carries, of which nobody else in the loop reads anything.
        number: of that among what the loop carries.
        a, b: operands of the transposed product.
    """
    loop, sum_ = dot.parent_op(), dot.c
    assert isinstance(loop, ForOp) and loop.next_op is not None
    kind = tile_type(shape_of(sum_.type)[::-1], element_type(sum_.type))
    loop.operands[3 + number] = transposed(loop.operands[3 + number], loop)
    result = loop.results[number]
    uses = list(result.uses)
    retype(result, kind)
    retype(sum_, kind)
    if uses:
        view = transposed(result, loop.next_op)
        for use in uses:
            use.operation.operands[use.index] = view
    made = value_before(DotOp.create(operands=[a, b, sum_], result_types=[kind], properties=dict(dot.properties)), dot)
    replace(dot, [made])


def _is_foldable(op: TransOp) -> bool:
    """Whether it is of a product that nobody else reads, and no tile is transposed instead."""
    dot = op.src.owner
    if not isinstance(dot, DotOp) or not dot.d.has_one_use() or list(op.attr_values()["order"]) != [1, 0]:
        return False
    return isinstance(dot.c.owner, ConstantOp | TransOp) and any(isinstance(v.owner, TransOp) for v in (dot.a, dot.b))


def _rewrite(op: TransOp) -> None:
    dot = op.src.owner
    assert isinstance(dot, DotOp)
    operands = [transposed(value, dot) for value in (dot.b, dot.a, dot.c)]
    made = DotOp.create(operands=operands, result_types=[op.result.type], properties=dot.properties)
    insert_before(made, dot)
    replace(op, [made.d])
    erase(dot)
