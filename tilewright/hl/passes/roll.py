"""Rolled reductions: an extent that `:` takes whole is visited in chunks, once per reduction over it.

    x = load [rows, N]                     acc = full [rows, R]  lowest
    m = amax(x, 1)                         loop n in 0..N by R:  acc = maximum(acc, load [rows, n])
    e = exp(x - m)                  =>     m = amax(acc, 1)
    s = sum(e, 1)                          acc = full [rows, R]  0
    store e / s                            loop n in 0..N by R:  acc = acc + exp(load [rows, n] - m)
                                           s = sum(acc, 1)
                                           loop n in 0..N by R:  store exp(load [rows, n] - m) / s

Values that have the extent are *wide*. A value's level is the number of reductions over the extent that stand before
it. There is a loop per level: it computes the wide values that reductions and stores of that level need, again from the
loads; values that are not wide are computed once, between the loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.hl.dims import Axis, Dim
from tilewright.hl.graph.nodes import Graph, Node, Region, Subscript, Value, accessed, operands, replace, values, walk
from tilewright.hl.rows.creation import Convert, Fill
from tilewright.hl.rows.pointwise import Pointwise
from tilewright.hl.rows.reductions import Product, Reduction, reduced
from tilewright.hl.rows.shapes import Expand, Permute, Unsqueeze, View
from tilewright.hl.rows.table import ROWS

_SMALLEST = 16  # extents below are not worth a loop


def rollable(graph: Graph) -> list[Dim]:
    """The extents of a top-level loop that can be visited in chunks."""
    body = graph.loop.regions[0]
    found: dict[Dim, None] = {}
    for node in body.nodes:
        if node.op == "load":
            for entry in node.args[1]:
                if entry.kind == "slice" and entry.at is not None and _is_whole(node.out.dims[entry.at]):
                    found[node.out.dims[entry.at]] = None
    return [dim for dim in found if _can_roll(body, dim)]


def _is_whole(dim: Dim) -> bool:
    if dim.atoms:
        return dim.static == 1 and len(dim.atoms) == 1 and dim.atoms[0].kind == "host"
    return dim.static >= _SMALLEST


def _is_wide(value: Value, dim: Dim) -> bool:
    return dim in value.dims


def _can_roll(body: Region, dim: Dim) -> bool:
    """Whether every use of an extent can be taken in chunks, and one of them is a reduction."""
    stored = {node.args[0].name for node in walk(body) if node.op == "store" or node.op.startswith("atomic_")}
    loaded = {node.args[0].name for node in walk(body) if node.op == "load"}
    if stored & loaded:
        return False
    reduces = False
    for node in body.nodes:
        if node.regions:
            if any(_is_wide(value, dim) for value in _inside(node)):
                return False
        elif any(_is_wide(value, dim) for value in _all(node)):
            if not _is_chunkable(node, dim):
                return False
            reduces = reduces or _reduces(node, dim)
    return reduces


def _inside(node: Node) -> Iterator[Value]:
    yield from _all(node)
    for region in node.regions:
        yield from region.params
        for inner in walk(region):
            yield from _all(inner)


def _all(node: Node) -> Iterator[Value]:
    yield from operands(node)
    yield from node.outs
    if node.op == "store":
        yield Value(-1, accessed(node), None)


def _reduces(node: Node, dim: Dim) -> bool:
    """Whether a node reduces over the extent."""
    row = ROWS.get(node.op)
    if not isinstance(row, Reduction):
        return False
    source = node.args[0]
    return any(source.dims[at] == dim for at in reduced(node)[0])


def _is_chunkable(node: Node, dim: Dim) -> bool:
    """Whether a node computes each chunk of its result from the same chunk of its operands, or reduces over it."""
    if any(value.dims.count(dim) > 1 for value in _all(node)):
        return False
    if node.op in ("load", "store"):
        return all(_has_chunks(entry, node, dim) for entry in node.args[1])
    if node.op == "lanes":
        return True
    row = ROWS.get(node.op)
    if isinstance(row, Reduction):
        return not isinstance(row, Product) and (_reduces(node, dim) or _is_wide(node.out, dim))
    if isinstance(row, View):
        return _keeps(node, row, dim)
    return isinstance(row, Pointwise | Fill | Convert)


def _has_chunks(entry: Subscript, node: Node, dim: Dim) -> bool:
    dims = accessed(node)
    if entry.kind not in ("slice", "tile") or entry.at is None or dims[entry.at] != dim:
        return True
    return entry.kind == "slice" and entry.step == 1


def _keeps(node: Node, row: View, dim: Dim) -> bool:
    """Whether a view leaves the extent a dimension of its own, in its place."""
    if isinstance(row, Unsqueeze | Expand | Permute):
        return True
    source, out = node.args[0], node.out
    kept = [tuple(one for one in value.dims if not one.is_one) for value in (source, out)]
    return kept[0] == kept[1]


# --- the rewrite -------------------------------------------------------------------------------------------


def roll(region: Region, dim: Dim, axis: Axis) -> None:
    """Visit an extent of a loop's body in chunks.

    Args:
        region: the body of a top-level loop, rewritten in place.
        dim: the extent, one that `rollable` names.
        axis: the chunks.
    """
    if _can_roll(region, dim):
        _Roller(region, dim, axis).run()


@dataclass
class _Accumulator:
    """A reduction while it runs: what it began with, the parameter of the loop, the sum after a chunk, the end."""

    node: Node
    begin: Value
    param: Value
    next: Value
    end: Value


class _Roller:
    def __init__(self, region: Region, dim: Dim, axis: Axis) -> None:
        self.region, self.dim, self.axis = region, dim, axis
        self.chunk = Dim(1, (axis.size,))
        self.lanes = Dim(axis.block)  # after the loop, when there are no chunks any more
        self.makers = {out.id: node for node in region.nodes for out in node.outs}
        everything = (value for node in region.nodes for value in (*_inside(node), *values(node.args)))
        self.count = 1 + max(value.id for value in everything)
        self.levels: dict[int, int] = {}

    def run(self) -> None:
        """Rewrite the region."""
        nodes, self.region.nodes = self.region.nodes, []
        at = {id(node): self._level(node) for node in nodes}
        for level in range(1 + max(at.values())):
            mine = [node for node in nodes if at[id(node)] == level]
            self.region.nodes += [node for node in mine if not self._is_wide(node)]
            ends = [node for node in mine if self._is_wide(node) and self._ends(node)]
            if ends:
                self._loop(ends)

    def _is_wide(self, node: Node) -> bool:
        return not node.regions and any(_is_wide(value, self.dim) for value in _all(node))

    def _ends(self, node: Node) -> bool:
        return node.op == "store" or _reduces(node, self.dim)

    def _level(self, node: Node) -> int:
        """The level at which a node runs: what it reads must be there."""
        level = max((self.levels.get(value.id, 0) for value in self._read(node)), default=0)
        for out in node.outs:
            self.levels[out.id] = level + _reduces(node, self.dim)
        return level

    def _read(self, node: Node) -> list[Value]:
        inner = [value for body in node.regions for one in walk(body) for value in operands(one)]
        return [*operands(node), *inner, *(value for body in node.regions for value in body.results)]

    def _fresh(self, dims: tuple[Dim, ...], dtype: Any, name: str = "") -> Value:
        self.count += 1
        return Value(self.count, dims, dtype, name)

    def _chunked(self, dims: tuple[Dim, ...], chunk: Dim) -> tuple[Dim, ...]:
        return tuple(chunk if dim == self.dim else dim for dim in dims)

    def _loop(self, ends: list[Node]) -> None:
        """The loop of one level, and behind it the ends of its reductions."""
        sums = [self._accumulator(node) for node in ends if node.op != "store"]
        body = Region([sum.param for sum in sums])
        twins: dict[int, Value] = {}
        for node in ends:
            if node.op == "store":
                self._copy(node, body, twins)
        for sum in sums:
            (source,) = self._operands(sum.node, body, twins)
            dims = reduced(sum.node)[0]
            where = next(at for at in dims if sum.node.args[0].dims[at] == self.dim)
            body.nodes.append(
                Node("accumulate", (sum.param, source, where, sum.node.op), {}, sum.node.line, [sum.next])
            )
            body.nodes[-1].compute = sum.param.dtype
            body.results.append(sum.next)
        begin, end = [self.axis.begin], [self.axis.end]
        loop = Node("loop", ([sum.begin for sum in sums],), {"axes": [self.axis], "begin": begin, "end": end})
        loop.line, loop.outs, loop.regions = ends[0].line, [sum.end for sum in sums], [body]
        self.region.nodes.append(loop)
        for sum in sums:
            node = sum.node
            args = (sum.end, *node.args[1:])
            self.region.nodes.append(Node(node.op, args, node.kwargs, node.line, node.outs, compute=node.compute))

    def _accumulator(self, node: Node) -> _Accumulator:
        row = ROWS[node.op]
        assert isinstance(row, Reduction)
        dims = self._chunked(node.args[0].dims, self.lanes)
        dtype = node.compute or node.args[0].dtype
        begin, param, next, end = (self._fresh(dims, dtype, "acc") for _ in range(4))
        self.region.nodes.append(Node("full", (row.neutral(dtype),), {}, node.line, [begin]))
        return _Accumulator(node, begin, param, next, end)

    def _operands(self, node: Node, body: Region, twins: dict[int, Value]) -> list[Value]:
        """The twins in `body` of the wide operands of a node."""
        wide = [value for value in operands(node) if _is_wide(value, self.dim)]
        for value in wide:
            if value.id not in twins:
                self._copy(self.makers[value.id], body, twins)
        return [twins[value.id] for value in wide]

    def _copy(self, node: Node, body: Region, twins: dict[int, Value]) -> None:
        """Write a wide node into `body`, behind what it reads."""
        self._operands(node, body, twins)
        outs = [self._fresh(self._chunked(out.dims, self.chunk), out.dtype, out.name) for out in node.outs]
        twins.update(zip((out.id for out in node.outs), outs, strict=True))
        if node.op == "lanes":
            body.nodes.append(Node("tile_index", (self.axis.id,), {}, node.line, outs))
            return

        def twin(leaf: Any) -> Any:
            return twins.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

        args, kwargs = replace(node.args, twin), replace(node.kwargs, twin)
        if node.op in ("load", "store"):
            dims = accessed(node)
            args = (args[0], [self._entry(entry, dims) for entry in args[1]], *args[2:])
            if node.op == "store":
                kwargs["dims"] = self._chunked(dims, self.chunk)
        body.nodes.append(Node(node.op, args, kwargs, node.line, outs, compute=node.compute))

    def _entry(self, entry: Subscript, dims: tuple[Dim, ...]) -> Subscript:
        if entry.kind != "slice" or entry.at is None or dims[entry.at] != self.dim:
            return entry
        return Subscript("tile", self.axis.id, entry.at, entry.what, 1, entry.extent)
