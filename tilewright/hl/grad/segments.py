"""Gradients by index in one order, for whoever wants the same bits in every run: no atomics, no program meets another.

    for t in tokens: ... table[ids[t], :]        for t in tokens: each_table[t, :] = ...; at_table[t] = ids[t]
                                                 grad_table = zeros.index_add_(0, at_table, each_table)

Each program keeps what it would add, and where; the host sums what belongs together, which PyTorch does by a sort on a
GPU and one after the other on a CPU. It takes as much memory as the tiles that were loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from tilewright.hl.dims import Axis
from tilewright.hl.grad.conversions import conversion
from tilewright.hl.grad.exchange import buffer, is_placed
from tilewright.hl.grad.extents import is_known, is_zero
from tilewright.hl.grad.owners import Contribution, Owner, covers, place
from tilewright.hl.grad.program import Program, buffer_of, dims_of
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value, leaves, operands, walk
from tilewright.hl.symbols import Sym

Label = int | tuple[str, int]
"""What a dimension of a buffer runs along: an axis, or a dimension of the tile that no axis is."""


@dataclass(frozen=True)
class Segments:
    """How the contributions of one load are kept and summed.

    Args:
        one: the contribution.
        index: the value that says where.
        dim: the dimension of the tensor that it subscripts.
        axes: the axes along which it may vary.
        order: the dimensions of what is kept in the order of the tensor's, those of the index in the place of `dim`.
    """

    one: Contribution
    index: Value
    dim: int
    axes: list[Axis]
    order: list[int]


def plan(region: Region, several: list[Contribution], owner: Owner) -> tuple[Owner, list[Segments]] | None:
    """How gradients that `owner` sums atomically by index can be summed in order; None where they cannot."""
    if owner.form != "atomic":
        return None
    found = [_segments(region, one) for one in several]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    return replace(owner, form="sorted", why=f"{owner.why}, and the host sums them in order"), known


def _segments(region: Region, one: Contribution) -> Segments | None:
    data = [at for at, entry in enumerate(one.entries) if isinstance(entry.what, Value)]
    moved = any(isinstance(entry.offset, Value) for entry in one.entries)
    if len(data) != 1 or moved or not is_zero(one.entries[data[0]].offset):
        return None
    (dim,) = data
    index: Value = one.entries[dim].what
    others = [(at, entry) for at, entry in enumerate(one.entries) if at != dim]
    along = {axis.id for axis in one.loops if any(place(axis, [entry]) == 0 for _, entry in others)}
    axes = [axis for axis in one.loops if axis.id not in along]
    total: Value = one.node.args[2]
    counted = all(is_zero(axis.begin) and is_known(axis.end) and axis.parent is None for axis in one.loops)
    if not (counted and is_placed(total, one.loops) and is_placed(index, axes)) or not _is_free(region, index, along):
        return None
    labels, places = _labels(total, one.loops), _labels(index, axes)
    rest: list[Label | None] = [_label(entry, one.loops) for _, entry in others]
    whole = covers(replace(one, always=True, node=_without(one.node, dim)))
    if (
        None in rest
        or not whole
        or not all(isinstance(label, int) for label in places)
        or sorted(map(str, labels)) != sorted(map(str, [*rest, *places]))
    ):
        return None
    wanted = [*rest[:dim], *places, *rest[dim:]]
    return Segments(one, index, dim, axes, [labels.index(label) for label in wanted if label is not None])


def _without(node: Node, dim: int) -> Node:
    tensor, entries, *others = node.args
    return replace(node, args=(tensor, [*entries[:dim], *entries[dim + 1 :]], *others))


def _labels(value: Value, loops: list[Axis]) -> list[Label]:
    """What the dimensions of a value's buffer run along."""
    dims = dims_of(loops, value)
    covered = {dim.id for dim in dims if isinstance(dim, Axis)}
    alone: list[Label] = [axis.id for axis in loops if axis.id not in covered]
    return alone + [dim.id if isinstance(dim, Axis) else ("dim", at) for at, dim in enumerate(dims)]


def _label(entry: Subscript, loops: list[Axis]) -> Label | None:
    """What a subscript that is no data runs along."""
    if entry.kind == "slice" and entry.at is not None:
        return "dim", entry.at
    return next((axis.id for axis in loops if place(axis, [entry]) == 0), None)


def _is_free(region: Region, index: Value, axes: set[int]) -> bool:
    """Whether a value is the same for all tiles along some axes: programs keep it at one place."""
    made = {out.id: node for node in walk(region) for out in node.outs}
    inner = {param.id for node in walk(region) for body in node.regions for param in body.params}
    waiting, seen = [index], set[int]()
    while waiting:
        value = waiting.pop()
        node = made.get(value.id)
        if value.id in inner or node is None or node.regions:
            return False
        reads = [
            atom.key for leaf in leaves((node.args, node.kwargs)) if isinstance(leaf, Sym) for atom in leaf.atoms()
        ]
        reads += [atom.key for dim in value.dims for atom in dim.atoms]
        reads += [entry.what for entry in node.args[1] if entry.kind == "tile"] if node.op == "load" else []
        reads += [node.args[0]] if node.op == "tile_index" else []
        if axes & set(reads):
            return False
        if value.id not in seen:
            seen.add(value.id)
            waiting += operands(node)
    return True


def settle(program: Program, found: list[Segments], fresh: Callable[[], int]) -> None:
    """Keep contributions in place of adding them, and let the host sum them.

    Args:
        program: the kernel.
        found: of all contributions to one tensor.
        fresh: gives numbers that no value has.
    """
    tensor = found[0].one.tensor
    wide = torch.float32 if tensor.dtype.itemsize < 4 else tensor.dtype
    name = f"grad_{tensor.name}"
    program.made.append(buffer_of(name, tensor.shape, wide, "zeros"))
    result = name
    for number, one in enumerate(found):
        kept = _keep(program, one, f"{tensor.name}_{number}" if number else tensor.name, wide, fresh)
        result += _sum(one, *kept, name)
    program.results.append(result if wide == tensor.dtype else f"{result}.to({tensor.dtype})")


def _keep(
    program: Program, one: Segments, name: str, wide: torch.dtype, fresh: Callable[[], int]
) -> tuple[HostTensor, HostTensor]:
    """Store a contribution, and its place, at places of their own: the tensors that hold them."""
    region, node = one.one.region, one.one.node
    made: list[Node] = []
    tensors = []
    for kind, value, loops, dtype in (
        ("each", node.args[2], one.one.loops, wide),
        ("at", one.index, one.axes, torch.int64),
    ):
        form, entries = buffer(kind, 0, value, loops)
        held = replace(form, name=f"{kind}_{name}", dtype=dtype)
        if value.dtype != dtype:
            converted = Value(fresh(), value.dims, dtype)
            made.append(conversion(value, converted, node.line))
            value = converted
        made.append(Node("store", (held, entries, value), {"dims": value.dims}, node.line))
        program.made.append(buffer_of(held.name, held.shape, dtype, "empty" if one.one.always else "zeros"))
        tensors.append(held)
    at = region.nodes.index(node)
    region.nodes[at : at + 1] = made
    return tensors[0], tensors[1]


def _sum(one: Segments, each: HostTensor, at: HostTensor, name: str) -> str:
    """The end of an expression that adds contributions to a tensor; what is beyond it is nowhere, as in the loop."""
    count, extent = len(at.shape), f"{name}.size({one.dim})"
    values = each.name
    if one.order != sorted(one.order):
        values += f".permute({one.order})"
    outside = f"({at.name} < 0) | ({at.name} >= {extent})"
    for dim in range(len(each.shape) - count - one.dim):
        outside = f"({outside}).unsqueeze(-1)" if dim == 0 else f"{outside}.unsqueeze(-1)"
    values += f".masked_fill({outside}, 0)"
    if count > 1:
        values += f".flatten({one.dim}, {one.dim + count - 1})"
    if count == 0:
        values += f".unsqueeze({one.dim})"
    places = f"{at.name}.clamp(min=0).clamp(max={extent} - 1)"
    places += ".flatten()" if count != 1 else ""
    return f".index_add_({one.dim}, {places}, {values})"
