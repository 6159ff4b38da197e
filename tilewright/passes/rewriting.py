"""The moves of every pass: take an operation out, put values in its place, move it; and which ones go for good."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.ops.control import ForOp
from tilewright.ops.descriptor import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescOp
from tilewright.ops.function import BranchOp, CondBranchOp, UnreachableOp

# Rewritten into others before a back end sees them (`decompose.py`, `structure.py`), but for the descriptors of the
# host that the back end asks for.
REWRITTEN: frozenset[type[Operation]] = frozenset(
    {BranchOp, CondBranchOp, DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescOp, UnreachableOp}
)


def erase(op: Operation) -> None:
    """Remove an operation whose results have no uses left."""
    op.detach()  # type: ignore[no-untyped-call]
    op.erase()


def replace(op: Operation, values: Sequence[SSAValue]) -> None:
    """Let `values` stand for the results of `op`, and remove it."""
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    erase(op)


def move_before(op: Operation, anchor: Operation) -> None:
    """Move an operation in front of another."""
    block = anchor.parent_block()
    assert block is not None
    op.detach()  # type: ignore[no-untyped-call]
    block.insert_op_before(op, anchor)


def insert_before(op: Operation, anchor: Operation) -> None:
    """Put a new operation in front of another, which it is made for: it has its place in the source."""
    block = anchor.parent_block()
    assert block is not None
    op.location = anchor.location
    block.insert_op_before(op, anchor)


def retype(value: SSAValue, kind: Attribute) -> None:
    """Give a value another type, where whoever makes and reads it is fit for that."""
    value._type = kind  # xDSL has no door for it that keeps the operation


def take_out_invariants(loop: ForOp) -> bool:
    """Let what a loop carries and never changes be what it began with; says whether there was any."""
    changed = False
    for argument, first, given, result in zip(loop.carried, loop.iter_args, loop.yielded, loop.results, strict=True):
        if given is argument:
            argument.replace_all_uses_with(first)
            result.replace_all_uses_with(first)
            changed = True
    return changed


def loop_carrying(loop: ForOp, firsts: Sequence[SSAValue]) -> ForOp:
    """A loop in front of `loop` that takes its body and carries on from `firsts`.

    The body has the arguments already and yields what they become; the caller replaces what `loop` resulted in.
    """
    made = ForOp.create(
        operands=[*loop.operands[:3], *firsts],
        result_types=[value.type for value in firsts],
        properties=dict(loop.properties),
        attributes=dict(loop.attributes),
        regions=[loop.detach_region(0)],
    )
    insert_before(made, loop)
    return made


def splice(block: Block, anchor: Operation) -> None:
    """Move what a block does, all but its last operation, in front of `anchor`."""
    for op in list(block.ops)[:-1]:
        move_before(op, anchor)
