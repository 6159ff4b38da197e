"""Which memory an array lies in: from its first byte to its last, as its shape and strides say.

What lies between the elements counts: `x[:, :n]` and `x[:, n:]` overlap. Of what has no shape, such as an address, one
element is known.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from tilewright.base.dtypes import dtype, scalar_from_signature
from tilewright.devices.arrays import Array, dlpack_layout

Range = tuple[int, int]
"""Address of the first byte, and of the first one behind."""


def range_of(argument: Any, kind: str) -> Range:
    """The memory of an argument of a launch.

    Args:
        argument: an array, read, or an address.
        kind: its signature type (`"*fp32"`).
    """
    address, owner = (argument.address, argument.owner) if isinstance(argument, Array) else (argument, None)
    low, high = reach(owner, element_bytes(kind))
    return address + low, address + high


@functools.lru_cache(maxsize=256)
def element_bytes(kind: str) -> int:
    """Bytes of an element of an array of a signature type (`"*fp32"`)."""
    element = scalar_from_signature(kind.removeprefix("*").removeprefix("k"))
    return max(element.primitive_bitwidth // 8, 1) if isinstance(element, dtype) else 8


def reach(array: Any, size: int) -> Range:
    """How far an array goes from the address of its first element: bytes below it (not positive), and above.

    Args:
        array: a tensor of torch or of what reads like it, an array with an array interface, or what `Array.owner` is of
            an array of DLPack.
        size: bytes of an element.
    """
    shape, strides = layout_of(array, size)
    low, high = 0, size
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 0:
            return 0, 0
        low, high = low + min((extent - 1) * stride, 0), high + max((extent - 1) * stride, 0)
    return low, high


def meet(one: Range, other: Range) -> bool:
    """Whether two ranges have a byte in common."""
    return max(one[0], other[0]) < min(one[1], other[1])


def layout_of(array: Any, size: int) -> tuple[Iterable[int], Iterable[int]]:
    """Shape, and strides in bytes; neither where it is not known."""
    if callable(getattr(array, "stride", None)):
        try:
            return array.shape, [stride * size for stride in array.stride()]
        except Exception:  # a nested tensor has several of each
            return (), ()
    if isinstance(array, tuple) and len(array) == 2:  # with its capsule
        _, extents, steps, _ = dlpack_layout(array[1], "")
        return extents, steps
    interface: Any = getattr(array, "__cuda_array_interface__", None) or getattr(array, "__array_interface__", None)
    if not isinstance(interface, dict):
        return (), ()
    shape, strides = interface["shape"], interface.get("strides")
    return shape, _packed(shape, size) if strides is None else strides


def _packed(shape: Iterable[int], size: int) -> list[int]:
    """Strides of an array whose elements lie side by side."""
    strides: list[int] = []
    for extent in reversed(tuple(shape)):
        strides.insert(0, size)
        size *= extent
    return strides
