"""The passes, in order: the table of contents of this room."""

from __future__ import annotations

from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Graph, Region, clone, operands, walk
from tilewright.hl.graph.verify import checked
from tilewright.hl.passes.bounds import prove_bounds
from tilewright.hl.passes.deadcode import remove_dead
from tilewright.hl.passes.decide import Decision
from tilewright.hl.passes.empty import drop_empty
from tilewright.hl.passes.flatten import flat_axis, flatten
from tilewright.hl.passes.fold import fold
from tilewright.hl.passes.pads import place_pads
from tilewright.hl.passes.portable import pad_extents, padded
from tilewright.hl.passes.roll import roll
from tilewright.hl.passes.selections import drop_true_selections
from tilewright.hl.passes.subtile import subtile
from tilewright.hl.passes.whole import round_up


def prepare(graph: Graph, decision: Decision) -> Region:
    """A copy of `graph` as `decision` emits it."""
    region = clone(graph.region)
    checked(region)
    if decision.portable:
        pad_extents(region)
        checked(region)
    fold(region, decision)
    drop_true_selections(region, decision)
    drop_empty(region)
    checked(region)
    loop = region.nodes[-1]
    remove_dead(region)
    if not region.nodes:  # all that it did was of no elements; a region ends with a loop
        remove_dead(loop.regions[0])
        region.nodes = [loop]
    _flatten(region, decision)
    checked(region)
    _roll(region, decision)
    checked(region)
    subtile(region, decision, _last_value(region) + 1)
    checked(region)
    if decision.vector > 1:
        round_up(region, decision.vector)
        checked(region)
    prove_bounds(region, decision)
    place_pads(region, decision)
    checked(region)
    return region


def _flatten(region: Region, decision: Decision) -> None:
    for node in list(walk(region)):
        axes: list[Axis] = node.kwargs["axes"] if node.op == "loop" else []
        if axes and decision.choice("flatten_loops", axes[0].id):
            block = 1
            for axis in axes:
                block *= decision.block(axis)
            flatten(node, decision.add_axis(flat_axis(axes, len(decision.axes), block)), _last_value(region))


def _last_value(region: Region) -> int:
    numbers = [value.id for node in walk(region) for value in (*operands(node), *node.outs)]
    params = (param.id for node in walk(region) for body in node.regions for param in body.params)
    return max((*numbers, *params), default=-1)


def _roll(region: Region, decision: Decision) -> None:
    loop = region.nodes[-1]
    for (at, dim), chunk in zip(
        decision.entries.get("reduction_loops", ()), decision.config.get("reduction_loops", ()), strict=False
    ):
        if at == decision.graph and chunk is not None:
            dim = padded(dim) if decision.portable else dim
            end: Any = dim.size()
            name = f"{dim.atoms[0].key}" if dim.atoms else "n"
            roll(loop.regions[0], dim, decision.add_axis(Axis(len(decision.axes), name, "roll", 0, end, chunk)))
