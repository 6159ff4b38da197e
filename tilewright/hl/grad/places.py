"""How far computed subscripts go on from one pass of a loop to the next: `t.index * 3 + k`."""

from __future__ import annotations

from tilewright.hl.graph.nodes import Node, Region, Value, walk
from tilewright.hl.symbols import Sym

Steps = dict[int | str, int]
"""By axis: the distance of a place from the one that the next index along it has."""

_FORMS = frozenset(("unsqueeze", "squeeze", "expand", "view", "permute", "_to_copy"))


def steps_of(region: Region) -> dict[int, Steps]:
    """The steps of values that are sums of indices and numbers, by the number of the value; others are data."""
    found: dict[int, Steps] = {}
    for node in walk(region):
        made = _steps(node, found)
        if made is not None:
            found[node.out.id] = made
    return found


def of_symbol(symbol: Sym) -> Steps:
    """The steps of what is made of where tiles begin."""
    return {atom.key: factor for atom, factor in symbol.terms.items() if atom.kind == "begin"}


def _steps(node: Node, found: dict[int, Steps]) -> Steps | None:
    if node.op == "tile_index":
        return {node.args[0]: 1}
    if node.op == "sym":
        (symbol,) = node.args
        known = isinstance(symbol, Sym) and all(atom.kind in ("begin", "host") for atom in symbol.terms)
        return of_symbol(symbol) if known else None
    if node.op in _FORMS:
        return found.get(node.args[0].id)
    if node.op == "neg":
        return _scaled(found.get(node.args[0].id), -1)
    if node.op not in ("add", "sub", "mul") or len(node.args) < 2:
        return None
    left, right = (_operand(arg, found) for arg in node.args[:2])
    if left is None or right is None:
        return None
    if node.op == "mul":
        factor = next((arg for arg in node.args[:2] if type(arg) is int), None)
        return None if factor is None else _scaled(left or right, factor)
    right = right if node.op == "add" else {axis: -step for axis, step in right.items()}
    return {axis: left.get(axis, 0) + right.get(axis, 0) for axis in {**left, **right}}


def _operand(arg: object, found: dict[int, Steps]) -> Steps | None:
    if isinstance(arg, Value):
        return found.get(arg.id)
    return of_symbol(arg) if isinstance(arg, Sym) else {} if isinstance(arg, int) else None


def _scaled(steps: Steps | None, factor: int) -> Steps | None:
    return None if steps is None else {axis: step * factor for axis, step in steps.items()}
