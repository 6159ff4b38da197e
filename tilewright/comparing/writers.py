"""Which program of a grid wrote an element: launches are interpreted, and their stores noted."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.rewrite import is_kernel_code

_MOST_LANES = 1 << 26  # that are noted


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote an element last.

    Args:
        kernel: its name.
        program: of the grid.
        tile: shape of what was stored.
        element: its coordinates in the tile.
        file, line: of the store.
    """

    kernel: str
    program: tuple[int, int, int]
    tile: tuple[int, ...]
    element: tuple[int, ...]
    file: str
    line: int

    def __str__(self) -> str:
        where = f"element {list(self.element)} of its tile {list(self.tile)}" if self.tile else "a scalar"
        return f"program {self.program} of {self.kernel} wrote it last: {where}, at {self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class _Store:
    kernel: str
    program: tuple[int, int, int]
    shape: tuple[int, ...]
    lanes: NDArray[np.int64]
    addresses: NDArray[np.int64]
    size: int
    place: tuple[str, int]


class Stores:
    """The stores of launches that are interpreted."""

    def __init__(self) -> None:
        self._made: list[_Store] = []
        self._lanes = 0

    def memory(self, kernel: str) -> Memory:
        """What a launch of a kernel reaches its arguments through, to be noted here."""
        return _Noting(self, kernel)

    def note(self, kernel: str, program: Any, addresses: NDArray[Any], mask: Any, size: int) -> None:
        """Keep a store."""
        flat = np.asarray(addresses, np.int64).reshape(-1)
        lanes = np.arange(flat.size) if mask is None else np.flatnonzero(np.broadcast_to(mask, np.shape(addresses)))
        self._lanes += lanes.size
        if self._lanes <= _MOST_LANES:
            self._made.append(_Store(kernel, program, np.shape(addresses), lanes, flat[lanes], size, _place()))

    def last_at(self, address: int) -> Writer | None:
        """Who wrote the element that begins at an address last; None if nobody did."""
        for store in reversed(self._made):
            hits = np.flatnonzero((store.addresses <= address) & (address < store.addresses + store.size))
            if hits.size:
                lane = int(store.lanes[hits[-1]])
                element = tuple(int(i) for i in np.unravel_index(lane, store.shape)) if store.shape else ()
                return Writer(store.kernel, store.program, store.shape, element, *store.place)
        return None


class _Noting(Memory):
    def __init__(self, stores: Stores, kernel: str) -> None:
        super().__init__()
        self._noted, self._kernel = stores, kernel

    def store(self, addresses: Any, values: Any, mask: Any) -> None:
        super().store(addresses, values, mask)
        self._noted.note(self._kernel, self.program, addresses, mask, values.dtype.itemsize)


def _place() -> tuple[str, int]:
    """File and line of the innermost code of a kernel that runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_kernel_code(frame.f_code):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "?", 0
