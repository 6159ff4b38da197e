"""What PyTorch must know of memory that kernels write: version counters, and views that overlap."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tilewright.base.errors import ArgumentError, DeviceError

increment_version: Any = torch._C._increment_version  # what torch.autograd.graph.increment_version calls
"""Tell autograd that tensors were changed in place, so that a backward pass that saved them before complains."""


def check_devices(kernel: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Refuse tensors of several devices.

    Args:
        kernel: its name, for the error.
        names: of the arguments.
        values: the arguments; what is no tensor is passed over.

    Raises:
        DeviceError: two tensors are on different devices.
    """
    found = [
        (name, value.device) for name, value in zip(names, values, strict=False) if isinstance(value, torch.Tensor)
    ]
    for name, device in found[1:]:
        if device != found[0][1]:
            raise DeviceError(
                f"kernel `{kernel}`: argument `{name}` is on {device}, but `{found[0][0]}` is on {found[0][1]}",
                hint=f"move it there: {name}.to({str(found[0][1])!r})",
            )


def check_overlap(kernel: str, names: Sequence[str], values: Sequence[Any], written: Collection[int]) -> None:
    """Refuse views of one storage that overlap without being equal, if one of them is written.

    In a graph each written view becomes a value of its own, so the others would not see what is stored.

    Args:
        kernel: its name, for the error.
        names: of the arguments.
        values: the arguments; what is no tensor is passed over.
        written: indices of those that the kernel writes.

    Raises:
        ArgumentError: two such views.
    """
    tensors = [index for index, value in enumerate(values) if isinstance(value, torch.Tensor)]
    for first in tensors:
        for second in tensors:
            if first in written and second != first and _overlap(values[first], values[second]):
                raise ArgumentError(
                    f"kernel `{kernel}` writes `{names[first]}`, which overlaps with `{names[second]}`: "
                    "they are different views of one storage",
                    hint=f"pass {names[second]}.clone(), or views that are equal or apart",
                )


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two views surely share some memory without being the same view, by the ranges that they span."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    (a_low, a_high), (b_low, b_high) = _span(a), _span(b)
    if not (statically_known_true(a_low < b_high) and statically_known_true(b_low < a_high)):
        return False
    if not (a.is_contiguous() and b.is_contiguous()):
        return False  # rows of one matrix interleave: nothing is said of them
    same = statically_known_true(a_low == b_low) and statically_known_true(a_high == b_high)
    return not same


def _span(t: torch.Tensor) -> tuple[Any, Any]:
    """First byte in the storage, and the one past the last."""
    low = t.storage_offset() * t.element_size()
    extent = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)) + 1
    return low, low + extent * t.element_size()
