"""Who takes which role of a kernel, and how registers are shared between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import WARP
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.channels import TURNING
from tilewright.backends.nvidia.plan.prefetch import Prefetch
from tilewright.backends.nvidia.tgir.types import memdesc_bytes

GROUP = 4  # warps: registers are handed on between groups
LARGE = 16  # warps that multiply, which have few registers each
_REGISTERS = 65536  # of a multiprocessor
_COPYING, _MOST = 24, 240  # registers of a thread that copies; of others, at most
_UNIT = 8  # in which registers are handed on


@dataclass(frozen=True, slots=True)
class Crew:
    """Warps of a block with roles: those that multiply come first, then those that turn, then those that copy.

    Args:
        warps: that multiply.
        turns: whether some turn.
        copying, turning, multiplying: registers of a thread; 0 for what all have.
    """

    warps: int
    turns: bool = False
    copying: int = 0
    turning: int = 0
    multiplying: int = 0

    @property
    def first_copying(self) -> int:
        """Number of the first warp that copies."""
        return self.warps + (TURNING if self.turns else 0)

    @property
    def total(self) -> int:
        """All warps."""
        return self.first_copying + GROUP

    @property
    def usual(self) -> int:
        """Registers of each thread where all have as many."""
        return min(255, _REGISTERS // (WARP * self.total) // _UNIT * _UNIT)

    @property
    def held(self) -> int:
        """Registers of a thread that multiplies."""
        return self.multiplying or self.usual


def crew_of(options: CudaOptions, prefetches: Sequence[Prefetch], *, hands_on: bool = True) -> Crew:
    """Who copies, turns and multiplies.

    A warp that asks for more registers waits until others of the block have given them back: together no more than the
    block began with, or it waits for ever.

    Args:
        options: compile options.
        prefetches: what is copied.
        hands_on: whether what assembles the kernel lets warps hand registers on.
    """
    bytes_ = [memdesc_bytes(prefetch.ring) for prefetch in prefetches if prefetch.copied is not None]
    crew = Crew(options.block_warps, bool(bytes_))
    if not hands_on or options.maxnreg is not None:
        return crew
    words = max(bytes_, default=0) // (TURNING * WARP * 4)
    turning = -(-(words + tuning.TURNING_REGISTERS) // _UNIT) * _UNIT if crew.turns else 0
    given = _COPYING * GROUP + turning * TURNING
    left = min((crew.usual * crew.total - given) // crew.warps // _UNIT * _UNIT, _MOST)
    return crew if left <= crew.usual else Crew(crew.warps, crew.turns, _COPYING, turning, left)


__all__ = ["GROUP", "LARGE", "Crew", "crew_of"]
