"""Arguments of a launch that share memory to which the kernel stores.

Kernels are compiled as if what is reached through one argument is not reached through another (docs/assumptions.md).
The launch knows better: where two that count are one address, a kernel is compiled in which both arguments are one, and
where they overlap, one in which neither is taken to lie apart from the other (`passes/united.py`), once for each
pattern. What is remembered of a launch asks whether every pair of arguments is as it was.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base.cache_layers import SmallObjects
from tilewright.base.lazy import lazy_module
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.slots import at_path
from tilewright.compile.specialize import Specialization
from tilewright.devices.arrays import Array, read
from tilewright.devices.ranges import meet, range_of

if TYPE_CHECKING:
    from tilewright.launch.native import apart
else:  # loaded at the first launch
    apart = lazy_module("tilewright.launch.native.apart")

APART, EQUAL, MEETING = range(3)
"""What two arguments are: of no common byte, one address that is not 0, or overlapping."""
_MOST = 32
"""Pairs that a launch compares; a kernel with more is compiled as if all arguments lay apart."""

Rows = tuple[tuple[int, int], ...]


class Pair(NamedTuple):
    """Two addresses among the run-time arguments.

    Args:
        one, other: numbers of the slots, the lower one first.
        relation: of the memory that lies there.
    """

    one: int
    other: int
    relation: int


def pairs_that_count(
    specialization: Specialization, arguments: tuple[Any, ...], stored: Iterable[int] | None
) -> tuple[Pair, ...]:
    """The pairs of addresses of a call of which one is stored to.

    Args:
        specialization: of the call.
        arguments: by parameter, with arrays read.
        stored: slots that the kernel stores through; None for any.
    """
    kinds = specialization.runtime_types
    pointers = [slot for slot, kind in enumerate(kinds) if kind.startswith("*")]
    changed = set(pointers) if stored is None else set(stored)
    pairs = [pair for pair in combinations(pointers, 2) if not changed.isdisjoint(pair)]
    if len(pairs) > _MOST:
        return ()
    paths = specialization.runtime_paths
    found = {slot: at_path(arguments, paths[slot]) for slot in dict.fromkeys(slot for pair in pairs for slot in pair)}
    return tuple(Pair(a, b, _relation((found[a], kinds[a]), (found[b], kinds[b]))) for a, b in pairs)


def _relation(one: tuple[Any, str], other: tuple[Any, str]) -> int:
    """What two arguments, each with its type, are to each other."""
    a, b = (x.address if isinstance(x, Array) else x for x, _ in (one, other))
    if not a or not b:
        return APART
    return EQUAL if a == b else MEETING if meet(range_of(*one), range_of(*other)) else APART


def shared_memory(pairs: Sequence[Pair]) -> tuple[Rows, Rows]:
    """Each slot that has the address of an earlier one, with the first such; the same for others that overlap."""
    same = _grouped([pair for pair in pairs if pair.relation == EQUAL])
    replaced = dict(same)
    meeting = _grouped([pair for pair in pairs if pair.relation != APART])
    return same, tuple((slot, first) for slot, first in meeting if slot not in replaced)


def _grouped(pairs: Sequence[Pair]) -> Rows:
    """Each slot that pairs lead to from an earlier one, with the first such."""
    first: dict[int, int] = {}
    for pair in pairs:
        low, high = sorted((first.get(pair.one, pair.one), first.get(pair.other, pair.other)))
        first.update({slot: low for slot in (*first, high, pair.one, pair.other) if first.get(slot, slot) == high})
        first[pair.one] = first[pair.other] = low
    return tuple(sorted((slot, other) for slot, other in first.items() if slot != other))


def pattern(*arrays: Any) -> tuple[int, ...]:
    """What each two of some arrays are to each other: the key of calls that are alike in this."""
    found = [(array, f"*{array.dtype}") for array in (read(each, "") for each in arrays)]
    return tuple(_relation(one, other) for one, other in combinations(found, 2))


def apart_test() -> Callable[..., bool]:
    """A function of arrays that says True where it sees that no two of them have a byte in common."""
    test = apart.apart_test(SmallObjects())
    return _never if test is None else test


def _never(*arrays: Any) -> bool:
    """Of an interpreter without machine code: `pattern` tells."""
    return False


def note_extents(kernel: CompiledKernel, specialization: Specialization, arguments: tuple[Any, ...]) -> None:
    """Tell the code of a kernel how long the arrays of a call are, if it wants to know.

    Args:
        kernel: loaded.
        specialization: of the call.
        arguments: by parameter, with arrays read.
    """
    note = getattr(kernel.module, "note_extents", None)
    if note is None:
        return
    found = {}
    rows = zip(specialization.runtime_types, specialization.runtime_paths, strict=True)
    for slot, (kind, path) in enumerate(rows):
        argument = at_path(arguments, path)
        if isinstance(argument, Array) and argument.address:
            found[slot] = argument.address, range_of(argument, kind)[1]
    note(found)


@functools.lru_cache(maxsize=1024)
def tell(name: str, specialization: Specialization) -> None:
    """Say once to somebody who debugs that a kernel was compiled for arguments that share memory."""
    named = [row[0] for row in specialization.leaves() if row[2] != "constexpr"]
    rows = {
        "are one array": [f"`{named[slot]}` is `{named[other]}`" for slot, other in specialization.same],
        "overlap": [f"`{named[slot]}` and `{named[other]}`" for slot, other in specialization.meeting],
    }
    for what, said in rows.items():
        if said:
            print(
                f"tilewright: {name} stores to one of several arguments that {what}: {', '.join(said)}", file=sys.stderr
            )
