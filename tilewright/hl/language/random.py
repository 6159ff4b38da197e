"""Random numbers with a seed: the same for the same seed and place, whatever the block sizes.

The numbers are those of `tl.rand` and its kin: Philox-4x32-10, counted by the place of an element in the whole range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tilewright import lazy_module
from tilewright.hl import exc
from tilewright.hl.trace.state import device_trace, raw_shape

if TYPE_CHECKING:
    from tilewright.hl.rows import random
    from tilewright.hl.trace import modes
else:
    random = lazy_module("tilewright.hl.rows.random")
    modes = lazy_module("tilewright.hl.trace.modes")


def rand(shape: Sequence[Any], seed: Any, device: torch.device | str | None = None, offsets: Any = None) -> Any:
    """Uniform numbers in [0, 1), float32.

    Args:
        shape: tiles, their block sizes, or numbers.
        seed: an integer, or a scalar of one.
        device: ignored; a tile is where its kernel runs.
        offsets: integers of this shape that count the elements, instead of their places.
    """
    return _drawn("hl.rand", "draw_uniform", shape, seed, offsets, torch.float32)


def randint(shape: Sequence[Any], low: Any, high: Any, seed: Any, device: torch.device | str | None = None) -> Any:
    """Integers from `low` to below `high`, int32."""
    if type(low) is int and type(high) is int and low >= high:
        raise exc.InvalidAPIUsage(f"hl.randint between {low} and {high}", hint="low must be below high")
    return _drawn("hl.randint", "draw_integers", shape, seed, None, torch.int32, (low, high))


def rand4x(seed: Any, offsets: Any, device: torch.device | str | None = None) -> tuple[Any, Any, Any, Any]:
    """Four tiles of uniform numbers in [0, 1), float32, for integers that count the elements."""
    device_trace("hl.rand4x")
    shape = list(raw_shape(offsets))
    made: tuple[Any, Any, Any, Any] = random.drawn("draw_uniform4", shape, seed, offsets, torch.float32, 4)
    return made


def _drawn(
    name: str, op: str, shape: Sequence[Any], seed: Any, offsets: Any, dtype: torch.dtype, rest: Any = ()
) -> Any:
    trace = device_trace(name)
    entries = list(shape) if isinstance(shape, list | tuple) else [shape]
    extents = [modes.sample_of(entry) for entry in entries]
    if offsets is None:
        offsets = random.counter(trace, extents, False, entries)
    elif raw_shape(offsets) != tuple(extents):
        offsets = offsets.expand(extents)
    return random.drawn(op, extents, seed, offsets, dtype, 1, rest)
