"""What a view has of the storage that it lies in: a byte for each element, for kernels that check it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tilewright.devices.ranges import layout_of
from tilewright.launch.extents import Extent

Map = NDArray[np.int8]


def view_map(owner: Any, address: int, extent: Extent, granule: int) -> Map | None:
    """1 for each element of a storage that a view has; None where it has all of them, or does not say.

    Args:
        owner: the array that was passed.
        address: of its first element.
        extent: of its storage.
        granule: bytes of an element.
    """
    sizes, strides = (tuple(numbers) for numbers in layout_of(owner, granule))
    low, high = extent
    first, count = (address - low) // granule, (high - low) // granule
    if not sizes or count <= 0 or any(stride % granule for stride in strides):
        return None
    made: Map = np.zeros(count + 1, np.int8)
    as_strided(made[first:], sizes, tuple(stride // granule for stride in strides))[...] = 1
    return None if made[:count].all() else made
