"""The two moves of every pass: take an operation out, and put values in its place."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue


def erase(op: Operation) -> None:
    """Remove an operation whose results have no uses left."""
    op.detach()  # type: ignore[no-untyped-call]
    op.erase()


def replace(op: Operation, values: Sequence[SSAValue]) -> None:
    """Let `values` stand for the results of `op`, and remove it."""
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    erase(op)
