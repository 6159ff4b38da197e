"""Gradients between the operations of a derived loop are not rounded.

    g = hl.dot(up, y, out_dtype=bfloat16)                      g = hl.dot(up, y, out_dtype=float32)
    h = ((g * weights) * 0.69).to(bfloat16) * 0.25       ->    h = ((g * weights) * 0.17).to(bfloat16)
    hl.dot(h, x)                                               hl.dot(h, x)

PyTorch rounds the gradient of each operation to the type of what that has computed, as each is a kernel of its own. In
one loop a rounding is work, and an error. What of the forward pass is computed again is rounded as it was, so that it
is the same; products, and what is stored, take the type that they took.
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl.grad.conversions import conversion
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Value, operands, rename, replace, walk
from tilewright.hl.passes.deadcode import remove_dead

_ARITHMETIC = frozenset({"mul", "add", "sub", "neg", "div", "where"})
_MOVES = frozenset({"transpose", "t", "permute", "unsqueeze", "squeeze", "expand", "view"})
_NARROW = (torch.float16, torch.bfloat16)


def keep_unrounded(region: Region, number: int) -> int:
    """Leave out the roundings of gradients in a derived region, in place.

    Args:
        region: the loops.
        number: a number that no value has, nor any above it.

    Returns:
        Such a number afterwards.
    """
    made = _Widening(region, number)
    made.run(region)
    if made.wide:
        rename(region, made.renamed)
        remove_dead(region)
    return made.number


class _Widening:
    """Goes through a region in order.

    Attributes:
        wide: for gradients of 16 bits what they are rounded of, by their numbers.
        renamed: values in whose place others stand.
    """

    def __init__(self, region: Region, number: int) -> None:
        self.number = number
        self.wide: dict[int, Value] = {}
        self.renamed: dict[int, Value] = {}
        self.gradients: set[int] = set()
        self.makers: dict[int, Node] = {}
        self.widened: set[int] = {value.id for node in walk(region) if _computes_wide(node) for value in operands(node)}

    def run(self, region: Region) -> None:
        """Rewrite a region and those in it."""
        nodes, region.nodes = region.nodes, []
        for node in nodes:
            read = any(value.id in self.gradients for value in operands(node))
            if read or (node.op == "load" and _is_gradient(node.args[0])):
                self.gradients.update(out.id for out in node.outs)
            region.nodes.append(node)
            if len(node.outs) == 1:
                self.makers[node.out.id] = node
            if node.op == "loop" and node.args:
                pairs = zip(node.args[0], node.regions[0].params, strict=True)
                self.gradients.update(param.id for start, param in pairs if start.id in self.gradients)
            for inner in node.regions:
                self.run(inner)
            if read and len(node.outs) == 1 and not node.regions:
                self._gradient(region, node)

    def _gradient(self, region: Region, node: Node) -> None:
        """A node that reads gradients, the last of its region yet."""
        out = node.out
        if node.op == "_to_copy":
            self._converted(node)
        elif node.op == "product":
            if out.dtype in _NARROW and out.id in self.widened:
                self._widen(region, node)
        elif node.op in _MOVES and out.dtype in _NARROW:
            if out.id in self.widened and node.args[0].id in self.wide:
                node.args = (self.wide[node.args[0].id], *node.args[1:])
                self._widen(region, node)
        elif node.op in _ARITHMETIC and out.dtype in _NARROW:
            known = [value for value in operands(node) if value.id in self.wide]
            if known or out.id in self.widened:
                node.args = replace(node.args, self._unrounded)
                self._merge_factors(region, node)
                self._convert_operand(region, node)
                self._widen(region, node)
        self.makers[node.out.id] = node

    def _unrounded(self, leaf: Any) -> Any:
        return self.wide.get(leaf.id, leaf) if isinstance(leaf, Value) else leaf

    def _converted(self, node: Node) -> None:
        (source,), out = node.args[:1], node.out
        if not isinstance(source, Value):
            return
        first = self.wide.get(source.id, source)
        if first.dtype == torch.float32 and out.dtype in _NARROW:
            self.wide[out.id] = first
            node.args = (first, *node.args[1:])
        elif first is not source and out.dtype == torch.float32:
            self.renamed[out.id] = first

    def _widen(self, region: Region, node: Node) -> None:
        """Let a node give float32, which is rounded for those who read it as it was."""
        rounded = node.out
        made = self.wide[rounded.id] = self._fresh(rounded, torch.float32)
        node.outs = [made]
        self.gradients.add(made.id)
        region.nodes.append(conversion(made, rounded, node.line))

    def _convert_operand(self, region: Region, node: Node) -> None:
        """Compute in float32, if nothing says so yet; beside tiles the type of a scalar says nothing."""
        found = [value for value in operands(node) if value.dims] or operands(node)
        first = next((value for value in found if value.dtype in _NARROW), None)
        if first is None or any(value.dtype == torch.float32 for value in found):
            return
        made = self._fresh(first, torch.float32)
        region.nodes.insert(len(region.nodes) - 1, conversion(first, made, node.line))
        node.args = replace(node.args, lambda leaf: made if leaf is first else leaf)

    def _merge_factors(self, region: Region, node: Node) -> None:
        """One number in the place of two, between which there was a rounding, and perhaps a selection."""
        if node.op != "mul" or not isinstance(node.args[1], float):
            return
        selects = inner = self._maker(node.args[0])
        if inner is not None and inner.op == "where":
            inner = self._maker(inner.args[1])
        if selects is None or inner is None or inner.op != "mul" or not isinstance(inner.args[1], float):
            return
        factor = inner.args[1] * node.args[1]
        if selects is inner:
            node.args = (inner.args[0], factor)
        elif self._is_zero(selects.args[2]):
            scaled = self._fresh(inner.out, inner.out.dtype)
            made = Node("mul", (inner.args[0], factor), {}, node.line, [scaled], function=node.function)
            region.nodes.insert(len(region.nodes) - 1, made)
            node.op, node.function = "where", selects.function
            node.args = (selects.args[0], scaled, selects.args[2])

    def _maker(self, value: Any) -> Node | None:
        return self.makers.get(value.id) if isinstance(value, Value) else None

    def _is_zero(self, value: Any) -> bool:
        node = self._maker(value)
        return node is not None and node.op == "scalar_tensor" and node.args[0] == 0

    def _fresh(self, like: Value, dtype: Any) -> Value:
        self.number += 1
        return Value(self.number - 1, like.dims, dtype, like.name)


def _computes_wide(node: Node) -> bool:
    """Whether a node computes in float32 what it reads."""
    return node.op in _ARITHMETIC or (node.op == "_to_copy" and node.out.dtype == torch.float32)


def _is_gradient(tensor: Any) -> bool:
    """Whether a tensor is a gradient that comes in, or that one loop keeps for another: no argument of the user's."""
    return isinstance(tensor, HostTensor) and not tensor.text and tensor.name.startswith("grad_")


__all__ = ["keep_unrounded"]
