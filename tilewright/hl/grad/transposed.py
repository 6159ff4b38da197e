"""Transposed products of a derived region: `(a @ b).T` is `b.T @ a.T`.

    up.T                                    the gradient of `table[n, :]`, of which a loop multiplies the transpose,
    (row.T @ up).T     ->     up.T @ row    as PyTorch's formulas have it, and as a person writes it

Operands are read transposed as they lie; a product, and a sum of products, would be moved in every pass.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl.dims import Dim
from tilewright.hl.grad.conversions import conversion
from tilewright.hl.graph.nodes import Node, Region, Value, operands, walk
from tilewright.hl.passes.deadcode import remove_dead


def turn_products(region: Region, number: int) -> int:
    """Rewrite a region, and those in it, in place.

    Args:
        region: the loops.
        number: a number that no value has, nor any above it.

    Returns:
        Such a number afterwards.
    """
    made = _Turning(region, number)
    for inner in [inner for node in walk(region) for inner in node.regions]:
        made.run(inner)
    remove_dead(region)
    return made.number


class _Turning:
    """Turns products in regions, one after the other.

    Attributes:
        makers: the node of each value.
        reads: how often each value is read.
    """

    def __init__(self, region: Region, number: int) -> None:
        self.number = number
        self.makers = {out.id: node for node in walk(region) for out in node.outs}
        self.reads: dict[int, int] = {}
        for node in walk(region):
            for value in (*operands(node), *(one for inner in node.regions for one in inner.results)):
                self.reads[value.id] = self.reads.get(value.id, 0) + 1

    def run(self, region: Region) -> None:
        """Turn the products of a region."""
        nodes, region.nodes = region.nodes, []
        for node in nodes:
            product = self._product(node.args[0]) if _is_transposition(node) else None
            if product is None or product not in nodes:  # outside of a loop it is computed once
                region.nodes.append(node)
                continue
            a, b, _ = product.args
            args = (self._turned(region, b, node.line), self._turned(region, a, node.line), None)
            turned = node.out
            if product.out.dtype != turned.dtype:
                turned = self._fresh(node.out, node.out.dims, product.out.dtype)
            self._add(region, Node("product", args, dict(product.kwargs), node.line, [turned]))
            if turned is not node.out:
                self._add(region, conversion(turned, node.out, node.line))

    def _product(self, value: Value) -> Node | None:
        """The product that a value is, converted once or not at all, which nobody else reads."""
        node = self._only(value)
        if node is not None and node.op == "_to_copy":
            node = self._only(node.args[0])
        return node if node is not None and node.op == "product" and node.args[2] is None else None

    def _only(self, value: Value) -> Node | None:
        """The node of a value that is read once."""
        return self.makers.get(value.id) if self.reads[value.id] == 1 else None

    def _turned(self, region: Region, value: Value, line: int) -> Value:
        """A matrix the other way: what it is the transpose of, if it is one."""
        maker = self.makers.get(value.id)
        if maker is not None and _is_transposition(maker):
            source: Value = maker.args[0]
            return source
        made = self._fresh(value, (*value.dims[:-2], value.dims[-1], value.dims[-2]), value.dtype)
        function = torch.ops.aten.transpose.int
        self._add(region, Node("transpose", (value, -1, -2), {}, line, [made], function=function))
        return made

    def _fresh(self, like: Value, dims: tuple[Dim, ...], dtype: Any) -> Value:
        self.number += 1
        return Value(self.number - 1, dims, dtype, like.name)

    def _add(self, region: Region, node: Node) -> None:
        region.nodes.append(node)
        self.makers[node.out.id] = node
        for value in operands(node):
            self.reads[value.id] = self.reads.get(value.id, 0) + 1


def _is_transposition(node: Node) -> bool:
    """Whether a node exchanges the last two dimensions, and does no more."""
    if node.op not in ("transpose", "t", "permute"):
        return False
    rank = len(node.out.dims)
    if node.op == "t":
        return rank == 2
    if node.op == "transpose":
        return sorted(dim % rank for dim in node.args[1:]) == [rank - 2, rank - 1]
    return rank > 1 and [dim % rank for dim in node.args[1]] == [*range(rank - 2), rank - 1, rank - 2]
