"""The launch grid: one to three non-negative integers, however the user wrote them."""

from __future__ import annotations

import operator
from typing import Any

from tilewright.base.errors import GridError
from tilewright.base.tracebacks import shorten_traceback

MAX_DIMENSION = 2**31 - 1
MAX_PROGRAMS = 2**62


def grid3(grid: Any) -> tuple[int, int, int]:
    """A grid as three integers.

    Args:
        grid: an integer, or a sequence of one to three of them.

    Raises:
        GridError: too many dimensions, or one that is negative, too large, or no integer.
    """
    if grid.__class__ is tuple:
        rank = len(grid)
        x: Any = grid[0] if rank else None
        y: Any = grid[1] if rank > 1 else 1
        z: Any = grid[2] if rank > 2 else 1
        integers = rank < 4 and x.__class__ is y.__class__ is z.__class__ is int
        if integers and 0 <= x < 0x8000_0000 and 0 <= y < 0x10000 and 0 <= z < 0x8000:
            return x, y, z
    try:
        return _checked(grid)
    except Exception as error:
        shorten_traceback(error)
        raise


def _checked(grid: Any) -> tuple[int, int, int]:
    dims = list(grid) if isinstance(grid, (tuple, list)) or hasattr(grid, "__iter__") else [grid]
    if not 1 <= len(dims) <= 3:
        raise GridError(f"a grid has 1 to 3 dimensions, got {len(dims)}: {grid!r}", hint="write kernel[(x, y, z)](...)")
    sizes = []
    for axis, dim in enumerate(dims):
        try:
            if isinstance(dim, bool):
                raise TypeError
            size = operator.index(dim)
        except TypeError:
            raise GridError(
                f"grid dimension {axis} is {dim!r} of type {type(dim).__name__}, not an integer",
                hint="use tilewright.cdiv(n, BLOCK) or // for a whole number of programs",
            ) from None
        if not 0 <= size <= MAX_DIMENSION:
            raise GridError(f"grid dimension {axis} is {size}; it must be between 0 and {MAX_DIMENSION}")
        sizes.append(size)
    x, y, z = (*sizes, 1, 1)[:3]
    if x * y * z > MAX_PROGRAMS:
        raise GridError(f"grid {(x, y, z)} has more than 2**62 programs")
    return x, y, z
