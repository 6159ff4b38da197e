"""Whether results depend on how large tiles are: the backward pass must have the same tiles then.

A sum of all passes does not, whatever the tiles; the square of a tile's sum does, and so does what reads where a tile
begins.
"""

from __future__ import annotations

from typing import Any

from tilewright.hl.grad.maxima import running_maxima
from tilewright.hl.graph.nodes import Node, Region, Value, operands, symbols, walk
from tilewright.hl.symbols import Atom


def depend_on_tiles(region: Region) -> bool:
    """Whether what a top-level loop stores may depend on the sizes of its tiles."""
    axes = [axis for node in walk(region) for axis in node.kwargs.get("axes", ())]
    sized = {axis.id for axis in axes if axis.kind != "grid" and not (type(axis.block) is int and axis.block == 1)}
    return any(_reads_tiles(node, sized) for node in walk(region)) or _Lanes(region).are_mixed()


def _reads_tiles(node: Node, sized: set[int]) -> bool:
    """Whether a node uses where a tile of one of the axes in `sized` begins, or how large it is."""
    if node.op in ("load", "store") or node.op.startswith("atomic"):
        found = symbols([part for entry in node.args[1] for part in (entry.what, entry.offset)])
    elif node.op in ("sym", "compare", "loop"):
        found = symbols((node.args, {key: node.kwargs[key] for key in ("begin", "end") if key in node.kwargs}))
    else:
        return False
    return any(atom.kind in ("block", "begin") and atom.key in sized for symbol in found for atom in symbol.atoms())


class _Lanes:
    """Follows what is computed of all lanes of a tile to what sums or compares it over all passes."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users: dict[int, list[Node]] = {}
        self.maxima: set[int] = set()
        for node in walk(region):
            for value in operands(node):
                self.users.setdefault(value.id, []).append(node)
            if node.op == "loop":
                self.maxima |= {value.id for value in running_maxima(node).values()}

    def are_mixed(self) -> bool:
        """Whether anything but a sum or a maximum over all passes is made of the lanes of a tile together."""
        mixed = [node for node in walk(self.region) if not node.regions and node.outs and _gone(node)]
        return any(not self._is_summed(out) for node in mixed for out in node.outs)

    def _is_summed(self, value: Value) -> bool:
        return all(self._adds(user) for user in self.users.get(value.id, ()))

    def _adds(self, user: Node) -> bool:
        if user.op == "add":
            return self._is_summed(user.out)
        return user.op == "atomic_add" or (bool(user.outs) and user.outs[0].id in self.maxima)


def _gone(node: Node) -> set[Any]:
    """The tiles of which an operation combines the lanes."""
    return _tiles(operands(node)) - _tiles(node.outs) if node.op != "load" else set()


def _tiles(values: list[Value]) -> set[Atom]:
    return {atom for value in values for dim in value.dims for atom in dim.atoms if atom.kind == "block"}
