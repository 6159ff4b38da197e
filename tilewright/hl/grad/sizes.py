"""Whether results depend on how large tiles are: the backward pass must have the same tiles then, or smaller ones.

Where lanes of a tile meet (`lanes`), it must have the same. What reads where a tile begins, or how large it is, needs
no more than that number: smaller tiles may read it of the tile that they lie in (`enclosing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl.dims import Axis
from tilewright.hl.grad.extents import is_known
from tilewright.hl.grad.lanes import blocks_of, lanes_meet
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value, symbols, walk


@dataclass(frozen=True)
class Tiles:
    """The tiles of a backward pass.

    Args:
        forward: their sizes in the forward pass, by the number of the axis.
        fixed: whether they are as large in the backward pass.
        enclosing: the sizes of those in which tiles of the backward pass lie, whose numbers they read, by the same.
    """

    forward: Mapping[int, int]
    fixed: bool = False
    enclosing: Mapping[int, int] = field(default_factory=dict)

    @property
    def blocks(self) -> Mapping[int, int] | None:
        """The sizes of tiles, if they are those of the forward pass."""
        return self.forward if self.fixed else None

    def size(self, axis: Axis) -> int | None:
        """How large the tiles of an axis are of which the forward pass read numbers; None where they are free."""
        own = axis.block if type(axis.block) is int else None
        return (self.blocks or self.enclosing).get(axis.id, own)


def tiles_of_backward(region: Region, whole: Region, forward: Mapping[int, int]) -> Tiles:
    """The tiles that the backward pass of a top-level loop may have.

    Args:
        region: the loop as it is compiled: nothing in it is a composite of PyTorch's.
        whole: the loop as it is differentiated.
        forward: the sizes of tiles in the forward pass, by the number of the axis.
    """
    read = numbers_read(whole)
    enclosing = {} if read is None else {axis: forward[axis] for axis in read}
    powers = all(size & (size - 1) == 0 for size in enclosing.values())
    if read is None or not powers or lanes_meet(region):
        return Tiles(forward, fixed=True)
    return Tiles(forward, enclosing=enclosing)


def has_products(region: Region) -> bool:
    """Whether a loop multiplies matrices. The tiles that a program gives its forward pass are too large or too small
    for the products of its way back, of which there are more; of other loops they say how much a program should do."""
    return any(node.op in ("product", "scaled_product") for node in walk(region))


def depend_on_tiles(region: Region) -> bool:
    """Whether what a top-level loop stores may depend on the sizes of its tiles."""
    sized = {axis.id for axis in _axes(region)}
    return any(_read(node) & sized for node in walk(region)) or lanes_meet(region)


def _axes(region: Region) -> Iterator[Axis]:
    """The axes whose tiles have a size to choose."""
    axes = (axis for node in walk(region) for axis in node.kwargs.get("axes", ()))
    return (axis for axis in axes if axis.kind != "grid" and not (type(axis.block) is int and axis.block == 1))


def numbers_of(node: Node) -> Any:
    """What a node holds in which the numbers of a tile are numbers: others are extents."""
    if node.op in ("load", "store") or node.op.startswith("atomic"):
        return [part for entry in node.args[1] for part in (entry.what, entry.offset)]
    if node.op in ("sym", "compare"):
        return node.args
    return [node.kwargs[key] for key in ("begin", "end") if key in node.kwargs] if node.op == "loop" else ()


def _read(node: Node) -> set[int]:
    """The axes of which a node uses where a tile begins, how large it is, or how much of it is valid."""
    return _named(numbers_of(node), ("begin", "block", "valid"))


def _named(tree: Any, kinds: tuple[str, ...]) -> set[int]:
    return {int(atom.key) for symbol in symbols(tree) for atom in symbol.atoms() if atom.kind in kinds}


def numbers_read(region: Region) -> set[int] | None:
    """The axes of the grid of a top-level loop of whose tiles it reads numbers, where nothing else of it depends on how
    large these tiles are; None where something may."""
    free = {axis.id: axis for axis in _axes(region) if type(axis.block) is not int}
    read = [free[axis] for node in walk(region) for axis in _read(node) & free.keys()]
    grid = region.nodes[-1].kwargs["axes"]
    if not all(axis in grid and _has_tiles_inside(axis) for axis in read):
        return None
    if not all(_reads_numbers_alone(node, axis) for axis in {*read} for node in walk(region)):
        return None
    return {axis.id for axis in read}


def _has_tiles_inside(axis: Axis) -> bool:
    """Whether each tile of an axis may be cut into several that begin where it does or later."""
    free = axis.kind == "tile" and axis.block is None and axis.shared is None and axis.multiple == 1
    return free and is_known(axis.begin)


def _reads_numbers_alone(node: Node, axis: Axis) -> bool:
    """Whether a node is the same for the parts of a tile, but for lanes: what it changes has one element for each."""
    if axis.id in _named(numbers_of(node), ("valid",)):
        return False
    if not node.args or not isinstance(node.args[0], HostTensor):
        rest = () if node.op in ("sym", "compare", "loop") else (node.args, node.kwargs)
        return axis.id not in _named(rest, ("begin", "valid"))
    dims = node.kwargs.get("dims") or (node.out.dims if node.outs else ())
    entries: list[Subscript] = node.args[1]
    slices = [entry.at for entry in entries if entry.kind == "slice" and entry.at is not None]
    if any(axis.size in blocks_of([dims[at]]) for at in slices):
        return False  # as many as a tile has, from where it begins
    return node.op == "load" or any(_is_along(entry, axis) for entry in entries)


def _is_along(entry: Subscript, axis: Axis) -> bool:
    if isinstance(entry.what, Value):
        return axis.size in blocks_of(entry.what.dims)
    return bool(entry.kind == "tile" and entry.what == axis.id)
