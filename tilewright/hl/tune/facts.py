"""Facts: what of a kernel's graphs the choices of a configuration are about, and in which order lists of them go.

Every list of a configuration has an entry per loop, axis, access or extent. What an entry belongs to is known by a key
that copies of a graph keep: the number of an axis (of the first one where a loop has several), or a number that is
written into the node of an access here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tilewright.hl.dims import Axis, Dim
from tilewright.hl.graph.nodes import Graph, Node, Value, accessed, symbols, walk
from tilewright.hl.passes.flatten import flattens
from tilewright.hl.passes.merged import uncut
from tilewright.hl.passes.roll import rollable
from tilewright.hl.symbols import Atom, Sym, next_power_of_2, substitute
from tilewright.hl.tune.machine import Machine
from tilewright.hl.tune.products import PRODUCTS


@dataclass
class Facts:
    """What a kernel leaves open.

    Args:
        graphs: the top-level loops.
        axes: every axis, by number.
        slots: the axes that `block_sizes` sizes.
        machine: what it is configured for.
        tunables: choices of the program itself, by name.
        actual: what extents that are known only at the launch are in the call that binds.

    Attributes:
        entries: for each key with a list, what its entries belong to, in order.
        names: for each of these keys how an error calls the entries.
        loops: how an error calls the top-level loops.
        memory: what was computed from the facts, by name of the function.
    """

    graphs: Sequence[Graph]
    axes: Sequence[Axis]
    slots: Sequence[Axis]
    machine: Machine
    tunables: dict[str, Any] = field(default_factory=dict)
    actual: Mapping[Atom, int | None] = field(default_factory=dict)
    entries: dict[str, list[Any]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    loops: list[str] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for axis in self.slots:
            self._add("block_sizes", axis.id, axis.name)
        for at, graph in enumerate(self.graphs):
            self._loop(graph.loop, top=True)
            self.loops.append(" and ".join(axis.name for axis in graph.loop.kwargs["axes"]))
            for node in walk(graph.loop.regions[0]):
                if node.op == "loop":
                    self._loop(node, top=False)
                else:
                    self._access(node)
            for dim in rollable(graph):
                self._add("reduction_loops", (at, dim), repr(dim))

    def _add(self, key: str, ident: Any, name: str) -> None:
        self.entries.setdefault(key, []).append(ident)
        self.names.setdefault(key, []).append(name)

    def _loop(self, node: Node, top: bool) -> None:
        axes: list[Axis] = node.kwargs["axes"]
        first, name = axes[0].id, " and ".join(axis.name for axis in axes)
        if len(axes) > 1:
            self._add("loop_orders", first, name)
            if flattens(node):
                self._add("flatten_loops", first, name)
            if top:
                self._add("l2_groupings", first, name)
        for axis in axes[:1] if top else axes:
            for key in RANGE_KEYS:
                self._add(key, axis.id, name if top else axis.name)
        for axis in () if top else axes:
            if axis.kind == "tile" and type(axis.begin) is int and type(axis.end) is int:
                self._add("static_ranges", axis.id, axis.name)

    def _access(self, node: Node) -> None:
        if node.op.startswith("atomic_"):
            self._number(node, "atomic_indexing", f"{node.op} of {node.args[0].text}")
        elif node.op in ("load", "store"):
            name = f"{node.op} of {node.args[0].text}"
            self._number(node, "indexing", name)
            self._number(node, f"{node.op}_cache_modifiers", name)
            if node.op == "load" and node.kwargs.get("policy") is None:
                self._number(node, "load_eviction_policies", name)

    def _number(self, node: Node, key: str, name: str) -> None:
        number = len(self.entries.get(key, ()))
        self._add(key, number, name)
        node.kwargs[key] = number

    # --- questions ---------------------------------------------------------------------------------

    @property
    def grids(self) -> list[list[Axis]]:
        """The axes of each top-level loop."""
        return [graph.loop.kwargs["axes"] for graph in self.graphs]

    def axis(self, ident: Any) -> Axis:
        """The axis with a number."""
        return self.axes[int(ident)]

    def loop_axes(self, first: int) -> list[Axis]:
        """The axes of the loop that begins with the axis `first`."""
        loops = (node for graph in self.graphs for node in walk(graph.region) if node.op == "loop")
        return next(axes for axes in (node.kwargs["axes"] for node in loops) if axes[0].id == first)

    def extent_in_call(self, axis: Axis) -> int | None:
        """How many indices an axis has in the call that binds; None where only the kernel knows."""
        if not all(isinstance(bound, Sym) or type(bound) is int for bound in (axis.begin, axis.end)):
            return None
        known = substitute(axis.end - axis.begin, self.actual.get)
        return known if type(known) is int else None

    def largest_tiles(self, config: Mapping[str, Any]) -> list[tuple[int, Value | None]]:
        """For each top-level loop (elements of the largest tile under a configuration, that tile).

        Extents are those of the call that binds.
        """
        chunks = dict(zip(self.entries.get("reduction_loops", ()), config.get("reduction_loops", ()), strict=False))
        sizes = dict(zip((axis.size for axis in self.slots), config.get("block_sizes", ()), strict=False))
        own = {axis.size: axis.block for axis in reversed(self.axes) if type(axis.block) is int} | sizes

        @functools.cache
        def lanes(atom: Atom) -> int:
            if atom.kind == "op":
                return int(substitute(Sym.of(atom), lanes))
            return int(next_power_of_2(self.actual.get(atom) or 1) if atom.kind == "host" else own.get(atom, 1))

        largest: list[tuple[int, Value | None]] = [(1, None) for _ in self.graphs]
        for at, value, parts in tiles(self):
            rolled = {dim: chunk for (which, dim), chunk in chunks.items() if which == at and chunk is not None}
            extents = (rolled.get(dim) or dim.static * math.prod(map(lanes, atoms)) for dim, atoms in parts)
            largest[at] = max(largest[at], (math.prod(extents), value), key=lambda found: found[0])
        return largest

    def has_product(self) -> bool:
        """Whether there are products of matrices."""
        return any(node.op in PRODUCTS for graph in self.graphs for node in walk(graph.region))


def stored(node: Node) -> list[Value]:
    """The tile that a node stores, as a value: what is stored may be a number."""
    return [Value(-1, accessed(node), node.args[0].dtype)] if node.op == "store" else []


RANGE_KEYS = (
    "range_unroll_factors",
    "range_num_stages",
    "range_warp_specializes",
    "range_multi_buffers",
    "range_flattens",
)


R = TypeVar("R")


def once(function: Callable[[Facts], R]) -> Callable[[Facts], R]:
    """A function of facts that is computed once for each."""

    @functools.wraps(function)
    def remembered(facts: Facts) -> R:
        if function.__name__ not in facts.memory:
            facts.memory[function.__name__] = function(facts)
        found: R = facts.memory[function.__name__]
        return found

    return remembered


def extent(axis: Axis) -> int | None:
    """How many indices an axis has, where that is known while the kernel is bound."""
    known = not isinstance(axis.begin, Sym) and isinstance(axis.begin, int)
    if known and isinstance(axis.end, int) and not isinstance(axis.end, Sym):
        return int(axis.end - axis.begin)
    return None


def whole(dim: Dim) -> int | None:
    """The static extent of a dimension that `:` takes whole."""
    return dim.static if not dim.atoms else None


def uses(node: Node, axis: Axis) -> bool:
    """Whether a node reads the first index of an axis."""
    found = symbols((node.args, node.kwargs))
    return any(atom == axis.offset for symbol in found for atom in symbol.atoms())


@once
def tiles(facts: Facts) -> list[tuple[int, Value, list[tuple[Dim, Sequence[Atom]]]]]:
    """(number of the graph, a tile, its dimensions with what they are products of), one of each shape in each graph."""
    found: dict[tuple[int, tuple[Dim, ...]], Value] = {}
    for at, graph in enumerate(facts.graphs):
        for node in walk(graph.region):
            for value in (*node.outs, *stored(node)):
                found.setdefault((at, tuple(value.dims)), value)
    return [(at, value, [(dim, dim.cut.atoms) for dim in dims]) for (at, dims), value in found.items()]


@once
def uncut_sizes(facts: Facts) -> set[Atom]:
    """Sizes of tiles that must divide their ranges: the lanes of a cut tile are not known everywhere."""
    return set[Atom]().union(*(uncut(graph.region) for graph in facts.graphs))


@once
def product_sizes(facts: Facts) -> set[Atom]:
    """Sizes of tiles along the rows, columns and depth of products of matrices."""
    found = (node for graph in facts.graphs for node in walk(graph.region) if node.op in PRODUCTS)
    dims = [dim for node in found for dim in (*node.out.dims[-2:], node.args[0].dims[-1])]
    return {atom for dim in dims for atom in dim.cut.atoms}


def dividing(facts: Facts, axis: Axis) -> int:
    """The largest power of two that divides the ranges of all tiles of the size of `axis`; 1 if one is not known."""
    ranges = [extent(other) for other in facts.axes if other.size == axis.size and other.kind != "block"]
    common = math.gcd(*(known or 1 for known in ranges))
    return common & -common
