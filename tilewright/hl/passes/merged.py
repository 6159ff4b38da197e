"""Dimensions that merge a tile with something else: of which parts they are made, in order.

`x.reshape(tile_m.block_size * 4)` of a tile [tile_m, 4] has lanes that are valid in groups of 4; a slice
`a[2 * tile.begin : 2 * tile.begin + 2 * tile.block_size]` has twice as many valid ones as the tile, all in front. Which
of the two it is, the extent does not say, so the nodes that made the value are followed back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from tilewright.hl.dims import Dim, block_of, cut_atom, part_of
from tilewright.hl.graph.nodes import Node, Region, Value, accessed, operands, walk
from tilewright.hl.rows.creation import Convert
from tilewright.hl.rows.pointwise import Pointwise
from tilewright.hl.rows.shapes import Expand, Permute, Unsqueeze, View
from tilewright.hl.rows.table import ROWS
from tilewright.hl.symbols import Atom

# Factors of a dimension, the last one fastest. One with an axis and something else has its valid lanes in front.
Parts = tuple[Dim, ...]


class Merged:
    """What the merged dimensions of a region's values are made of.

    Args:
        region: the region, with those inside it.
    """

    def __init__(self, region: Region) -> None:
        self._makers = {out.id: node for node in walk(region) for out in node.outs}
        self._found: dict[tuple[int, int], Parts | None] = {}

    def of(self, value: Value, at: int) -> Parts | None:
        """The parts of a dimension, or None where they are not known."""
        if value.dims[at].atom is not None or not value.dims[at].atoms:
            return (value.dims[at],)
        if (value.id, at) not in self._found:
            self._found[value.id, at] = self._made(value, at)
        return self._found[value.id, at]

    def _made(self, value: Value, at: int) -> Parts | None:
        node = self._makers.get(value.id)
        if node is None:
            return None
        if node.op in ("load", "store") or node.op.startswith("atomic_"):
            return self.accessed(node, value.dims, at)
        if node.op == "lanes":
            return (value.dims[at],)  # as many positions as the tile has valid lanes
        row = ROWS.get(node.op)
        if isinstance(row, Permute):
            return self.of(node.args[0], row.order(node)[at])
        if isinstance(row, Unsqueeze):
            place = node.args[1] % len(value.dims)
            return self.of(node.args[0], at - (at > place))
        if isinstance(row, View):
            return self._viewed(node.args[0], value, at)
        if isinstance(row, Pointwise | Convert) or node.op in ("mask_to", "where"):
            return self._of_operands(node, value, at)
        return None

    def accessed(self, node: Node, dims: tuple[Dim, ...], at: int) -> Parts | None:
        """The parts of a dimension of what a load, a store or an atomic update touches."""
        for entry in node.args[1]:
            if entry.kind == "slice" and entry.at == at:
                return (dims[at],)
            if entry.kind == "tensor" and entry.at <= at < entry.at + len(entry.what.dims):
                found = self.of(entry.what, at - entry.at)
                if found is not None and entry.what.dims[at - entry.at] == dims[at]:
                    return found
        return None

    def _of_operands(self, node: Node, value: Value, at: int) -> Parts | None:
        """The parts of an operand, one with several if possible: positions take those of what is beside them."""
        found: Parts | None = None
        for operand in operands(node):
            own = at - len(value.dims) + len(operand.dims)
            if own >= 0 and operand.dims[own] == value.dims[at]:
                parts = self.of(operand, own)
                found = parts if parts is not None and len(parts) > len(found or ()) else found
        return found

    def _viewed(self, source: Value, value: Value, at: int) -> Parts | None:
        """The parts of a dimension of a view: those of the source in order, dealt out to the view's dimensions."""
        left: list[Dim] = []
        for own in range(len(source.dims)):
            found = self.of(source, own)
            if found is None:
                return None
            left += [part for part in found if not part.is_one]
        for dim in value.dims[:at]:
            if _taken(left, dim) is None:
                return None
        return _taken(left, value.dims[at])


def uncut(region: Region) -> set[Atom]:
    """The sizes of tiles whose last one cannot be cut: an access or a reduction merges them, nobody knows how, or a
    view takes them apart."""
    merged, found = Merged(region), set[Atom]()
    for node in walk(region):
        row = ROWS.get(node.op)
        found |= scattered(node)
        places = [(need.value, at) for need in (row.needs(node) if row is not None else ()) for at in need.dims]
        asked = [(value.dims[at], merged.of(value, at)) for value, at in places]
        if node.op in ("load", "store") or node.op.startswith("atomic_"):
            dims = accessed(node)
            asked += [(dim, merged.accessed(node, dims, at)) for at, dim in enumerate(dims) if dim.atom is None]
        for dim, parts in asked:
            if parts is None or any(len(part.atoms) > 1 for part in parts):
                found |= set(dim.atoms)
    return found


def scattered(node: Node) -> set[Atom]:
    """The block sizes whose lanes a view moves so that the valid ones of a cut tile are not in front any more.

    `x[tile].view(tile.block_size // 2, 2)` has them in front, `x[tile].view(2, tile.block_size // 2)` does not.
    """
    if not isinstance(ROWS.get(node.op), View) or isinstance(ROWS.get(node.op), Expand | Permute | Unsqueeze):
        return set()
    found = set[Atom]()
    for sides in _groups(node.args[0].dims, node.out.dims):
        if sides[0] != sides[1]:
            before, after = map(_places, sides)
            found |= {block for block in before.keys() & after if before[block] != after[block]}
    return found


def _places(side: list[Dim]) -> dict[Atom, set[int]]:
    """By block size that tiles cut, how many elements stand before its lanes, or those of its parts."""
    found: dict[Atom, set[int]] = {}
    for at, dim in enumerate(side):
        if dim.atom is not None and block_of(dim.atom).kind == "block" and dim.atom.kind != "all":
            found.setdefault(block_of(dim.atom), set()).add(math.prod(map(_sample, side[:at])))
    return found


def _groups(before: Sequence[Dim], after: Sequence[Dim]) -> list[tuple[list[Dim], list[Dim]]]:
    """The dimensions of two shapes of the same elements, those together that hold the same ones."""
    left, right = ([dim for dim in dims if not dim.is_one] for dims in (before, after))
    found = []
    while left and right:
        sides = [left.pop(0)], [right.pop(0)]
        while (sizes := [math.prod(map(_sample, side)) for side in sides])[0] != sizes[1]:
            shorter = int(sizes[0] > sizes[1])
            rest = (left, right)[shorter]
            if not rest:
                break
            sides[shorter].append(rest.pop(0))
        found.append(sides)
    return found


def _sample(dim: Dim) -> int:
    return dim.static * math.prod(cut_atom(atom).sample for atom in dim.atoms)


def _taken(left: list[Dim], dim: Dim) -> Parts | None:
    """Take parts that make up `dim` from the front of a list; None where no parts do."""
    made: list[Dim] = []
    while _product(made) != _key(dim):
        if not left:
            return None
        have, part = _product(made), left.pop(0)
        if (cut := _cut(part, dim, made)) is not None:
            part, behind = cut
            left.insert(0, behind)
        rest = max(1, int(_key(dim)[0] / have[0]))
        if not part.atoms and part.static > rest:  # a number may be cut anywhere
            if part.static % rest:
                return None
            left.insert(0, Dim(part.static // rest))
            part = Dim(rest)
        made.append(part)
        if math.prod(map(_sample, made)) > _sample(dim):
            return None
    return tuple(made)


def _cut(part: Dim, dim: Dim, made: list[Dim]) -> tuple[Dim, Dim] | None:
    """(a part of a block that ends a dimension, the lanes that it takes together) where a block begins its end."""
    block = part.atom
    for atom in dim.atoms if block is not None else ():
        found = part_of(cut_atom(atom))
        if found is not None and found[0] == block and _product([*made, Dim(1, (atom,))]) == _key(dim):
            return Dim(1, (atom,)), Dim(found[1])
    return None


def _key(dim: Dim) -> tuple[Fraction, list[str]]:
    return _product([dim])


def _product(parts: Iterable[Dim]) -> tuple[Fraction, list[str]]:
    """What dimensions are together: a number, and sizes, of blocks those of whole ones."""
    number, names = Fraction(1), []
    for part in parts:
        number *= part.static
        for atom in part.atoms:
            found = part_of(cut_atom(atom))
            number /= 1 if found is None else found[1]
            names.append(atom.written if found is None else found[0].written)
    return number, sorted(names)
