"""Defaults by a small model of the machine: how much a program should have to do, and what of it fits where.

On a CPU a program's tile should stay in the first cache, and there should be several programs per thread. On a GPU a
program of few warps works on a few kilobytes. Tiles of products are as large as registers allow; on a GPU `TileModel`
finds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, HostTensor, Node, Subscript, Value, symbols, values, walk
from tilewright.hl.symbols import Atom, Sym
from tilewright.hl.tune import products
from tilewright.hl.tune.facts import Facts, once, stored
from tilewright.hl.tune.products import DYNAMIC, PRODUCTS, TileModel

_PROGRAMS = 8  # programs per thread of a CPU
_HELD = 16  # programs that a processor of a GPU should have at once
_ROUNDS = 2  # programs per processor of a GPU where more of them load the same operands or update the same sums
_OF_A_WARP = 512  # elements of a tile without products: at most 16 a thread; few threads wait less for each other
_FEWER = 8  # times the elements of a tile where each program updates the same addresses atomically
_GROUP = 8  # tiles of a column of products that follow each other on a GPU: they need the same columns


@dataclass(frozen=True)
class _Wanted:
    """What a kind of machine wants.

    Args:
        tile: elements of a tile of a program.
        inner: elements along an inner loop.
        least: elements below which a tile is not made smaller to have more programs; on a GPU one a thread of a warp.
    """

    tile: int
    inner: int
    least: int


_WANTED = {"cpu": _Wanted(1 << 13, 512, 4096), "cuda": _Wanted(2048, 256, 32)}
_CPU_PRODUCT = (128, 128, 64)  # rows, columns and depth of a product's tiles
_CPU_READ = 32  # rows or columns of a range that the kernel reads: its last tile is padded, and often the only one
_CPU_FEW = (
    4  # such rows where operands have 32 bits or more: the other operand is read where it lies, nothing is packed
)
_CPU_SHORT = 16  # indices of such a range in a tile without products, where no vectors run along it
_CPU_ALONG = 256  # the same where vectors run along it
_CPU_PADDED = 1024  # elements of such a tile that are more than an iteration costs
_CPU_SUMMED = (8192, 32)  # elements and rows of a tile whose sums a thread keeps over its programs
_CPU_ALONE = 1024  # elements of the longest row that shares such a tile (decisions/hl_defaults.md)
_CPU_LEAST = 32  # rows and columns that more threads do not make fewer
_CPU_LANES = 64  # columns of a program that goes through rows of which it has a part (decisions/hl_defaults.md)
_CPU_LINE = 16  # the same where there would be too few programs


@once
def default_blocks(facts: Facts) -> list[int]:
    """A block size for every slot."""
    sizes = _sizes(facts)
    return [sizes.get(axis.size, 64) for axis in facts.slots]


@once
def _sizes(facts: Facts) -> dict[Atom, int]:
    sizes: dict[Atom, int] = {}
    for graph in facts.graphs:
        _Chooser(facts, graph, sizes).run()
    return sizes


class _Chooser:
    """Block sizes of the axes of one top-level loop."""

    def __init__(self, facts: Facts, graph: Graph, sizes: dict[Atom, int]) -> None:
        self.facts, self.graph, self.sizes = facts, graph, sizes
        self.cpu = facts.machine.kind == "cpu"
        self.wanted = _WANTED["cpu" if self.cpu else "cuda"]
        self.nodes = list(walk(graph.region))
        self.products = [node for node in self.nodes if node.op in PRODUCTS]
        self.grid: list[Axis] = graph.loop.kwargs["axes"]
        self.inner = [axis for node in self.nodes if node.op == "loop" for axis in node.kwargs["axes"] if not axis.top]
        tiles = {value.id: value for node in self.nodes for value in (*node.outs, *values(node.args))}
        written = [value for node in self.nodes for value in stored(node)]
        self.tiles = [
            value for value in (*tiles.values(), *written) if value.dims and all(dim.static for dim in value.dims)
        ]

    def run(self) -> None:
        """Choose for axes that have no size yet."""
        given = math.prod(axis.block for axis in self.grid if type(axis.block) is int)
        if self.products:
            self._of_products()
        else:
            self.sizes |= {axis.size: axis.block for axis in self.inner if type(axis.block) is int}
        contiguous, wide = _contiguous(self.nodes), _contiguous(self.nodes, most=True)
        for axis in sorted(self.inner, key=lambda axis: (axis.id not in wide, axis.id not in contiguous, -axis.id)):
            self._take(axis, max(8, min(self.wanted.inner, self.wanted.tile // self.whole(axis))))
        width = self.whole()
        columns = _contiguous([node for node in self.nodes if self._is_wide(node, width)])
        budget = max(1, self.wanted.tile // (width * self._copies(width)))
        if not self.inner and width == 1 and self.cpu:
            budget = 8 * self.wanted.tile // given  # element by element: nothing is held
        for axis in reversed(self.grid):
            size = 1 if self.products and len(self.grid) > 1 else budget
            least = min(size, self.wanted.least // self.whole())
            if self.products and self._has_parts(axis):
                size, least = length(axis) or DYNAMIC, 1
            elif not self.products and (updates := self._repeats(axis)):
                row = self.whole(axis)
                summed = self.cpu and row > 1 and all(node.op == "atomic_add" for node in updates)
                size, least = (self._summed_rows(axis, row), 1) if summed else (size * _FEWER, least)
                if self.cpu and row == 1:  # element by element: each program brings as few sums to memory as many
                    size, least = 8 * self.wanted.tile, 1
            elif self.cpu and not self.products and width > 1 and columns == {axis.id}:
                size, least = max(size, _CPU_LANES), max(least, _CPU_LINE)
            budget = max(1, budget // self._take(axis, max(self._shared(axis, size), least)))
        if self.cpu and not self.products:
            for axis in filter(_is_read, self.inner):
                self._shorten(axis, _CPU_ALONG if axis.id in contiguous else _CPU_SHORT)

    def _summed_rows(self, axis: Axis, row: int) -> int:
        """Rows of a tile whose sums a thread of a CPU keeps over its programs; those that are stored too are one loop
        over rows, whose tile may be larger than the first cache."""
        elements, rows = _CPU_SUMMED
        stored_too = any(_along(value, axis) for node in self.nodes for value in stored(node))
        return 1 if row > _CPU_ALONE else rows if stored_too else min(rows, elements // row)

    def _shorten(self, axis: Axis, least: int) -> None:
        """Make tiles of a range that the kernel reads lower: the last one of a range is computed as a whole."""
        if size := self.sizes.get(axis.size):
            row = max(1, self.whole(axis) // size)
            self.sizes[axis.size] = min(size, max(least, _power(_CPU_PADDED // row)))

    def _copies(self, width: int) -> int:
        """How often the first cache of a CPU holds a tile: once, unless several of the greatest width are stored.

        Each store is a pass of its own, and loaded tiles that a later pass reads too are kept in scratch.
        """
        stores = [node for node in self.nodes if node.op == "store" and self._is_wide(node, width)]
        if not self.cpu or len(stores) < 2:
            return 1
        made = {value.id: node for node in self.nodes for value in node.outs}
        loads = [_loads(node, made) for node in stores]
        return 2 * max(len(one & other) for at, one in enumerate(loads) for other in loads[:at]) or 1

    def _is_wide(self, node: Node, width: int) -> bool:
        return any(products.elements(value.dims, self.sizes) == width for value in (*node.outs, *values(node.args)))

    def whole(self, axis: Axis | None = None) -> int:
        """Elements of the widest tile for one lane of each axis without a size; of those along `axis` where given."""
        tiles = (value.dims for value in self.tiles if axis is None or _along(value, axis))
        return max((products.elements(dims, self.sizes) for dims in tiles), default=1)

    def _of_products(self) -> None:
        axes = {axis.size: axis for axis in self.facts.axes if axis.size not in self.sizes}
        if not self.cpu:
            machine = self.facts.machine
            found = TileModel(self.graph, axes, length, machine.processors, machine.cache).choose()
            for atom, size in found.items():
                self._take(axes[atom], size)
            return
        for node in self.products:
            rows, columns = node.out.dims[-2:]
            few = _CPU_FEW if node.args[0].dtype.itemsize >= 4 else _CPU_READ
            for dim, size, read in zip(
                (rows, columns, node.args[0].dims[-1]), _CPU_PRODUCT, (few, _CPU_READ, _CPU_READ), strict=True
            ):
                for atom in dim.cut.atoms:
                    if atom in axes:
                        most = read if _is_read(axes[atom]) else size
                        self._take(axes[atom], max(1, min(size, most) // dim.static))
        self._occupy()

    def _occupy(self) -> None:
        """Make tiles of products smaller while there are fewer programs than threads."""
        wide = [axis for axis in self.grid if axis.size in products.wide_atoms(self._bodies())]
        while self._programs() < self.facts.machine.processors:
            largest = max(wide, key=lambda axis: self.sizes.get(axis.size, 1), default=None)
            if largest is None or self.sizes.get(largest.size, 1) <= _CPU_LEAST:
                break
            self.sizes[largest.size] //= 2

    def _bodies(self) -> list[products.Body]:
        return list(products.bodies(self.graph.loop.regions[0]))

    def _programs(self, but: Axis | None = None) -> int:
        """How many programs there are, as far as axes have sizes; without an axis if asked for."""
        return products.passes([axis for axis in self.grid if axis is not but], self.sizes, length)

    def _has_parts(self, axis: Axis) -> bool:
        """Whether an inner loop visits what is in a tile of `axis`."""
        return any(
            axis.offset in symbol.atoms() for inner in self.inner for symbol in symbols((inner.begin, inner.end))
        )

    def _repeats(self, axis: Axis) -> list[Node]:
        """The atomic updates in which programs along an axis update the same addresses."""
        return [
            node
            for node in self.nodes
            if node.op.startswith("atomic_") and isinstance(node.args[0], HostTensor)
            if not any(_is_of(entry, axis) for entry in node.args[1])
        ]

    def _take(self, axis: Axis, size: int) -> int:
        """Give an axis a size, a power of two that is no larger than its range; returns the size that it has."""
        if axis.slot is None and axis.shared is None:
            return 1
        known = length(axis)
        if known is not None:
            size = min(size, 1 << max(0, known - 1).bit_length())
        size = min(size, axis.within or size)
        return self.sizes.setdefault(axis.size, 1 << max(0, size.bit_length() - 1))

    def _shared(self, axis: Axis, size: int) -> int:
        """`size`, or less where there would be too few programs."""
        threads, known = self.facts.machine.processors, length(axis)
        if known is None:
            return size
        others = self._programs(but=axis)
        wanted = _ROUNDS if self.products or self._repeats(axis) else _HELD
        programs = (_PROGRAMS if self.cpu else wanted) * threads
        return max(1, min(size, known * max(1, others) // programs)) if size * programs > known * others else size


def _loads(node: Node, made: dict[int, Node]) -> set[int]:
    """The numbers of the loaded tiles that a node depends on.

    Args:
        node: of the kernel.
        made: by the number of a value, the node that makes it.
    """
    found, waiting, seen = set[int](), [node], set[int]()
    while waiting:
        for value in values(waiting.pop().args):
            if value.id in made and value.id not in seen:
                seen.add(value.id)
                waiting.append(made[value.id])
                if made[value.id].op == "load":
                    found.add(value.id)
    return found


def length(axis: Axis) -> int | None:
    """The length of an axis, where it is a number."""
    ends = (axis.begin, axis.end)
    if any(isinstance(end, Sym | Value) or not isinstance(end, int) for end in ends):
        return None
    return int(axis.end - axis.begin)


def _is_read(axis: Axis) -> bool:
    """Whether the kernel reads where the range of an axis begins or ends."""
    return any(isinstance(end, Value) for end in (axis.begin, axis.end))


def _is_of(entry: Subscript, axis: Axis) -> bool:
    """Whether a subscript differs from tile to tile of an axis, as far as the program says."""
    if isinstance(entry.what, Value):
        return not entry.what.dims or _along(entry.what, axis)
    found = symbols((entry.what, entry.offset))
    return (entry.kind == "tile" and entry.what == axis.id) or any(axis.offset in one.atoms() for one in found)


def _along(value: Value, axis: Axis) -> bool:
    return any(axis.size in dim.cut.atoms for dim in value.dims)


def _contiguous(nodes: list[Node], *, most: bool = False) -> set[int]:
    """The numbers of the axes along which elements that are loaded or stored lie beside each other.

    Args:
        nodes: of the kernel.
        most: whether only tiles of the most dimensions count: rows of a table do, what says which rows does not.
    """
    accesses = [node for node in nodes if node.op in ("load", "store") and isinstance(node.args[0], HostTensor)]
    dims = {id(node): len([entry for entry in node.args[1] if entry.kind != "scalar"]) for node in accesses}
    found = set()
    for node in accesses:
        if not most or dims[id(node)] == max(dims.values()):
            for entry, stride in zip(node.args[1], node.args[0].stride, strict=True):
                if entry.kind == "tile" and type(stride) is int and stride == 1:
                    found.add(entry.what)
    return found


def default_warps(facts: Facts, graph: Graph, blocks: Sequence[int]) -> int:
    """Warps of a program of a top-level loop: enough for the accumulators of its products, or its largest tile.

    Args:
        facts: of the kernel.
        graph: the loop.
        blocks: block sizes.
    """
    sizes = _with(facts, blocks)
    loop = _Chooser(facts, graph, sizes)
    if loop.products:
        return products.warps(graph, sizes)
    needed = -(-loop.whole() // _OF_A_WARP)
    return min(16, 1 << (needed - 1).bit_length())


def default_stages(facts: Facts, graph: Graph, blocks: Sequence[int]) -> int:
    """Depth of the software pipeline of a top-level loop; arguments as for `default_warps`."""
    sizes, machine = _with(facts, blocks), facts.machine
    programs = products.passes(graph.loop.kwargs["axes"], sizes, length)
    return products.stages(graph, sizes, machine.cache, programs, machine.processors)


def _with(facts: Facts, blocks: Sequence[int]) -> dict[Atom, int]:
    """Block sizes by what stands for them."""
    return _sizes(facts) | {axis.size: size for axis, size in zip(facts.slots, blocks, strict=True)}


def default_order(facts: Facts, first: int) -> list[int]:
    """The order of the ranges of a loop: those that are no rows or columns of products, batches above all, come last.

    Args:
        facts: of the kernel.
        first: number of the loop's first axis.
    """
    graph = next((graph for graph in facts.graphs if graph.loop.kwargs["axes"][0].id == first), None)
    axes = facts.loop_axes(first)
    if graph is None or not facts.has_product():
        return list(range(len(axes)))
    wide = products.wide_atoms(list(products.bodies(graph.loop.regions[0])))
    return sorted(range(len(axes)), key=lambda at: bool(wide) and axes[at].size not in wide)


def default_group(facts: Facts, first: int) -> int:
    """How many tiles of the first range of a grid follow each other: some for a product of several rounds on a GPU."""
    graph = next(graph for graph in facts.graphs if graph.loop.kwargs["axes"][0].id == first)
    axes, order = facts.loop_axes(first), default_order(facts, first)
    wide = products.wide_atoms(list(products.bodies(graph.loop.regions[0])))
    programs = products.passes(axes, _sizes(facts), length)
    both = all(axes[at].size in wide for at in order[:2])
    return _GROUP if facts.machine.kind != "cpu" and both and programs > facts.machine.processors else 1


def _power(number: int) -> int:
    """The power of two that is next below."""
    return 1 << max(0, number.bit_length() - 1)
