"""Sizes and bounds that the host knows before a kernel runs: numbers, or symbols of sizes that are open.

A kernel with `static_shapes=False` is differentiated once for all sizes: where a decision needs no more than that two
extents are one, or that the host can count the passes of a loop, an open size serves as well as a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.hl.graph.nodes import HostTensor, Node
from tilewright.hl.symbols import Sym, is_natural, same, substitute


def is_known(value: Any) -> bool:
    """Whether a bound is a number, or a symbol of sizes that is never negative."""
    if not isinstance(value, Sym):
        return type(value) is int
    return all(atom.kind in ("host", "op") for atom in value.atoms()) and is_natural(value)


def is_zero(value: Any) -> bool:
    """Whether a bound is the number 0."""
    return type(value) is int and value == 0


def agree(one: Any, other: Any) -> bool:
    """Whether two bounds that the host knows are one number."""
    return is_known(one) and is_known(other) and same(one, other)


def actual(shape: Iterable[Any], numbers: Mapping[str, Any]) -> tuple[int, ...]:
    """The extents of a tensor for numbers of the host, which are given by name."""
    return tuple(int(substitute(extent, lambda atom: numbers.get(str(atom.key)))) for extent in shape)


def host_numbers(trees: Iterable[Any]) -> dict[str, str]:
    """The numbers of the host that symbols are made of: the launcher's expression of each, by name."""
    atoms = (atom for value in trees if isinstance(value, Sym) for atom in value.atoms())
    return {str(atom.key): atom.text for atom in atoms if atom.kind == "host"}


def tensor_of(node: Node) -> HostTensor | None:
    """The tensor of the host that a node accesses."""
    tensor = node.args[0] if node.args else None
    return tensor if isinstance(tensor, HostTensor) else None
