"""Arrays that say that they are in a GPU's memory; the memory is the host's, as the fake driver's is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class CudaArray:
    """What CuPy and Numba give.

    Args:
        values: the contents; shared, not copied.
        stream: that still writes the array, or None.
    """

    def __init__(self, values: np.ndarray[Any, Any], stream: int | None = None) -> None:
        self.values = values
        self.__cuda_array_interface__ = {**values.__array_interface__, "stream": stream}


class Tensor:
    """What is read of a torch tensor.

    Args:
        values: the contents; shared, not copied.
        device: number of the GPU, None for the CPU.
        pinned: whether a GPU reaches it although it is on the CPU.
    """

    requires_grad = False

    def __init__(self, values: np.ndarray[Any, Any], device: int | None = 0, pinned: bool = False) -> None:
        self.values, self.dtype, self.pinned = values, f"torch.{values.dtype}", pinned
        self.is_cpu, self.is_cuda = device is None, device is not None
        self.device = SimpleNamespace(type="cpu" if device is None else "cuda", index=device)

    def data_ptr(self) -> int:
        return self.values.ctypes.data

    def get_device(self) -> int:
        return -1 if self.device.index is None else self.device.index

    def is_pinned(self) -> bool:
        return self.pinned


def aligned(size: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Zeros at an address that is a multiple of 16."""
    memory = np.zeros(size + 16, dtype)
    return memory[-memory.ctypes.data % 16 // memory.itemsize :][:size]
