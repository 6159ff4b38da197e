"""Tensors of one form at addresses that are data."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.trace import indexing
from tilewright.hl.trace.state import current, device_trace


class StackTensor:
    """Several tensors of one form; the dimensions of their addresses come first.

    Args:
        like: a tensor of the host with their shape, strides and type.
        pointers: a tile of their addresses.
    """

    def __init__(self, like: Any, pointers: Any) -> None:
        self.tensor_like, self.dev_ptrs = like, pointers

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.tensor_like.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the addresses, then that of each tensor."""
        return (*self.dev_ptrs.shape, *self.tensor_like.shape)

    def __getitem__(self, index: Any) -> Any:
        """The same part of every tensor."""
        trace = device_trace("a stack tensor")
        with torch._C.DisableTorchFunction():
            return indexing.load(trace, self.tensor_like, index, base=self.dev_ptrs)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Store into the same part of every tensor."""
        trace = device_trace("a stack tensor")
        with torch._C.DisableTorchFunction():
            indexing.store(trace, self.tensor_like, index, value, base=self.dev_ptrs)


def stacktensor_like(tensor_like: Any, dev_ptrs: Any) -> StackTensor:
    """Tensors of one form at given addresses.

    Args:
        tensor_like: a tensor of the host with their shape, strides and type.
        dev_ptrs: a tile of addresses, int64 or uint64, on the device of the kernel.
    """
    trace = current()
    if trace is not None and trace.region is None:
        raise exc.StackTensorOnHost("hl.stacktensor_like outside the loops", hint="call it inside a loop over tiles")
    trace = device_trace("hl.stacktensor_like")
    if not trace.is_host(tensor_like):
        raise exc.StackTensorExampleOnDevice(
            "what a stack tensor is like is a tile", hint="give a tensor of the host with the form of the stacked ones"
        )
    if dev_ptrs.dtype not in (torch.uint64, torch.int64):
        raise exc.StackTensorDevPtrDtype(
            f"addresses of type {dev_ptrs.dtype}", hint="make them with torch.tensor(..., dtype=torch.uint64)"
        )
    if trace.is_host(dev_ptrs):
        raise exc.StackTensorDevPtrOnHost(
            "the addresses are a whole tensor of the host",
            hint="subscript it: hl.stacktensor_like(like, pointers[tile])",
        )
    return StackTensor(tensor_like, dev_ptrs)
