"""Elements by their position in a tile: the two nodes that slices, rolls, joins and sorts are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tilewright.hl import exc
from tilewright.hl.graph.nodes import Node, Value
from tilewright.hl.rows.table import UNKNOWN, Emitter, Need, Pads, Row, row
from tilewright.hl.symbols import Atom, Sym
from tilewright.hl.trace.equal import fix_size
from tilewright.hl.trace.extents import extent
from tilewright.hl.trace.samples import sample_of
from tilewright.hl.trace.state import device_trace, raw_shape


@dataclass(frozen=True)
class Lanes(Row):
    """Our own node `lanes`: the positions 0, 1, ... along its only dimension, int32."""

    def emit(self, emitter: Emitter, node: Node) -> None:
        emitter.assign(node.out, f"tl.arange(0, {emitter.extent(node.out.dims[0])})")


@dataclass(frozen=True)
class TakeLanes(Row):
    """Our own node `take_lanes`: what stands at given positions along a dimension."""

    def pads(self, node: Node, pads: Pads, out: Value, atom: Atom) -> Any:
        source, _, dim = node.args
        if atom in source.dims[dim].atoms or atom in out.dims[dim].atoms:
            return UNKNOWN
        return pads.of(source, atom)

    def emit(self, emitter: Emitter, node: Node) -> None:
        source, index, dim = node.args
        emitter.assign(node.out, f"tl.gather({emitter.operand(source)}, {emitter.operand(index)}, {dim})")


@dataclass(frozen=True)
class SortLanes(Row):
    """Our own node `sort_lanes`: int64 keys in order along the last dimension."""

    def needs(self, node: Node) -> list[Need]:
        return [Need(node.args[0], (len(node.out.dims) - 1,), torch.iinfo(torch.int64).max)]

    def emit(self, emitter: Emitter, node: Node) -> None:
        extent = emitter.extent(node.out.dims[-1])
        if isinstance(extent, int) and extent & (extent - 1):
            raise exc.UnsupportedOperation(
                f"sorting along a tile of {extent} lanes", hint="choose a block size that is a power of two"
            )
        emitter.assign(node.out, f"tl.sort({emitter.operand(node.args[0])})")


row(Lanes("lanes"))
row(TakeLanes("take_lanes"))
row(SortLanes("sort_lanes"))


def lanes(extent: int, rank: int = 1, dim: int = 0) -> Any:
    """The positions along a dimension of `extent` samples, as dimension `dim` of a tile of `rank` dimensions, int32."""
    trace = device_trace("a position in a tile")
    with trace.silence():
        sample = torch.arange(extent, dtype=torch.int32)
    made = trace.record("lanes", (), sample)
    return made.view([extent if at == dim else 1 for at in range(rank)]) if rank > 1 else made


def span(*bounds: Any, dtype: torch.dtype | None = None) -> Any:
    """`arange` where a bound is a size or an index: its length must be made of sizes.

    Raises:
        SizeUsedAsNumber: the length differs from tile to tile.
    """
    begin, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    trace = device_trace("arange")
    if type(begin) is int and begin == 0 and type(step) is int and step == 1:
        made = lanes(extent(trace, end))
        return made if dtype is None else made.to(dtype)
    length = (end - begin + step - 1) // step if type(step) is not int or step != 1 else end - begin
    made = lanes(extent(trace, length))
    if type(step) is not int or step != 1:
        made = made * (trace.scalar(step) if isinstance(step, Sym) else step)
    if type(begin) is not int or begin != 0:
        made = made + (trace.scalar(begin) if isinstance(begin, Sym) else begin)
    return made if dtype is None else made.to(dtype)


def positions(x: Tensor, dim: int) -> Any:
    """The positions along dimension `dim` of `x`, shaped so that they broadcast against it."""
    return lanes(raw_shape(x)[dim], x.dim(), dim)


def take(x: Tensor, index: Tensor, dim: int) -> Any:
    """What stands at the positions `index` (one dimension, or as many as `x`) along dimension `dim` of `x`."""
    trace = device_trace("a gather")
    shape = list(raw_shape(x))
    if index.dim() == 1:
        index = index.view([-1 if at == dim else 1 for at in range(len(shape))])
    shape[dim] = raw_shape(index)[dim]
    index = index.to(torch.int32).expand(shape)
    with trace.silence():
        sample = sample_of(trace, shape, x.dtype)
    return trace.record("take_lanes", (x, index, dim), sample)


def sort_lanes(keys: Tensor) -> Any:
    """int64 `keys` in order along their last dimension, whose extent is a power of two."""
    trace = device_trace("a sort")
    with trace.silence():
        sample = sample_of(trace, raw_shape(keys), torch.int64)
    return trace.record("sort_lanes", (keys,), sample)


def static_extent(x: Tensor, dim: int, what: str, hint: str = "") -> int:
    """The extent of a dimension that does not depend on tiles; a size of an argument becomes a constant.

    Raises:
        Fixed: it is a size that is none yet.
        UnsupportedOperation: it does depend: an element's place in the range is not known inside one tile.
    """
    extent, trace = raw_shape(x)[dim], device_trace(what)
    if trace.factors.dim(extent).atoms:
        fix_size(trace, trace.factors.size(extent))
        raise exc.UnsupportedOperation(
            f"{what} along a dimension that is a tile: its elements are a part of the range only",
            hint=hint or "take the whole dimension with ':', or subscript the tensor of the host",
        )
    return extent
