"""Memory as a kernel sees it: registered buffers behind plain addresses, with bounds checks."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base import system
from tilewright.base.errors import InterpreterError, ReadOnlyError

Array = np.ndarray[Any, Any]


class _Buffer:
    """The bytes from `start` up to but not including `stop`."""

    __slots__ = ("_views", "bytes", "first", "name", "start", "stop", "writable")

    def __init__(self, start: int, stop: int, name: str, writable: bool, first: int) -> None:
        self.start, self.stop, self.name, self.writable, self.first = start, stop, name, writable, first
        self.bytes: Array = np.ctypeslib.as_array((ctypes.c_uint8 * max(1, stop - start)).from_address(start))
        self._views: dict[np.dtype[Any], Array] = {}

    def elements(self, dtype: np.dtype[Any]) -> Array:
        """The element that begins at each byte: addresses need not be aligned."""
        found = self._views.get(dtype)
        if found is None:
            count = max(0, self.stop - self.start - dtype.itemsize + 1)
            found = self._views[dtype] = np.ndarray((count,), dtype, self.bytes.data, strides=(1,))
        return found


_FAR = 1 << 31  # elements: an address farther away is not an index of the nearest buffer


def _distance(buffer: _Buffer, address: int) -> int:
    """Bytes between a buffer and an address outside of it."""
    return max(buffer.start - address, address - buffer.stop, 0)


class Memory:
    """Buffers that a kernel may touch.

    An access outside every buffer raises :class:`InterpreterError`, which says of which buffer it is past the end,
    instead of reading what happens to be there.

    Attributes:
        program: the program of the grid that runs, for errors; None where there is no grid.
    """

    def __init__(self) -> None:
        self.program: tuple[int, int, int] | None = None
        self._starts: list[int] = []
        self._buffers: list[_Buffer] = []
        self._process_is_open = False

    def register(self, array: Array, name: str = "") -> int:
        """Make the elements of `array` reachable; returns the address of its first element.

        Args:
            array: any strided array whose memory stays alive; the span from its lowest to its highest byte is opened.
            name: shown in errors.
        """
        self.open(*span_of(array), name)
        return int(array.__array_interface__["data"][0])

    def open(
        self, start: int, stop: int, name: str = "", *, writable: bool = True, first: int | None = None
    ) -> None:  # fmt: skip
        """Make the bytes from `start` to `stop`, which must stay alive, reachable.

        Args:
            name: shown in errors.
            writable: whether stores are allowed.
            first: address of the element that the kernel counts from; default is `start`.
        """
        at = bisect.bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._buffers.insert(at, _Buffer(start, stop, name, writable, start if first is None else first))

    def open_process(self) -> None:
        """Let accesses reach everything that the process has mapped: for addresses that were read from memory."""
        self._process_is_open = True

    def _locate(self, first: int, last: int, size: int) -> _Buffer | None:
        """The buffer that holds all bytes from `first` to `last + size`."""
        for at in range(bisect.bisect_right(self._starts, first) - 1, -1, -1):
            if last + size <= self._buffers[at].stop:
                return self._buffers[at]
        mapped = _mapped(first, last + size) if self._process_is_open else None
        if mapped is not None:
            self.open(*mapped[:2], "memory of the process", writable=mapped[2])
            return self._locate(first, last, size)
        return None

    def _outside(self, addresses: Array, size: int) -> InterpreterError:
        """The error of an access of which some lanes are in no buffer."""
        inside = np.zeros(addresses.shape, np.bool_)
        held = []
        for buffer in self._buffers:
            lanes = (addresses >= buffer.start) & (addresses + size <= buffer.stop)
            held.append(int(lanes.sum()))
            inside |= lanes
        wrong = addresses[~inside]
        first, last = int(wrong.min()), int(wrong.max())
        where = "" if self.program is None else f"program {self.program}: "
        hint = "check the mask and the offsets of this load or store"
        order = sorted(zip(held, self._buffers, strict=True), key=lambda row: (-row[0], _distance(row[1], first)))
        meant = order[0][1] if order else None
        if meant is None or not meant.name or _distance(meant, first) // size > _FAR:
            names = ", ".join(f"{b.name or '?'}: [{b.start:#x}, {b.stop:#x})" for b in self._buffers)
            text = f"access to address {first:#x} (up to {last + size:#x}) is outside every argument ({names})"
            return InterpreterError(where + text, hint=hint)
        past = wrong[wrong >= meant.start]
        past = past if past.size else wrong
        low, high = (int(at - meant.first) // size for at in (past.min(), past.max()))
        indices = f"{low}" if low == high else f"{low}..{high}"
        count = (meant.stop - meant.first) // size
        side = f"past its {count} element{'s' * (count != 1)}" if low >= 0 else "before its first element"
        return InterpreterError(f"{where}{meant.name}[{indices}] is {side}", hint=hint)

    def _groups(self, addresses: Array, size: int) -> list[tuple[Any, _Buffer, Array]]:
        """Lanes by buffer: (which lanes, buffer, offsets in bytes)."""
        if addresses.size == 0:
            return []
        buffer = self._locate(int(addresses.min()), int(addresses.max()), size)
        if buffer is not None:
            return [(slice(None), buffer, addresses - buffer.start)]
        owner = np.searchsorted(np.asarray(self._starts), addresses, side="right")
        groups = []
        for lanes in (np.flatnonzero(owner == k) for k in np.unique(owner)):
            picked = addresses[lanes]
            buffer = self._locate(int(picked.min()), int(picked.max()), size)
            if buffer is None:
                raise self._outside(addresses, size)
            groups.append((lanes, buffer, picked - buffer.start))
        return groups

    def load(self, addresses: Array, dtype: np.dtype[Any], mask: Array | None) -> Array:
        """Elements at `addresses` in their memory form; lanes outside `mask` are 0."""
        flat = addresses.reshape(-1)
        lanes = None if mask is None else np.flatnonzero(mask)
        if lanes is not None and lanes.size == flat.size:
            lanes = None
        groups = self._groups(flat if lanes is None else flat[lanes], dtype.itemsize)
        if lanes is None and len(groups) == 1:
            return groups[0][1].elements(dtype)[groups[0][2]].reshape(addresses.shape)
        out = np.zeros(flat.size, dtype)
        for which, buffer, offsets in groups:
            out[which if lanes is None else lanes[which]] = buffer.elements(dtype)[offsets]
        return out.reshape(addresses.shape)

    def store(self, addresses: Array, values: Array, mask: Array | None) -> None:
        """Write `values` (memory form); of several lanes with one address the last wins.

        Raises:
            ReadOnlyError: the buffer is not writable.
        """
        flat, given = addresses.reshape(-1), values.reshape(-1)
        if mask is not None:
            lanes = np.flatnonzero(mask)
            if lanes.size != flat.size:
                flat, given = flat[lanes], given[lanes]
        for which, buffer, offsets in self._groups(flat, values.dtype.itemsize):
            if not buffer.writable:
                raise ReadOnlyError(
                    f"the kernel stores to argument `{buffer.name}`, which is read-only",
                    hint=f"pass a writable array, for instance {buffer.name}.copy()",
                )
            buffer.elements(values.dtype)[offsets] = given[which]


def span_of(array: Array) -> tuple[int, int]:
    """Addresses of the lowest byte of an array and of the one behind the highest."""
    return byte_span(array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


def byte_span(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """As :func:`span_of`, of an array whose first element stands at `address`; `strides` are in bytes."""
    if 0 in shape:
        return address, address
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return address + sum(min(0, r) for r in reach), address + sum(max(0, r) for r in reach) + itemsize


def _mapped(first: int, stop: int) -> tuple[int, int, bool] | None:
    """The readable mapping of this process that holds an address range, and whether it is writable; None also
    where the system does not say."""
    for low, high, rights, _ in system.this().mappings():
        if low <= first and stop <= high and rights.startswith("r"):
            return low, high, "w" in rights
    return None
