"""Who adds a contribution to a gradient: the program that owns the elements, partial sums, or atomics.

owner      every axis of the grid subscripts the tensor: no other program touches these elements. One contribution
           that covers the tensor is a plain store; several are added one after the other.
partial    axes of the grid are missing: each program has a part of its own, and the host sums the parts.
atomic     the subscripts are data, or change in an inner loop: programs meet in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tilewright.hl.dims import Axis
from tilewright.hl.grad import checks
from tilewright.hl.grad.conversions import conversion
from tilewright.hl.grad.extents import agree, is_known, is_zero
from tilewright.hl.grad.program import Program, buffer_of, gradient_of, key_of
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value, walk
from tilewright.hl.symbols import Sym, cdiv, same
from tilewright.hl.trace.state import Trace


@dataclass(frozen=True)
class Owner:
    """Who adds up the gradient of one tensor.

    Args:
        tensor: its name.
        form: "store", "add", "partial" or "atomic"; "joined" where it is added, atomically, to that of another tensor;
            "sorted" where the host adds up what programs keep, by its index.
        why: a sentence for people.
        line: of the first load.
    """

    tensor: str
    form: str
    why: str
    line: int

    @property
    def is_atomic(self) -> bool:
        """Whether it is added up in any order."""
        return self.form in ("atomic", "joined")


@dataclass
class Contribution:
    """What one load adds to the gradient of its tensor, or another access to one.

    Args:
        node: the access.
        region: that holds it.
        loops: axes of the loops around it.
        grid: those of the outermost.
        always: whether every pass of these loops comes to it.
    """

    node: Node
    region: Region
    loops: list[Axis] = field(default_factory=list)
    grid: list[Axis] = field(default_factory=list)
    always: bool = True

    @property
    def tensor(self) -> HostTensor:
        found: HostTensor = self.node.args[0]
        return found

    @property
    def entries(self) -> list[Subscript]:
        return list(self.node.args[1])


def contributions(region: Region) -> dict[str, list[Contribution]]:
    """The contributions in a derived region, by tensor."""
    found: dict[str, list[Contribution]] = {}
    for one in accesses(region):
        if one.node.op == "atomic_gradient":
            found.setdefault(one.tensor.name, []).append(one)
    return found


def expected(region: Region, wanted: frozenset[str]) -> dict[str, list[Contribution]]:
    """The contributions that a backward pass has if a gradient flows through every load of a graph, by tensor."""
    found: dict[str, dict[Any, Contribution]] = {}
    for one in accesses(region):
        if one.node.op == "load" and one.tensor.name in wanted:
            key = key_of([one.entries, one.node.kwargs.get("mask")]), tuple(axis.id for axis in one.loops)
            found.setdefault(one.tensor.name, {}).setdefault(key, one)
    return {name: list(several.values()) for name, several in found.items()}


def accesses(region: Region) -> Iterator[Contribution]:
    """Every access to a tensor of the host, and where it stands."""

    def visit(region: Region, loops: list[Axis], grid: list[Axis], always: bool) -> Iterator[Contribution]:
        for node in region.nodes:
            if node.args and isinstance(node.args[0], HostTensor):
                yield Contribution(node, region, loops, grid, always)
            for inner in node.regions:
                axes = node.kwargs.get("axes", [])
                yield from visit(inner, loops + axes, grid or axes, always and node.op == "loop")

    return visit(region, [], [], True)


def place(axis: Axis, entries: Sequence[Subscript]) -> int | None:
    """The dimension that an axis subscripts, one index of it for each of its own."""
    for at, entry in enumerate(entries):
        if entry.kind == "tile" and entry.what == axis.id and is_zero(entry.offset):
            return at
        if entry.kind == "scalar" and isinstance(entry.what, Sym) and is_zero(entry.what - Sym.of(axis.offset)):
            return at if axis.kind == "grid" or axis.prime == 1 else None
    return None


def _tells(axis: Axis, entries: Sequence[Subscript]) -> bool:
    """Whether every pass along an axis has other subscripts, as by `i * 4 + 1`."""
    scalars = [entry.what for entry in entries if entry.kind == "scalar" and isinstance(entry.what, Sym)]
    moving = [[atom for atom in what.terms if atom.kind != "host"] for what in scalars]
    is_one = axis.kind == "grid" or axis.prime == 1
    return place(axis, entries) is not None or (is_one and [axis.offset] in moving)


def _is_counted(axis: Axis) -> bool:
    """Whether the programs along an axis can be counted now."""
    return all(map(is_known, (axis.begin, axis.end))) and (axis.block is None or type(axis.block) is int)


def covers(one: Contribution) -> bool:
    """Whether the loops of a contribution reach every element of the tensor."""
    if not one.always:
        return False
    axes = {axis.id: axis for axis in one.loops}
    for entry in one.entries:
        if entry.kind == "tile":
            axis = axes[entry.what]
            if not (is_zero(axis.begin) and is_zero(entry.offset) and agree(axis.end, entry.extent)):
                return False
        elif entry.kind == "slice":
            length = one.node.kwargs["dims"][entry.at].size()
            if not (is_zero(entry.what) and entry.step == 1 and agree(length, entry.extent)):
                return False
        elif not (same(entry.extent, 1) or any(_reaches_all(axis, entry) for axis in one.loops)):
            return False
    return True


def _reaches_all(axis: Axis, entry: Subscript) -> bool:
    """Whether an index is that of an axis, which goes from the begin of the dimension to its end."""
    return place(axis, [entry]) == 0 and is_zero(axis.begin) and agree(axis.end, entry.extent)


def cover_together(several: list[Contribution]) -> bool:
    """Whether contributions that touch other elements, as to the halves of a row, reach every one of the tensor."""
    for at, entry in enumerate(several[0].entries):
        spans = [checks.span(one.node, one.entries[at]) for one in several]
        if type(entry.extent) is int and None not in spans:
            indices = {index for found in spans for index in found or ()}
            rest = [replace(one, node=_without(one.node, at)) for one in several]
            if len(indices) == entry.extent and all(map(covers, rest)):
                return True
    return False


def _without(node: Node, at: int) -> Node:
    """A contribution without a subscript."""
    tensor, entries, *others = node.args
    return replace(node, args=(tensor, [*entries[:at], *entries[at + 1 :]], *others))


def _are_apart(several: list[Contribution]) -> bool:
    """Whether no two contributions touch one element."""
    return all(checks.disjoint(one.node, other.node) for at, one in enumerate(several) for other in several[:at])


def decide(several: list[Contribution]) -> Owner:
    """Who adds up what several loads of one tensor contribute."""
    name, line, grid = several[0].tensor.name, several[0].node.line, several[0].grid
    if any(entry.kind == "tensor" or _is_data(entry) for one in several for entry in one.entries):
        return Owner(name, "atomic", "its subscripts are data", line)
    places = [[place(axis, one.entries) for one in several] for axis in grid]
    missing = [axis for axis, found in zip(grid, places, strict=True) if None in found or len(set(found)) > 1]
    if missing and not any(
        place is not None for axis, found in zip(grid, places, strict=True) if axis in missing for place in found
    ):
        names = ", ".join(axis.name for axis in missing)
        if any(axis.kind == "grid" or not _is_counted(axis) for axis in missing):
            return Owner(name, "atomic", f"programs of the same {names} meet", line)
        if any(len(one.loops) > len(grid) for one in several):
            return Owner(name, "atomic", f"programs along {names} meet in an inner loop", line)
        return Owner(name, "partial", f"programs along {names} sum parts of their own", line)
    if missing:
        return Owner(name, "atomic", "its loads have different owners", line)
    inner = all(all(_tells(axis, one.entries) for axis in one.loops) for one in several)
    if inner and _are_apart(several):
        return Owner(name, "store", "each element is loaded by one program, once", line)
    return Owner(name, "add", "one program loads each element, more than once", line)


def _is_data(entry: Subscript) -> bool:
    return isinstance(entry.what, Value) or isinstance(entry.offset, Value)


_PART = 16_384
"""Elements of the tiles of a program that sums a part."""
_LONGEST_PART, _FEWEST_PARTS = 65_536, 32
"""The same of CPUs for whole rows, which a program goes over one by one, where so many are left for threads: parts are
written, and summed. Measured, one core of a Zen 5, rows of 1,024 and 4,096, 2M elements: layer norm backward 1.14 and
1.23 times as fast as with `_PART`, RMS norm 1.13 and 1.16."""


def part_size(region: Region, axis: Axis, device: str) -> int:
    """How many indices of an axis the program of one part has.

    Args:
        region: of the kernel.
        axis: of the grid.
        device: the kind of device that runs it.
    """
    widest, rows = 1, device == "cpu"
    for node in walk(region):
        if node.op == "load" and any(entry.kind == "tile" and entry.what == axis.id for entry in node.args[1]):
            others = [entry for entry in node.args[1] if not (entry.kind == "tile" and entry.what == axis.id)]
            widest = max(widest, math.prod(_typical(entry, node) for entry in others))
            rows = rows and all(entry.kind == "slice" for entry in others)
    extent = axis.end - axis.begin
    known = extent if type(extent) is int else None
    whole = known * widest if rows and known is not None else 0
    part = min(max(_PART, whole // _FEWEST_PARTS), _LONGEST_PART)
    size = 1 << max(0, (part // widest).bit_length() - 1)
    return size if known is None else max(1, min(size, known))


def _typical(entry: Subscript, node: Node) -> int:
    """How many elements a subscript has, or may have."""
    if entry.at is None:
        return 1
    size = node.out.dims[entry.at].size()
    extent = entry.extent if type(entry.extent) is int else 256
    return size if type(size) is int else min(256, extent)


def settle(
    trace: Trace,
    program: Program,
    several: list[Contribution],
    owner: Owner,
    blocks: Callable[[Axis], int],
) -> None:
    """Write the contributions to one tensor as `owner` says: nodes, and the lines of the host that make the tensor.

    Args:
        trace: where new values are counted.
        program: the kernel.
        several: the contributions.
        owner: who adds them up.
        blocks: how many indices of an axis a program has where each has a part of its own.
    """
    tensor, grid = several[0].tensor, several[0].grid
    name = f"grad_{tensor.name}"
    shape, dtype = list(tensor.shape), tensor.dtype
    wide = torch.float32 if dtype.itemsize < 4 else dtype
    if owner.form == "joined":  # to a tensor that is there
        fresh = HostTensor(name, name, tuple(shape), (), dtype)
        for one in several:
            _write(trace, one, fresh, [], "atomic", True)
        return
    parts: list[Axis] = []
    if owner.form == "partial":
        parts = [axis for axis in grid if any(place(axis, one.entries) is None for one in several)]
    result = name
    if parts:
        name = f"parts_{tensor.name}"
        for axis in parts:
            axis.block = blocks(axis) if axis.block is None else axis.block
        result = f"{name}.sum({list(range(len(parts))) if len(parts) > 1 else 0})"
    counts = [cdiv(axis.end - axis.begin, axis.block) for axis in parts]
    adds = owner.form != "store" and not (parts and len(several) == 1 and _once(several[0], parts))
    covered = covers(several[0]) if len(several) == 1 else cover_together(several)
    kind = "empty" if covered and not adds else "zeros"
    held = dtype if owner.form == "store" else wide
    own = gradient_of(tensor, name, held, kind)
    program.made.append(buffer_of(name, [*counts, *shape], held, kind) if parts else own)
    program.results.append(result if held == dtype else f"{result}.to({dtype})")
    fresh = HostTensor(name, name, (*(0 for _ in parts), *shape), (), held)
    for one in several:
        _write(trace, one, fresh, [_number(axis) for axis in parts], owner.form, adds)


def _once(one: Contribution, parts: list[Axis]) -> bool:
    """Whether a program contributes to an element in one pass only."""
    return all(axis in parts or place(axis, one.entries) is not None for axis in one.loops)


def _number(axis: Axis) -> Subscript:
    """The number of a program's tile along an axis."""
    return Subscript("scalar", (Sym.of(axis.offset) - axis.begin) // Sym.of(axis.size), extent=0)


def _write(trace: Trace, one: Contribution, tensor: HostTensor, parts: list[Subscript], form: str, adds: bool) -> None:
    """Replace a contribution by a store, an addition in memory, or an atomic one."""
    node, region = one.node, one.region
    entries, total = [*parts, *one.entries], node.args[2]
    at = region.nodes.index(node)
    made: list[Node] = []

    def value(dims: Any, dtype: Any) -> Value:
        made = trace.fresh(torch.empty((), dtype=dtype))
        made.dims = tuple(dims)
        return made

    dims = node.kwargs["dims"]
    if total.dtype != tensor.dtype:
        converted = value(total.dims, tensor.dtype)
        made.append(conversion(total, converted, node.line))
        total = converted
    if form == "atomic":
        out = value(dims, tensor.dtype)
        made.append(Node("atomic_add", (tensor, entries, total), {}, node.line, [out]))
    else:
        if adds:
            old, new = value(dims, tensor.dtype), value(dims, tensor.dtype)
            made.append(Node("load", (tensor, entries), {}, node.line, [old]))
            made.append(Node("add", (old, total), {}, node.line, [new], function=torch.ops.aten.add.Tensor))
            total = new
        made.append(Node("store", (tensor, entries, total), {"dims": dims}, node.line))
    region.nodes[at : at + 1] = made
