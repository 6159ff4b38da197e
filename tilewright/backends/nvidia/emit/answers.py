"""What is told of accesses as code is made for them: that is when instructions are known."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.subjects import ACCESS
from tilewright.ir.values import is_tile


def tell_access(
    decisions: Decisions, op: Operation, groups: Sequence[Sequence[int]], *, versions: bool = False
) -> None:
    """An access by threads, of groups of registers that lie side by side in memory; `versions`: one without masks."""
    decisions.once(ACCESS, op, lambda: _reach(op, groups, versions))


def tell_atomic(decisions: Decisions, op: Operation) -> None:
    """An atomic access by threads."""
    decisions.once(ACCESS, op, lambda: Yes(None, "in one step for each element, by the thread that owns it"))


def _reach(op: Operation, groups: Sequence[Sequence[int]], versions: bool) -> Answer[int]:
    """How many elements a thread moves at once; the runner-up is an instruction for each of them."""
    apart = ", without masks where a warp's are all on" if versions else ""
    count, width = sum(map(len, groups)), len(groups[0])
    if count == 1:
        return Yes(1, "one element of a thread" if is_tile(op.operands[0]) else "one element")
    if width > 1:
        return Yes(
            width, f"{width} elements of a thread at a time: {len(groups)} for {count}, {count} one by one{apart}"
        )
    return No(f"no two of a thread's {count} elements are known to be neighbours: {count} instructions{apart}")
