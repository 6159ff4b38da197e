"""Gradients by index on a CPU: loops change places until each program owns columns, to which it adds row after row.

    for rows, columns in tiles:                     for columns in tiles:
        atomic_add(grad_table, [ids[rows], columns])    for rows in tiles of one:
                                                            grad_table[ids[rows], columns] += ...

Programs of other columns never meet, and one program meets itself only in another pass. So nothing is atomic, and sums
have one order. An atomic addition of a CPU takes as long as dozens of plain ones; a GPU, where it does not, would have
too few programs left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tilewright.hl.dims import Axis
from tilewright.hl.grad.aliases import alone
from tilewright.hl.grad.extents import is_known, is_zero
from tilewright.hl.grad.owners import Contribution, Owner, decide, place
from tilewright.hl.grad.sizes import depend_on_tiles
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Value, has_effect, operands, walk
from tilewright.hl.passes.deadcode import remove_dead

_COLUMNS = 128
"""Columns of a program: few enough for several programs, and several vectors for each index that is looked up."""
_FEWEST = 32
"""Columns of a tensor, of fewer of which an addition for each index is slower than sums that threads keep."""
_SAME = frozenset(("view", "_unsafe_view", "expand", "unsqueeze", "squeeze", "_to_copy", "sole"))
"""Operations that repeat elements, or give them another shape or type."""


def take_in_turn(region: Region, found: Mapping[str, list[Contribution]], fresh: Callable[[], int]) -> dict[str, Owner]:
    """Let programs own columns of gradients by index that would be summed atomically, where loops may change places.

    Args:
        region: ends with the loop of the backward pass.
        found: the contributions in it, by tensor; those of others than that loop are left.
        fresh: gives numbers that no value has.

    Returns:
        By name of the tensor, who adds up what has an owner now.
    """
    made: dict[str, Owner] = {}
    for name, several in found.items():
        owner = decide(several)
        columns = _columns(several[0]) if len(several) == 1 and owner.form == "atomic" else []
        if not columns:
            continue
        added = several[0].node
        at = next(at for at, node in enumerate(region.nodes) if added in [*_nodes(node)])
        is_sole = [node for node in _nodes(region.nodes[at]) if _adds(node)] == [added]
        moved = region.nodes[at] if is_sole else alone(region, name, fresh)
        turned = None if moved is None else _turned(moved, columns)
        if turned is None:
            continue
        if not is_sole:
            several[0].region.nodes = [node for node in several[0].region.nodes if node is not added]
        region.nodes[at : at + is_sole] = [turned]
        names = ", ".join(axis.name for axis in columns)
        made[name] = Owner(name, "add", f"programs along {names} take one index after the other", owner.line)
    return made


def _nodes(node: Node) -> Iterator[Node]:
    return (inner for region in node.regions for inner in walk(region))


def _adds(node: Node) -> bool:
    return bool(node.args) and isinstance(node.args[0], HostTensor) and has_effect(node)


def _columns(one: Contribution) -> list[Axis]:
    """The axes whose tiles subscript the tensor themselves; none where they are too short, or that cannot be known."""
    own = [axis for axis in one.loops if axis.kind == "tile" and _is_own(axis, one)]
    extent = 1
    for axis in own:
        extent *= axis.end if type(axis.end) is int else _FEWEST
    return own if len(own) < len(one.loops) and extent >= _FEWEST else []


def _is_own(axis: Axis, one: Contribution) -> bool:
    known = is_zero(axis.begin) and is_known(axis.end) and axis.shared is None and axis.block is None
    return known and place(axis, one.entries) is not None


def _turned(top: Node, columns: list[Axis]) -> Node | None:
    """A loop nest with the loops along `columns` outermost; None where its loops may not change places."""
    own = {axis.id for axis in columns}
    levels = []
    inner: Node | None = top
    while inner is not None and inner.op == "loop":
        (body,) = inner.regions
        if inner.outs or any(axis.kind == "roll" or axis.backward for axis in inner.kwargs["axes"]):
            return None
        effects = [node for node in body.nodes if node.regions or has_effect(node)]
        if len(effects) != 1:
            return None
        levels.append((inner, [node for node in body.nodes if node is not effects[0]]))
        (inner,) = effects
    if inner is None or inner.op != "atomic_gradient" or not _meets_nobody(inner, levels, own):
        return None
    if _depends_on_tiles(inner, levels):
        return None
    nodes = [inner]
    for loop, before in reversed(levels):
        rest = [(at, axis) for at, axis in enumerate(loop.kwargs["axes"]) if axis.id not in own]
        nodes = [*before, *nodes]
        if rest:
            axes = [replace(axis, top=False, block=_block(axis)) for _, axis in rest]
            nodes = [_loop(loop, axes, [at for at, _ in rest], nodes)]
    last = columns[-1]
    wide = min(_COLUMNS, 1 << (last.end - 1).bit_length()) if type(last.end) is int else _COLUMNS
    axes = [replace(axis, top=True, block=wide if axis is last else None) for axis in columns]
    ends = {"begin": [axis.begin for axis in axes], "end": [axis.end for axis in axes]}
    return Node("loop", (), {"axes": axes, **ends}, top.line, regions=[Region(nodes=nodes)])


def _depends_on_tiles(one: Node, levels: list[tuple[Node, list[Node]]]) -> bool:
    """Whether other tiles would add something else; where jagged ones end changes nothing."""
    body = Region(nodes=[*(node for _, before in levels for node in before), one])
    remove_dead(body)
    bounds = {
        key: [value for loop, _ in levels for value in loop.kwargs[key] if not isinstance(value, Value)]
        for key in ("begin", "end")
    }
    axes = [axis for loop, _ in levels for axis in loop.kwargs["axes"]]
    return depend_on_tiles(Region(nodes=[Node("loop", (), {"axes": axes, **bounds}, regions=[body])]))


def _block(axis: Axis) -> int | None:
    return 1 if axis.kind == "tile" else None


def _loop(of: Node, axes: list[Axis], at: list[int], nodes: list[Node]) -> Node:
    """A loop over some of the axes of another one."""
    ends = {key: [of.kwargs[key][number] for number in at] for key in ("begin", "end")}
    return Node("loop", (), {"axes": axes, **ends}, of.line, regions=[Region(nodes=nodes)])


def _meets_nobody(one: Node, levels: list[tuple[Node, list[Node]]], own: set[int]) -> bool:
    """Whether the elements of one pass are apart: those of one index are, and those that an index counts."""
    axes = [axis for loop, _ in levels for axis in loop.kwargs["axes"]]
    made = {out.id: node for _, before in levels for node in before for out in node.outs}
    indices = [entry.what for entry in one.args[1] if isinstance(entry.what, Value)]
    sizes = {axis.size for axis in axes}
    if not all(dim.is_one or dim.atom in sizes for index in indices for dim in index.dims):
        return False
    return all(
        axis.id in own or axis.kind in ("tile", "grid") or any(_counts(index, axis, made) for index in indices)
        for axis in axes
    )


def _counts(index: Value, axis: Axis, made: Mapping[int, Node]) -> bool:
    """Whether an index grows by one along an axis: it is that of the axis and something that is the same along it."""
    node = made.get(index.id)
    if node is None:
        return False
    if node.op == "tile_index":
        return bool(node.args[0] == axis.id)
    if node.op in _SAME:
        return _counts(next(iter(operands(node))), axis, made)
    if node.op not in ("add", "sub") or len(node.args) != 2:
        return False
    sides = [side for side in node.args if isinstance(side, Value)]
    along = [side for side in sides if axis.size in (atom for dim in side.dims for atom in dim.atoms)]
    return len(along) == 1 and _counts(along[0], axis, made)
