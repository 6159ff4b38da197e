"""Memory as a kernel sees it: registered numpy buffers behind plain addresses, with bounds checks."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np

from tilewright.base.errors import InterpreterError

Array = np.ndarray[Any, Any]


class Memory:
    """Buffers that a kernel may touch.

    An access outside every buffer raises :class:`InterpreterError` with the address, instead of
    reading what happens to be there.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._buffers: list[tuple[int, Array, str]] = []

    def register(self, array: Array, name: str = "") -> int:
        """Make the elements of `array` reachable; returns the address of its first element.

        Args:
            array: any strided array whose memory stays alive; the whole span from its lowest to its highest byte is opened.
            name: shown in errors.
        """
        low, high = np.lib.array_utils.byte_bounds(array)
        view = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * max(1, high - low)).from_address(low))
        at = bisect.bisect_right(self._starts, low)
        self._starts.insert(at, low)
        self._buffers.insert(at, (high, view, name))
        return int(array.__array_interface__["data"][0])

    def _locate(self, first: int, last: int, size: int) -> tuple[int, Array]:
        """The buffer that holds all bytes from `first` to `last + size`."""
        for at in range(bisect.bisect_right(self._starts, first) - 1, -1, -1):
            high, view, _ = self._buffers[at]
            if last + size <= high:
                return self._starts[at], view
        names = ", ".join(
            f"{n or '?'}: [{s:#x}, {h:#x})" for s, (h, _, n) in zip(self._starts, self._buffers, strict=True)
        )
        raise InterpreterError(
            f"access to address {first:#x} (up to {last + size:#x}) is outside every argument ({names})",
            hint="check the mask and the offsets of this load or store",
        )

    def _spans(self, addresses: Array, mask: Array | None, size: int) -> list[tuple[Array, int, Array]]:
        """Groups of lanes by buffer: (lane indices, start, bytes)."""
        lanes = np.arange(addresses.size) if mask is None else np.flatnonzero(mask)
        if lanes.size == 0:
            return []
        picked = addresses.ravel()[lanes]
        try:
            start, view = self._locate(int(picked.min()), int(picked.max()), size)
            return [(lanes, start, view)]
        except InterpreterError:
            owner = np.searchsorted(np.asarray(self._starts), picked, side="right")
            groups = [lanes[owner == k] for k in np.unique(owner)]
            flat = addresses.ravel()
            return [(g, *self._locate(int(flat[g].min()), int(flat[g].max()), size)) for g in groups]

    def load(self, addresses: Array, dtype: np.dtype[Any], mask: Array | None) -> Array:
        """Elements at `addresses` in their memory form; lanes outside `mask` are 0."""
        out = np.zeros(addresses.size, dtype)
        raw = out.view(np.uint8).reshape(addresses.size, dtype.itemsize)
        for lanes, start, view in self._spans(addresses, mask, dtype.itemsize):
            offsets = addresses.ravel()[lanes] - start
            raw[lanes] = view[offsets[:, None] + np.arange(dtype.itemsize)]
        return out.reshape(addresses.shape)

    def store(self, addresses: Array, values: Array, mask: Array | None) -> None:
        """Write `values` (memory form); of several lanes with one address the last wins."""
        size = values.dtype.itemsize
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(values.size, size)
        for lanes, start, view in self._spans(addresses, mask, size):
            offsets = addresses.ravel()[lanes] - start
            view[offsets[:, None] + np.arange(size)] = raw[lanes]
