"""Loops whose count is an argument, and of which the way back needs the history: the count is a constant of it.

    for step in hl.grid(n):       n = 3 in this call: the derivation is for three passes, with a guard,
        v = torch.tanh(v)         and another n is another derivation

A loop that only sums needs no history; its count stays an argument.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.hl.grad.extents import is_known
from tilewright.hl.graph.nodes import Node, Region, Value, operands, walk
from tilewright.hl.symbols import Sym, show, substitute
from tilewright.hl.trace.host import Traced

Fact = tuple[str, Any]
"""An expression of the arguments, and what it is."""


def settle(traced: Traced) -> list[Fact]:
    """Make the counts of loops whose history may be needed constants.

    Args:
        traced: a trace, whose loops are changed.

    Returns:
        What has been relied on.
    """
    facts: dict[str, Any] = {}
    for graph in traced.graphs:
        for node in walk(graph.region):
            if node.op == "loop" and node.args and not _only_sums(node):
                node.kwargs["axes"] = [
                    replace(axis, **{side: _number(traced, getattr(axis, side), facts) for side in ("begin", "end")})
                    for axis in node.kwargs["axes"]
                ]
                for side in ("begin", "end"):
                    node.kwargs[side] = [_number(traced, bound, facts) for bound in node.kwargs[side]]
    return list(facts.items())


def _number(traced: Traced, bound: Any, facts: dict[str, Any]) -> Any:
    """What a bound is in the call, if it is made of numbers of the host alone; sizes are never negative, and stay."""
    if not isinstance(bound, Sym) or is_known(bound) or any(atom.kind != "host" for atom in bound.atoms()):
        return bound
    known = substitute(bound, traced.actual.get)
    if isinstance(known, Sym):
        return bound
    facts[show(bound)] = int(known)
    return int(known)


def _only_sums(loop: Node) -> bool:
    """Whether all that a loop carries are sums, which nothing else in it reads."""
    (region,) = loop.regions
    return all(_is_sum(region, param, result) for param, result in zip(region.params, region.results, strict=False))


def _is_sum(region: Region, param: Value, result: Value) -> bool:
    readers = [node for node in walk(region) if any(value.id == param.id for value in operands(node))]
    return [node.op for node in readers] == ["add"] and readers[0].outs == [result]
