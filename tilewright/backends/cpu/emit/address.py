"""Where the lanes of a chunk are in memory."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from tilewright.analysis.affine import PointerForm
from tilewright.backends.cpu import tuning
from tilewright.backends.llvm.types import V

Offsets = tuple[int, ...]


@dataclass(slots=True)
class Address:
    """Where the lanes of a chunk are in memory.

    Args:
        base: scalar pointer, or a vector of pointers (then `varying` is part of it).
        offsets: known bytes added by each lane; None for none.
        varying: bytes added by each lane at run time; None for none.
        step: bytes, where `varying` is nothing but a multiple of them for each lane.
        multiples: which multiple of `step` each lane adds.
        form: what it was made of, if it is an address of the kernel's.
        wanted: a condition of all lanes; where it does not hold nothing need be there. None for none.
    """

    base: V
    offsets: Offsets | None = None
    varying: V | None = None
    step: V | None = None
    multiples: tuple[int, ...] = ()
    form: PointerForm | None = None
    wanted: V | None = None

    @property
    def uniform(self) -> bool:
        """Whether all lanes have one address."""
        return self.offsets is None and self.varying is None and not self.base.type.lanes

    @property
    def known(self) -> Offsets | None:
        """The offsets, where the distances of all lanes from each other are known."""
        return None if self.varying is not None or self.base.type.lanes else self.offsets

    @property
    def even(self) -> V | None:
        """Bytes between neighbours, where each lane adds nothing but that many more than the one before it."""
        return self.step if self.offsets is None and self.multiples == tuple(range(len(self.multiples))) else None

    def run(self, size: int) -> int | None:
        """Length of the runs of lanes that are neighbours, where an instruction for each is better than others."""
        if self.known is not None:
            return worthwhile_run(self.known, size)
        if self.step is None or self.offsets is None or self.base.type.lanes:
            return None
        run = neighbours(self.offsets, size)
        while run > 1 and any(self.multiples[i] != self.multiples[i // run * run] for i in range(len(self.offsets))):
            run //= 2
        return run if _is_worthwhile(run, size) else None

    def rows(self, size: int) -> int:
        """Rows of a square of lanes, if each lane lies beside that of its place in the row before; 0 otherwise."""
        offsets, multiples = self.offsets, self.multiples
        if offsets is None or len(offsets) < 16 or self.base.type.lanes or (self.varying is not None and not multiples):
            return 0
        rows = math.isqrt(len(offsets))
        if rows * rows != len(offsets) or (offsets[1] - offsets[0] == size and multiples[:1] == multiples[1:2]):
            return 0
        beside = (offsets[i] - offsets[i - rows] == size for i in range(rows, len(offsets)))
        same = multiples[rows:] == multiples[:-rows]
        return rows if same and all(beside) else 0


@functools.cache
def neighbours(offsets: Offsets, size: int) -> int:
    """Length of the aligned runs of lanes that are neighbours in memory."""
    run = len(offsets)
    while run > 1 and any(offsets[i + 1] - offsets[i] != size for i in range(len(offsets) - 1) if (i + 1) % run):
        run //= 2
    return run


def worthwhile_run(offsets: Offsets, size: int) -> int | None:
    """Length of these runs, where an instruction for each is better than others; None where it is not."""
    run = neighbours(offsets, size)
    return run if run == len(offsets) or _is_worthwhile(run, size) else None


def _is_worthwhile(run: int, size: int) -> bool:
    return run >= tuning.SHORTEST_RUN and run * size >= 8
