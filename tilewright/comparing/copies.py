"""Copies of the arguments of a call, with strides, gaps and shared memory as they are, on a device.

arguments -> storages that they lie in, each copied once -> the same views of the copies
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backends.reference.address_space import span_of
from tilewright.base.errors import ArgumentError
from tilewright.devices.host_descriptor import TensorDescriptor

Bytes = NDArray[np.uint8]


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor of PyTorch."""
    return hasattr(value, "untyped_storage")


def is_array(value: Any) -> bool:
    """Whether it is an array that is copied and compared."""
    return is_tensor(value) or isinstance(value, np.ndarray)


def arrays_of(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(name, array) of every array in an argument or a result; parts of tuples, lists and dictionaries by subscript."""
    if is_array(value):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            yield from arrays_of(part, f"{name}[{index}]")
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from arrays_of(part, f"{name}[{key!r}]")


@dataclass(slots=True)
class Copies:
    """Copies of arrays.

    Args:
        device: where copies of torch tensors go to ("cuda"); None leaves them where they are.
    """

    device: str | None = None
    _storages: dict[int, Any] = field(default_factory=dict)
    _views: list[tuple[int, int, tuple[int, ...], tuple[int, ...], int]] = field(default_factory=list)
    _kept: list[Any] = field(default_factory=list)  # so that no address is used twice

    def of(self, value: Any) -> Any:
        """A copy of an argument; what is no array is passed as it is.

        Raises:
            ArgumentError: it holds arrays that cannot be copied.
        """
        if is_tensor(value):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, (tuple, list)):
            parts = [self.of(part) for part in value]
            return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
        if isinstance(value, TensorDescriptor):
            raise ArgumentError(
                "compare copies arrays, and a tensor descriptor is none",
                hint="compare a function that makes the descriptor of an array and launches the kernel",
            )
        return value

    def gaps(self) -> list[Bytes]:
        """The bytes of each storage that no view has, in order."""
        found = []
        for key, storage in self._storages.items():
            held = _bytes_of(storage)
            covered = np.zeros(held.size, np.bool_)
            for where, offset, shape, strides, size in self._views:
                if where == key and 0 not in shape:
                    np.ndarray((*shape, size), np.bool_, covered.data, offset, (*strides, 1))[...] = True
            found.append(held[~covered])
        return found

    def _tensor(self, value: Any) -> Any:
        storage = value.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            copy = storage.clone()
            self._storages[key] = copy if self.device is None else copy.to(device=self.device)
            self._kept.append(storage)
        size = value.element_size()
        strides = tuple(size * stride for stride in value.stride())
        self._views.append((key, size * value.storage_offset(), tuple(value.shape), strides, size))
        held = self._storages[key]
        made = value.new_empty(0, device=held.device).detach()
        return made.set_(held, value.storage_offset(), value.size(), value.stride())

    def _array(self, value: NDArray[Any]) -> NDArray[Any]:
        base: Any = value
        while isinstance(base.base, np.ndarray):
            base = base.base
        key = id(base)
        if key not in self._storages:
            self._storages[key] = base.copy(order="K")
            self._kept.append(base)
        offset = value.__array_interface__["data"][0] - span_of(base)[0]
        self._views.append((key, offset, value.shape, value.strides, value.itemsize))
        held = _bytes_of(self._storages[key])
        made: NDArray[Any] = np.ndarray(value.shape, value.dtype, held.data, offset, value.strides)
        made.setflags(write=value.flags.writeable)
        return made


def _bytes_of(storage: Any) -> Bytes:
    """The memory of a storage as bytes; that of a GPU is copied to the host."""
    if isinstance(storage, np.ndarray):
        return storage.ravel(order="K").view(np.uint8)
    import torch

    held: Bytes = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().numpy()
    return held
