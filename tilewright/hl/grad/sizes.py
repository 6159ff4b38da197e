"""Whether results depend on how large tiles are: the backward pass must have the same tiles then, or smaller ones.

A sum of all passes does not, whatever the tiles; the square of a tile's sum does, and its running sums. What reads where
a tile begins needs no more than that number: smaller tiles may read it of the tile that they lie in (`enclosing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl.dims import Axis, Dim, block_of
from tilewright.hl.grad.extents import is_known
from tilewright.hl.grad.maxima import running_maxima
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value, leaves, operands, symbols, walk
from tilewright.hl.symbols import Atom

ALONG = {
    "_log_softmax": 1,
    "_log_softmax_backward_data": 2,
    "_softmax": 1,
    "_softmax_backward_data": 2,
    "cat": 1,
    "cumprod": 1,
    "cumsum": 1,
    "flip": 1,
    "roll": 2,
    "scan_fn": 1,
    "sort_lanes": None,
    "take_lanes": 2,
}
"""Operations of which an element of the result is made of several lanes of dimensions that stay: the position of the
argument that says along which; None for the last one."""
_LOOPS = frozenset(("if", "loop", "while"))
_SUMMED = frozenset(("_to_copy", "add", "expand", "permute", "squeeze", "transpose", "unsqueeze", "view"))
"""Operations by which a sum of lanes stays one of which all passes add up."""


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


def depend_on_tiles(region: Region) -> bool:
    """Whether what a top-level loop stores may depend on the sizes of its tiles."""
    sized = {axis.id for axis in _axes(region)}
    return any(_read(node) & sized for node in walk(region)) or lanes_meet(region)


def _axes(region: Region) -> Iterator[Axis]:
    """The axes whose tiles have a size to choose."""
    axes = (axis for node in walk(region) for axis in node.kwargs.get("axes", ()))
    return (axis for axis in axes if axis.kind != "grid" and not (type(axis.block) is int and axis.block == 1))


# --- numbers of tiles -----------------------------------------------------------------------------------------


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
    if any(axis.size in _blocks([dims[at]]) for at in slices):
        return False  # as many as a tile has, from where it begins
    return node.op == "load" or any(_is_along(entry, axis) for entry in entries)


def _is_along(entry: Subscript, axis: Axis) -> bool:
    if isinstance(entry.what, Value):
        return axis.size in _blocks(entry.what.dims)
    return bool(entry.kind == "tile" and entry.what == axis.id)


# --- lanes of tiles -------------------------------------------------------------------------------------------


def lanes_meet(region: Region) -> bool:
    """Whether anything but a sum or a maximum over all passes is made of several lanes of a tile, or of their places."""
    return _Lanes(region).meet()


class _Lanes:
    """Follows what is computed of all lanes of a tile to what sums or compares it over all passes."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users: dict[int, list[Node]] = {}
        self.maxima: set[int] = set()
        for node in walk(region):
            for value in operands(node):
                self.users.setdefault(value.id, []).append(node)
            if node.op == "loop":
                self.maxima |= {value.id for value in running_maxima(node).values()}

    def meet(self) -> bool:
        """As `lanes_meet`."""
        nodes = [node for node in walk(self.region) if node.op not in _LOOPS and node.outs]
        if any(_mixes(node) for node in nodes):
            return True
        return any(not self._is_summed(out) for node in nodes if _gone(node) for out in node.outs)

    def _is_summed(self, value: Value) -> bool:
        return all(self._adds(user) for user in self.users.get(value.id, ()))

    def _adds(self, user: Node) -> bool:
        if user.op in _SUMMED:
            return self._is_summed(user.out)
        return user.op == "atomic_add" or (bool(user.outs) and user.outs[0].id in self.maxima)


def _mixes(node: Node) -> bool:
    """Whether lanes of a tile meet in dimensions that stay, or their places in the tile are read."""
    several = [_blocks(out.dims) for out in node.outs]
    if any(len(blocks) > len({*blocks}) for blocks in several) or (node.op == "lanes" and any(several)):
        return True
    if node.op not in ALONG:
        return False
    position, rank = ALONG[node.op], len(node.outs[0].dims)
    named = -1 if position is None else node.args[position] if len(node.args) > position else 0
    along = {dim % rank for dim in leaves([named])} if rank else set()
    return any(_blocks([value.dims[dim]]) for value in operands(node) for dim in along if dim < len(value.dims))


def _gone(node: Node) -> set[Any]:
    """The tiles of which an operation combines the lanes."""
    return _tiles(operands(node)) - _tiles(node.outs) if node.op != "load" else set()


def _tiles(values: list[Value]) -> set[Atom]:
    return {atom for value in values for dim in value.dims for atom in dim.atoms if atom.kind == "block"}


def _blocks(dims: Any) -> list[Atom]:
    """The tiles of which dimensions have the lanes, or parts of these, as often as they do."""
    dim: Dim
    return [block for dim in dims for block in map(block_of, dim.atoms) if block.kind == "block"]
