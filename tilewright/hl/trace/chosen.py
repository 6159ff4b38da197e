"""Sizes that the program has of the configuration, by `hl.register_block_size`: several loops may have tiles of one.

A tile of a loop cuts what is loaded with it, its indices, what is as large as the tile, and what is made of such; of
everything else that is as large as the size itself all lanes count, whatever loop it stands in. Likewise of a part of a
block, `tile.block_size // 2`, all lanes count but in views of tiles and what is made of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.hl.dims import Axis, Dim, all_lanes, cut_atom, part_of
from tilewright.hl.graph.nodes import Node, Subscript, leaves, operands
from tilewright.hl.symbols import Atom, Sym


class Chosen:
    """The chosen sizes of a trace.

    Attributes:
        sizes: they.
        named: those of them that say how large what is being made is.
        has_parts: whether parts of blocks are among the extents.
    """

    def __init__(self) -> None:
        self.sizes: set[Atom] = set()
        self.named: frozenset[Atom] = frozenset()
        self.has_parts = False

    def __bool__(self) -> bool:
        return bool(self.sizes)

    @contextmanager
    def naming(self, sizes: Any) -> Iterator[None]:
        """What is made inside has these sizes: chosen ones that are no tile's mean all their lanes."""
        before = self.named
        if self.sizes:
            found = [size for size in leaves(sizes) if isinstance(size, Sym) and not size.of_tile]
            self.named = before | {atom for size in found for atom in size.atoms()}
        try:
            yield
        finally:
            self.named = before

    def lanes_of(
        self, node: Node, dims: tuple[Dim, ...], axes: list[Axis], open_axis: Callable[[Atom], Axis | None]
    ) -> tuple[Dim, ...]:
        """The dimensions of what a node makes or stores: of chosen sizes all lanes, or those of a tile.

        Args:
            node: the node.
            dims: its dimensions as far as the sizes of samples say them.
            axes: every axis, by number.
            open_axis: the axis of an open loop whose block size an atom is.
        """
        if not self.sizes and not self.has_parts:
            return dims
        if node.op == "keep":
            return tuple(node.args[1].dims)
        read = [atom for value in operands(node) for dim in value.dims for atom in dim.atoms]
        tiled = {axis.size for axis in _tiles(node, axes)}

        def lanes(atom: Atom) -> Atom:
            found = part_of(atom)
            if found is not None:
                return atom if atom in read or _takes_apart(node, found[0], read) else all_lanes(atom)
            if atom not in self.sizes or atom in tiled or atom in read:
                return atom
            whole = all_lanes(atom)
            made = _accesses(node) or whole in read or atom in self.named or _puts_together(atom, read)
            return whole if made or open_axis(atom) is None else atom

        return tuple(Dim(dim.static, tuple(map(lanes, dim.atoms))) for dim in dims)


def _takes_apart(node: Node, block: Atom, read: list[Atom]) -> bool:
    """Whether a node is a view of a tile by parts: of the block as a tile cuts it, or of another part."""
    parts = (part_of(atom) for atom in read)
    return block in read or any(found is not None and found[0] == block for found in parts)


def _puts_together(block: Atom, read: list[Atom]) -> bool:
    """Whether all lanes of parts of a block are read."""
    parts = (part_of(cut_atom(atom)) for atom in read if atom.kind == "all")
    return any(found is not None and found[0] == block for found in parts)


def _tiles(node: Node, axes: list[Axis]) -> list[Axis]:
    """The axes whose tiles a node names."""
    if node.op == "tile_index":
        return [axes[node.args[0]]]
    entries = [entry for entry in node.args[1] if isinstance(entry, Subscript)] if _accesses(node) else []
    return [axes[entry.what] for entry in entries if entry.kind == "tile"]


def _accesses(node: Node) -> bool:
    return node.op in ("load", "store") or node.op.startswith("atomic_")
