"""A last dimension of 2: made of two tiles, and taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.hl.graph.nodes import Node, Value
from tilewright.hl.rows.table import UNKNOWN, Emitter, Pads, Row, row
from tilewright.hl.symbols import Atom


@dataclass(frozen=True)
class JoinPair(Row):
    """Our own node `join_pair(a, b)`: both along a new last dimension."""

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        ours, theirs = (pads.of(value, atom) for value in node.args)
        return ours if ours is not UNKNOWN and theirs is not UNKNOWN and ours == theirs else UNKNOWN

    def emit(self, emitter: Emitter, node: Node) -> None:
        a, b = (emitter.operand(value) for value in node.args)
        emitter.assign(node.out, f"tl.join({a}, {b})")


@dataclass(frozen=True)
class SplitPair(Row):
    """Our own node `split_pair(x)`: the two halves of a last dimension of 2."""

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        return pads.of(node.args[0], atom)

    def emit(self, emitter: Emitter, node: Node) -> None:
        emitter.assign_all(node.outs, f"tl.split({emitter.operand(node.args[0])})")


@dataclass(frozen=True)
class Halves(Row):
    """Our own node `halves(x)`: the first and the second half of the last of two dimensions."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        rows, lanes = (emitter.extent(dim) for dim in node.outs[0].dims)
        text = f"tl.reshape({emitter.operand(node.args[0])}, [{rows}, 2, {lanes}])"
        emitter.assign_all(node.outs, f"tl.split(tl.permute({text}, [0, 2, 1]))")


row(Halves("halves"))
row(JoinPair("join_pair"))
row(SplitPair("split_pair"))
