"""Subscripts of host tensors: from what the user wrote to one `Subscript` per dimension and the shape of the tile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilewright.hl import exc
from tilewright.hl.graph.nodes import HostTensor, Node, Subscript
from tilewright.hl.symbols import Sym, is_natural, same, sample, show, substitute
from tilewright.hl.trace.equal import equate, equate_shapes
from tilewright.hl.trace.extents import extent as extent_of
from tilewright.hl.trace.messages import block_for, dim_text, type_text
from tilewright.hl.trace.samples import sample_of
from tilewright.hl.trace.state import Trace, memory_of, raw_shape
from tilewright.hl.trace.tiles import Tile


@dataclass(eq=False, repr=False)
class Access:
    """A subscripted host tensor: `entries` per dimension, `shape` of the tile in samples.

    Of tensors at addresses that are data the tile's first dimensions are those of the addresses.
    """

    tensor: HostTensor
    entries: list[Subscript]
    shape: list[int]


def host_tensor(trace: Trace, tensor: torch.Tensor) -> HostTensor:
    """The host tensor behind a meta tensor.

    Raises:
        HostTensorDirectUsage: it is a tile, or has no name that the launcher could pass.
    """
    found = trace.host(tensor)
    if found is None:
        raise exc.HostTensorDirectUsage(
            "only tensors of the host can be loaded, stored and updated",
            hint="subscript a tensor that is an argument or was made before the loop",
        )
    return found


def access(trace: Trace, tensor: torch.Tensor, index: Any, base: Any = None) -> Access:
    """What `tensor[index]` touches; `base` is a tile of addresses where it stands for several tensors."""
    host = host_tensor(trace, tensor)
    made = Access(host, [], [] if base is None else list(raw_shape(base)))
    entries = _expanded(trace, host, index)
    tensors = [entry for entry in entries if _is_tensor(entry)]
    common = _broadcast(trace, [raw_shape(entry) for entry in tensors]) if _broadcasts(tensors) else None
    place: int | None = None  # first dimension of indices that broadcast together
    for entry in entries:
        if entry is None:
            made.shape.append(1)
            continue
        extent = host.shape[len(made.entries)]
        if common is not None and _is_tensor(entry):
            if place is None:
                place = len(made.shape)
                made.shape += common
            at = place + len(common) - entry.dim()
            made.entries.append(Subscript("tensor", trace.lift(entry), at, extent=extent))
        else:
            made.entries.append(_entry(trace, made, entry, extent))
    return made


def _is_tensor(entry: Any) -> bool:
    return isinstance(entry, torch.Tensor) and entry.dim() > 0


def _broadcasts(tensors: list[Any]) -> bool:
    """Several index tensors of one dimension make an outer product; any of more dimensions makes them broadcast."""
    return any(entry.dim() > 1 for entry in tensors)


def _expanded(trace: Trace, host: HostTensor, index: Any) -> list[Any]:
    entries = list(index) if isinstance(index, tuple | list) else [index]
    rank = len(host.shape)
    used = subscripts_of(host.text, rank, entries)
    dots = next((at for at, entry in enumerate(entries) if entry is Ellipsis), None)
    rest = [slice(None)] * (rank - used)
    if dots is None:
        return entries + rest
    return entries[:dots] + rest + entries[dots + 1 :]


def subscripts_of(text: str, rank: int, entries: list[Any]) -> int:
    """How many dimensions are subscripted.

    Args:
        text: what is subscripted, for the message.
        rank: how many dimensions it has.
        entries: the subscripts.

    Raises:
        RankMismatch: they are more than there are.
    """
    used = sum(1 for entry in entries if entry is not None and entry is not Ellipsis)
    if used > rank:
        raise exc.RankMismatch(
            f"{text} has {rank} dimensions and is subscripted with {used} indices",
            hint="remove subscripts, or use None where a new dimension of 1 is meant",
        )
    return used


def _entry(trace: Trace, made: Access, entry: Any, extent: Any) -> Subscript:
    at = len(made.shape)
    if isinstance(entry, Tile):
        if entry.axis.kind == "grid":
            return Subscript("scalar", Sym.of(entry.axis.offset) + entry.offset, extent=extent)
        made.shape.append(entry.axis.prime)
        return Subscript("tile", entry.axis.id, at, entry.offset, extent=extent)
    if isinstance(entry, slice):
        return _slice(trace, made, entry, extent)
    if _is_tensor(entry):
        _check_index_type(trace, entry)
        made.shape += raw_shape(entry)
        return Subscript("tensor", trace.lift(entry), at, extent=extent)
    if isinstance(entry, torch.Tensor):
        _check_index_type(trace, entry)
        return Subscript("scalar", trace.lift(entry), extent=extent)
    if isinstance(entry, int) and not isinstance(entry, bool):
        return Subscript("scalar", entry + extent if _is_negative(trace, entry) else entry, extent=extent)
    raise exc.InvalidIndexingType(
        f"a tensor cannot be subscripted with {entry!r} of type {type(entry).__name__}",
        hint="subscripts are tiles, numbers, slices, None, ... and integer tensors",
    )


def _is_negative(trace: Trace, index: int) -> bool:
    """Whether a number counts from the end: one of the host does so in all calls that the binding holds for."""
    if not isinstance(index, Sym):
        return index < 0
    known = substitute(index, trace.actual.get)
    if isinstance(known, Sym) or is_natural(index):
        return False
    trace.guards.append((f"({show(index)}) < 0", known < 0))
    return bool(known < 0)


def _check_index_type(trace: Trace, entry: Any) -> None:
    if entry.dtype == torch.bool:
        raise exc.DataDependentOutputShapeNotSupported(
            "a mask as subscript selects as many elements as it has true ones: the shape would depend on data",
            hint="use torch.where(mask, x, 0), or hl.load(x, index, extra_mask=mask)",
        )
    if entry.dtype.is_floating_point:
        value = trace.value(entry)
        shown = type_text(trace, value) if value is not None else str(entry.dtype)
        raise exc.InvalidIndexingType(f"a subscript of type {shown}", hint="convert it with .to(torch.int64)")


def _slice(trace: Trace, made: Access, entry: slice, extent: Any) -> Subscript:
    at = len(made.shape)
    step = 1 if entry.step is None else entry.step
    if type(step) is not int or step < 1:
        raise exc.InvalidIndexingType(f"a slice with the step {step!r}", hint="steps are positive constants")
    start = 0 if entry.start is None else _from_end(trace, entry.start, extent)
    stop = extent if entry.stop is None else _from_end(trace, entry.stop, extent)
    if _is_negative(trace, extent - stop):
        stop = extent
    length: Any = 0 if _is_negative(trace, stop - start) else stop - start
    length = -(-length // step) if step != 1 else length
    made.shape.append(length if type(length) is int else _extent(trace, length))
    return Subscript("slice", start, at, 0, step, extent)


def _from_end(trace: Trace, bound: Any, extent: Any) -> Any:
    """A bound of a slice as Python means it: a negative one counts from the end, and stops at the beginning."""
    if isinstance(bound, torch.Tensor):
        raise exc.InvalidIndexingType(
            "a bound of a slice that depends on data", hint="write an index: start + hl.arange(length)"
        )
    if not _is_negative(trace, bound):
        return bound
    return 0 if _is_negative(trace, bound + extent) else bound + extent


def _extent(trace: Trace, length: Sym) -> int:
    """A symbolic length as an extent of samples: made of block sizes and extents, or a number of the launcher."""
    if all(atom.kind in ("host", "op", "block", "tunable") for atom in length.atoms()):
        made: int = extent_of(trace, length)
        return made
    dim = trace.factors.dim(sample(length))
    if not same(dim.size(), length):
        raise exc.InvalidIndexingType(
            f"a slice whose length {length!r} is not known while the kernel is compiled",
            hint="make the length a constant or a block size; for the elements of a tile write x[tile]",
        )
    return sample(length)


def _broadcast(trace: Trace, shapes: Iterable[tuple[int, ...]]) -> list[int]:
    out: list[int] = []
    for shape in shapes:
        out = [1] * (len(shape) - len(out)) + out
        for at, extent in enumerate(reversed(shape), 1):
            if extent != 1 and out[-at] not in (1, extent):
                equate(trace, extent, out[-at])
                names = dim_text(trace, trace.factors.dim(extent)), dim_text(trace, trace.factors.dim(out[-at]))
                raise exc.ShapeMismatch(f"index tensors of extents {names[0]} and {names[1]} do not broadcast")
            out[-at] = max(extent, out[-at])
    return out


# --- loads and stores ------------------------------------------------------------------------------------


def load(
    trace: Trace, tensor: torch.Tensor, index: Any, mask: Any = None, policy: str | None = None, base: Any = None
) -> Any:
    """Record `tensor[index]`; masked lanes are 0."""
    made = access(trace, tensor, index, base)
    with trace.silence():
        out = sample_of(trace, made.shape, made.tensor.dtype)
    kwargs: dict[str, Any] = {}
    if mask is not None:
        _must_fit(trace, mask, made.shape, "the mask")
        kwargs["mask"] = mask
    if policy is not None:
        kwargs["policy"] = policy
    if base is not None:
        kwargs["base"] = base
    return trace.record("load", (made.tensor, made.entries), out, kwargs)


def store(trace: Trace, tensor: torch.Tensor, index: Any, value: Any, mask: Any = None, base: Any = None) -> None:
    """Record `tensor[index] = value`."""
    made = access(trace, tensor, index, base)
    _check_own_elements(made.tensor, made.entries)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Sym):
        value = trace.scalar(value)
    if isinstance(value, torch.Tensor):
        if trace.value(value) is None:
            trace.lift(value)
        _must_fit(trace, value, made.shape, "the value")
    elif not isinstance(value, int | float):
        raise exc.UnsupportedPythonType(f"{value!r} cannot be stored", hint="store a tile or a number")
    kwargs: dict[str, Any] = {"dims": trace.factors.dims(tuple(made.shape))}
    if mask is not None:
        _must_fit(trace, mask, made.shape, "the mask")
        kwargs["mask"] = mask
    if base is not None:
        kwargs["base"], trace.writes_anywhere = base, True
    else:
        trace.written.add(memory_of(tensor))
    node = Node("store", (made.tensor, made.entries, trace.lift(value)), {"mask": trace.lift(mask)})
    kwargs["dims"] = trace.chosen.lanes_of(node, kwargs["dims"], trace.axes, trace.axis_of)
    trace.record("store", (made.tensor, made.entries, value), None, kwargs)


def _check_own_elements(tensor: HostTensor, entries: Sequence[Subscript]) -> None:
    """Refuse to store along a dimension all of whose elements are one in memory, as PyTorch does."""
    for at, (entry, size, stride) in enumerate(zip(entries, tensor.shape, tensor.stride, strict=True)):
        is_one = entry.kind == "scalar" and type(entry.what) is int
        if type(stride) is int and stride == 0 and not is_one and not (type(size) is int and size <= 1):
            raise exc.InvalidAPIUsage(
                f"{tensor.name} is stored along dimension {at}, whose elements are all one in memory, as of `expand`",
                hint=f"store into a tensor of its own, {tensor.name}.clone()",
            )


def update(trace: Trace, name: str, tensor: torch.Tensor, index: Any, values: tuple[Any, ...], sem: str) -> Any:
    """Record an atomic update of `tensor[index]`; the result is what was there before."""
    made = access(trace, tensor, index)
    for value in values:
        if isinstance(value, torch.Tensor):
            _must_fit(trace, value, made.shape, "the value")
    with trace.silence():
        out = sample_of(trace, made.shape, made.tensor.dtype)
    given = [trace.scalar(value) if isinstance(value, Sym) else value for value in values]
    trace.written.add(memory_of(tensor))
    return trace.record(name, (made.tensor, made.entries, *given), out, {"sem": sem})


def _must_fit(trace: Trace, value: Any, shape: list[int], what: str) -> None:
    mine = raw_shape(value)
    fits = len(mine) <= len(shape) and all(
        have in (1, want) for have, want in zip(reversed(mine), reversed(shape), strict=False)
    )
    if not fits:
        equate_shapes(trace, mine, shape)
        dims = [trace.factors.dims(tuple(one)) for one in (mine, shape)]
        names = [", ".join(dim_text(trace, dim) for dim in one) for one in dims]
        block = next(filter(None, (block_for(trace, *pair) for pair in zip(*map(reversed, dims), strict=False))), None)
        raise exc.ShapeMismatch(
            f"{what} has the shape [{names[0]}], the subscript [{names[1]}]",
            hint=block or "broadcast or transpose the value so that its dimensions are those of the subscript",
        )
