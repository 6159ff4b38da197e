"""Tiles of kernels with products on a GPU: the cheapest by a count of multiplications, bytes and rounds of programs.

A program's loop takes as long as its multiplications on the units of a processor, or as its loads and stores from the
cache of the device, whichever is longer, and never less than the latency of a step; work on elements between products
comes on top of that, of which two programs that share a processor hide a half, and three two thirds. Programs run in
rounds of one per processor. Among the tiles whose accumulators fit the registers and of which two steps fit the shared
memory, the tile with the least product of both is taken; of like ones that of which products read least.

Where every program has a processor of its own, nothing but the bytes that are under way hides how long memory takes:
steps are twice as deep then, and as many of them are loaded ahead as fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.hl.dims import Axis, Dim
from tilewright.hl.graph.nodes import Graph, Node, Region, Value, accessed, values
from tilewright.hl.symbols import Atom

PRODUCTS = ("product", "scaled_product")
DYNAMIC = 1024  # what an extent that is not known counts as
_RATE = {1: 4096, 2: 2048, 4: 160, 8: 64}  # multiplications a cycle of a processor, by bytes of an operand
_ROWS = 64  # rows that the units for small types take at once
_REUSED = 8192  # elements of an accumulator from which registers feed the other units as fast as they multiply
_BYTES = 48  # bytes a cycle that reach a processor
_LATENCY = 250  # cycles of the shortest step
_ROW = 128  # bytes of a row of operands in shared memory
_LARGEST = (128, 256)  # rows and columns of an accumulator
_LANES = 128  # elements a cycle that a processor computes
_HALF = 1 << 14  # elements of accumulators of which a processor holds those of two programs
_OF_FOUR = 3 << 13  # elements of accumulators that four warps hold, in 192 registers of a thread
_ROTATED = 56 << 10  # elements of accumulators that eight warps hold, in 224 registers of a thread
_STEPS, _STEPS_ALONE = 4, 8  # of a loop that are loaded ahead at most; where programs share no processor
_MOST = 3  # programs that share a processor, as far as that is worth something
_MORE_WARPS = 1.1  # how much longer passes take in which eight warps wait for each other: measured on an H100
_VIEWS = frozenset(("permute", "transpose", "t", "view", "reshape", "expand", "unsqueeze", "squeeze", "full", "sym"))


@dataclass(frozen=True)
class Body:
    """The nodes of a loop that are in no loop further inside.

    Args:
        axes: the axes of the loops around them, without the grid's.
        products: products of matrices.
        accesses: loads and stores.
        others: results of what computes elements.
        makers: by the number of a value, the node that makes it.
    """

    axes: tuple[Axis, ...]
    products: list[Node] = field(default_factory=list)
    accesses: list[Node] = field(default_factory=list)
    others: list[Value] = field(default_factory=list)
    makers: dict[int, Node] = field(default_factory=dict)

    def closing(self) -> list[Node]:
        """The products that need the result of another one of the body."""
        products = {node.out.id for node in self.products}
        return [node for node in self.products if not products.isdisjoint(self._needed(node))]

    def _needed(self, node: Node) -> set[int]:
        """The numbers of the values that a node is computed of."""
        found, pending = set[int](), [node]
        while pending:
            fresh = {value.id for value in values(pending.pop().args)} - found
            found |= fresh
            pending += [self.makers[number] for number in fresh if number in self.makers]
        return found


def bodies(region: Region, axes: tuple[Axis, ...] = (), into: Body | None = None) -> Iterator[Body]:
    """The bodies of a region, its own last; branches belong to the body that they are in."""
    body = Body(axes) if into is None else into
    for node in region.nodes:
        body.makers.update((value.id, node) for value in node.outs)
        if node.op in PRODUCTS:
            body.products.append(node)
        elif node.op in ("load", "store"):
            body.accesses.append(node)
        elif not node.regions and node.op not in _VIEWS:
            body.others.extend(node.outs)
        for inner in node.regions:
            loop = node.op == "loop"
            yield from bodies(inner, (*axes, *node.kwargs["axes"]) if loop else axes, None if loop else body)
    if into is None:
        yield body


def wide_atoms(graph_bodies: list[Body]) -> dict[Atom, int]:
    """The largest size of the atoms that rows and columns of products are made of."""
    found: dict[Atom, int] = {}
    for product in (product for body in graph_bodies for product in body.products):
        for dim, largest in zip(product.out.dims[-2:], _LARGEST, strict=True):
            for atom in dim.cut.atoms:
                found[atom] = min(largest, found.get(atom, largest))
    return found


class TileModel:
    """What tiles of one top-level loop cost.

    Args:
        graph: the loop, which has products.
        axes: the axes that have no size yet, by their block sizes.
        length: the length of an axis, None where it is not known.
        processors: multiprocessors of the device.
        shared: bytes of shared memory of a program.
    """

    def __init__(
        self,
        graph: Graph,
        axes: Mapping[Atom, Axis],
        length: Callable[[Axis], int | None],
        processors: int,
        shared: int,
    ) -> None:
        self.grid: list[Axis] = graph.loop.kwargs["axes"]
        self.bodies = list(bodies(graph.loop.regions[0]))
        self.axes, self.length, self.processors, self.shared = axes, length, processors, shared

    def choose(self) -> dict[Atom, int]:
        """The cheapest sizes of the axes that are dimensions of products."""
        wide = {atom: largest for atom, largest in wide_atoms(self.bodies).items() if atom in self.axes}
        fixed = {**self._depths(wide), **dict.fromkeys(list(wide)[3:], _ROWS)}
        free = list(wide)[:3]
        trials = (
            {**fixed, **dict(zip(free, sizes, strict=True))}
            for sizes in itertools.product(*(self._sizes(atom, wide[atom]) for atom in free))
        )
        found = min(trials, key=lambda sizes: (*self._cost(sizes), read(self.bodies, sizes)), default=fixed)
        return self._deeper(found, [atom for atom in fixed if atom not in wide])

    def _deeper(self, sizes: dict[Atom, int], depths: Sequence[Atom]) -> dict[Atom, int]:
        """The sizes with steps of twice the depth where no program shares a processor, and several of them fit."""
        deeper = {**sizes, **{atom: 2 * sizes[atom] for atom in depths}}
        lengths = [self.length(self.axes[atom]) or DYNAMIC for atom in depths]
        long = all(length >= _STEPS * deeper[atom] for atom, length in zip(depths, lengths, strict=True))
        alone = are_alone(self.bodies, sizes, passes(self.grid, sizes, self.length), self.processors)
        return deeper if alone and long and fitting(self.bodies, deeper, self.shared) >= _STEPS else sizes

    def _sizes(self, atom: Atom, largest: int) -> list[int]:
        known = self.length(self.axes[atom]) or DYNAMIC
        within = self.axes[atom].within or largest
        most = min(largest, max(16, min(1 << (known - 1).bit_length(), within)))
        return [1 << power for power in range(most.bit_length() - 1, 3, -1)]

    def _depths(self, wide: Mapping[Atom, int]) -> dict[Atom, int]:
        """Sizes of the axes that are summed over only: a row of operands."""
        found: dict[Atom, int] = {}
        for product in (product for body in self.bodies for product in body.products):
            left: Value = product.args[0]
            depth = left.dims[-1]
            for atom in depth.cut.atoms:
                if atom in self.axes and atom not in wide:
                    found[atom] = max(16, _ROW // left.dtype.itemsize) // depth.static or 1
        return found

    def _cost(self, sizes: Mapping[Atom, int]) -> tuple[float, int]:
        steps = [(body, passes(body.axes, sizes, self.length)) for body in self.bodies]
        held = _held(self.bodies, sizes)
        small = all(product.args[0].dtype.itemsize <= 2 for body in self.bodies for product in body.products)
        products = [body for body in self.bodies if body.products]
        staged = max((2 * loaded(body, sizes) + kept(body, sizes) for body in products), default=0)
        if held > (1 << 15 if small else 1 << 14) or staged > self.shared:
            return math.inf, held
        cycles = sum(iterations * max(self._work(body, sizes), _LATENCY) for body, iterations in steps)
        rounds = -(-passes(self.grid, sizes, self.length) // self.processors)
        if not _is_chained(self.bodies, sizes):
            return rounds * cycles, -held
        waits = held > _OF_FOUR and not self._rotates(sizes)
        return rounds * cycles * (_MORE_WARPS if waits else 1), held

    def _work(self, body: Body, sizes: Mapping[Atom, int]) -> float:
        """Cycles of one turn of a body."""
        units = 0.0
        for product in body.products:
            left: Value = product.args[0]
            rows, columns, depth = (elements((dim,), sizes) for dim in (*product.out.dims[-2:], left.dims[-1]))
            slower = max(1.0, math.sqrt(_REUSED / (rows * columns)))
            if left.dtype.itemsize <= 2:
                slower = max(1.0, _ROWS / rows)
            units += slower * rows * columns * depth / _RATE[left.dtype.itemsize]
        heavy = max(units, loaded(body, sizes, stores=True) / _BYTES)
        light = computed(body, sizes) / _LANES
        return heavy + light - (1 - 1 / self._programs(sizes)) * min(heavy, light)

    def _programs(self, sizes: Mapping[Atom, int]) -> int:
        """How many programs a processor has at once, each of which works on elements while others multiply.

        One whose own products run beside that hides more of it than several that come to it by chance.
        """
        held = _held(self.bodies, sizes)
        if _is_chained(self.bodies, sizes):
            return _MOST + 1 if self._rotates(sizes) else _fitting_registers(held)
        return 2 if held <= _HALF else 1

    def _rotates(self, sizes: Mapping[Atom, int]) -> bool:
        """Whether the loop starts products of the next turn while it computes elements of this one.

        Programs of eight warps do, if registers hold the products twice that need no other, beside the sums of those
        that do. They stay on their processors, and load the next program's tiles, if all of them take as many turns.
        """
        return _held(self.bodies, sizes) > _OF_FOUR and any(self._is_rotated(body, sizes) for body in self.bodies)

    def _is_rotated(self, body: Body, sizes: Mapping[Atom, int]) -> bool:
        closing = body.closing()
        held = sum(elements(node.out.dims, sizes) * (1 if node in closing else 2) for node in body.products)
        rows = min((elements(node.out.dims[-2:-1], sizes) for node in body.products), default=0)
        both = bool(body.axes) and 0 < len(closing) < len(body.products)
        equal = all(self.length(axis) is not None for axis in body.axes)
        return both and equal and rows >= 2 * _ROWS and held <= _ROTATED


def _fitting_registers(held: int) -> int:
    """How many programs the registers of a processor have room for, as far as that is worth something.

    Args:
        held: elements of the accumulators of one.
    """
    return max(1, min(_MOST, 2 * _OF_FOUR // held))


def passes(axes: Sequence[Axis], sizes: Mapping[Atom, int], length: Callable[[Axis], int | None]) -> int:
    """Iterations of loops, or programs of a grid; axes without a size are taken index by index."""
    return math.prod(-(-(length(axis) or DYNAMIC) // sizes.get(axis.size, 1)) for axis in axes)


def elements(dims: tuple[Dim, ...], sizes: Mapping[Atom, int]) -> int:
    """Elements of a tile; axes without a size count as one lane, extents that are not known as `DYNAMIC`."""
    own = (sizes.get(atom, 1 if atom.kind == "block" else DYNAMIC) for dim in dims for atom in dim.cut.atoms)
    return math.prod(dim.static for dim in dims) * math.prod(own)


def loaded(body: Body, sizes: Mapping[Atom, int], stores: bool = False) -> int:
    """Bytes that one turn of a body loads anew, and stores where asked for."""
    anew = [node for node in _loads(body) if not _stays(node, body)]
    return _bytes(anew + [node for node in body.accesses if stores and node.op == "store"], sizes)


def kept(body: Body, sizes: Mapping[Atom, int]) -> int:
    """Bytes of what all turns of a body load alike: it is loaded once."""
    return _bytes([node for node in _loads(body) if _stays(node, body)], sizes)


def _loads(body: Body) -> list[Node]:
    return [node for node in body.accesses if node.op == "load"]


def _bytes(accesses: list[Node], sizes: Mapping[Atom, int]) -> int:
    return sum(elements(accessed(node), sizes) * node.args[0].dtype.itemsize for node in accesses)


def computed(body: Body, sizes: Mapping[Atom, int]) -> int:
    """Elements that one turn of a body computes besides its products; none where it has no products."""
    return sum(elements(value.dims, sizes) for value in body.others) if body.products and body.axes else 0


def _held(found: list[Body], sizes: Mapping[Atom, int]) -> int:
    return sum(elements(product.out.dims, sizes) for body in found for product in body.products)


def warps(graph: Graph, sizes: Mapping[Atom, int]) -> int:
    """Warps for the accumulators of a loop: few where two programs share a processor, or products are chained."""
    found = list(bodies(graph.loop.regions[0]))
    held = _held(found, sizes)
    if _is_chained(found, sizes) and held <= _OF_FOUR:
        return 4
    return 8 if held >= _HALF + _shares(found, sizes) else 4


def _shares(found: list[Body], sizes: Mapping[Atom, int]) -> bool:
    """Whether two programs share a processor, as there is work on elements between products."""
    return _held(found, sizes) <= _half(found, sizes) and any(computed(body, sizes) > 0 for body in found)


def _half(found: list[Body], sizes: Mapping[Atom, int]) -> int:
    """Elements of accumulators of which a processor holds those of two programs."""
    return _OF_FOUR if _is_chained(found, sizes) else _HALF


def stages(graph: Graph, sizes: Mapping[Atom, int], shared: int, programs: int, processors: int) -> int:
    """How many steps of the loop with products are loaded ahead: as many as fit the shared memory, up to some.

    No pipeline but that of one step ahead keeps programs from sharing a processor that have room in its registers. A
    pass that multiplies more often than it loads tiles, as in backward passes of attention, takes longer than its
    loads: one step ahead is enough for it.
    """
    found = list(bodies(graph.loop.regions[0]))
    alone = are_alone(found, sizes, programs, processors)
    most = 2 if _is_chained(found, sizes) else _STEPS_ALONE if alone else _STEPS
    sharing = _fitting_registers(_held(found, sizes)) if _shares(found, sizes) and not alone else 1
    depths = (fitting(found, sizes, shared // count) for count in range(sharing, 0, -1))
    return min(most, next((depth for depth in depths if depth > 1), 1))


def fitting(found: list[Body], sizes: Mapping[Atom, int], room: int) -> int:
    """How many steps of the loop with products fit some bytes beside what is loaded outside of it; 0 without a loop."""
    inside = max((loaded(body, sizes) for body in found if body.products and body.axes), default=0)
    outside = sum(loaded(body, sizes) for body in found if not body.axes) + sum(kept(body, sizes) for body in found)
    return (room - outside) // inside if inside else 0


def are_alone(found: list[Body], sizes: Mapping[Atom, int], programs: int, processors: int) -> bool:
    """Whether each program has a processor of its own, whose units multiply faster than memory answers."""
    small = all(product.args[0].dtype.itemsize <= 2 for body in found for product in body.products)
    return small and programs <= processors and not _is_chained(found, sizes)


def read(found: list[Body], sizes: Mapping[Atom, int]) -> int:
    """Elements of operands that products of small types read from shared memory: all columns for each so many rows."""
    total = 0
    for product in (product for body in found for product in body.products):
        dims = (*product.out.dims[-2:], product.args[0].dims[-1])
        rows, columns, depth = (elements((dim,), sizes) for dim in dims)
        if product.args[0].dtype.itemsize <= 2:
            total += depth * -(-rows // _ROWS) * (_ROWS + columns)
    return total


def _is_chained(found: list[Body], sizes: Mapping[Atom, int]) -> bool:
    """Whether a pass multiplies more often than it loads tiles: products then need the results of others."""
    return any(body.axes and len(body.products) > _tiles(body, sizes) for body in found)


def _tiles(body: Body, sizes: Mapping[Atom, int]) -> int:
    """How many tiles of two dimensions or more each turn of a body loads anew."""
    anew = [accessed(node) for node in _loads(body) if not _stays(node, body)]
    return sum(len([dim for dim in dims if elements((dim,), sizes) > 1]) > 1 for dims in anew)


def _stays(load: Node, body: Body) -> bool:
    """Whether a load is plainly the same in all turns of the loops around it; outside of loops there are none."""
    own = {axis.id for axis in body.axes}
    return bool(own) and all(
        entry.kind == "slice" or (entry.kind == "tile" and entry.what not in own) for entry in load.args[1]
    )
