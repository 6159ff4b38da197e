"""Numbers of tiles in a backward pass whose tiles are smaller: those of the tiles of the forward pass they lie in.

    for m in hl.tile(n):                          for m in hl.tile(n, block_size=Dividing(128)):
        for k in hl.tile(m.end):         ->           for k in hl.tile(min(m.begin // 128 * 128 + 128, n)):

A lane computes what it did then, whatever size the configuration chooses. So a backward pass has tiles of its own,
though the forward pass stops where its tile ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.grad.sizes import numbers_of
from tilewright.hl.graph.nodes import Node, Region, replace, symbols, walk
from tilewright.hl.symbols import Atom, Sym, substitute


def enclose(region: Region, top: Node, sizes: Mapping[int, int]) -> None:
    """Let tiles of a derived region lie in tiles of the forward pass, and read the numbers of those.

    Args:
        region: it, which is changed.
        top: the top-level loop of the forward pass.
        sizes: how large the tiles of the forward pass are, by the number of the axis.
    """
    outer = {axis.id: (axis, sizes[axis.id]) for axis in top.kwargs["axes"] if axis.id in sizes}
    for node in walk(region) if outer else ():
        _Enclosed(outer).change(node)


class _Enclosed:
    """Puts the numbers of the tiles around for those of tiles.

    Args:
        outer: by the number of the axis, that of the forward pass and the size of its tiles.
    """

    def __init__(self, outer: Mapping[int, tuple[Axis, int]]) -> None:
        self.outer = outer

    def change(self, node: Node) -> None:
        """Change a node."""
        if symbols(numbers_of(node)):
            if node.op in ("sym", "compare"):
                node.args = replace(node.args, self.number)
            elif node.op == "loop":
                node.kwargs |= {key: replace(node.kwargs[key], self.number) for key in ("begin", "end")}
            else:
                node.args = (node.args[0], replace(node.args[1], self.number), *node.args[2:])
        for axis in node.kwargs["axes"] if node.op == "loop" else ():
            axis.begin, axis.end = map(self.number, (axis.begin, axis.end))
            if axis.id in self.outer:
                axis.block, axis.within = None, self.outer[axis.id][1]

    def number(self, value: Any) -> Any:
        """A number of tiles, as one of those around."""
        return substitute(value, self._atom) if isinstance(value, Sym) else value

    def _atom(self, atom: Atom) -> Any:
        if atom.kind not in ("begin", "block") or atom.key not in self.outer:
            return None
        axis, size = self.outer[int(atom.key)]
        return size if atom.kind == "block" else (Sym.of(atom) - axis.begin) // size * size + axis.begin
