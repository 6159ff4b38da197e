"""Loop-invariant code motion: compute before a loop what every iteration computes alike.

Only pure operations without regions move. Nothing in tile IR traps (division by zero has a
defined result), so moving one out of a loop that runs zero times is safe.
"""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.traits import IsTerminator

from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.values import is_made_inside, operands_of
from tilewright.ir.walk import operations
from tilewright.ops.control import LoopOp
from tilewright.passes.rewriting import move_before


def hoist_loop_invariants(root: Operation) -> bool:
    """Hoist out of every loop below `root`, inner loops first; says whether anything changed."""
    changed = False
    for region in root.regions:
        for block in region.blocks:
            for op in operations(block):
                if op.regions:
                    changed |= hoist_loop_invariants(op)
                if isinstance(op, LoopOp):
                    changed |= _hoist(op)
    return changed


def _hoist(loop: Operation) -> bool:
    changed = False
    for region in loop.regions:
        for block in region.blocks:
            for op in operations(block):
                if _invariant(op, loop):
                    move_before(op, loop)
                    changed = True
    return changed


def _invariant(op: Operation, loop: Operation) -> bool:
    if op.regions or op.has_trait(IsTerminator) or not is_without_effects(op):
        return False
    return not any(is_made_inside(operand, loop) for operand in operands_of(op))
