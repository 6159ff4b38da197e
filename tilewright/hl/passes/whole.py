"""Extents that a tile spans whole: given other lanes than elements, where that is faster or all that there is.

A CPU reduces a row of 1000 elements, which is no whole number of its vectors, a third slower than one of 1008 of which
8 are masked; of 250 elements three times. So extents along which something is reduced are rounded up there.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.hl.dims import Dim
from tilewright.hl.graph.nodes import Node, Region, Value, operands, walk
from tilewright.hl.rows.creation import Convert, Fill
from tilewright.hl.rows.gather import Lanes
from tilewright.hl.rows.pointwise import Pointwise
from tilewright.hl.rows.reductions import Reduction
from tilewright.hl.rows.shapes import Expand, Permute, Unsqueeze, View
from tilewright.hl.rows.table import ROWS
from tilewright.hl.symbols import Atom

_SHORT = 8  # elements of a row that are too few to mask some of


def redimension(region: Region, change: Callable[[Dim], Dim]) -> None:
    """Rewrite the dimensions of a region's values."""
    seen: dict[int, Value] = {}
    for node in walk(region):
        for value in (*node.outs, *(param for body in node.regions for param in body.params)):
            seen.setdefault(value.id, value)
    for value in seen.values():
        value.dims = tuple(map(change, value.dims))
    for node in walk(region):
        if "dims" in node.kwargs:
            node.kwargs["dims"] = tuple(map(change, node.kwargs["dims"]))


def round_up(region: Region, lanes: int) -> None:
    """Make the lanes of extents that are reduced a multiple of `lanes`, where all that is done with them allows it."""
    reduced, kept = set[int](), set[int]()
    for node in walk(region):
        row = ROWS.get(node.op)
        if isinstance(row, Reduction):
            reduced |= {need.value.dims[-1].static for need in row.needs(node) if len(need.value.dims) - 1 in need.dims}
        if not _keeps_lanes(node):
            kept |= {dim.static for value in (*operands(node), *node.outs) for dim in value.dims}
    wanted = {extent for extent in reduced - kept if extent > _SHORT and extent % lanes}
    if wanted:
        atoms = {extent: Atom("whole", extent, args=(-(-extent // lanes) * lanes,)) for extent in wanted}
        redimension(region, lambda dim: dim if dim.atoms or dim.static not in atoms else Dim(1, (atoms[dim.static],)))


def _keeps_lanes(node: Node) -> bool:
    """Whether a node computes each valid lane from valid lanes, whatever number of others there are."""
    row = ROWS.get(node.op)
    if isinstance(row, View) and not isinstance(row, Expand | Permute | Unsqueeze):
        kept = [[dim for dim in value.dims if not dim.is_one] for value in (*operands(node), node.out)]
        return all(dims == kept[0] for dims in kept)
    fits = isinstance(row, Pointwise | Convert | Fill | Lanes | Reduction | View)
    return fits or node.op in _OWN or node.op.startswith("atomic_")


_OWN = ("load", "store", "loop", "if", "while")
