"""Nodes whose results nobody reads are removed; effects and what they read stay."""

from __future__ import annotations

from tilewright.hl.graph.nodes import Region, Value, has_effect, leaves
from tilewright.hl.symbols import Sym


def remove_dead(region: Region) -> None:
    """Remove them from `region` and its inner regions."""
    _sweep(region, {value.id for value in region.results})


def _sweep(region: Region, used: set[int]) -> None:
    kept = []
    for node in reversed(region.nodes):
        if not has_effect(node) and not any(out.id in used for out in node.outs):
            continue
        for inner in node.regions:
            used.update(value.id for value in inner.results)
            _sweep(inner, used)
        for leaf in leaves((node.args, node.kwargs)):
            if isinstance(leaf, Value):
                used.add(leaf.id)
            elif isinstance(leaf, Sym):
                used.update(arg.id for atom in leaf.atoms() for arg in atom.args if isinstance(arg, Value))
        kept.append(node)
    region.nodes = kept[::-1]
