"""Tensor maps that programs of Triton 3.1 to 3.4 have the driver object write into 128 bytes of their own.

::

    utils.fill_2d_tma_descriptor(ptr, 64, 128, 16, 32, 2, memory)   kernel[grid](descriptor)    # .tma_desc_cpu_ptr()
        writes  | mark | element bytes, rank | address | sizes | block |      ->      a tensor descriptor

What the bytes hold is ours to say: a launch reads back from them what a kernel must know of the tensor.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_MARK = b"tilewright's map"
_FORM = struct.Struct("<16sIIQ2Q2Q")
MAP_BYTES = 128


@dataclass(frozen=True, slots=True)
class HostMap:
    """What such a map says.

    Args:
        address: of the tensor, which is contiguous.
        shape: its sizes.
        block: sizes of the blocks in which a kernel reads and writes it.
        element_bytes: size of an element, 1 to 8.
    """

    address: int
    shape: tuple[int, ...]
    block: tuple[int, ...]
    element_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * self.element_bytes


def write_map(memory: int, address: int, shape: Sequence[int], block: Sequence[int], element_bytes: int) -> None:
    """Write a map.

    Args:
        memory: address of the 128 bytes.
        address, shape, block, element_bytes: as for `HostMap`; one or two dimensions.
    """
    rank, rest = len(shape), [0] * (2 - len(shape))
    rows = _FORM.pack(_MARK, element_bytes, rank, address, *map(int, shape), *rest, *map(int, block), *rest)
    ctypes.memmove(memory, rows.ljust(MAP_BYTES, b"\0"), MAP_BYTES)


def read_map(memory: int) -> HostMap | None:
    """The map in 128 bytes; None if they are not from `write_map`."""
    mark, size, rank, address, *numbers = _FORM.unpack(ctypes.string_at(memory, _FORM.size))
    if mark != _MARK:
        return None
    return HostMap(address, tuple(numbers[:rank]), tuple(numbers[2 : 2 + rank]), size)


class MapWriter:
    """What Triton's `driver.active.utils` has to write maps with."""

    @staticmethod
    def fill_1d_tma_descriptor(ptr: int, dim: int, block_dim: int, element_size: int, desc: int) -> None:
        """Describe a row of elements.

        Args:
            ptr: address of the tensor.
            dim, block_dim: elements of it, and of a block.
            element_size: bytes of an element.
            desc: address of the 128 bytes to write.
        """
        write_map(desc, ptr, (dim,), (block_dim,), element_size)

    @staticmethod
    def fill_2d_tma_descriptor(
        ptr: int, dim1: int, dim0: int, block_dim1: int, block_dim0: int, element_size: int, desc: int
    ) -> None:
        """Describe a contiguous matrix of `dim1` rows; arguments as of `fill_1d_tma_descriptor`."""
        write_map(desc, ptr, (dim1, dim0), (block_dim1, block_dim0), element_size)
