"""Truths that a configuration decides, and the branches on them: the arm that is not taken disappears."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.hl.graph.nodes import Node, Region, Value, replace
from tilewright.hl.passes.decide import Decision
from tilewright.hl.symbols import Sym, substitute

_TRUTH: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def fold(region: Region, decision: Decision) -> None:
    """Rewrite `region` and its inner regions."""
    _Folder(decision).run(region)


class _Folder:
    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.truths: dict[int, bool] = {}
        self.instead: dict[int, Value] = {}

    def run(self, region: Region) -> None:
        """Rewrite one region."""
        nodes, region.nodes = region.nodes, []
        for node in nodes:
            self._node(region, node)
        region.results = replace(region.results, self._value)

    def _value(self, leaf: Any) -> Any:
        return self.instead.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

    def _node(self, region: Region, node: Node) -> None:
        node.args, node.kwargs = replace(node.args, self._value), replace(node.kwargs, self._value)
        if node.op == "compare":
            op, left, right = node.args
            pair = [substitute(item, self.decision.number) for item in (left, right)]
            if not any(isinstance(item, Sym) for item in pair):
                self.truths[node.out.id] = _TRUTH[op](*pair)
        elif node.op in ("bitwise_and", "bitwise_or", "bitwise_not"):
            self._combined(node)
        elif node.op == "if" and node.args[0].id in self.truths:
            taken = node.regions[0 if self.truths[node.args[0].id] else 1]
            for inner in taken.nodes:
                self._node(region, inner)
            for out, result in zip(node.outs, taken.results, strict=True):
                self.instead[out.id] = self._value(result)
            return
        for body in node.regions:
            self.run(body)
        region.nodes.append(node)

    def _combined(self, node: Node) -> None:
        """A truth made of others: decided, or the one of two that is not."""
        known = [self.truths.get(arg.id) if isinstance(arg, Value) else None for arg in node.args]
        if node.op == "bitwise_not":
            if known[0] is not None:
                self.truths[node.out.id] = not known[0]
            return
        stop = node.op == "bitwise_or"
        for truth, other in zip(known, node.args[::-1], strict=True):
            if truth is stop:
                self.truths[node.out.id] = stop
            elif truth is not None and isinstance(other, Value) and other.dims == node.out.dims:
                self.instead[node.out.id] = other
                if other.id in self.truths:
                    self.truths[node.out.id] = self.truths[other.id]
