"""Extents for compilers whose tiles have powers of two only: other extents that a tile spans whole are padded.

Such an extent is treated like one that is known only at the launch, for which lanes and masks exist already.
"""

from __future__ import annotations

from tilewright.hl import exc
from tilewright.hl.dims import Dim
from tilewright.hl.graph.nodes import Node, Region, walk
from tilewright.hl.passes.whole import redimension
from tilewright.hl.rows.shapes import Expand, Permute, Unsqueeze, View
from tilewright.hl.rows.table import ROWS
from tilewright.hl.symbols import Atom


def pad_extents(region: Region) -> None:
    """Rewrite the dimensions of a region's values.

    Raises:
        UnsupportedOperation: an extent that is no power of two is reshaped, or is a multiple of a block size.
    """
    redimension(region, padded)
    for node in walk(region):
        _check(node)


def padded(dim: Dim) -> Dim:
    """A dimension whose lanes are a power of two."""
    if dim.static & (dim.static - 1) == 0:
        return dim
    if dim.atoms:
        raise exc.UnsupportedOperation(
            f"portable text with {dim.static} times a block size: tiles have powers of two there",
            hint="take the parts one by one",
        )
    return Dim(1, (Atom("host", f"n_{dim.static}", str(dim.static), sample=dim.static),))


def _check(node: Node) -> None:
    """Refuse to reshape a padded extent: its elements are not one behind the other."""
    if not isinstance(ROWS.get(node.op), View) or isinstance(ROWS[node.op], Expand | Permute | Unsqueeze):
        return
    kept = [[dim for dim in value.dims if not dim.is_one] for value in (node.args[0], node.out)]
    if kept[0] != kept[1] and any(atom.kind == "host" for dims in kept for dim in dims for atom in dim.atoms):
        raise exc.UnsupportedOperation(
            "portable text with a reshape of an extent that is no power of two", hint="pad the tensor on the host"
        )
