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


@dataclass(frozen=True)
class Lanewise(OpTrait):
    """Every element of the result is computed of the elements of the operands at its place; of operations of a back
    end's own, as those of tile IR say so in their records."""


@dataclass(frozen=True)
class Collective(OpTrait):
    """An element of a result is made of elements of the operands at other places, or of many of them.

    Threads that hold tiles in parts have to exchange elements for it. What a back end has no rule of its own for takes
    tiles of one shape, whole, and gives tiles that are made whole.

    Args:
        computes: whether elements of the results are others than those of the operands.
    """

    computes: bool = True


def is_view(op: Operation) -> bool:
    """Whether the results of `op` are elements of its one operand, somewhere else."""
    return _has_view(type(op)) and len(operands_of(op)) == 1


def is_collective(op: Operation) -> bool:
    """Whether elements of the results of `op` are made of elements at other places."""
    return collective_of(type(op)) is not None


@functools.cache
def collective_of(kind: type[Operation]) -> Collective | None:
    """The trait of operations of a class that are collective."""
    trait = kind.get_trait(Collective)
    assert trait is None or isinstance(trait, Collective)
    return trait


@functools.cache
def _has_view(kind: type[Operation]) -> bool:
    return kind.has_trait(View)
