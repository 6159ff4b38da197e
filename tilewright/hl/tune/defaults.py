"""Defaults by a small model of the machine: how much a program should have to do, and what of it fits where.

On a CPU a program's tile should stay in the first cache, and there should be several programs per thread. On a GPU a
program of few warps works on a few kilobytes. Tiles of products are as large as registers allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.hl.dims import Axis, Dim
from tilewright.hl.graph.nodes import Graph, Value, values, walk
from tilewright.hl.symbols import Atom, Sym
from tilewright.hl.tune.facts import Facts, once

_DYNAMIC = 1024  # what an extent that is not known counts as
_PROGRAMS = 8  # programs per thread of a CPU
_LEAST = 4096  # elements below which a tile is not made smaller to have more programs


@dataclass(frozen=True)
class _Wanted:
    """What a kind of machine wants.

    Args:
        tile: elements of a tile of a program.
        product: extents (m, n, k) of the tiles of a product.
        inner: elements along an inner loop.
    """

    tile: int
    product: tuple[int, int, int]
    inner: int


def _wanted(facts: Facts) -> _Wanted:
    if facts.machine.kind != "cpu":
        return _Wanted(2048, (64, 128, 32), 256)
    return _Wanted(1 << 13, (128, 128, 64), 512)


@once
def default_blocks(facts: Facts) -> list[int]:
    """A block size for every slot."""
    sizes: dict[Atom, int] = {}
    for graph in facts.graphs:
        _Chooser(facts, graph, sizes).run()
    return [sizes.get(axis.size, 64) for axis in facts.slots]


class _Chooser:
    """Block sizes of the axes of one top-level loop."""

    def __init__(self, facts: Facts, graph: Graph, sizes: dict[Atom, int]) -> None:
        self.facts, self.graph, self.sizes = facts, graph, sizes
        self.wanted = _wanted(facts)
        nodes = list(walk(graph.region))
        self.products = [node for node in nodes if node.op in ("product", "dot_scaled")]
        self.grid: list[Axis] = graph.loop.kwargs["axes"]
        self.inner = [axis for node in nodes if node.op == "loop" for axis in node.kwargs["axes"] if not axis.top]
        tiles = {value.id: value for node in nodes for value in (*node.outs, *values(node.args))}
        self.tiles = [value for value in tiles.values() if value.dims]

    def run(self) -> None:
        """Choose for axes that have no size yet."""
        if self.products:
            self._of_products()
        width = self.whole()
        for axis in reversed(self.inner):
            self._take(axis, max(8, min(self.wanted.inner, self.wanted.tile // width)))
        width = self.whole()
        budget = max(1, self.wanted.tile // width)
        if not self.inner and width == 1 and self.facts.machine.kind == "cpu":
            budget = 8 * self.wanted.tile  # element by element: nothing is held
        for axis in reversed(self.grid):
            size = 1 if self.products and len(self.grid) > 1 else budget
            budget //= self._take(axis, max(self._shared(axis, size), min(size, _LEAST // self.whole())))

    def whole(self) -> int:
        """Elements of the widest tile for one lane of each axis without a size."""
        return max((math.prod(map(self._extent, value.dims)) for value in self.tiles), default=1)

    def _extent(self, dim: Dim) -> int:
        own = (self.sizes.get(atom, 1) if atom.kind == "block" else _DYNAMIC for atom in dim.atoms)
        return dim.static * math.prod(own)

    def _of_products(self) -> None:
        for node in self.products:
            left, right = node.args[0], node.args[1]
            for dim, size in zip((left.dims[-2], right.dims[-1], left.dims[-1]), self.wanted.product, strict=True):
                for atom in dim.atoms if dim.atom is not None else ():
                    axis = next((axis for axis in self.facts.axes if axis.size == atom), None)
                    if axis is not None:
                        self._take(axis, size)

    def _take(self, axis: Axis, size: int) -> int:
        """Give an axis a size, a power of two that is no larger than its range; returns the size that it has."""
        if axis.slot is None and axis.shared is None:
            return 1
        known = _range(axis)
        if known is not None:
            size = min(size, 1 << max(0, known - 1).bit_length())
        return self.sizes.setdefault(axis.size, 1 << max(0, size.bit_length() - 1))

    def _shared(self, axis: Axis, size: int) -> int:
        """`size`, or less where there would be too few programs."""
        threads, known = self.facts.machine.processors, _range(axis)
        if known is None:
            return size
        others = math.prod(
            -(-(_range(other) or _DYNAMIC) // self.sizes.get(other.size, 1)) for other in self.grid if other is not axis
        )
        programs = _PROGRAMS * threads if self.facts.machine.kind == "cpu" else 2 * threads
        return max(1, min(size, known * max(1, others) // programs)) if size * programs > known * others else size


def _range(axis: Axis) -> int | None:
    """The length of an axis, where it is a number."""
    ends = (axis.begin, axis.end)
    if any(isinstance(end, Sym | Value) or not isinstance(end, int) for end in ends):
        return None
    return int(axis.end - axis.begin)


@once
def default_warps(facts: Facts) -> int:
    """Warps of a program: enough for its largest tile."""
    sizes = dict(zip((axis.size for axis in facts.slots), default_blocks(facts), strict=True))
    largest = 1
    for graph in facts.graphs:
        chooser = _Chooser(facts, graph, sizes)
        largest = max(largest, chooser.whole())
    if facts.has_product():
        return 8 if largest >= 1 << 14 else 4
    return min(16, max(1, _power(largest // 1024) * 4 if largest >= 1024 else 4))


@once
def default_stages(facts: Facts) -> int:
    """Depth of the software pipeline."""
    return 3 if facts.has_product() else 1


def _power(number: int) -> int:
    """The power of two that is next below."""
    return 1 << max(0, number.bit_length() - 1)
