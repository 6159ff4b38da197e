"""Epilogues in parts: what a product gives is stored half by half, so that no more than a part waits to be stored.

store out[m, n] = v        =>        v0, v1 = halves(v)
                                     store out[m, n.begin : n.begin + N / 2] = v0
                                     store out[m, n.begin + N / 2 : n.begin + N] = v1
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.hl.dims import Dim
from tilewright.hl.graph.nodes import Node, Region, Subscript, Value, accessed, walk
from tilewright.hl.passes.decide import Decision
from tilewright.hl.symbols import Sym, same

_SMALLEST = 16  # lanes of a part


def subtile(region: Region, decision: Decision, first_free: int) -> None:
    """Rewrite the stores of a top-level loop that has products.

    Args:
        region: a region that ends with the loop.
        decision: the configuration.
        first_free: a number that no value has, nor any above it.
    """
    factor, body = decision.config.get("epilogue_subtile"), region.nodes[-1].regions[0]
    if factor is None or not any(node.op == "product" for node in walk(body)):
        return
    nodes, body.nodes = body.nodes, []
    for node in nodes:
        if not _fits(node, decision, factor):
            body.nodes.append(node)
            continue
        tensor, entries, value = node.args
        parts, start = [value], entries[-1]
        while len(parts) < factor:
            halved: list[Value] = []
            for part in parts:
                dims = part.dims[0], Dim(_lanes(part, decision) // 2)
                made = [Value(first_free + at, dims, part.dtype) for at in range(2)]
                first_free += 2
                body.nodes.append(Node("halves", (part,), {}, node.line, made))
                halved += made
            parts = halved
        lanes = _lanes(value, decision) // factor
        for at, part in enumerate(parts):
            first = Sym.of(decision.axes[start.what].offset) + at * lanes
            entry = Subscript("slice", first, 1, 0, 1, start.extent)
            stored = replace(
                node, args=(tensor, [*entries[:-1], entry], part), kwargs=node.kwargs | {"dims": part.dims}
            )
            body.nodes.append(stored)


def _lanes(value: Value, decision: Decision) -> int:
    return int(decision.lanes(value.dims[1]))


def _fits(node: Node, decision: Decision, factor: int) -> bool:
    """Whether a store is one of a whole tile of two dimensions, of which the last is cut by the tensor's end alone."""
    if node.op != "store" or "mask" in node.kwargs or "base" in node.kwargs:
        return False
    value, dims, last = node.args[2], accessed(node), node.args[1][-1]
    if not isinstance(value, Value) or value.dims != dims or len(dims) != 2:
        return False
    if last.kind != "tile" or last.at != 1 or type(last.offset) is not int or last.offset:
        return False
    axis, lanes = decision.axes[last.what], decision.lanes(dims[1])
    whole = isinstance(axis.end, int) and same(axis.end, last.extent)
    return whole and isinstance(lanes, int) and lanes % factor == 0 and lanes // factor >= _SMALLEST
