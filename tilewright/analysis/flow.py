"""Where the values of loops and branches come from, and where they go.

%r = scf.for .. iter_args(%a = %first) { .. yield %next }      %a, %r: %first or %next
%r = scf.if .. { yield %then } else { yield %other }           %r: %then or %other
%r = scf.while (%a = %first) { condition(.., %b) } do          %a: %first or %next;  %r, %c: %b
     { ^(%c): .. yield %next }
"""

from __future__ import annotations

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright.ops.control import ControlOp, ForOp


def sources_of(value: SSAValue) -> list[SSAValue] | None:
    """The values that a result of a loop or branch, or what a loop carries, may be; None for any other value."""
    assert isinstance(value, OpResult | BlockArgument)
    holder = value.op if isinstance(value, OpResult) else value.block.parent_op()
    if not isinstance(holder, ControlOp):
        return None
    pairs = (pair for flow in holder.flows() for pair in zip(flow.sources, flow.targets, strict=True))
    return [source for source, target in pairs if target is value] or None


def carried_by(value: SSAValue) -> tuple[ForOp, int] | None:
    """The for loop whose iterations hand on an argument of its body, and the number of that among what it carries."""
    loop = value.block.parent_op() if isinstance(value, BlockArgument) else None
    index = value.index if isinstance(value, BlockArgument) else 0
    return (loop, index - 1) if isinstance(loop, ForOp) and index else None


def counted_by(value: SSAValue) -> ForOp | None:
    """The for loop whose counter a value is."""
    loop = value.block.parent_op() if isinstance(value, BlockArgument) else None
    return loop if isinstance(loop, ForOp) and loop.induction_var is value else None


def targets_of(op: Operation, index: int) -> list[SSAValue] | None:
    """What operand number `index` of a loop or of a terminator in one may become; None for any other operation."""
    holder = op if isinstance(op, ControlOp) else op.parent_op() if op.next_op is None else None
    if not isinstance(holder, ControlOp):
        return None
    return [flow.targets[index - flow.start] for flow in holder.flows() if flow.op is op and index >= flow.start]
