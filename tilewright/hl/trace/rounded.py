"""Rows rounded up: `hl.next_power_of_2(n)` as the extent of a tile beside a row of n elements.

A row that a tile takes whole has as many lanes as it needs, and masks for those behind its end. So where a program
makes a tile of the next power of two and lets it meet the row, it means the row, with lanes: the trace starts again,
and such extents are rows in all of the kernel::

    acc = hl.zeros([tile, hl.next_power_of_2(n)])
    acc = acc + x[tile, :]                  1024 and 1000 elements do not meet -> `RoundUp`: acc has n elements too
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.hl.symbols import Sym, set_power_hook, show
from tilewright.hl.trace.state import Restart, Trace, current


class RoundUp(Restart):
    """The next power of two of a size is the extent of a row of that size: the trace starts again and knows it."""


class RoundedUp(int):
    """The next power of two of a number, in a kernel where it is the extent of a row.

    Args:
        power: the power.
        row: how many elements the row has.
    """

    row: int

    def __new__(cls, power: int, row: int) -> RoundedUp:
        self = int.__new__(cls, power)
        self.row = row
        return self


def row_of(trace: Trace, size: Any) -> Any:
    """The size of the row whose lanes an extent counts, or the extent itself."""
    if not trace.rounds or trace.region is None:
        return size
    if isinstance(size, RoundedUp):
        return size.row
    atom = size.atom if isinstance(size, Sym) else None
    return atom.args[0] if atom is not None and atom.key == "next_power_of_2" else size


def rows_of(trace: Trace, power: Any) -> list[Any]:
    """The sizes of which an extent is the next power of two, as the program asked for it."""
    return trace.powers.get(show(power), [])


_REFERENCES: list[Callable[[], bool]] = []


def in_references(rounds: Callable[[], bool]) -> None:
    """`rounds` says whether a kernel with rows that are rounded up runs as a reference now."""
    _REFERENCES.append(rounds)


def _marked(value: Any, power: Any) -> Any:
    trace = current()
    if trace is not None:
        trace.powers.setdefault(show(power), []).append(value)
    rounds = trace.rounds if trace is not None else any(ask() for ask in _REFERENCES)
    return RoundedUp(power, value) if rounds and not isinstance(value, Sym) else power


set_power_hook(_marked)
