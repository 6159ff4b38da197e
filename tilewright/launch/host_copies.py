"""Launches that run on the host although their arrays are on a GPU: copies there and back.

    GPU memory --copy--> host memory --the interpreter reads and writes it--> --copy back--> GPU memory

Whole allocations are copied, so that strides and views that share memory keep their meaning.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from tilewright.devices.arrays import HOST, Array
from tilewright.devices.registry import gpu
from tilewright.launch.bind import Call


class HostCopy(NamedTuple):
    """A copy of an allocation of a GPU, as the owner of arrays in it.

    Args:
        device: number of the GPU.
        base: address of the allocation there.
        memory: the copy.
    """

    device: int
    base: int
    memory: Any

    @property
    def nbytes(self) -> int:
        """Bytes of the allocation."""
        return len(self.memory)

    @property
    def address(self) -> int:
        """Address of the copy."""
        return ctypes.addressof(self.memory)

    @property
    def extent(self) -> tuple[int, int]:
        """First address of the copy, and the one behind its last."""
        return self.address, self.address + self.nbytes


@contextlib.contextmanager
def on_host(call: Call) -> Iterator[Call]:
    """The call with arrays in host memory; what was written there is copied back at the end of the block.

    Args:
        call: bound arguments.

    Raises:
        DriverError: a copy fails.
    """
    copies: dict[tuple[int, int], HostCopy] = {}
    arguments = tuple(_staged(argument, copies) for argument in call.arguments)
    yield replace(call, arguments=arguments) if copies else call
    for copy in copies.values():
        gpu.write_bytes(copy.base, bytes(copy.memory), copy.device)


def _staged(argument: Any, copies: dict[tuple[int, int], HostCopy]) -> Any:
    if isinstance(argument, tuple):
        items = [_staged(item, copies) for item in argument]
        return argument._make(items) if hasattr(argument, "_make") else tuple(items)
    if not isinstance(argument, Array) or argument.device in (HOST, None) or not argument.address:
        return argument
    base, size = _allocation(argument)
    copy = copies.get((argument.device, base))
    if copy is None:
        contents = gpu.read_bytes(base, size, argument.device)
        copy = HostCopy(argument.device, base, ctypes.create_string_buffer(contents, size))
        copies[argument.device, base] = copy
    return replace(argument, address=copy.address + argument.address - base, owner=copy, device=HOST)


def _allocation(array: Array) -> tuple[int, int]:
    """First address and bytes of what an array is a part of: torch's storage, else the driver's allocation."""
    if hasattr(array.owner, "untyped_storage"):
        storage = array.owner.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    found: tuple[int, int] = gpu.allocation(array.address, array.device or 0)
    return found
