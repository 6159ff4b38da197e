"""Tiles made from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tilewright import lazy_module
from tilewright.hl.trace.state import device_trace

if TYPE_CHECKING:
    from tilewright.hl.trace import modes
else:
    modes = lazy_module("tilewright.hl.trace.modes")


def zeros(shape: Sequence[Any], dtype: Any = torch.float32, device: Any = None) -> Any:
    """A tile of zeros; extents are tiles, their block sizes, or numbers."""
    device_trace("hl.zeros")
    return full(shape, 0, dtype)


def full(shape: Sequence[Any], value: Any, dtype: Any = torch.float32, device: Any = None) -> Any:
    """A tile with `value` in every element; extents are tiles, their block sizes, or numbers."""
    device_trace("hl.full")
    extents = shape if isinstance(shape, list | tuple) else [shape]
    if isinstance(value, torch.Tensor):
        return value.to(dtype).expand([modes.sample_of(extent) for extent in extents])
    return torch.full([modes.sample_of(extent) for extent in extents], value, dtype=dtype)


def arange(*bounds: Any, dtype: Any = None, device: Any = None) -> Any:
    """Consecutive integers: `arange(n)`, `arange(begin, end)` or `arange(begin, end, step)`."""
    device_trace("hl.arange")
    return torch.arange(*bounds, dtype=torch.int32 if dtype is None else dtype)
