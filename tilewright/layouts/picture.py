"""Layouts as text: every point of one, and grids that show who holds each element of a tile.

A thread layout shows ``T5:2`` for register 2 of thread 5 (threads count through the warps, as in the PTX ISA's
figures); a shared-memory layout shows the offset. Elements that several positions hold show the first, with a ``+``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.linear import LinearLayout


def points(layout: LinearLayout) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """(inputs, outputs) of every point, the first input dim running fastest."""
    names = list(layout.in_sizes)
    for values in itertools.product(*(range(size) for size in reversed(layout.in_sizes.values()))):
        inputs = dict(zip(names, reversed(values)))
        yield inputs, layout(**inputs)


def owners(layout: LinearLayout) -> dict[tuple[int, ...], list[dict[str, int]]]:
    """Coordinates of each element (in the order of `out_sizes`) -> the positions that hold it."""
    found: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for inputs, outputs in points(layout):
        found.setdefault(tuple(outputs.values()), []).append(inputs)
    return found


def picture(layout: LinearLayout, rows: Sequence[int] | None = None, columns: Sequence[int] | None = None) -> str:
    """A grid of the tile, dim0 downwards and dim1 to the right.

    Args:
        layout: a layout of a tile of one or two dims.
        rows, columns: which to show; all of them if not given.

    Raises:
        LayoutError: the tile has more than two dims.
    """
    sizes = list(layout.out_sizes.values())
    if len(sizes) > 2:
        raise LayoutError(f"a tile of {len(sizes)} dims has no picture; take a sublayout of two dims first")
    height, width = [1] * (2 - len(sizes)) + sizes
    held = owners(layout)
    down = range(height) if rows is None else rows
    right = range(width) if columns is None else columns
    cells = [[_label(held.get((row, column)[2 - len(sizes) :], []), layout) for column in right] for row in down]
    lines = [["", *map(str, right)], *([str(row), *line] for row, line in zip(down, cells))]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(" ".join(cell.rjust(size) for cell, size in zip(line, widths)) for line in lines)


def _label(positions: Sequence[dict[str, int]], layout: LinearLayout) -> str:
    if not positions:
        return "."
    first, more = positions[0], "+" if len(positions) > 1 else ""
    if "offset" in first:
        return f"{first['offset']}{more}"
    thread = first.get("lane", 0) + layout.in_sizes.get("lane", 1) * first.get("warp", 0)
    return f"T{thread}:{first.get('register', 0)}{more}"
