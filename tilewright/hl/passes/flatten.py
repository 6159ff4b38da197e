"""A loop over several ranges as one loop over their product, where all its work is element by element.

The lanes of the one axis count through the ranges, the last one fastest. Tensors that lie in memory like that are
indexed by the count itself, others by its quotients and remainders.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewright.hl.dims import Axis, Dim, block_of
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value, accessed, symbols, values, walk
from tilewright.hl.passes.proofs import at_most
from tilewright.hl.rows.creation import Convert, Fill
from tilewright.hl.rows.pointwise import Pointwise
from tilewright.hl.rows.table import ROWS
from tilewright.hl.symbols import Sym, same

_LIMIT = 2**31


def flattens(loop: Node) -> bool:
    """Whether the ranges of a loop can be taken as one."""
    axes: list[Axis] = loop.kwargs["axes"]
    if any(axis.kind != "tile" or axis.is_even or type(axis.begin) is not int or axis.begin for axis in axes):
        return False
    if not all(isinstance(axis.end, int) for axis in axes):
        return False
    total = math.prod(axis.end for axis in axes if type(axis.end) is int)
    return total < _LIMIT and all(_is_flat(node, axes) for node in loop.regions[0].nodes)


def _is_flat(node: Node, axes: list[Axis]) -> bool:
    mine = {atom for axis in axes for atom in (axis.size, axis.offset, axis.valid)}
    named = {atom for symbol in symbols((node.args, node.kwargs)) for atom in symbol.atoms()}
    if node.regions or named & mine or node.op == "tile_index" or "base" in node.kwargs:
        return False
    shapes = [value.dims for value in (*values(node.args), *values(node.kwargs), *node.outs)]
    if node.op == "store":
        shapes.append(accessed(node))
    starts = [_start(dims, axes) for dims in shapes]
    if None in starts:
        return False
    if all(start == -1 for start in starts):
        return True
    behind = min(len(dims) - start for dims, start in zip(shapes, starts, strict=True) if start not in (-1, None))
    if any(len(dims) > behind - len(axes) for dims, start in zip(shapes, starts, strict=True) if start == -1):
        return False
    if node.op in ("load", "store"):
        return all(_is_inside(entry, axes, node.op == "load") for entry in node.args[1])
    return isinstance(ROWS.get(node.op), Pointwise | Fill | Convert)


def _start(dims: tuple[Dim, ...], axes: list[Axis]) -> int | None:
    """Where the axes are dimensions, all of them and in order; -1 where there is none of them, None otherwise."""
    sizes = [axis.size for axis in axes]
    if any(block_of(atom) in sizes for dim in dims for atom in dim.atoms if atom.kind == "op"):
        return None
    if not any(atom in sizes for dim in dims for atom in dim.atoms):
        return -1
    want = tuple(Dim(1, (size,)) for size in sizes)
    others = [dim for dim in dims if dim not in want]
    if any(atom in sizes for dim in others for atom in dim.atoms) or len(others) + len(want) != len(dims):
        return None
    return next((at for at in range(len(dims)) if dims[at : at + len(want)] == want), None)


def _is_one(entry: Subscript, reading: bool) -> bool:
    """Whether every lane reads the one element of a dimension."""
    return reading and type(entry.extent) is int and entry.extent == 1


def _is_inside(entry: Subscript, axes: list[Axis], reading: bool) -> bool:
    """Whether every index of a subscript by one of the axes is inside the tensor."""
    axis = next((axis for axis in axes if entry.kind == "tile" and axis.id == entry.what), None)
    if axis is None:
        return entry.kind != "tensor"
    if type(entry.offset) is not int or entry.offset:
        return False
    return _is_one(entry, reading) or at_most(axis.end, entry.extent)


def flatten(loop: Node, flat: Axis, first_free: int) -> None:
    """Rewrite a loop for which `flattens` holds.

    Args:
        loop: the loop.
        flat: the axis that takes the place of its own.
        first_free: a number that no value has, nor any above it.
    """
    axes: list[Axis] = loop.kwargs["axes"]
    if not flattens(loop):
        return
    loop.kwargs.update(axes=[flat], begin=[flat.begin], end=[flat.end])
    _Flattener(axes, flat, first_free).run(loop.regions[0])


class _Flattener:
    def __init__(self, axes: list[Axis], flat: Axis, first_free: int) -> None:
        self.axes, self.flat, self.next = axes, flat, first_free
        self.made: list[Node] = []
        self.parts: dict[int, Value] = {}
        self.count: Value | None = None

    def run(self, region: Region) -> None:
        """Rewrite a region."""
        seen: dict[int, Value] = {}
        for node in walk(region):
            for value in (*values(node.args), *values(node.kwargs), *node.outs):
                seen.setdefault(value.id, value)
            if node.op in ("load", "store"):
                dims = accessed(node)
                node.args = self._access(node.args, dims, node.op == "load")
                if node.op == "store":
                    node.kwargs["dims"] = self._dims(dims)
        for value in seen.values():
            value.dims = self._dims(value.dims)
        region.nodes[:0] = self.made

    def _dims(self, dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        start = _start(dims, self.axes)
        if start is None or start < 0:
            return dims
        return (*dims[:start], Dim(1, (self.flat.size,)), *dims[start + len(self.axes) :])

    def _access(self, args: tuple[Any, ...], dims: tuple[Dim, ...], reading: bool) -> tuple[Any, ...]:
        tensor, entries, *rest = args
        start = _start(dims, self.axes)
        if start is None or start < 0:
            return args
        merged = self._merged(tensor, entries, start)
        if merged is not None:
            tensor, entries = merged
        return (tensor, [self._entry(entry, start, reading) for entry in entries], *rest)

    def _entry(self, entry: Subscript, start: int, reading: bool) -> Subscript:
        own = next((at for at, axis in enumerate(self.axes) if entry.kind == "tile" and axis.id == entry.what), None)
        if own is None:
            at = entry.at
            later = at is not None and at >= start + len(self.axes) and entry.what != self.flat.id
            at = at - len(self.axes) + 1 if at is not None and later else at
            return Subscript(entry.kind, entry.what, at, entry.offset, entry.step, entry.extent)
        if _is_one(entry, reading):
            return Subscript("scalar", 0, extent=1)
        return Subscript("tensor", self._part(own), start, extent=entry.extent)

    def _merged(self, tensor: HostTensor, entries: list[Subscript], start: int) -> tuple[HostTensor, list[Any]] | None:
        """The tensor with the dimensions of the axes as one, where they lie in memory like that."""
        count = len(self.axes)
        ids = [axis.id for axis in self.axes]
        found = [at for at in range(len(entries)) if [one.what for one in entries[at : at + count]] == ids]
        if not found or any(entry.kind != "tile" for entry in entries[found[0] : found[0] + count]):
            return None
        first = found[0]
        span = range(first, first + count)
        if not all(same(self.axes[at - first].end, tensor.shape[at]) for at in span):
            return None
        steps = tensor.stride
        if not all(same(steps[at], steps[at + 1] * tensor.shape[at + 1]) for at in span[:-1]):
            return None
        shape = (*tensor.shape[:first], self.flat.end, *tensor.shape[first + count :])
        stride = (*steps[:first], steps[first + count - 1], *steps[first + count :])
        entry = Subscript("tile", self.flat.id, start, extent=self.flat.end)
        rest = (*entries[:first], entry, *entries[first + count :])
        return HostTensor(tensor.name, tensor.text, shape, stride, tensor.dtype, tensor.wide), list(rest)

    def _part(self, own: int) -> Value:
        """The index along one of the axes."""
        if own not in self.parts:
            if self.count is None:
                self.count = self._value("count")
                self.made.append(Node("tile_index", (self.flat.id,), outs=[self.count]))
            behind: Any = 1
            for axis in self.axes[own + 1 :]:
                behind = axis.end * behind
            part = self.parts[own] = self._value(f"index_{self.axes[own].name}")
            size = self.axes[own].end if own else None
            self.made.append(Node("part", (self.count, behind, size), outs=[part]))
        return self.parts[own]

    def _value(self, name: str) -> Value:
        self.next += 1
        return Value(self.next, (Dim(1, (self.flat.size,)),), torch.int32, name)


def flat_axis(axes: list[Axis], number: int, block: int) -> Axis:
    """The axis that counts through several.

    Args:
        axes: those.
        number: its number.
        block: lanes of a tile.
    """
    end: Any = 1
    for axis in axes:
        end = axis.end * end if isinstance(axis.end, Sym) else end * axis.end
    return Axis(number, "_".join(axis.name for axis in axes), "tile", 0, end, block, top=axes[0].top)
