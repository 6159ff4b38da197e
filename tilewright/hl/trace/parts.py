"""Subscripts of tiles: parts of them that are read, and parts that are assigned."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.rows.gather import lanes, positions, static_extent, take
from tilewright.hl.trace.divided import sliced
from tilewright.hl.trace.indexing import subscripts_of
from tilewright.hl.trace.state import Trace, raw_shape
from tilewright.hl.trace.tiles import Tile


def part(trace: Trace, tensor: torch.Tensor, index: Any) -> Any:
    """`tensor[index]`; NotImplemented where no subscript is of a tile: PyTorch itself does these."""
    entries = list(index) if isinstance(index, tuple) else [index]
    used = subscripts_of("the value", tensor.dim(), entries)
    if not any(isinstance(entry, Tile) for entry in entries):
        return _part_of_block(trace, tensor, entries)
    plain = [slice(None) if isinstance(entry, Tile) else entry for entry in entries]
    if any(not (entry is None or entry is Ellipsis or entry == slice(None)) for entry in plain):
        raise exc.InvalidIndexingType("a tile is subscripted with a tile and a number", hint="subscript it twice")
    at = 0
    for entry in entries:
        if isinstance(entry, Tile):
            tensor = _lanes_of(tensor, at, entry)
        at += 0 if entry is None else tensor.dim() - used + 1 if entry is Ellipsis else 1
    return tensor[tuple(plain)]


def _part_of_block(trace: Trace, tensor: torch.Tensor, entries: list[Any]) -> Any:
    """`tensor[entries]` where slices take parts of blocks and all else is whole; else NotImplemented."""
    if any(not isinstance(entry, slice) and entry is not None and entry is not Ellipsis for entry in entries):
        return NotImplemented
    at, found, rank = 0, tensor, sum(isinstance(entry, slice) for entry in entries)
    plain: list[Any] = []
    for entry in entries:
        made = sliced(trace, found, at, entry) if isinstance(entry, slice) else NotImplemented
        found = found if made is NotImplemented else made
        plain.append(entry if made is NotImplemented else slice(None))
        at += 0 if entry is None else tensor.dim() - rank if entry is Ellipsis else 1
    if found is tensor or any(isinstance(entry, slice) and not _is_constant(entry) for entry in plain):
        return NotImplemented
    return found[tuple(plain)]


def _lanes_of(tensor: torch.Tensor, dim: int, tile: Tile) -> Any:
    """The lanes of a whole dimension that a tile means."""
    extent = static_extent(tensor, dim, "a subscript by a tile", "it has the lanes of another tile already")
    return take(tensor, tile.index.clamp(0, extent - 1), dim)


def assign_part(trace: Trace, tensor: torch.Tensor, index: Any, value: Any) -> None:
    """`tensor[index] = value`: everything else stays, as in `torch.where(is it the part, value, tensor)`.

    Raises:
        DeviceTensorSubscriptAssignmentNotAllowed: a subscript is neither a constant nor a mask.
    """
    given = value if isinstance(value, torch.Tensor) else trace.number(value)
    if isinstance(index, torch.Tensor) and index.dtype == torch.bool and raw_shape(index) == raw_shape(tensor):
        if given.dim():
            raise exc.DataDependentOutputShapeNotSupported(
                "a tile is assigned to the elements where a mask holds: how many they are depends on data",
                hint="write x = torch.where(mask, new, x)",
            )
        hit: Any = index
    else:
        hit, given = _placed(tensor, index, given)
    made = torch.where(hit, given, tensor) if hit is not None else given.expand(raw_shape(tensor))
    changed = trace.value(made if made.dtype == tensor.dtype else made.to(tensor.dtype))
    assert changed is not None
    trace.change(tensor, changed)


def _placed(tensor: torch.Tensor, index: Any, value: Any) -> tuple[Any, Any]:
    """(which elements are meant, or None for all; `value` moved to their places)."""
    entries = list(index) if isinstance(index, tuple) else [index]
    dots = next((at for at, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    missing = tensor.dim() - sum(entry is not Ellipsis for entry in entries)
    entries[dots : dots + 1] = [slice(None)] * missing
    kept = sum(isinstance(entry, slice) for entry in entries)
    value = value[(None,) * (kept - value.dim())] if value.dim() < kept else value
    hit: Any = None
    for at, entry in enumerate(entries):
        if isinstance(entry, slice) and entry == slice(None):
            continue
        if type(entry) is not int and not (isinstance(entry, slice) and _is_constant(entry)):
            raise exc.DeviceTensorSubscriptAssignmentNotAllowed(
                f"a part of a tile is assigned by the subscript {entry!r}",
                hint="write x = torch.where(condition, new, x)",
            )
        extent = static_extent(tensor, at, "an assignment to a part", "write x = torch.where(condition, new, x)")
        here, value = _along(tensor, at, extent, entry, value)
        hit = here if hit is None else hit & here
    return hit, value


def _is_constant(entry: slice) -> bool:
    return all(bound is None or type(bound) is int for bound in (entry.start, entry.stop, entry.step))


def _along(tensor: torch.Tensor, at: int, extent: int, entry: Any, value: Any) -> tuple[Any, Any]:
    """(the elements that a constant subscript of one dimension means, `value` with that dimension)."""
    places = positions(tensor, at)
    if type(entry) is int:
        return places == entry % extent, value.unsqueeze(at) if value.dim() else value
    first, last, step = entry.indices(extent)
    hit = (places >= first) & (places < last)
    if step != 1:
        hit = hit & ((places - first) % step == 0)
    if value.dim() and raw_shape(value)[at] != 1:
        count = len(range(first, last, step))
        value = take(value, ((lanes(extent) - first) // step).clamp(0, count - 1), at)
    return hit, value
