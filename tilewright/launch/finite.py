"""What a launch has made of floats: whether there is a NaN or an infinity, and the memory as it was before.

Checks behind each operation are slow, so a launch runs without them first. Only where it leaves something that is no
number in what it writes, the memory is put back and the launch is made again with them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tilewright.launch.extents import Extent

_FLOATS = {"*fp16": ("u2", 0x7C00), "*bf16": ("u2", 0x7F80), "*fp32": ("u4", 0x7F80_0000), "*fp64": ("u8", 0x7FF << 52)}
"""By type of a pointer: integers of that size, and the bits that are all set in what is not finite."""


class Before:
    """The memory that a launch is about to write.

    Args:
        written: type of the pointer, address and storage of each argument that the kernel may store through.
    """

    def __init__(self, written: Iterable[tuple[str, int, Extent]]) -> None:
        self._written = list(written)
        self._saved = {extent: memory_of(extent).copy() for _, _, extent in self._written}

    def leaves_numbers(self) -> bool:
        """Whether all floats that may have been written are finite now."""
        for kind, address, extent in self._written:
            if kind in _FLOATS:
                integers, exponent = _FLOATS[kind]
                size = np.dtype(integers).itemsize
                bytes_ = memory_of(extent)[(address - extent[0]) % size :]
                words = bytes_[: len(bytes_) // size * size].view(integers)
                if ((words & exponent) == exponent).any():
                    return False
        return True

    def restore(self) -> None:
        """Put back what was there."""
        for extent, contents in self._saved.items():
            memory_of(extent)[...] = contents


def memory_of(extent: Extent) -> NDArray[np.uint8]:
    """The bytes of a storage."""
    low, high = extent
    if high <= low:
        return np.zeros(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
