"""Traits that say which memory an operation touches.

An effect that names a value is an access to the memory at that operand. An effect that names none is on something
else: the order of accesses, the output of the process. `analysis/effects.py` finds out whose memory an operand means.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Set
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, NoMemoryEffect

_READ, _WRITE = MemoryEffectKind.READ, MemoryEffectKind.WRITE


@dataclass(frozen=True)
class Accesses(MemoryEffect):
    """The operation reads or writes memory at its first operand: a pointer, a tile of them, or a descriptor.

    Args:
        reads: it may read there.
        writes: it may write there.
        atomic: in one step, in an order that other programs can rely on.
        ordered: whether it may neither be moved nor dropped even where it only reads.
    """

    reads: bool = False
    writes: bool = False
    atomic: bool = False
    ordered: Callable[[Operation], bool] = lambda op: False

    def get_effects(self, op: Operation) -> frozenset[EffectInstance]:  # type: ignore[override]
        """The accesses of `op`, each with its operand."""
        at = op.operands[0]
        found = [EffectInstance(kind, at) for kind, wanted in ((_READ, self.reads), (_WRITE, self.writes)) if wanted]
        if self.ordered(op):
            found.append(EffectInstance(_WRITE))
        return frozenset(found)


_NOTHING: frozenset[EffectInstance] = frozenset()


def effects(op: Operation) -> Set[EffectInstance] | None:
    """What `op` does, its regions included; None if that is not known.

    xDSL's `get_effects`, which looks through all traits of an operation again each time.
    """
    traits = _effect_traits(type(op))
    if not traits:
        return None if traits is None else _NOTHING
    if len(traits) == 1:
        return traits[0].get_effects(op)
    found: set[EffectInstance] = set()
    for trait in traits:
        more = trait.get_effects(op)
        if more is None:
            return None
        found |= more
    return found


def is_without_effects(op: Operation) -> bool:
    """Whether `op` surely does nothing but give its results."""
    found = effects(op)
    return found is not None and not found


@functools.cache
def _effect_traits(kind: type[Operation]) -> tuple[MemoryEffect, ...] | None:
    """The traits that say what operations of a class do, empty for those that do nothing; None for unknown effects."""
    traits = kind.get_traits_of_type(MemoryEffect)  # type: ignore[type-abstract]
    return tuple(trait for trait in traits if not isinstance(trait, NoMemoryEffect)) if traits else None


def access_of(op: Operation) -> Accesses | None:
    """How `op` accesses the memory at its first operand; None if it does not."""
    return _access_of(type(op))


@functools.cache
def _access_of(kind: type[Operation]) -> Accesses | None:
    trait = kind.get_trait(Accesses)
    assert trait is None or isinstance(trait, Accesses)
    return trait


def mask_of(op: Operation) -> SSAValue | None:
    """The operand that says of which elements `op` is, a load, a store or a sum of them; None where it is of all."""
    mask: SSAValue | None = getattr(op, "mask", None)
    return mask


def is_atomic(op: Operation) -> bool:
    """Whether `op` is an atomic access."""
    access = access_of(op)
    return access is not None and access.atomic


def is_plain_read(op: Operation) -> bool:
    """Whether `op` is an access that only reads, and is no atomic."""
    access = access_of(op)
    return access is not None and not access.writes and not access.atomic


def is_plain_write(op: Operation) -> bool:
    """Whether `op` is an access that writes, and is no atomic."""
    access = access_of(op)
    return access is not None and access.writes and not access.atomic


def may_write(op: Operation) -> bool:
    """Whether `op` itself, without its regions, may write what others see: memory, or the output of the process."""
    return not op.regions and any(effect.kind is _WRITE for effect in effects(op) or ())


@dataclass(frozen=True)
class AccessesAny(MemoryEffect):
    """The operation may read and write memory at any of its operands, integers among them, unless it is `pure`."""

    pure: Callable[[Operation], bool] = lambda op: False

    def get_effects(self, op: Operation) -> frozenset[EffectInstance]:  # type: ignore[override]
        """Both effects on everything outside of the program, and on what each operand leads to."""
        places = [] if self.pure(op) else list(op.operands)
        return frozenset(EffectInstance(kind, at) for kind in (_READ, _WRITE) for at in (None, *places))
