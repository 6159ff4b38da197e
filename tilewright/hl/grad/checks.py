"""What of a loop cannot be differentiated, found before anything is derived."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import Axis
from tilewright.hl.grad.places import Steps, of_symbol, steps_of
from tilewright.hl.graph.nodes import HostTensor, Node, Region, Subscript, Value, walk
from tilewright.hl.symbols import Atom, Sym

Stores = dict[str, list[tuple[Node, list[Axis], tuple[int, ...]]]]
"""By name of the tensor: stores, the axes of the loops around each, and the arms of branches."""


def check(region: Region) -> None:
    """Refuse what has no gradient, or would get a wrong one.

    Raises:
        NotDifferentiable: with the line of what is refused.
    """
    loaded = {node.args[0].name for node in walk(region) if node.op == "load" and _floats(node)}
    stores: Stores = {}
    _collect(region, [], (), stores)
    steps = steps_of(region)
    for name, several in stores.items():
        for node, loops, _ in several:
            if name in loaded:
                raise _error(node, f"{name} is read and written in one loop", "write another tensor")
            if node.op == "store":
                _check_passes(node, loops, steps)
        _check_overlap(name, several)


def _floats(node: Node) -> bool:
    return bool(node.out.dtype.is_floating_point)


def _collect(region: Region, loops: list[Axis], arms: tuple[int, ...], stores: Stores) -> None:
    for node in region.nodes:
        if node.kwargs.get("base") is not None:
            raise _error(node, "tensors at addresses that are data have no gradient", "pass the tensors")
        target = node.args[0] if node.op == "store" or node.op.startswith("atomic") else None
        if isinstance(target, HostTensor) and target.dtype.is_floating_point:
            stores.setdefault(target.name, []).append((node, loops, arms))
        for at, inner in enumerate(node.regions):
            arm = (id(node) * 2 + at,) if node.op == "if" else ()
            _collect(inner, loops + node.kwargs.get("axes", []), arms + arm, stores)


def _check_passes(node: Node, loops: list[Axis], steps: dict[int, Steps]) -> None:
    """Refuse a store whose elements several passes of a loop write: only the last one counts."""
    entries: list[Subscript] = node.args[1]
    computed = [part for entry in entries for part in (entry.what, entry.offset) if isinstance(part, Value)]
    if any(value.id not in steps for value in computed):
        return  # data
    ids = {entry.what for entry in entries if entry.kind == "tile"}
    ids |= {axis for value in computed for axis, step in steps[value.id].items() if step}
    symbols = [part for entry in entries for part in (entry.what, entry.offset) if isinstance(part, Sym)]
    if any(axis.id in ids and any(isinstance(b, Value) for b in (axis.begin, axis.end)) for axis in loops):
        return  # ranges that are data: rows of different lengths
    _check_sums_of_indices(node, loops, steps)
    for axis in loops:
        once = type(axis.begin) is int and type(axis.end) is int and axis.end - axis.begin <= 1
        if axis.id not in ids and not _tell(symbols, axis) and not once:
            raise _error(
                node,
                f"{node.args[0].name} is stored in every pass of the loop over {axis.name}, and the last one counts",
                "store it after the loop",
            )


def _check_sums_of_indices(node: Node, loops: list[Axis], known: dict[int, Steps]) -> None:
    """Refuse `out[i + j]`: passes along two axes write one element."""
    alone: set[int | str] = set()
    several: list[Steps] = []
    for entry in node.args[1]:
        steps: Steps = {entry.what: 1} if entry.kind == "tile" else {}
        for part in (entry.what, entry.offset):
            made = of_symbol(part) if isinstance(part, Sym) else known[part.id] if isinstance(part, Value) else {}
            steps |= {axis: abs(step) for axis, step in made.items() if step}
        several += [steps] if len(steps) > 1 else []
        alone |= set(steps) if len(steps) == 1 else set()
    counted = [axis for axis in loops if type(axis.begin) is type(axis.end) is int]
    extents: dict[int | str, int] = {axis.id: axis.end - axis.begin for axis in counted}
    for steps in several:
        reached: float = 0
        for axis, step in sorted(steps.items(), key=lambda one: one[1]):
            extent = extents.get(axis, math.inf)  # of those that are open any may be the longest
            if axis in alone or extent <= 1:
                continue
            if step <= reached:
                raise _error(
                    node,
                    f"{node.args[0].name} is stored at a sum of indices, and the last of the passes that meet counts",
                    "store each element once",
                )
            reached += step * (extent - 1)


def _tell(symbols: list[Sym], axis: Axis) -> bool:
    """Whether indices are others in every pass along an axis: `i % 2` is not, `(i // 2, i % 2)` is."""
    divided: dict[str, set[int | str]] = {}
    for symbol in symbols:
        own = [atom for atom in symbol.terms if _reads(atom, axis)]
        if len(own) == 1 and own[0].kind == "begin":
            return True
        for atom in own:
            if atom.key in ("//", "%"):
                by = atom.args[1]
                if atom.key == "//" and (by == axis.block if type(by) is int else by.atom == axis.size):
                    return True  # the number of a tile
                divided.setdefault(repr(atom.args), set()).add(atom.key)
    return any(len(keys) == 2 for keys in divided.values())


def _reads(atom: Atom, axis: Axis) -> bool:
    """Whether an atom is made of where a tile of an axis begins."""
    parts = [part for argument in atom.args if isinstance(argument, Sym) for part in argument.atoms()]
    return any(part.kind == "begin" and part.key == axis.id for part in (atom, *parts))


def _check_overlap(name: str, several: list[tuple[Node, list[Axis], tuple[int, ...]]]) -> None:
    for at, (node, loops, arms) in enumerate(several):
        for other, around, others in several[:at]:
            if {node.op, other.op} == {"atomic_add"} or _exclusive(arms, others):
                continue
            if disjoint(node, other, loops, around):
                continue
            raise _error(
                node, f"{name} is stored twice in one loop, and the last store counts", "store each element once"
            )


def _exclusive(ours: tuple[int, ...], theirs: tuple[int, ...]) -> bool:
    """Whether two statements are in the two arms of one branch."""
    return any(one // 2 == other // 2 and one != other for one in ours for other in theirs)


def disjoint(one: Node, other: Node, ours: Sequence[Axis] = (), theirs: Sequence[Axis] = ()) -> bool:
    """Whether two accesses to a tensor touch other elements, in whatever passes: other constant slices or indices along
    a dimension, or others by their remainder, as `i * 4` and `i * 4 + 1`.

    Args:
        one, other: the accesses.
        ours, theirs: the loops around each, of which tiles and moved tiles are as many indices as the range has.
    """
    for left, right in zip(one.args[1], other.args[1], strict=True):
        if left.kind == right.kind == "scalar" and _never_meet(left.what, right.what):
            return True
        spans = [span(one, left, ours), span(other, right, theirs)]
        if None not in spans and not set(spans[0] or ()) & set(spans[1] or ()):
            return True
    return False


def _never_meet(one: Any, other: Any) -> bool:
    """Whether two indices are never one: each is a number and multiples of what differs from pass to pass."""
    if not all(isinstance(index, Sym) or type(index) is int for index in (one, other)):
        return False
    forms = [(index.terms, index.constant) if isinstance(index, Sym) else ({}, index) for index in (one, other)]
    (ours, number), (theirs, twin) = forms
    fixed = [{atom: factor for atom, factor in terms.items() if atom.kind == "host"} for terms in (ours, theirs)]
    step = math.gcd(*(factor for terms in (ours, theirs) for atom, factor in terms.items() if atom.kind != "host"))
    apart = number - twin
    return fixed[0] == fixed[1] and bool(apart % step if step else apart)


def span(node: Node, entry: Subscript, loops: Sequence[Axis] = ()) -> range | None:
    """The indices along a dimension that an access touches whatever the tile is, in all passes of these loops; None
    where that is not known."""
    for axis in loops:
        numbers = axis.begin, axis.end, entry.offset
        if entry.kind == "tile" and entry.what == axis.id and all(type(number) is int for number in numbers):
            return range(axis.begin + entry.offset, axis.end + entry.offset)
    if entry.kind == "scalar" and type(entry.what) is int:
        return range(entry.what, entry.what + 1)
    dims = () if entry.at is None else node.kwargs.get("dims") or node.out.dims
    length = dims[entry.at].size() if entry.kind == "slice" and entry.at is not None else None
    if type(entry.what) is int and type(length) is int:
        return range(entry.what, entry.what + length * entry.step, entry.step)
    return None


def _error(node: Node, message: str, hint: str) -> exc.NotDifferentiable:
    error = exc.NotDifferentiable(f"{message}: it has no gradient that hl can derive", hint=hint)
    error.line = node.line
    return error


def history(asked: Node, reader: Node) -> exc.HistoryNeeded:
    """The error for a pass that needs what the passes before it had computed."""
    name = asked.kwargs["of"] or "what the loop carries"
    error = exc.HistoryNeeded(
        f"the gradient needs what {name} was in every pass of the loop, for {reader.op}; it cannot be kept",
        hint="give the loop, and those around it, bounds that the host knows; or call .detach()",
    )
    error.line, error.loop = reader.line, asked.kwargs["loop"]
    return error
