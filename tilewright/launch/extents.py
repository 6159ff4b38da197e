"""The allocation that an array is a part of: where a kernel may go that was given the array."""

from __future__ import annotations

import numpy as np

from tilewright.backends.reference.address_space import byte_span, span_of
from tilewright.devices.arrays import Array, dlpack_layout
from tilewright.launch.host_copies import HostCopy

Extent = tuple[int, int]
"""First address, and the one behind the last."""


def extent_of(array: Array, name: str) -> Extent | None:
    """The allocation of an array in host memory; None where its owner does not say how large it is.

    The storage of a torch tensor, the memory that the first of a chain of views of numpy has, the elements of an array
    of DLPack (which tells no more), what `nbytes` says else.

    Args:
        array: the argument, read.
        name: of the argument, for errors.
    """
    owner = array.owner
    if isinstance(owner, HostCopy):
        return owner.extent
    if isinstance(owner, tuple):
        return byte_span(*dlpack_layout(owner[1], name))
    if hasattr(owner, "untyped_storage"):
        storage = owner.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    if hasattr(owner, "__array_interface__"):
        held = np.asarray(owner)
        while isinstance(held.base, np.ndarray):
            held = held.base
        return span_of(held)
    size = getattr(owner, "nbytes", None)
    return (array.address, array.address + size) if isinstance(size, int) else None
