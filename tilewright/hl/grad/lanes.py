"""Whether lanes of a tile meet: another tile has others.

A sum of all passes does not depend on the tiles, nor does a running maximum; the square of a tile's sum does, its
running sums, places of lanes in it, and what is added once a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.hl.dims import Axis, Dim, block_of
from tilewright.hl.grad.maxima import running_maxima
from tilewright.hl.grad.program import captured
from tilewright.hl.graph.nodes import Node, Region, Value, leaves, operands, walk
from tilewright.hl.symbols import Atom

ALONG = {
    "_log_softmax": 1,
    "_log_softmax_backward_data": 2,
    "_softmax": 1,
    "_softmax_backward_data": 2,
    "cat": 1,
    "cumprod": 1,
    "cumsum": 1,
    "flip": 1,
    "roll": 2,
    "scan_fn": 1,
    "sort_lanes": None,
    "take_lanes": 2,
}
"""Operations of which an element of the result is made of several lanes of dimensions that stay: the position of the
argument that says along which; None for the last one."""
_LOOPS = frozenset(("if", "loop", "while"))
_SUMMED = frozenset(("_to_copy", "add", "expand", "permute", "squeeze", "transpose", "unsqueeze", "view"))
"""Operations by which a sum of lanes stays one of which all passes add up."""


def lanes_meet(region: Region) -> bool:
    """Whether anything but a sum or a maximum over all passes is made of several lanes of a tile, or of their places,
    or a sum has something of every pass that is no sum of its lanes."""
    lanes = _Lanes(region)
    return lanes.meet() or lanes.are_counted()


class _Lanes:
    """Follows what is computed of all lanes of a tile to what sums or compares it over all passes."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users: dict[int, list[Node]] = {}
        self.makers: dict[int, Node] = {}
        self.maxima: set[int] = set()
        for node in walk(region):
            self.makers.update((out.id, node) for out in node.outs)
            for value in operands(node):
                self.users.setdefault(value.id, []).append(node)
            if node.op == "loop":
                self.maxima |= {value.id for value in running_maxima(node).values()}

    def meet(self) -> bool:
        """As `lanes_meet`."""
        nodes = [node for node in walk(self.region) if node.op not in _LOOPS and node.outs]
        if any(_mixes(node) for node in nodes):
            return True
        return any(not self._is_summed(out) for node in nodes if _gone(node) for out in node.outs)

    def _is_summed(self, value: Value) -> bool:
        return all(self._adds(user) for user in self.users.get(value.id, ()))

    def _adds(self, user: Node) -> bool:
        if user.op in _SUMMED:
            return self._is_summed(user.out)
        return user.op == "atomic_add" or (bool(user.outs) and user.outs[0].id in self.maxima)

    def are_counted(self) -> bool:
        """Whether a sum over passes, or programs, has an addend of a pass that is none of its lanes: `total + x[0]`."""
        return self._counts(self.region, frozenset())

    def _counts(self, region: Region, around: frozenset[Atom]) -> bool:
        for node in region.nodes:
            free = [axis for axis in node.kwargs["axes"] if _is_free(axis)] if node.op == "loop" else []
            if node.op == "atomic_add" and not self._sums(node.args[2], around, frozenset()):
                return True
            for body in node.regions if node.op in _LOOPS else ():
                own = frozenset(axis.size for axis in free)
                carried = _made_of(body)
                pairs = zip(body.params, body.results, strict=False) if node.op == "loop" else ()
                sums = [result for param, result in pairs if result is not param and result.id in carried]
                if not all(self._sums(result, own, carried) for result in sums if result.id not in self.maxima):
                    return True
                if self._counts(body, around | own):
                    return True
        return False

    def _sums(self, value: Any, sizes: frozenset[Atom], carried: frozenset[int]) -> bool:
        """Whether a value has something of each lane of tiles, but for addends that are made of what a loop carries."""
        if not isinstance(value, Value):
            return not sizes
        rest = sizes - {*blocks_of(value.dims)}
        node = self.makers.get(value.id)
        if not rest or node is None:
            return not rest or value.id in carried
        if node.op in _LOOPS:  # a loop begins with zeros, or what was such a sum
            at, inside = node.outs.index(value), carried.union(*map(_made_of, node.regions))
            return all(self._sums(body.results[at], rest, inside) for body in node.regions)
        if node.op in _SUMMED or node.op in ("sub", "where"):
            parts = node.args[1:] if node.op == "where" else node.args[:2]
            return all(self._sums(part, rest, carried) for part in parts if isinstance(part, Value))
        return not rest - _gone(node) or (value.id in carried and node.op != "product")


def _is_free(axis: Axis) -> bool:
    """Whether tiles of an axis may have another size in the backward pass."""
    return axis.kind != "grid" and type(axis.block) is not int


def _made_of(body: Region) -> frozenset[int]:
    """The numbers of the values that are made of what a loop carries."""
    found = {param.id for param in body.params}
    for node in walk(body):
        read = {value.id for value in (*operands(node), *captured(node))}
        if read & found:
            found |= {out.id for out in node.outs}
            found |= {param.id for region in node.regions for param in region.params}
    return frozenset(found)


def _mixes(node: Node) -> bool:
    """Whether lanes of a tile meet in dimensions that stay, or their places in the tile are read."""
    several = [blocks_of(out.dims) for out in node.outs]
    if any(len(blocks) > len({*blocks}) for blocks in several) or (node.op == "lanes" and any(several)):
        return True
    if node.op not in ALONG:
        return False
    position, rank = ALONG[node.op], len(node.outs[0].dims)
    named = -1 if position is None else node.args[position] if len(node.args) > position else 0
    along = {dim % rank for dim in leaves([named])} if rank else set()
    return any(blocks_of([value.dims[dim]]) for value in operands(node) for dim in along if dim < len(value.dims))


def _gone(node: Node) -> set[Any]:
    """The tiles of which an operation combines the lanes."""
    return _tiles(operands(node)) - _tiles(node.outs) if node.op != "load" else set()


def _tiles(values: list[Value]) -> set[Atom]:
    return {atom for value in values for dim in value.dims for atom in dim.atoms if atom.kind == "block"}


def blocks_of(dims: Iterable[Dim]) -> list[Atom]:
    """The tiles of which dimensions have the lanes, or parts of these, as often as they do."""
    return [block for dim in dims for block in map(block_of, dim.atoms) if block.kind == "block"]
