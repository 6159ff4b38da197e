"""The test of arrays for overlap, in machine code."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.protocol import ByteCache
from tilewright.launch.native.machine import machine


def apart_test(cache: ByteCache | None) -> Callable[..., bool] | None:
    """A function of arrays that says True where it sees that no two of them have a byte in common.

    Args:
        cache: where to look for the object of the machine code, and where to keep it.

    Returns:
        The function, or None where there is no machine code. It knows arrays of numpy and tensors of torch, and says
        False where there are others.
    """
    found = machine(cache)
    if found is None:
        return None
    _ = found.reads_torch  # finds out how
    return found.apart
