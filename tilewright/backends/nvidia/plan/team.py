"""The threads that run one program: the warps of a block or, for long rows, of the blocks of a cluster.

A kernel whose programs are clusters says so itself (attributes of its function), so that every stage and its text know.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation

from tilewright.ir.types import i32
from tilewright.layouts.distributed import default_blocked, over_blocks, row_major_order
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.padding import padded_shape

blocked = functools.lru_cache(maxsize=1024)(default_blocked)

_WARPS, _BLOCKS = "tw.warps", "tw.blocks"


@dataclass(frozen=True, slots=True)
class Team:
    """The threads of a program.

    Args:
        warps: of a block.
        blocks: of a cluster; 1 for programs that are one block.
        axes: of padded shapes of tiles the dim whose coordinates the blocks share, each a run of them; every block
            holds all of other tiles.
    """

    warps: int
    blocks: int = 1
    axes: tuple[tuple[tuple[int, ...], int], ...] = ()

    def blocked(self, shape: Sequence[int], order: tuple[int, ...] | None = None, vector: int = 1) -> LinearLayout:
        """`distributed.default_blocked`, each block of a cluster with its share."""
        shape = padded_shape(shape)
        if self.blocks == 1:
            return blocked(shape, self.warps, order, vector)
        axis = dict(self.axes).get(shape)
        if axis is None:
            return blocked(shape, self.warps, order, vector) * LinearLayout.zeros(self.blocks, "block", "dim0")
        parts = [self.blocks if dim == axis else 1 for dim in range(len(shape))]
        share = tuple(size // part for size, part in zip(shape, parts, strict=True))
        return over_blocks(blocked(share, self.warps, order, vector), parts, row_major_order(len(shape)))

    @property
    def all_warps(self) -> int:
        """Warps of all blocks."""
        return self.warps * self.blocks


def note_team(function: Operation, team: Team) -> None:
    """Have a kernel say how many threads its programs have."""
    function.attributes[_WARPS] = IntegerAttr(team.warps, i32)
    function.attributes[_BLOCKS] = IntegerAttr(team.blocks, i32)


def team_of(function: Operation, warps: int) -> Team:
    """The threads of a program of a kernel, which are `warps` of one block unless it says otherwise."""

    def number(name: str, usual: int) -> int:
        found = function.attributes.get(name)
        return found.value.data if isinstance(found, IntegerAttr) else usual

    return Team(number(_WARPS, warps), number(_BLOCKS, 1))


__all__ = ["Team", "blocked", "note_team", "team_of"]
