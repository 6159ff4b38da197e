"""Selections: branches in the functions of reductions and scans choose between values that are both made.

    %r = scf.if %c {                           %x = A
      yield A                         ->       %y = B
    } else {                                   %r = arith.select %c, %x, %y
      yield B
    }

Such a function runs on many elements at once, which want both sides; without a branch it is one expression, that a
planner may know. Sides that may not run unasked, as they read memory or loop, stay: where a back end cannot have them
the front end has made loops of the reduction (`frontend/ordered.py`).
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.frontend.ordered import may_run_unasked
from tilewright.ir.values import operands_of
from tilewright.ir.walk import every
from tilewright.ops.control import IfOp
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import move_before, replace


def select_in_functions(root: Operation) -> bool:
    """Rewrite all such branches below `root`, inner ones first; says whether anything changed."""
    branches = [
        branch
        for op in every(root, ReduceOp, ScanOp)
        for branch in reversed(every(op, IfOp))
        if may_run_unasked(branch)
    ]
    for branch in branches:
        _select(branch)
    return bool(branches)


def _select(branch: IfOp) -> None:
    ends = [region.block.last_op for region in branch.regions if region.blocks]
    for end in ends:
        assert end is not None
        for op in list(end.parent_block().ops)[:-1]:  # type: ignore[union-attr]
            move_before(op, branch)
    sides = zip(*(operands_of(end) for end in ends if end is not None), strict=True)
    replace(branch, [Builder(branch).choose(branch.cond, *pair) for pair in sides])
