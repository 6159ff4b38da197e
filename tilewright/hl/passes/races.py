"""Stores of several programs to the same elements, of which one program's remain: told as a warning.

    for m, n in hl.tile(x.shape):
        out[m] = x[m, n].sum(-1)        # each tile of n stores to the same rows

Told is what is certain: no subscript, mask or condition of the store varies along an axis of the grid, what is stored
does, and the axis has several tiles. Kernels with atomic operations may wait for each other, and are left alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, HostTensor, Node, Region, Value, leaves, walk
from tilewright.hl.passes.decide import Decision
from tilewright.hl.symbols import Sym

_Axes = frozenset[int]
_NONE: _Axes = frozenset()
_told: dict[Any, Any] = {}  # what Python's warnings were given, as the registry of a module


def warn_of_races(graph: Graph, decision: Decision, file: str) -> None:
    """Warn of the stores of a top-level loop of which one tile's remain.

    Args:
        graph: the loop, as it was traced.
        decision: the configuration, which says how many tiles there are.
        file: the user's file.
    """
    for store, axis in races(graph, decision):
        warnings.warn_explicit(
            f"{store.args[0].name} is stored at the same places by each tile of {axis.name}, and one of them remains: "
            f"loop over {axis.name} inside and store behind that loop, or add with hl.atomic_add",
            exc.OverwrittenStore,
            file,
            store.line,
            registry=_told,
        )


def races(graph: Graph, decision: Decision) -> Iterator[tuple[Node, Axis]]:
    """Such stores, and the axis along which they do not move."""
    axes = [axis for axis in graph.loop.kwargs["axes"] if _has_several(axis, decision)]
    if not axes:
        return
    nodes = list(walk(graph.region))
    if any(node.op.startswith("atomic") or node.op == "call" for node in nodes):
        return
    found = _Dependences()
    found.visit(graph.region, _NONE)
    for node in nodes:
        if node.op == "store":
            value = found.of(node.args[2])
            fixed = found.guards[node] | _tiles(node) | found.of((node.args[:2], node.args[3:], node.kwargs))
            yield from ((node, axis) for axis in axes if axis.id in value - fixed)


def _has_several(axis: Axis, decision: Decision) -> bool:
    extent = axis.end - axis.begin
    return type(extent) is int and axis.kind in ("tile", "grid") and extent > decision.block(axis)


@dataclass
class _Dependences:
    """Along which axes values vary, and the conditions around nodes."""

    values: dict[int, _Axes] = field(default_factory=dict)
    guards: dict[Node, _Axes] = field(default_factory=dict)

    def visit(self, region: Region, around: _Axes) -> None:
        """Find out about the nodes of a region, around which conditions vary along some axes."""
        for node in region.nodes:
            self.guards[node] = around
            own = _tiles(node) | self.of((node.args, node.kwargs))
            if node.op == "tile_index":
                own |= {node.args[0]}
            for inner in node.regions:
                self._inside(node, inner, around | own)
            if not node.regions:
                self.values.update((out.id, own) for out in node.outs)

    def _inside(self, node: Node, inner: Region, around: _Axes) -> None:
        """A body; what it carries varies as what it begins with and what an iteration makes of it."""
        for _ in range(2):
            self.visit(inner, around)
            for number, made in enumerate(inner.results):
                varies = self.of(made)
                for value in (*inner.params[number : number + 1], *node.outs[number : number + 1]):
                    self.values[value.id] = self.values.get(value.id, _NONE) | varies

    def of(self, tree: Any) -> _Axes:
        """The axes along which values and symbols in a tree of arguments vary."""
        found = set[Any]()
        for leaf in leaves(tree):
            if isinstance(leaf, Value):
                found |= self.values.get(leaf.id, _NONE)
            elif isinstance(leaf, Sym):
                found |= {atom.key for atom in leaf.atoms() if atom.kind in ("begin", "valid")}
        return frozenset(found)


def _tiles(node: Node) -> _Axes:
    """The axes along whose tiles an access moves by a subscript that is the tile itself."""
    accesses = bool(node.args) and isinstance(node.args[0], HostTensor)
    return frozenset(entry.what for entry in node.args[1] if entry.kind == "tile") if accesses else _NONE
