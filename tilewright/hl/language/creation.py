"""Tiles made from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.trace.extents import extent
from tilewright.hl.trace.state import device_trace


def zeros(shape: Sequence[Any], dtype: Any = torch.float32, device: torch.device | str | None = None) -> Any:
    """A tile of zeros; extents are tiles, their block sizes, or numbers."""
    device_trace("hl.zeros")
    return full(shape, 0, dtype)


def full(shape: Sequence[Any], value: Any, dtype: Any = torch.float32, device: torch.device | str | None = None) -> Any:
    """A tile with `value` in every element; extents are tiles, their block sizes, or numbers."""
    if not isinstance(dtype, torch.dtype):
        raise exc.InvalidAPIUsage(
            f"a dtype that is {dtype!r}", hint="the shape is one list: hl.zeros([tile_m, tile_n])"
        )
    extents = shape if isinstance(shape, list | tuple) else [shape]
    trace = device_trace("hl.full")
    samples = [extent(trace, size) for size in extents]
    with trace.chosen.naming(extents):
        return (
            value.to(dtype).expand(samples)
            if isinstance(value, torch.Tensor)
            else torch.full(samples, value, dtype=dtype)
        )


def arange(
    *bounds: Any, step: Any = None, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Any:
    """Integers at equal distances: `arange(n)`, `arange(begin, end)`, and `arange(begin, end, step)`, also by name."""
    device_trace("hl.arange")
    if step is not None:
        bounds = (0, *bounds, step) if len(bounds) == 1 else (*bounds, step)
    return torch.arange(*bounds, dtype=torch.int32 if dtype is None else dtype)
