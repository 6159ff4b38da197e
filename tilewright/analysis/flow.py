"""Where the values of loops and branches come from, and where they go.

%r = scf.for .. iter_args(%a = %first) { .. yield %next }      %a, %r: %first or %next
%r = scf.if .. { yield %then } else { yield %other }           %r: %then or %other
%r = scf.while (%a = %first) { condition(.., %b) } do          %a: %first or %next;  %r, %c: %b
     { ^(%c): .. yield %next }
"""

from __future__ import annotations

from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue

from tilewright.ops.control import ConditionOp, ForOp, IfOp, WhileOp, YieldOp


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


def targets_of(op: Operation, index: int) -> list[SSAValue] | None:
    """What operand number `index` of a loop or of a terminator in one may become; None for any other operation."""
    if isinstance(op, ForOp):
        return [op.results[index - 3], op.body.block.args[index - 2]] if index >= 3 else []
    if isinstance(op, WhileOp):
        return [op.before.block.args[index]]
    parent = op.parent_op()
    if isinstance(op, ConditionOp) and isinstance(parent, WhileOp):
        return [parent.results[index - 1], parent.after.block.args[index - 1]] if index else []
    if not isinstance(op, YieldOp):
        return None
    if isinstance(parent, ForOp):
        return [parent.results[index], parent.body.block.args[index + 1]]
    if isinstance(parent, WhileOp):
        return [parent.before.block.args[index]]
    return [parent.results[index]] if isinstance(parent, IfOp) else None


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
