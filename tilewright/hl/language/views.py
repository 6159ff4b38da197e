"""Tiles joined, taken apart and given new dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.trace.messages import type_text
from tilewright.hl.trace.state import device_trace, raw_shape


def join(tensor0: Any, tensor1: Any) -> Any:
    """Two tiles of one type along a new last dimension of 2; shapes are broadcast."""
    trace = device_trace("hl.join")
    if tensor0.dtype != tensor1.dtype:
        raise exc.InvalidAPIUsage(
            f"hl.join of {tensor0.dtype} and {tensor1.dtype}", hint="convert one of them with .to(...)"
        )
    tensor0, tensor1 = torch.broadcast_tensors(tensor0, tensor1)
    with trace.silence():
        sample = torch.stack([tensor0, tensor1], -1)
    return trace.record("join_pair", (tensor0, tensor1), sample)


def split(tensor: Any) -> tuple[Any, Any]:
    """The two halves of a last dimension of 2.

    Raises:
        UnsupportedSplitOperation: the last dimension is another one.
    """
    trace = device_trace("hl.split")
    value = trace.lift(tensor)
    shape = raw_shape(tensor)
    if not shape or shape[-1] != 2:
        raise exc.UnsupportedSplitOperation(
            f"hl.split of {type_text(trace, value)}: the last dimension is not 2",
            hint="reshape it so that its last dimension is 2, or use torch.chunk and torch.split",
        )
    with trace.silence():
        samples = tuple(half.clone() for half in tensor.unbind(-1))
    made: tuple[Any, Any] = trace.record("split_pair", (tensor,), samples)
    return made


def subscript(tensor: Any, index: Sequence[Any]) -> Any:
    """`tensor[index]` of a tile, where `index` is made of None and ":"."""
    device_trace("hl.subscript")
    entries = tuple(index) if isinstance(index, list | tuple) else (index,)
    for entry in entries:
        if entry is not None and entry is not Ellipsis and entry != slice(None):
            raise exc.InvalidIndexingType(
                f"hl.subscript takes None and ':', and {entry!r} is neither", hint="subscript the tile itself"
            )
    return tensor[entries]
