"""Tiles of as many lanes as the program says, which no end of a range cuts: they are as long as a row of so many.

::

    for tile in hl.tile(128, block_size=32):
        hl.dot(a[tile, :], b[tile, :])      a: [128, 32]: the row of 32 elements and the tile of 32 lanes do not meet
                                            -> `Even`: 32 for tile as well
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.symbols import Atom, Sym, show, substitute
from tilewright.hl.trace.state import Restart, Trace


class Even(Restart):
    """Block sizes are numbers of which their ranges are multiples: the trace starts again and has them so."""

    def __init__(self, blocks: Sequence[Atom]) -> None:
        super().__init__(*blocks)
        self.blocks = [block.written for block in blocks]


def even_for_equal(trace: Trace, one: Any, other: Any) -> None:
    """Take block sizes for the numbers that they are, where two sizes are equal then.

    Raises:
        Even: the samples do not have it yet.
    """
    named = [atom for size in (one, other) if isinstance(size, Sym) for atom in size.atoms()]
    axes = {atom: axis for atom in named if (axis := _open_axis(trace, atom)) is not None}
    if not axes or not all(_is_even(trace, axis) for axis in axes.values()):
        return

    def known(atom: Atom) -> Any:
        return axes[atom].block if atom in axes else trace.actual.get(atom)

    sizes = [substitute(size, known) for size in (one, other)]
    if type(sizes[0]) is int and sizes[0] == sizes[1]:
        raise Even(list(axes))


def _open_axis(trace: Trace, atom: Atom) -> Axis | None:
    """The axis of an open loop whose block size an atom is, where the program gives a number for it."""
    axis = trace.axis_of(atom)
    return axis if axis is not None and type(axis.block) is int and not axis.is_even else None


def _is_even(trace: Trace, axis: Axis) -> bool:
    """Whether a block size is a power of two that divides a range."""
    count = None if axis.kind != "tile" else substitute(_count(axis), trace.actual.get)
    return axis.block & (axis.block - 1) == 0 and type(count) is int and count % axis.block == 0


def _count(axis: Axis) -> Any:
    """How many indices a range has; None where it depends on data."""
    return axis.end - axis.begin if isinstance(axis.begin, int) and isinstance(axis.end, int) else None


def hold_even(trace: Trace, axis: Axis) -> None:
    """Let calls bind anew in which a range is no multiple of a block size that is taken for a number."""
    count = _count(axis)
    if axis.is_even and isinstance(count, Sym):
        trace.guards.append((f"({show(count)}) % {axis.block} == 0", True))
