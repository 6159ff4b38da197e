"""What is told of how a kernel was assembled."""

from __future__ import annotations

from typing import Any

from tilewright.backends.nvidia.plan.subjects import WHOLE
from tilewright.base.decision import Answer
from tilewright.ir.decisions import Decisions


def records_of(whole: Answer[Any] | None) -> list[dict[str, Any]]:
    """The decision on assembling a kernel as a whole program, as data; nothing where nobody asked."""
    decisions = Decisions()
    if whole is not None:
        decisions.note(WHOLE, None, whole)
    return decisions.records()


__all__ = ["records_of"]
