"""Nodes whose results nobody reads are removed; effects and what they read stay."""

from __future__ import annotations

from typing import Any

from tilewright.hl.graph.nodes import Region, Value, has_effect, leaves, operands
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
        used.update(value.id for value in operands(node))
        used.update(value.id for value in _in_symbols((node.args, node.kwargs)))
        kept.append(node)
    region.nodes = kept[::-1]


def _in_symbols(tree: Any) -> list[Value]:
    symbols = [leaf for leaf in leaves(tree) if isinstance(leaf, Sym)]
    return [arg for symbol in symbols for atom in symbol.atoms() for arg in atom.args if isinstance(arg, Value)]
