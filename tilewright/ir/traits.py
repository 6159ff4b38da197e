"""Traits that say what an operation does to the elements of its tiles; `ir/effect_traits.py` has those about memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from xdsl.ir import Operation
from xdsl.traits import OpTrait

from tilewright.ir.values import operands_of


@dataclass(frozen=True)
class View(OpTrait):
    """Every element of a result is an element of an operand, at another index; nothing is computed."""


def is_view(op: Operation) -> bool:
    """Whether the results of `op` are elements of its one operand, somewhere else."""
    return _has_view(type(op)) and len(operands_of(op)) == 1


@functools.cache
def _has_view(kind: type[Operation]) -> bool:
    return kind.has_trait(View)
