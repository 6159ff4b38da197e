"""Transposed dots: a transposed product of transposed matrices is the product of the matrices.

    tt.trans (tt.dot (tt.trans %b), %a, 0)    ->    tt.dot (tt.trans %a), %b, 0

(B^T A)^T = A^T B, and the same products are summed. A sum around it is then one of the product (`accumulate.py`).
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.ir.walk import every
from tilewright.ops.constant import ConstantOp
from tilewright.ops.dot import DotOp
from tilewright.ops.shape import TransOp
from tilewright.passes.rewriting import erase, insert_before, replace, transposed


def fold_transposed_dots(root: Operation) -> bool:
    """Rewrite every such product below `root`, in place; says whether there was one."""
    changed = False
    for op in every(root, TransOp):
        if _is_foldable(op):
            _rewrite(op)
            changed = True
    return changed


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
