"""Where the values of loops and branches come from.

%r = scf.for .. iter_args(%a = %first) { .. yield %next }      %a, %r: %first or %next
%r = scf.if .. { yield %then } else { yield %other }           %r: %then or %other
%r = scf.while (%a = %first) { condition(.., %b) } do          %a: %first or %next;  %r, %c: %b
     { ^(%c): .. yield %next }
"""

from __future__ import annotations

from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from tilewright.ops.control import ForOp, IfOp, WhileOp


def sources_of(value: SSAValue) -> list[SSAValue] | None:
    """The values that a result of a loop or branch, or what a loop carries, may be; None for any other value."""
    if isinstance(value, OpResult):
        return _of_result(value.op, value.index)
    assert isinstance(value, BlockArgument)
    loop, index = value.block.parent_op(), value.index
    if isinstance(loop, ForOp) and index:
        return [loop.iter_args[index - 1], _end(loop.body).operands[index - 1]]
    if isinstance(loop, WhileOp):
        if value.block is loop.before.block:
            return [loop.inits[index], _end(loop.after).operands[index]]
        return [_end(loop.before).operands[index + 1]]
    return None


def _of_result(op: Operation, index: int) -> list[SSAValue] | None:
    if isinstance(op, ForOp):
        return [op.iter_args[index], _end(op.body).operands[index]]
    if isinstance(op, IfOp):
        return [_end(region).operands[index] for region in op.regions]
    return [_end(op.before).operands[index + 1]] if isinstance(op, WhileOp) else None


def _end(region: Region) -> Operation:
    """The terminator of a region of one block."""
    block: Block = region.block
    last = block.last_op
    assert last is not None
    return last
