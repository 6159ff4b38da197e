"""Loads that broadcast a dimension of one element, as a load of that element and an `expand`.

A subscript of such a dimension means its one element, whatever the index is. Its gradient is a sum over the indices,
which PyTorch's derivative of `expand` is; without it the index would be taken for the place of the gradient.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tilewright.hl import exc
from tilewright.hl.dims import Axis, Dim
from tilewright.hl.graph.nodes import Node, Region, Subscript, Value, walk

_ONE = Dim(1)


def narrow(region: Region) -> None:
    """Rewrite the loads of a region, and of those inside.

    Raises:
        NotDifferentiable: a load of one element has a mask, or index tensors of several dimensions.
    """
    axes = {axis.id: axis for node in walk(region) for axis in node.kwargs.get("axes", ())}
    _narrow(region, axes)


def _narrow(region: Region, axes: dict[int, Axis]) -> None:
    made: list[Node] = []
    for node in region.nodes:
        for inner in node.regions:
            _narrow(inner, axes)
        has_gradient = node.op == "load" and node.out.dtype.is_floating_point
        if has_gradient:
            node.args = (node.args[0], [_first(entry, axes) for entry in node.args[1]], *node.args[2:])
        wide = [entry for entry in node.args[1] if _is_wide(entry, axes)] if has_gradient else []
        made += _apart(node, wide) if wide else [node]
    region.nodes = made


def _first(entry: Subscript, axes: dict[int, Axis]) -> Subscript:
    """The number of the one element, where the index is a number too."""
    is_place = entry.kind == "scalar" and type(entry.extent) is int and entry.extent == 1
    return replace(entry, what=0, inside=(True, True)) if is_place else entry


def _is_wide(entry: Subscript, axes: dict[int, Axis]) -> bool:
    """Whether a subscript has many indices for the one element of its dimension."""
    if type(entry.extent) is not int or entry.extent != 1 or entry.kind not in ("tile", "tensor"):
        return False
    if entry.kind == "tensor":
        return True
    if not (type(entry.offset) is int and entry.offset == 0):
        return False  # a tile that is moved is read where it is, and not at all beyond the tensor
    bounds = axes[entry.what].begin, axes[entry.what].end
    return not (all(type(bound) is int for bound in bounds) and bounds == (0, 1))


def _apart(node: Node, wide: list[Subscript]) -> list[Node]:
    """The load of the element, and what makes of it the tile that there was."""
    tensors = [entry for entry in node.args[1] if entry.kind == "tensor"]
    several = any(len(entry.what.dims) > 1 for entry in tensors) or (
        len(tensors) > 1 and any(t in wide for t in tensors)
    )
    if several or node.kwargs.get("mask") is not None:
        raise exc.NotDifferentiable(
            f"a gradient of {node.args[0].name}, which broadcasts a dimension of one element by an index tensor",
            hint="subscript that dimension with 0, and expand the tile",
        )
    places = {entry.at for entry in wide}
    entries = [Subscript("slice", 0, entry.at, extent=1) if entry in wide else entry for entry in node.args[1]]
    dims = tuple(_ONE if at in places else dim for at, dim in enumerate(node.out.dims))
    element = Value(-1 - node.out.id, dims, node.out.dtype, node.out.name)
    load = Node("load", (node.args[0], entries, *node.args[2:]), node.kwargs, node.line, [element], [], node.compute)
    sizes = [dim.size() for dim in node.out.dims]
    expand = torch.ops.aten.expand.default
    return [load, Node("expand", (element, sizes), {}, node.line, [node.out], function=expand)]
