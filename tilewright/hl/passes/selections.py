"""Selections by the place of an element that a configuration decides: what is true of every lane selects nothing.

for tile_m in hl.tile((tile_n.begin // 64) * 64, 2048, block_size=64):
    x = torch.where(tile_n.index < min(tile_m.begin + 64, 2048), x, 0)      nothing, where tiles of n divide 64
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.graph.nodes import Node, Region, Value, rename, walk
from tilewright.hl.passes.deadcode import remove_dead
from tilewright.hl.passes.decide import Decision
from tilewright.hl.rows.shapes import View
from tilewright.hl.rows.table import ROWS
from tilewright.hl.symbols import Atom, Sym, substitute


def drop_true_selections(region: Region, decision: Decision) -> None:
    """Put what is selected everywhere in the place of selections of a region, and of those in it."""
    makers = {out.id: node for node in walk(region) for out in node.outs}
    found: dict[int, Value] = {}
    for node in walk(region):
        if node.op == "where" and isinstance(node.args[0], Value) and isinstance(node.args[1], Value):
            kept = node.args[1]
            if kept.dims == node.out.dims and kept.dtype == node.out.dtype and _holds(node.args[0], makers, decision):
                found[node.out.id] = kept
    if found:
        rename(region, found)
        remove_dead(region)


def _holds(condition: Value, makers: dict[int, Node], decision: Decision) -> bool:
    """Whether a comparison of the indices of a tile with a bound is true of all of them."""
    node = _maker(condition, makers)
    if node is None or node.op not in ("lt", "le", "gt", "ge"):
        return False
    left, right = (_plain(arg, makers) for arg in node.args)
    if node.op in ("gt", "ge"):
        left, right = right, left
    strict = node.op in ("lt", "gt")
    if isinstance(left, Node):  # index < bound
        axis = decision.axes[left.args[0]]
        return right is not None and not isinstance(right, Node) and _is_end(axis, right, strict, decision)
    return False


def _maker(value: Any, makers: dict[int, Node]) -> Node | None:
    """Who computes the elements of a value, wherever they lie in it."""
    node = makers.get(value.id) if isinstance(value, Value) else None
    while node is not None and isinstance(ROWS.get(node.op), View):
        node = makers.get(node.args[0].id) if isinstance(node.args[0], Value) else None
    return node


def _plain(arg: Any, makers: dict[int, Node]) -> Any:
    """The node of a tile's indices, or a number or symbol; None for anything else."""
    if not isinstance(arg, Value):
        return arg if isinstance(arg, int) else None
    node = _maker(arg, makers)
    if node is not None and node.op == "sym":
        return node.args[0]
    return node if node is not None and node.op == "tile_index" else None


def _is_end(axis: Axis, bound: Any, strict: bool, decision: Decision) -> bool:
    """Whether all indices of a tile are below a bound (or at most it)."""
    if axis.kind not in ("tile", "grid") or isinstance(axis.begin, Value) or isinstance(axis.end, Value):
        return False
    last = Sym.of(axis.offset) + decision.block(axis) - (not strict)
    return all(_least(substitute(one - last, decision.number), decision) >= 0 for one in _all_of(bound))


def _all_of(bound: Any) -> list[Any]:
    """Bounds that together are as narrow as one."""
    atom = bound.atom if isinstance(bound, Sym) else None
    return [bound] if atom is None or atom.key != "min" else [one for arg in atom.args for one in _all_of(arg)]


def _least(value: Any, decision: Decision, depth: int = 4) -> float:
    """A number below which a symbol never is: where tiles begin is between the ends of their loops."""
    if not isinstance(value, Sym):
        return float(value)
    rising = [(atom, factor) for atom, factor in value.terms.items() if factor > 0]
    atom, factor = next(iter(rising or value.terms.items()))
    bounds = (_lows if factor > 0 else _highs)(atom, factor, decision) if depth else ()
    rest = value - Sym.of(atom) * factor
    return max((_least(rest + bound, decision, depth - 1) for bound in bounds), default=-math.inf)


def _lows(atom: Atom, factor: int, decision: Decision) -> Iterator[Any]:
    """What a positive multiple of an atom is at least."""
    if atom.kind == "begin":
        begin = decision.axes[int(atom.key)].begin
        if not isinstance(begin, Value):
            yield substitute(begin, decision.number) * factor
    if atom.kind == "op" and atom.key == "//" and type(atom.args[1]) is int and atom.args[1] > 0:
        whole, by = atom.args
        if factor % by == 0:
            rest = by - math.gcd(by, decision.divisor(whole))
            yield (substitute(whole, decision.number) - rest) * (factor // by)
        own = whole.atom if isinstance(whole, Sym) else None
        for least in _lows(own, 1, decision) if own is not None else ():
            yield least // by * factor


def _highs(atom: Atom, factor: int, decision: Decision) -> Iterator[Any]:
    """What a negative multiple of an atom is at least: whole tiles end in their loop."""
    axis = decision.axes[int(atom.key)] if atom.kind == "begin" else None
    if axis is not None and not isinstance(axis.end, Value) and not isinstance(axis.begin, Value):
        last = decision.block(axis) if not decision.masked(axis.size) else 1
        yield substitute(axis.end - last, decision.number) * factor
