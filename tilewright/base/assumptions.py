"""What the compiler takes to be true without a proof, in one place. `docs/assumptions.md` tells users the same.

Whoever relies on an assumption asks `holds` where the proof is missing. A tool that looks for the reason of a wrong
result compiles without it:

    with without(NO_OVERLAP):
        kernel = compile(source, target)        planned as if arguments might overlap

Compiled kernels that are kept in memory or on disk are not taken for such a compilation: the keys differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Assumption(NamedTuple):
    """Something that programs are expected to keep to.

    Args:
        name: by which it is known.
        statement: what is taken to be true.
        gain: what it is good for.
        otherwise: what happens to a program that breaks it.
        switchable: whether planning asks `holds`; else it cannot be dropped.
    """

    name: str
    statement: str
    gain: str
    otherwise: str
    switchable: bool = True


NO_OVERLAP = Assumption(
    "no overlap",
    "memory that a kernel reaches through one argument is not reached through another",
    "loads and stores of different arguments share a loop, and need no barrier between them",
    "a program may load what it has not stored yet, or store what it has yet to load",
)
POSITIVE_DIVISORS = Assumption(
    "positive divisors",
    "a scalar that only the launch knows, and that something is divided by, is positive",
    "blocks that are numbered by groups, or wrapped by a remainder, are loaded in whole vectors",
    "vectors are loaded from wrong places",
)
NO_WRAP = Assumption(
    "no wrap-around",
    "index arithmetic, of 32 bits or 64, does not leave the range of its type",
    "addresses are sums of multiples of the element's place, in 64 bits",
    "an address differs by 4 GiB times the element's size; with `debug` kernels check sums and products",
    switchable=False,
)
UNORDERED_PROGRAMS = Assumption(
    "unordered programs",
    "programs of a launch that use no atomics do not load what another of them stores",
    "packed operands of products are kept from one program to the next",
    "a product may use what the operand was before the other program stored to it",
)

ASSUMPTIONS = (NO_OVERLAP, POSITIVE_DIVISORS, NO_WRAP, UNORDERED_PROGRAMS)
_dropped: ContextVar[frozenset[str]] = ContextVar("dropped assumptions", default=frozenset())


def holds(assumption: Assumption) -> bool:
    """Whether a planner may rely on it now."""
    return assumption.name not in _dropped.get()


@contextmanager
def without(*assumptions: Assumption) -> Iterator[None]:
    """Compile without relying on these.

    Raises:
        ValueError: one of them cannot be dropped.
    """
    fixed = [a.name for a in assumptions if not a.switchable]
    if fixed:
        raise ValueError(f"code is always made with the assumption {', '.join(fixed)}")
    before = _dropped.set(_dropped.get() | {a.name for a in assumptions})
    try:
        yield
    finally:
        _dropped.reset(before)


def key() -> str:
    """Text that differs when other assumptions are dropped; part of every key."""
    return ",".join(sorted(_dropped.get()))
