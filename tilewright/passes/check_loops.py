"""Checks of a loop that need nothing but its counters run in a loop of their own, in front of it.

    for k: check(k); load; dot        ->        for k: check(k)
                                                for k: load; dot

What the loop computes is then planned as in the kernel without checks. It may write nothing: behind a check that ends
its program nothing more of the program is to be seen, and so nothing of earlier iterations either.
"""

from __future__ import annotations

from xdsl.ir import Operation

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
    block = loop.body.block
    last = block.last_op
    assert last is not None
    seen, todo = set[object](), [value for check in checks for value in check.operands]
    while todo:
        value = todo.pop()
        op = defining_op(value)
        inside = value.owner is block or (op is not None and op.parent is block)
        if value in seen or not inside:
            continue
        seen.add(value)
        if is_tile(value) or (op is not None and effects(op)):
            return False
        if op is not None:
            todo += op.operands
        elif value is not loop.induction_var:
            todo.append(last.operands[list(loop.carried).index(value)])
    return True
