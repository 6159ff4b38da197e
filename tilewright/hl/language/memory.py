"""Loads and stores with more to say than a subscript can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.hl.trace import indexing
from tilewright.hl.trace.state import device_trace


def load(tensor: Any, index: Sequence[Any], extra_mask: Any = None, eviction_policy: str | None = None) -> Any:
    """`tensor[index]`.

    Args:
        tensor: a tensor of the host.
        index: one subscript per dimension.
        extra_mask: booleans that fit the shape of the result; where false, nothing is read and 0 returned.
        eviction_policy: "", "evict_first" or "evict_last".
    """
    trace = device_trace("hl.load")
    with torch._C.DisableTorchFunction():
        return indexing.load(trace, tensor, index, extra_mask, eviction_policy)


def store(tensor: Any, index: Sequence[Any], value: Any, extra_mask: Any = None) -> None:
    """`tensor[index] = value`, where `extra_mask` is true; the value is converted to the tensor's type."""
    trace = device_trace("hl.store")
    with torch._C.DisableTorchFunction():
        indexing.store(trace, tensor, index, value, extra_mask)
