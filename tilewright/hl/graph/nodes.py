"""Values, nodes and regions.

A node applies an operation (an aten name, or one of our own such as "load") to values and constants. Loops and branches
hold regions; a region's parameters are the state it carries, its results the state after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tilewright.hl.dims import Axis, Dim
from tilewright.hl.symbols import Sym


@dataclass(eq=False, repr=False)
class Value:
    """A tile or a scalar: its dimensions and its type in PyTorch. `name` is the user's, where there is one."""

    id: int
    dims: tuple[Dim, ...]
    dtype: Any
    name: str = ""

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclass(frozen=True, repr=False)
class HostTensor:
    """A tensor of the host as a kernel sees it.

    Args:
        name: name of the kernel argument.
        text: expression of the launcher.
        shape: extents, numbers or symbols.
        stride: strides in elements, numbers or symbols.
        dtype: element type of PyTorch.
        wide: whether offsets of its elements pass 32 bits.
    """

    name: str
    text: str
    shape: tuple[Any, ...] = field(compare=False)
    stride: tuple[Any, ...] = field(compare=False)
    dtype: Any = field(compare=False)
    wide: bool = field(compare=False, default=False)

    def __repr__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True, repr=False)
class HostNumber:
    """A floating-point number of the launcher.

    Args:
        name: name of the kernel argument.
        text: expression of the launcher.
    """

    name: str = field(compare=False)
    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True, repr=False)
class Subscript:
    """How one dimension of a host tensor is indexed.

    Args:
        kind: "tile" (indices of a tile plus `offset`), "slice" (`start` + step·lane), "scalar" (one index) or "tensor"
            (a value of indices).
        what: the axis number, a number or symbol, or a value.
        at: first dimension of the loaded tile that this index varies along; None for a scalar.
        offset: added to the index.
        step: distance of two lanes of a slice.
        extent: extent of the indexed dimension.
        inside: whether every index is proved to be at least 0, and below the extent; `passes.bounds` finds out.
    """

    kind: str
    what: Any
    at: int | None = None
    offset: Any = 0
    step: int = 1
    extent: Any = 0
    inside: tuple[bool, bool] = (False, False)

    @property
    def reads_one(self) -> bool:
        """Whether a load by it reads the one element of its dimension in every lane, also behind the end of a tile.

        A store writes by the first index alone, and a moved tile reads what is at its indices: nothing where that is
        beyond.
        """
        moved = self.kind == "tile" and not (type(self.offset) is int and self.offset == 0)
        return self.kind != "slice" and not moved and type(self.extent) is int and self.extent == 1

    @property
    def varies(self) -> range:
        """The dimensions of the tile along which the index varies."""
        count = 0 if self.at is None else len(self.what.dims) if self.kind == "tensor" else 1
        return range(self.at or 0, (self.at or 0) + count)


@dataclass(eq=False, repr=False)
class Region:
    """A list of nodes with parameters and results."""

    params: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Node:
    """An operation; see the module.

    Args:
        op: name of the row in `hl.rows`.
        args: values, numbers, symbols, types, and lists of these.
        kwargs: the same by name; also what our own operations need (axes of a loop).
        line: line of the user's file.
        outs: results.
        regions: bodies of loops and branches.
        compute: type in which the operation compares or computes where that is not its result's.
        function: PyTorch's operator, where the trace writes down whole calls (`trace.whole`); arguments are all it had.
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    line: int = 0
    outs: list[Value] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    compute: Any = None
    function: Any = None

    @property
    def out(self) -> Value:
        """The only result."""
        (out,) = self.outs
        return out


@dataclass(eq=False, repr=False)
class Graph:
    """One top-level loop: a region that ends with its loop node."""

    region: Region
    axes: list[Axis]
    line: int

    @property
    def loop(self) -> Node:
        return self.region.nodes[-1]


def leaves(tree: Any) -> list[Any]:
    """Everything in nested lists, tuples and dictionaries, subscripts opened."""
    found: list[Any] = []
    _gather((tree,), found)
    return found


_TREES = (list, tuple, dict, Subscript)


def _gather(tree: Any, found: list[Any]) -> None:
    if isinstance(tree, Subscript):
        found += (tree.what, tree.offset)
        return
    for item in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(item, _TREES):
            _gather(item, found)
        else:
            found.append(item)


def values(tree: Any) -> list[Value]:
    """The values in a tree of arguments."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Value)]


def operands(node: Node) -> list[Value]:
    """The values that a node reads, without those of its regions."""
    found: list[Value] = []
    for tree in (node.args, node.kwargs.values()) if node.kwargs else (node.args,):
        for item in tree:  # most are leaves
            if type(item) is Value:
                found.append(item)
            elif isinstance(item, _TREES):
                found += values(item)
    return found


def accessed(node: Node) -> tuple[Dim, ...]:
    """The dimensions of the tile that a load or store touches."""
    return tuple(node.kwargs["dims"]) if node.op == "store" else node.out.dims


def symbols(tree: Any) -> list[Sym]:
    """The symbols in a tree of arguments."""
    return [leaf for leaf in leaves(tree) if isinstance(leaf, Sym)]


def walk(region: Region) -> Iterator[Node]:
    """Every node, those of inner regions behind the node that holds them."""
    for node in region.nodes:
        yield node
        for inner in node.regions:
            yield from walk(inner)


EFFECTS = frozenset(("store", "print", "assert", "call"))


def has_effect(node: Node) -> bool:
    """Whether a node does something besides computing its results."""
    if node.op in EFFECTS or node.op.startswith("atomic"):
        return True
    return bool(node.regions) and any(has_effect(item) for region in node.regions for item in region.nodes)


def replace(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A tree of arguments with `change` applied to its leaves."""
    if isinstance(tree, list):
        return [replace(item, change) for item in tree]
    if isinstance(tree, tuple):
        return tuple(replace(item, change) for item in tree)
    if isinstance(tree, dict):
        return {key: replace(item, change) for key, item in tree.items()}
    if isinstance(tree, Subscript):
        return Subscript(tree.kind, change(tree.what), tree.at, change(tree.offset), tree.step, tree.extent)
    return change(tree)


def renamed_leaf(leaf: Any, renamed: dict[int, Value]) -> Any:
    """What stands in the place of a leaf in the end, if it is a value in whose place another stands."""
    while isinstance(leaf, Value) and leaf.id in renamed:
        leaf = renamed[leaf.id]
    return leaf


def rename(region: Region, renamed: dict[int, Value]) -> None:
    """Put other values in the place of those in `renamed`."""

    def change(leaf: Any) -> Any:
        return renamed_leaf(leaf, renamed)

    for node in walk(region):
        node.args, node.kwargs = replace(node.args, change), replace(node.kwargs, change)
        for inner in node.regions:
            inner.results = [change(result) for result in inner.results]
        for axis in node.kwargs.get("axes", ()):
            axis.begin, axis.end, axis.parent = change(axis.begin), change(axis.end), change(axis.parent)


def clone(region: Region, mapping: dict[int, Value] | None = None) -> Region:
    """A copy that passes may change; values keep their numbers and names."""
    known: dict[int, Value] = {} if mapping is None else mapping

    def copy(value: Any) -> Any:
        if not isinstance(value, Value):
            return value
        return known.setdefault(value.id, Value(value.id, value.dims, value.dtype, value.name))

    fresh = Region([copy(param) for param in region.params])
    for node in region.nodes:
        args, kwargs = replace(node.args, copy), replace(node.kwargs, copy)
        fresh.nodes.append(
            Node(
                node.op,
                args,
                kwargs,
                node.line,
                [copy(out) for out in node.outs],
                [clone(inner, known) for inner in node.regions],
                node.compute,
                node.function,
            )
        )
    fresh.results = [copy(result) for result in region.results]
    return fresh
