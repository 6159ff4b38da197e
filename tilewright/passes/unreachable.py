"""Unreachable blocks: drop the blocks of a function that no branch leads to.

A front end leaves them after an early `return`; with them gone a structured function is one block again.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.base.order import reached
from tilewright.ir.walk import every
from tilewright.ops.function import FuncOp


def drop_unreachable_blocks(root: Operation) -> bool:
    """Drop them in every function below `root`; says whether anything changed."""
    changed = False
    for op in every(root, FuncOp):
        if len(op.body.blocks) > 1:
            changed |= _drop(op)
    return changed


def _drop(function: FuncOp) -> bool:
    entry = function.body.blocks[0]
    used = set(reached([entry], lambda block: block.last_op.successors if block.last_op is not None else ()))
    dead = [block for block in function.body.blocks if block not in used]
    for block in dead:
        function.body.detach_block(block)
    for block in dead:  # all are out before the first goes: they may use one another's values
        block.erase(safe_erase=False)
    return bool(dead)
