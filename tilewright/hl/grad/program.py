"""A derived kernel before it is text: one loop over tiles between lines of host code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.hl.dims import Axis, Dim
from tilewright.hl.grad.extents import host_numbers, is_known, tensor_of
from tilewright.hl.graph.nodes import HostNumber, HostTensor, Node, Region, Value, leaves, operands, walk
from tilewright.hl.symbols import Sym


@dataclass(frozen=True)
class Made:
    """A tensor that the host code of a derived kernel makes.

    Args:
        name: of the tensor.
        text: the expression that makes it, with `{shape}` and `{device}` in it.
        shape: its extents, numbers or symbols.
    """

    name: str
    text: str
    shape: tuple[Any, ...]

    def line(self, device: str, write: Callable[[Any], str]) -> str:
        """The statement; `write` says how extents are written."""
        return f"{self.name} = {self.text.format(shape=write(list(self.shape)), device=device)}"


def buffer_of(name: str, shape: Any, dtype: Any, kind: str = "empty") -> Made:
    """A new tensor, whose elements are undefined or zeros."""
    return Made(name, f"torch.{kind}({{shape}}, dtype={dtype}, device={{device}})", tuple(shape))


def gradient_of(tensor: HostTensor, name: str, dtype: Any, kind: str) -> Made:
    """A new tensor for the gradient of another one, whose elements are in the same order if that has no gaps."""
    made = buffer_of(name, tensor.shape, dtype, kind)
    order = _order(tensor)
    if order is None:
        return made
    places = [order.index(dim) for dim in range(len(order))]
    return replace(made, text=f"{made.text}.permute({places})", shape=tuple(tensor.shape[dim] for dim in order))


def _order(tensor: HostTensor) -> list[int] | None:
    """The dimensions of a dense tensor, the slowest first; None where that is their own order, or not known."""
    numbers = (*tensor.shape, *tensor.stride)
    if not tensor.stride or not all(type(number) is int for number in numbers) or 0 in tensor.shape:
        return None
    order = sorted(range(len(tensor.shape)), key=lambda dim: (-tensor.stride[dim], -tensor.shape[dim], dim))
    length = 1
    for dim in reversed(order):
        if tensor.shape[dim] > 1 and tensor.stride[dim] != length:
            return None
        length *= tensor.shape[dim]
    wide = [dim for dim in order if tensor.shape[dim] > 1]
    return None if wide == sorted(wide) else order


@dataclass
class Program:
    """A kernel of hl with one top-level loop.

    Args:
        name: of the function.
        region: ends with the loop; its loads and stores name the tensors of `tensors` and those that `made` makes.
        made: what the host code makes before the loop: the results, and what loops keep for each other.
        results: expressions of what the function returns.
        given: names of tensors that are parameters though nothing loads them.
        blocks: block sizes of the forward pass, by the number of the axis: those that the program registers.
        is_open: whether sizes are no constants of it.
    """

    name: str
    region: Region
    made: list[Made] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    blocks: dict[int, int] = field(default_factory=dict)
    is_open: bool = False

    @property
    def tensors(self) -> list[str]:
        """The parameters that are tensors, in the order of their first use."""
        own = self.own
        found = dict.fromkeys(self.given)
        for node in walk(self.region):
            for tensor in node.args[:1]:
                if isinstance(tensor, HostTensor) and tensor.name not in own:
                    found.setdefault(tensor.name)
        return list(found)

    @property
    def own(self) -> set[str]:
        """Names of the tensors that it makes."""
        return {one.name for one in self.made}

    @property
    def sizes(self) -> list[tuple[str, int, Any]]:
        """The extents of the parameters, where sizes are open: (tensor, dimension, number or symbol)."""
        found: dict[str, tuple[Any, ...]] = {}
        for tensor in filter(None, map(tensor_of, walk(self.region) if self.is_open else ())):
            found.setdefault(tensor.name, tensor.shape)
        own = self.own
        return [(name, at, size) for name, shape in found.items() if name not in own for at, size in enumerate(shape)]

    @property
    def parameters(self) -> list[str]:
        """The names of what the kernel takes: tensors, and numbers that no extent of these is."""
        told = {str(size.atom.key) for _, _, size in self.sizes if isinstance(size, Sym) and size.atom is not None}
        return [*self.tensors, *(name for name in self.numbers if name not in told)]

    @functools.cached_property
    def numbers(self) -> dict[str, str]:
        """The numbers of the host that it is made of, once it is complete: the host's expression of each, by name."""
        found = host_numbers(size for one in self.made for size in one.shape)
        for node in walk(self.region):
            for leaf in leaves((node.args, node.kwargs)):
                if isinstance(leaf, HostNumber):
                    found[leaf.name] = leaf.text
                elif isinstance(leaf, Sym):
                    found.update(host_numbers([leaf]))
            for value in node.outs:
                known = [dim.size() for dim in value.dims if any(atom.kind not in _OF_TILES for atom in dim.atoms)]
                found.update(host_numbers(known))
        return found

    @property
    def axes(self) -> list[Axis]:
        """The axes of the loops, in the order of the text."""
        return [axis for node in walk(self.region) if node.op == "loop" for axis in node.kwargs["axes"]]


_OF_TILES = frozenset(("block", "begin", "valid"))
"""Kinds of symbols that loops make."""


def inner_values(region: Region) -> Iterator[Value]:
    """The values that a region and those in it define."""
    yield from region.params
    for node in region.nodes:
        yield from node.outs
        for inner in node.regions:
            yield from inner_values(inner)


def captured(node: Node) -> list[Value]:
    """The values from outside that the regions of a node use, each once."""
    if not node.regions:
        return []
    own = {value.id for region in node.regions for value in inner_values(region)}
    found: dict[int, Value] = {}
    for region in node.regions:
        used = [value for inner in walk(region) for value in operands(inner)]
        used += [result for inner in walk(region) for part in inner.regions for result in part.results]
        for value in (*used, *region.results):
            if value.id not in own:
                found.setdefault(value.id, value)
    return list(found.values())


def uses(region: Region, found: dict[int, list[int]] | None = None) -> dict[int, list[int]]:
    """For each value the regions that read it, by identity, once for every time."""
    found = {} if found is None else found
    for value in region.results:
        found.setdefault(value.id, []).append(id(region))
    for node in region.nodes:
        for value in operands(node):
            found.setdefault(value.id, []).append(id(region))
        for inner in node.regions:
            uses(inner, found)
    return found


def dims_of(axes: list[Axis], value: Value) -> list[Any]:
    """For each dimension the axis that it is, a size that the host knows, or None for what is neither."""
    sizes = {axis.size: axis for axis in axes}

    def told(dim: Dim) -> Any:
        axis = None if dim.atom is None else sizes.get(dim.atom)
        size = dim.size() if axis is None else axis
        return size if axis is not None or is_known(size) else None

    return [told(dim) for dim in value.dims]


def key_of(tree: Any) -> Any:
    """Subscripts as something to compare."""
    if isinstance(tree, list | tuple):
        return tuple(map(key_of, tree))
    if hasattr(tree, "kind"):
        return tree.kind, key_of(tree.what), tree.at, repr(tree.offset), tree.step
    return repr(tree)
