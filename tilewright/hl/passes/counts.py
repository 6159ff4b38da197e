"""Sums of comparisons with every place of a range are counts: each element is looked at once, not once for each place.

    (keys[:, None] == arange(bins)[None, :]).sum(0)      ->      how often each of `bins` numbers is among the keys

On a CPU alone, where an element that is counted costs what some dozen comparisons do.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl.graph.nodes import Node, Region, Value, walk
from tilewright.hl.passes.deadcode import remove_dead
from tilewright.hl.rows.reductions import reduced
from tilewright.hl.rows.shapes import View
from tilewright.hl.rows.table import ROWS

_FEWEST = 32
"""Places of a range, of fewer of which comparisons are as fast."""
_KEYS = (torch.int32, torch.int64)


def count_matches(region: Region) -> None:
    """Put counts in the place of such sums of a region, and of those in it."""
    makers = {out.id: node for node in walk(region) for out in node.outs}
    found = False
    for node in walk(region):
        keys = _keys(node, makers) if node.op == "sum" else None
        if keys is not None:
            node.op, node.args, node.kwargs, node.compute = "count_matches", (keys,), {}, None
            found = True
    if found:
        remove_dead(region)


def _keys(node: Node, makers: dict[int, Node]) -> Value | None:
    """What a sum counts, if it is over the comparisons of a row of keys with a range."""
    (dims, keep), compared = reduced(node), _made(node.args[0], makers, ("eq",))
    if compared is None or keep or len(dims) != 1 or len(compared.out.dims) != 2 or "dtype" in node.kwargs:
        return None
    (along,) = dims
    places = compared.out.dims[1 - along]
    if type(places.size()) is int and places.size() < _FEWEST:
        return None
    for one, other in (compared.args, compared.args[::-1]):
        if not isinstance(one, Value) or not isinstance(other, Value) or len(one.dims) != 2 or len(other.dims) != 2:
            continue
        keys, counted = _plain(one, makers), _made(other, makers, ("lanes",))
        is_row = one.dims[1 - along].is_one and keys.dims == (compared.out.dims[along],) and keys.dtype in _KEYS
        is_range = counted is not None and other.dims[along].is_one and counted.out.dims == (places,)
        atom = compared.out.dims[along].atom
        if is_row and is_range and other.dtype in _KEYS and atom is not None and atom.kind == "block":
            return keys
    return None


def _made(value: Any, makers: dict[int, Node], ops: tuple[str, ...]) -> Node | None:
    """The node of one of some kinds that makes a value, under views of it and numbers of another type."""
    node = makers.get(value.id) if isinstance(value, Value) else None
    while node is not None and node.op not in ops:
        is_same = isinstance(ROWS.get(node.op), View) and node.args[0].dtype == node.out.dtype
        is_number = (
            node.op == "_to_copy" and node.args[0].dtype in (torch.bool, *_KEYS) and node.out.dtype != torch.bool
        )
        if not (is_same or is_number):
            return None
        node = makers.get(node.args[0].id)
    return node


def _plain(value: Value, makers: dict[int, Node]) -> Value:
    """A value before it was given another shape."""
    node = makers.get(value.id)
    while node is not None and isinstance(ROWS.get(node.op), View) and node.args[0].dtype == value.dtype:
        value = node.args[0]
        node = makers.get(value.id)
    return value
