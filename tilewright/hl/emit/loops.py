"""Loops and regions of a kernel.

offset_k = ...                              (grid)   or   for offset_k in tl.range(begin, end, block):
index_k = offset_k + tl.arange(0, block)             only where something reads it
mask_k = index_k < end                               only where something reads it and the range may be cut
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tilewright.hl.dims import Axis
from tilewright.hl.emit.carry import finish, start
from tilewright.hl.emit.grid import in_order, range_options, stem
from tilewright.hl.emit.kernel import Kernel
from tilewright.hl.emit.nodes import emit_node
from tilewright.hl.graph.nodes import Node, Region


def emit_body(kernel: Kernel, axes: list[Axis], region: Region) -> None:
    """Write a region in which the tiles of `axes` are known."""
    place = kernel.lines.here()
    origin = kernel.lines.origin
    for axis in axes:
        kernel.current[axis.size] = axis
        if axis.kind != "grid":
            kernel.indices[axis.id] = kernel.names.new(stem("index", axis))
            kernel.masks[axis.size] = kernel.names.new(stem("mask", axis))
        for by, part in axis.parts:
            kernel.current[part] = axis
            kernel.masks[part] = kernel.names.new(f"{stem('mask', axis)}_by_{by}")
    before = kernel.wanted
    kernel.wanted = set()
    emit_region(kernel, region)
    texts = []
    for axis in axes:
        index, mask = kernel.indices.get(axis.id), kernel.masks.get(axis.size)
        if ("index", axis.id) in kernel.wanted or ("mask", axis.size) in kernel.wanted:
            block = kernel.decision.block(axis)
            first = kernel.offsets[axis.id]
            first = f"tl.cast({first}, tl.int64)" if axis.wide else first
            texts.append(f"{index} = {first} + tl.arange(0, {block})")
        if ("mask", axis.size) in kernel.wanted:
            texts.append(f"{mask} = {index} < {kernel.symbol(axis.end)}")
        texts += [
            f"{kernel.masks[part]} = tl.arange(0, {kernel.decision.block(axis) // by}) < {kernel.count(part)}"
            for by, part in axis.parts
            if ("mask", part) in kernel.wanted
        ]
    kernel.wanted |= before
    inner, kernel.lines.origin = kernel.lines.origin, origin
    kernel.lines.insert(place, texts)
    kernel.lines.origin = inner


def emit_region(kernel: Kernel, region: Region) -> None:
    """Write the nodes of a region."""
    for node in region.nodes:
        handler = _CONTROL.get(node.op)
        if handler is not None:
            handler(kernel, node)
        else:
            emit_node(kernel, node)


def emit_loop(kernel: Kernel, node: Node) -> None:
    """Write a loop over tiles; several axes nest."""
    kernel.lines.origin = node.line
    (region,) = node.regions
    start(kernel, region, node.args[0])
    axes = node.kwargs["axes"]
    with _heads(kernel, node, axes):
        emit_body(kernel, axes, region)
        finish(kernel, region)
    for out, param in zip(node.outs, region.params, strict=True):
        kernel.alias(out, param)


def emit_while(kernel: Kernel, node: Node) -> None:
    """Write a loop that runs while its first region says so; the region is written before it and at its end."""
    kernel.lines.origin = node.line
    test, region = node.regions
    start(kernel, region, node.args[0])
    emit_region(kernel, test)
    (condition,) = test.results
    kernel.lines.write(f"while {kernel.operand(condition)}:")
    with kernel.lines.indented():
        emit_region(kernel, region)
        finish(kernel, region)
        emit_region(kernel, test)
    for out, param in zip(node.outs, region.params, strict=True):
        kernel.alias(out, param)


def emit_if(kernel: Kernel, node: Node) -> None:
    """Write a branch."""
    kernel.lines.origin = node.line
    names = [kernel.name_of(out) for out in node.outs]
    for at, region in enumerate(node.regions):
        if at and not region.nodes and not names:
            continue
        kernel.lines.write("else:" if at else f"if {kernel.operand(node.args[0])}:")
        made = {out.id for inner in region.nodes if not inner.regions for out in inner.outs}
        for name, result in zip(names, region.results, strict=True):
            if result.id in made and region.results.count(result) == 1:
                kernel.values[result.id] = name
        with kernel.lines.indented():
            emit_region(kernel, region)
            for name, out, result in zip(names, node.outs, region.results, strict=True):
                if kernel.values.get(result.id) != name:
                    kernel.lines.write(f"{name} = {kernel.typed(result, out.dtype)}")
            if not region.nodes and not names:
                kernel.lines.write("pass")


@contextmanager
def _heads(kernel: Kernel, node: Node, axes: list[Axis]) -> Iterator[None]:
    """Write the heads of nested loops; what follows is inside them."""
    bounds = dict(
        zip((axis.id for axis in axes), zip(node.kwargs["begin"], node.kwargs["end"], strict=True), strict=True)
    )
    with ExitStack() as stack:
        for axis in in_order(kernel, axes):
            name = kernel.offsets[axis.id] = kernel.names.new(stem("offset", axis))
            block = kernel.decision.block(axis)
            first, last = map(kernel.symbol, bounds[axis.id])
            static = kernel.decision.choice("static_ranges", axis.id)
            head = "tl.static_range(" if static else "tl.range("
            options = "" if static else range_options(kernel, axis)
            if not axis.backward:
                kernel.lines.write(f"for {name} in {head}{first}, {last}, {block}{options}):")
                stack.enter_context(kernel.lines.indented())
                continue
            extent, done = f"({last}) - ({first})", kernel.names.new(stem("done", axis))
            kernel.lines.write(f"for {done} in {head}0, {extent}, {block}{options}):")
            stack.enter_context(kernel.lines.indented())
            kernel.lines.write(f"{name} = ({first}) + ({extent} - 1) // {block} * {block} - {done}")
        yield


_CONTROL: dict[str, Callable[[Kernel, Node], None]] = {"loop": emit_loop, "while": emit_while, "if": emit_if}
