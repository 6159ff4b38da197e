"""Stand-ins for tensors: a tensor seen with another element type, and a dtype where a tensor is expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ArgumentError


class TensorWrapper:
    """A tensor whose bits a kernel reads as elements of another type. Shape and strides stay those of the tensor.

    Args:
        base: the tensor.
        dtype: element type of the language (`tl.float8e5`).
    """

    def __init__(self, base: Any, dtype: Any) -> None:
        self.base, self.dtype = base, dtype
        self.data, self.device, self.shape = base.data, base.device, base.shape

    @property
    def is_cpu(self) -> bool:
        """Whether the tensor lives in memory that the CPU reaches."""
        return bool(self.base.is_cpu)

    def data_ptr(self) -> int:
        """Address of the first element."""
        return int(self.base.data_ptr())

    def stride(self, *args: int) -> Any:
        """Strides in elements, or one of them."""
        return self.base.stride(*args)

    def numel(self) -> int:
        """Number of elements."""
        return int(self.base.numel())

    def element_size(self) -> int:
        """Bytes of an element of the tensor."""
        return int(self.base.element_size())

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.base.nbytes)

    def cpu(self) -> TensorWrapper:
        """The same on the CPU."""
        return TensorWrapper(self.base.cpu(), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        """Copy the elements of `other` into this one."""
        self.base.copy_(other.base)

    def clone(self) -> TensorWrapper:
        """A copy."""
        return TensorWrapper(self.base.clone(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        """The same on `device`."""
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, sizes: Sequence[int]) -> TensorWrapper:
        """A new tensor of this element type."""
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """See the memory of `tensor` as elements of another type, of any width.

    Args:
        tensor: a torch tensor, or what an earlier call returned.
        dtype: type of the language.

    Returns:
        A `TensorWrapper`; the tensor itself if it already has that type.

    Raises:
        ArgumentError: not a tensor.
    """
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not hasattr(base, "data_ptr"):
        raise ArgumentError(f"Cannot reinterpret a {type(tensor).__name__}.", hint="pass a torch tensor")
    if isinstance(tensor, TensorWrapper) and dtype == base.dtype:
        return base
    return TensorWrapper(base, dtype)


class MockTensor:
    """What a kernel can be compiled for without having a tensor: an element type and an aligned address.

    Args:
        dtype: element type, of torch or of the language.
        shape: extents, if the caller asks for strides.
    """

    device = None  # nowhere: the code is for the active driver's device

    def __init__(self, dtype: Any, shape: Sequence[int] | None = None) -> None:
        self.dtype = dtype
        self.shape = [1] if shape is None else list(shape)

    @staticmethod
    def wrap_dtype(value: Any) -> Any:
        """A `MockTensor` for a torch dtype, `value` itself otherwise."""
        kind = type(value)
        return MockTensor(value) if kind.__name__ == "dtype" and kind.__module__ == "torch" else value

    def stride(self) -> tuple[int, ...]:
        """Strides of a contiguous tensor, in elements."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    @staticmethod
    def data_ptr() -> int:
        """Zero: as aligned as an address can be."""
        return 0

    @staticmethod
    def ptr_range() -> int:
        """Zero: how far offsets reach is not known."""
        return 0
