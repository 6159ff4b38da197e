"""Loops over tiles. At the top of a kernel a loop is a grid of programs, inside another one it runs in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.symbols import Sym
from tilewright.hl.trace import builtins
from tilewright.hl.trace.state import current, running_trace
from tilewright.hl.trace.tiles import Range, Tile


def _makes_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    function.makes_loop = True  # type: ignore[attr-defined]
    return function


def _several(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _bounds(name: str, begin: Any, end: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], bool]:
    """(first indices, ends, whether they were given as lists), from range-like arguments."""
    running_trace(f"hl.{name}")
    if end is None:
        begin, end = ([0] * len(begin) if _several(begin) else 0), begin
    if _several(begin) != _several(end) or (_several(end) and len(begin) != len(end)):
        raise exc.IncorrectTileUsage(
            f"hl.{name} begins at {begin!r} and ends at {end!r}", hint="give both as lists of one length, or neither"
        )
    begins, ends = (tuple(item) if _several(item) else (item,) for item in (begin, end))
    for bound in (*begins, *ends):
        if isinstance(bound, torch.Tensor) and bound.is_meta:
            raise exc.IncorrectTileUsage(
                f"a bound of hl.{name} is a whole tensor of the host",
                hint=f"write hl.{name}(x.size(0)), or hl.{name}(x.size()) for all of its dimensions",
            )
        if isinstance(bound, Tile):
            raise exc.TileOfTile(f"{bound!r} is a tile and no bound", hint="loop from tile.begin to tile.end instead")
        if not isinstance(bound, int | Sym | torch.Tensor) or isinstance(bound, bool):
            raise exc.IncorrectTileUsage(
                f"a bound of hl.{name} is {bound!r} of type {type(bound).__name__}",
                hint="give integers; `//` divides them" if isinstance(bound, float) else None,
            )
    for first, last in zip(begins, ends, strict=True):
        if type(first) is int and type(last) is int and first > last:
            raise exc.InvalidTileRange(f"hl.{name} begins at {first}, behind its end {last}")
    return begins, ends, _several(end)


@_makes_loop
def tile(begin_or_end: Any, end_or_none: Any = None, /, block_size: Any = None) -> Any:
    """Loop over a range, or several at once, tile by tile.

    Args:
        begin_or_end: the end, or the first index where an end follows; a list for several ranges.
        end_or_none: the index behind the last.
        block_size: size of the tiles, one per range; None where the configuration chooses.

    Returns:
        An iterable of `Tile`, or of tuples of them where lists were given.
    """
    begins, ends, several = _bounds("tile", begin_or_end, end_or_none)
    blocks = tuple(block_size) if _several(block_size) else (block_size,) * len(ends)
    if len(blocks) != len(ends):
        raise exc.IncorrectTileUsage(f"{len(blocks)} block sizes for {len(ends)} ranges")
    for block in blocks:
        if isinstance(block, bool | float) or (type(block) is int and block < 1):
            raise exc.IncorrectTileUsage(f"a block size that is {block!r}", hint="block sizes are positive integers")
    return Range("tile", begins, ends, blocks, several)


@_makes_loop
def grid(begin_or_end: Any, end_or_none: Any = None, /, step: Any = None) -> Any:
    """Loop over a range, or several at once, index by index: `hl.tile` with blocks of 1 that yields numbers.

    Args:
        begin_or_end: as of `tile`.
        end_or_none: as of `tile`.
        step: distance of two indices; one per range, or one for all.
    """
    begins, ends, several = _bounds("grid", begin_or_end, end_or_none)
    steps = tuple(step) if _several(step) else (1 if step is None else step,) * len(ends)
    if len(steps) != len(ends):
        raise exc.IncorrectTileUsage(f"{len(steps)} steps for {len(ends)} ranges")
    if any(type(one) is int and one < 1 for one in steps):
        raise exc.InvalidTileRange(f"hl.grid with the step {step!r}", hint="steps are positive")
    if all(type(one) is int and one == 1 for one in steps):
        return Range("grid", begins, ends, (1,) * len(ends), several)
    counts = tuple((end - begin + one - 1) // one for begin, end, one in zip(begins, ends, steps, strict=True))
    places = tuple(zip(begins, steps, strict=True))
    return Range("grid", (0,) * len(ends), counts, (1,) * len(ends), several, places)


@_makes_loop
def jagged_tile(parent: Any) -> Any:
    """Loop over the positions of rows of different lengths.

    Args:
        parent: a tile of lengths, one per lane of enclosing tiles; lanes past their own length are invalid.
    """
    trace = current()
    value = trace.value(parent) if trace is not None and isinstance(parent, torch.Tensor) else None
    if value is None or not value.dims or any(dim.atom is None and not dim.is_one for dim in value.dims):
        raise exc.InvalidJaggedTileUsage(
            "hl.jagged_tile takes a tile of lengths, one for each lane of enclosing tiles",
            hint="load them first: ends = offsets[tile.index + 1] - offsets[tile.index]",
        )
    return Range("jagged", (0,), (parent,), (None,), False)


def static_range(begin_or_end: int, end_or_none: int | None = None, /, step: int = 1) -> range:
    """A loop over constants, unrolled when the kernel is compiled."""
    bounds = (0, begin_or_end) if end_or_none is None else (begin_or_end, end_or_none)
    if any(type(bound) is not int for bound in (*bounds, step)):
        raise exc.InvalidAPIUsage("hl.static_range takes constants", hint="use hl.grid or hl.tile")
    return range(*bounds, step)


builtins.provide("grid", grid)
