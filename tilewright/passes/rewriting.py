"""The two moves of every pass: take an operation out, and put values in its place; and which operations go for good."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

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
