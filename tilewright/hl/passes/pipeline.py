"""The passes, in order: the table of contents of this room."""

from __future__ import annotations

from tilewright.hl.graph.nodes import Graph, Region, clone
from tilewright.hl.passes.deadcode import remove_dead
from tilewright.hl.passes.decide import Decision
from tilewright.hl.passes.fold import fold
from tilewright.hl.passes.pads import place_pads


def prepare(graph: Graph, decision: Decision) -> Region:
    """A copy of `graph` as `decision` emits it."""
    region = clone(graph.region)
    fold(region, decision)
    remove_dead(region)
    place_pads(region, decision)
    return region
