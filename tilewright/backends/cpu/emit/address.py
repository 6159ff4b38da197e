"""Where the lanes of a chunk are in memory."""

from __future__ import annotations

import functools
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
        step: bytes between neighbours, where `varying` is nothing but that many for each lane.
        form: what it was made of, if it is an address of the kernel's.
        wanted: a condition of all lanes; where it does not hold nothing need be there. None for none.
    """

    base: V
    offsets: Offsets | None = None
    varying: V | None = None
    step: V | None = None
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
    return run if run == len(offsets) or (run >= tuning.SHORTEST_RUN and run * size >= 8) else None
