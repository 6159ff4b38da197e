"""Parts of block sizes: `tile.block_size // 2` as an extent, and what takes the lanes of a tile apart.

A program that views a tile by parts says that its block size is a multiple of a number. The trace starts again and
knows it: the sample of the axis is a multiple of its prime then, so that its parts are factors of extents as well::

    x[tile].view(tile.block_size // 2, 2)       11 for tile: no view of it has a dimension of 2
                                                -> `Divided`: 22 for tile, and 11 is tile.block_size // 2
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tilewright.hl import exc
from tilewright.hl.dims import Axis, block_of, part, part_of
from tilewright.hl.symbols import Atom, Sym, same, sample, show, substitute
from tilewright.hl.trace.state import Restart, Trace, raw_shape


class Divided(Restart):
    """A block size is a multiple of a number: the trace starts again and knows it."""

    def __init__(self, block: Atom, by: int) -> None:
        super().__init__(block, by)
        self.block, self.by = block.written, by


def divide(trace: Trace, block: Atom, by: int) -> None:
    """Let a block size be a multiple of `by`.

    Raises:
        Divided: the samples do not have it yet.
    """
    if trace.multiples.get(block.written, 1) % by:
        raise Divided(block, by)


def divide_named(trace: Trace, tree: Any) -> None:
    """Let the block sizes be multiples of which parts are named among the extents of a view."""
    if isinstance(tree, list | tuple):
        for item in tree:
            divide_named(trace, item)
    elif isinstance(tree, Sym):
        for found in map(part_of, tree.terms):
            if found is not None:
                divide(trace, *found)


def divide_undivided(trace: Trace, sizes: Sequence[Any], blocks: Collection[Atom]) -> None:
    """Let those of some block sizes be multiples of which parts are among `sizes`: an operation wants them equal."""
    for size in sizes:
        for found in map(part_of, size.terms) if isinstance(size, Sym) else ():
            if found is not None and found[0] in blocks:
                divide(trace, *found)


def divide_for_equal(trace: Trace, one: Any, other: Any) -> None:
    """Let block sizes be multiples of the parts that two sizes are made of, where the sizes are equal then."""
    sizes = [_sum(size) for size in (one, other)]
    atoms = [atom for size in sizes if isinstance(size, Sym) for atom in size.terms]
    parts = [found for found in map(part_of, atoms) if found is not None]
    multiples = dict(trace.multiples)
    for block, by in parts:
        multiples[block.written] = math.lcm(multiples.get(block.written, 1), by)
    if multiples != trace.multiples and same(*(in_units(multiples, size) for size in sizes)):
        for block, by in parts:
            divide(trace, block, by)


def _sum(size: Any) -> Any:
    """A size that is no product of others as a sum; see `trace.extents`."""
    atom = size.atom if isinstance(size, Sym) else None
    return atom.args[0] + atom.args[1] if atom is not None and atom.key == "+" else size


def in_units(multiples: Mapping[str, int], size: Any) -> Any:
    """A size with the block sizes of which parts are taken as multiples of the smallest part.

    Args:
        multiples: numbers that block sizes are multiples of.
        size: the size.
    """
    if not isinstance(size, Sym) or not multiples:
        return size
    total: Any = size.constant
    for atom, count in size.terms.items():
        block, by = part_of(atom) or (atom, 1)
        whole = multiples.get(block.written, 1)
        unit = part(block, whole) if whole > 1 and whole % by == 0 else None
        total = total + (Sym.of(atom) * count if unit is None else Sym.of(unit) * (whole // by * count))
    return total


def divide_for_view(trace: Trace, tensor: Any, extents: Sequence[Any], have: int) -> None:
    """Let a block size be a multiple of what a view wants beside its -1.

    Args:
        trace: the trace.
        tensor: what is viewed.
        extents: the extents of the view.
        have: elements of the sample that they stand for.
    """
    divide_named(trace, extents)
    given = [sample(extent) for extent in extents]
    known = math.prod(extent for extent in given if extent != -1)
    if not known or (have == known if -1 not in given else have % known == 0):
        return
    named = {block_of(atom) for extent in given if extent > 1 for atom in trace.factors.dim(extent).atoms}
    divide_undivided(trace, [trace.factors.dim(extent).size() for extent in raw_shape(tensor)], named)
    if -1 not in given:
        return
    blocks = [block for block in blocks_of(trace, raw_shape(tensor)) if block not in named]
    if blocks:
        by = known // math.gcd(have, known)
        divide(trace, blocks[-1], by * trace.multiples.get(blocks[-1].written, 1))


def blocks_of(trace: Trace, shape: Sequence[int]) -> list[Atom]:
    """The block sizes that a shape of samples is made of, in order."""
    atoms = (block_of(atom) for extent in shape for atom in trace.factors.dim(extent).atoms)
    return list(dict.fromkeys(atom for atom in atoms if atom.kind == "block"))


def pieces(trace: Trace, tensor: Any, dim: int, size: Any) -> int | None:
    """In how many pieces of `size` lanes a dimension is cut; None where it is no tile, or the number is not known."""
    divide_named(trace, size)
    extent = raw_shape(tensor)[dim]
    lanes = sample(size)
    whole = lanes > 0 and extent % lanes == 0 and bool(blocks_of(trace, [lanes]))
    return extent // lanes if whole and blocks_of(trace, [extent]) else None


def split(trace: Trace, tensor: Any, size: Any, dim: int = 0) -> Any:
    """`tensor.split(size, dim)` of a tile, in parts of its block."""
    if trace.region is None or trace.is_host(tensor) or not isinstance(size, Sym):
        return NotImplemented
    dim %= tensor.dim()
    count = pieces(trace, tensor, dim, size)
    return NotImplemented if count is None else tensor.unflatten(dim, (count, sample(size))).unbind(dim)


def chunk(trace: Trace, tensor: Any, chunks: Any, dim: int = 0) -> Any:
    """`tensor.chunk(chunks, dim)` of a tile."""
    if trace.region is None or trace.is_host(tensor) or type(chunks) is not int or chunks < 1:
        return NotImplemented
    dim %= tensor.dim()
    extent = raw_shape(tensor)[dim]
    blocks = blocks_of(trace, [extent])
    if not blocks:
        return NotImplemented
    if extent % chunks:
        divide(trace, blocks[-1], chunks * trace.multiples.get(blocks[-1].written, 1))
    return tensor.unflatten(dim, (chunks, extent // chunks)).unbind(dim)


def sliced(trace: Trace, tensor: Any, dim: int, entry: slice) -> Any:
    """`tensor[entry]` along a dimension of tiles: every second lane, or parts of the block; else NotImplemented."""
    extent = raw_shape(tensor)[dim]
    blocks = blocks_of(trace, [extent])
    if not blocks or (entry.start is None and entry.stop is None and entry.step is None):
        return NotImplemented
    first, step = (usual if given is None else given for given, usual in ((entry.start, 0), (entry.step, 1)))
    if type(step) is int and step > 1 and type(first) is int and 0 <= first < step and entry.stop is None:
        if extent % step:
            divide(trace, blocks[-1], step * trace.multiples.get(blocks[-1].written, 1))
        return tensor.unflatten(dim, (extent // step, step)).select(dim + 1, first)
    divide_named(trace, [entry.start, entry.stop])
    begin, end = sample(first), extent if entry.stop is None else sample(entry.stop)
    begin, end = (bound + extent if bound < 0 else bound for bound in (begin, end))
    lanes = math.gcd(begin, end, extent)
    if type(step) is not int or step != 1 or not 0 <= begin < end <= extent or not blocks_of(trace, [lanes]):
        return NotImplemented
    parts = tensor.unflatten(dim, (extent // lanes, lanes))
    found = parts.narrow(dim, begin // lanes, (end - begin) // lanes)
    return found.flatten(dim, dim + 1)


# --- ranges ----------------------------------------------------------------------------------------------


def check_parts(trace: Trace, source: Any, after: Sequence[int]) -> None:
    """Hold the ranges of tiles that a view takes apart to whole parts.

    Args:
        trace: the trace.
        source: the value that is viewed.
        after: the shape that it gets.

    Raises:
        ShapeMismatch: a range is no multiple of what the view takes together.
        UnsupportedOperation: it is not known whether it is.
    """
    cut = {atom for dim in source.dims for atom in dim.atoms}
    for extent in after:
        for atom in trace.factors.dim(extent).atoms:
            found = part_of(atom)
            axis = trace.axis_of(found[0]) if found is not None and found[0] in cut else None
            if found is not None and axis is not None:
                _check_range(trace, axis, found[1])


def _check_range(trace: Trace, axis: Axis, by: int) -> None:
    if not isinstance(axis.begin, int) or not isinstance(axis.end, int):
        raise exc.UnsupportedOperation(
            f"a view takes {by} lanes of {axis.name} together, whose range depends on data: its last tile may end "
            "between them",
            hint="load the parts one by one: x[begin + hl.arange(tile.block_size // 2) * 2]",
        )
    count = axis.end - axis.begin
    known = substitute(count, trace.actual.get)
    if isinstance(known, Sym):  # it begins or ends where another loop says so
        return
    if isinstance(count, Sym):
        trace.guards.append((f"({show(count)}) % {by} == 0", known % by == 0))
    if known % by:
        raise exc.ShapeMismatch(
            f"a view takes {by} lanes of {axis.name} together, and its range has {known}",
            hint=f"let the range be a multiple of {by}: what is beyond a tensor reads 0 and is not written",
        )
