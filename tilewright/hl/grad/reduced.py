"""Accumulators of a block size that the program registers, and reduces behind the loop: reduced in each pass.

    acc = hl.zeros([rows, block])                      total = hl.zeros([rows, 1])
    for columns in hl.tile(n, block_size=block):       for columns in hl.tile(n, block_size=block):
        acc += f(x[rows, columns])                         total += f(x[rows, columns]).sum(1, keepdim=True)
    out[rows] = acc.sum(1)                             out[rows] = total.sum(1)

A sum over the passes, lane by lane, and then over the lanes is the sum of the tiles' sums; so it is with maxima and
minima. What the loop carries has one lane then, and lanes that a cut tile does not have are nobody's affair.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tilewright.hl.dims import Dim
from tilewright.hl.grad.program import captured, inner_values
from tilewright.hl.grad.replay import held
from tilewright.hl.grad.simplify import simplify
from tilewright.hl.graph.nodes import Node, Region, Value, operands, walk
from tilewright.hl.trace.kept import keep
from tilewright.hl.trace.state import device_trace

_aten = torch.ops.aten
_JOINED = {
    "sum": ("add", _aten.add.Tensor),
    "amax": ("maximum", _aten.maximum.default),
    "amin": ("minimum", _aten.minimum.default),
}
_REDUCED = {"sum": _aten.sum.dim_IntList, "amax": _aten.amax.default, "amin": _aten.amin.default}
_KINDS = {joined: kind for kind, (joined, _) in _JOINED.items()}
"""How tiles are reduced that a loop joins lane by lane."""
_LESS = frozenset(("lt", "le"))
_ORDER = _LESS | {"gt", "ge"}


@dataclass
class _Lanes:
    """An accumulator.

    Args:
        loop: that carries it.
        at: position among what the loop carries.
        dim: which of its dimensions is the block, from the last.
        start: the number that all its lanes begin with; None where it is not known.
        kind: how lanes are reduced behind the loop; "" until that is known.
        steps: what joins a tile to it, with the tile.
        kept: what puts back the lanes that a tile does not have.
        inside: what reduces it in the body, with how many steps are done then.
        readers: what reads it behind the loop.
    """

    loop: Node
    at: int
    dim: int
    start: Any
    kind: str = ""
    steps: list[tuple[Node, Value]] = field(default_factory=list)
    kept: list[Node] = field(default_factory=list)
    inside: list[tuple[Node, int]] = field(default_factory=list)
    readers: list[Node] = field(default_factory=list)


def reduce_lanes(region: Region) -> None:
    """Rewrite the accumulators of a region and of those inside, where that gives the same."""
    regions = [region, *(inner for node in walk(region) for inner in node.regions)]
    numbers = itertools.count(1 + max((value.id for value in inner_values(region)), default=0))
    accumulators = [
        (around, found)
        for around in regions
        for loop in around.nodes
        if loop.op == "loop"
        for at in range(len(loop.outs))
        if (found := _lanes_of(region, loop, at)) is not None
    ]
    for around, found in accumulators:
        _rewrite(around, found, numbers)
    if accumulators:
        simplify(region)


def _lanes_of(region: Region, loop: Node, at: int) -> _Lanes | None:
    """What a loop carries at a position, if it is such an accumulator."""
    body, out = loop.regions[0], loop.outs[at]
    blocks = [dim for dim, one in enumerate(out.dims) if one.cut != one]
    if len(blocks) != 1 or not out.dtype.is_floating_point:
        return None
    found = _Lanes(loop, at, blocks[0] - len(out.dims), _start(region, loop.args[0][at]))
    if not _follow(body, body.params[at], body.results[at], found):
        return None
    if found.start is None or (found.kind == "sum" and found.start != 0):
        return None
    found.readers = [node for node in walk(region) if any(value is out for value in operands(node))]
    passed_on = any(value is out for node in walk(region) for inner in node.regions for value in inner.results)
    reduced = [_reduces(node, found) for node in found.readers]
    known = all(one or _has_no_gradient(node) for one, node in zip(reduced, found.readers, strict=True))
    return found if known and any(reduced) and not passed_on else None


def _follow(body: Region, param: Value, result: Value, found: _Lanes) -> bool:
    """Whether the body does nothing to an accumulator but join tiles to it, one way; finds the steps."""
    lanes, last = {param.id: 0}, param
    made = {out.id: node for node in body.nodes for out in node.outs}
    for node in body.nodes:
        if any(value.id in lanes for value in captured(node)):
            return False
        if not any(value.id in lanes for value in operands(node)):
            continue
        kind, tile = _joined(node, last, made)
        if node.op == "keep" and node.args[0] is last and node.args[1].id in lanes:
            found.kept.append(node)
        elif (
            tile is not None and tile.id not in lanes and kind == (found.kind or kind) and _has_lanes(tile, node, found)
        ):
            found.kind = kind
            found.steps.append((node, tile))
        elif _has_no_gradient(node):
            continue
        elif node.op in _REDUCED and node.args[0].dims == param.dims:  # all of its lanes
            found.inside.append((node, lanes[node.args[0].id]))
            continue
        else:
            return False
        last = node.out
        lanes[last.id] = len(found.steps)
    return bool(found.steps) and result is last and all(_reduces(node, found) for node, _ in found.inside)


def _joined(node: Node, last: Value, made: dict[int, Node]) -> tuple[str, Value | None]:
    """(how, the tile) where a node joins a tile to an accumulator; no tile where it does something else."""
    operator, args = node.op, node.args
    if node.op == "where":
        operator, args = _of_where(node, made), node.args[1:]
    tiles = [arg for arg in args if isinstance(arg, Value) and arg is not last]
    if operator not in _KINDS or len(args) != 2 or node.kwargs or len(tiles) != 1:
        return "", None
    return _KINDS[operator], tiles[0]


def _of_where(node: Node, made: dict[int, Node]) -> str:
    """ "maximum" for `where(a > b, a, b)`, "minimum" for `where(a < b, a, b)`; else ""."""
    condition, one, other = node.args
    compared = made.get(condition.id) if isinstance(condition, Value) else None
    if compared is None or compared.op not in _ORDER or {id(one), id(other)} != set(map(id, compared.args)):
        return ""
    return "minimum" if (compared.op in _LESS) == (compared.args[0] is one) else "maximum"


def _has_lanes(tile: Value, node: Node, found: _Lanes) -> bool:
    """Whether a tile has a lane for each of the accumulator's: one that broadcasts counts as many times."""
    return len(tile.dims) >= -found.dim and tile.dims[found.dim] == node.out.dims[found.dim]


def _has_no_gradient(node: Node) -> bool:
    return bool(node.outs) and not any(out.dtype.is_floating_point for out in node.outs)


def _reduces(node: Node, found: _Lanes) -> bool:
    """Whether a node reduces an accumulator over its lanes, as it was joined."""
    if node.op != found.kind or node.function is None:
        return False
    dims = node.args[1] if len(node.args) > 1 else ()
    rank = len(node.args[0].dims)
    return not dims or found.dim % rank in [dim % rank for dim in dims]


def _start(region: Region, value: Value) -> Any:
    """The number that an accumulator begins with; None where it is not known."""
    made = {out.id: node for node in walk(region) for out in node.outs}
    node = made.get(value.id)
    while node is not None and node.op == "detach":
        node = made.get(node.args[0].id)
    number = node.args[1] if node is not None and node.op == "full" and len(node.args) == 2 else None
    return number if isinstance(number, int | float) else None


def _rewrite(around: Region, found: _Lanes, numbers: Iterator[int]) -> None:
    """Carry one lane, and what was carried before as well where that is read without a gradient."""
    loop, body, old = found.loop, found.loop.regions[0], found.loop.outs[found.at]

    def one_lane(value: Value) -> Value:
        dims = list(value.dims)
        dims[found.dim] = Dim(1)
        return Value(next(numbers), tuple(dims), old.dtype, value.name)

    init, param, out = one_lane(old), one_lane(old), one_lane(old)
    shape = [dim.size() for dim in init.dims]
    options = {"dtype": old.dtype, "device": torch.device("cpu")}
    made = Node("full", (shape, found.start), options, loop.line, [init], function=_aten.full.default)
    around.nodes.insert(around.nodes.index(loop), made)
    totals = [param]
    for step, tile in found.steps:
        part, total = one_lane(tile), one_lane(param)
        part.name = ""
        kwargs = {"dtype": old.dtype} if found.kind == "sum" else {}
        reduced = Node(found.kind, (tile, [found.dim], True), kwargs, step.line, [part])
        reduced.function = _REDUCED[found.kind]
        joined, function = _JOINED[found.kind]
        node = Node(joined, (totals[-1], part), {}, step.line, [total], function=function)
        place = body.nodes.index(step) + 1
        body.nodes[place:place] = [reduced, node]
        totals.append(total)
    for node, steps in found.inside:
        node.args = (totals[steps], *node.args[1:])
    body.params.append(param)
    body.results.append(totals[-1])
    loop.args[0].append(init)
    loop.outs.append(out)
    for node in found.readers:
        if _reduces(node, found):
            node.args = (out, *node.args[1:])
    for step, _ in found.steps:
        step.function = held(step.function)
    for node in found.kept:
        node.function = held(_kept)


def _kept(new: Any, old: Any) -> Any:
    """`keep` again, in the running trace."""
    trace = device_trace("keep")
    one, other = trace.value(new), trace.value(old)
    assert one is not None and other is not None
    return keep(trace, one, other)
