"""Loops and regions of a kernel.

offset_k = ...                              (grid)   or   for offset_k in tl.range(begin, end, block):
index_k = offset_k + tl.arange(0, block)             only where something reads it
mask_k = index_k < end                               only where something reads it and the range may be cut
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tilewright.hl.dims import Axis
from tilewright.hl.emit.grid import stem
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.emit.nodes import emit_node
from tilewright.hl.graph.nodes import Node, Region


def emit_body(kernel: Kernel, axes: list[Axis], region: Region) -> None:
    """Write a region in which the tiles of `axes` are known."""
    place = kernel.lines.here()
    origin = kernel.lines.origin
    for axis in axes:
        if axis.kind != "grid":
            kernel.indices[axis.id] = kernel.names.new(stem("index", axis))
            kernel.masks[axis.size] = kernel.names.new(stem("mask", axis))
    emit_region(kernel, region)
    texts = []
    for axis in axes:
        index, mask = kernel.indices.get(axis.id), kernel.masks.get(axis.size)
        if ("index", axis.id) in kernel.wanted:
            block = kernel.decision.block(axis)
            texts.append(f"{index} = {kernel.offsets[axis.id]} + tl.arange(0, {block})")
        if ("mask", axis.size) in kernel.wanted:
            texts.append(f"{mask} = {index} < {kernel.symbol(axis.end)}")
    inner, kernel.lines.origin = kernel.lines.origin, origin
    kernel.lines.insert(place, texts)
    kernel.lines.origin = inner


def emit_region(kernel: Kernel, region: Region) -> None:
    """Write the nodes of a region."""
    for node in region.nodes:
        if node.op == "loop":
            emit_loop(kernel, node)
        else:
            emit_node(kernel, node)


def emit_loop(kernel: Kernel, node: Node) -> None:
    """Write a loop over tiles; several axes nest."""
    kernel.lines.origin = node.line
    (region,) = node.regions
    for param, init in zip(region.params, node.args[0], strict=True):
        kernel.lines.write(f"{kernel.name_of(param)} = {kernel.operand(init)}")
    axes = node.kwargs["axes"]
    with _heads(kernel, node, axes):
        emit_body(kernel, axes, region)
        _carry(kernel, region)
    for out, param in zip(node.outs, region.params, strict=True):
        kernel.alias(out, param)


def _carry(kernel: Kernel, region: Region) -> None:
    """Assign the state that the next pass starts with: all at once where one result is another's parameter."""
    pairs = [
        (kernel.name_of(param), kernel.operand(result))
        for param, result in zip(region.params, region.results, strict=True)
        if kernel.name_of(param) != kernel.operand(result)
    ]
    targets = {target for target, _ in pairs}
    if any(source in targets for _, source in pairs):
        kernel.lines.write(f"{', '.join(target for target, _ in pairs)} = {', '.join(source for _, source in pairs)}")
    else:
        for target, source in pairs:
            kernel.lines.write(f"{target} = {source}")


@contextmanager
def _heads(kernel: Kernel, node: Node, axes: list[Axis]) -> Iterator[None]:
    """Write the heads of nested loops; what follows is inside them."""
    with ExitStack() as stack:
        for axis, begin, end in zip(axes, node.kwargs["begin"], node.kwargs["end"], strict=True):
            name = kernel.offsets[axis.id] = kernel.names.new(stem("offset", axis))
            block = kernel.decision.block(axis)
            first, last = kernel.symbol(begin), kernel.symbol(end)
            kernel.lines.write(f"for {name} in tl.range({first}, {last}, {block}):")
            stack.enter_context(kernel.lines.indented())
        yield
