"""Checks of a loop that need nothing but its counters run in a loop of their own, in front of it.

    for k: check(k); load; dot        ->        for k: check(k)
                                                for k: load; dot

What the loop computes is then planned as in the kernel without checks. It may write nothing: behind a check that ends
its program nothing more of the program is to be seen, and so nothing of earlier iterations either.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.flow import carried_by
from tilewright.base.order import reached
from tilewright.ir.effect_traits import effects
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import among, every
from tilewright.ops.check import CheckOp
from tilewright.ops.control import ForOp
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import erase, insert_before


def run_checks_first(kernel: Operation) -> None:
    """Split the innermost loops of a kernel whose checks can run first; dead code is left behind."""
    for loop in every(kernel, ForOp):
        checks = among(loop.body.block.ops, CheckOp)
        if checks and _writes_nothing_else(loop) and _by_counters(loop, checks):
            insert_before(loop.clone(), loop)
            for check in checks:
                erase(check)


def _writes_nothing_else(loop: ForOp) -> bool:
    rest = [op for op in loop.body.block.ops if not isinstance(op, CheckOp)]
    return all(not op.regions and is_removable(op) for op in rest[:-1])


def _by_counters(loop: ForOp, checks: list[CheckOp]) -> bool:
    """Whether checks are made of scalars that no memory was read for, in the loop."""

    def is_inside(value: SSAValue) -> bool:
        return loop.body.block in (value.owner, value.owner.parent)

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        op, carried = defining_op(value), carried_by(value)
        found = op.operands if op is not None else () if carried is None else [loop.yielded[carried[1]]]
        return [part for part in found if is_inside(part)]

    checked = [value for check in checks for value in check.operands if is_inside(value)]
    made = ((value, defining_op(value)) for value in reached(checked, made_of))
    return not any(is_tile(value) or (op is not None and effects(op)) for value, op in made)
