"""Memory beside memory: two words for each element that a checked launch follows (`passes/check_shadow.py`).

Words of a launch that looks for races alone come from a pool: a stamp below `base` says nothing, whichever array it was
for. Where it is known that a storage has been made without contents (`watch_storage`), its words are kept for as long
as it lives: a zero is an element that nobody has written.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilewright.launch.extents import Extent

Words = NDArray[np.int32]
_LAST_STAMP = (1 << 31) - 1
_FIRST_STAMP = 4
WRITTEN = 1
"""The word of an element that was written outside of kernels."""


@dataclass(slots=True)
class Watched:
    """A storage whose elements are not all written.

    Args:
        extent: where it is.
        granule: bytes for each word.
        words: who wrote; 0 for nobody.
        kernel, argument: which stored to it last.
    """

    extent: Extent
    granule: int = 1
    words: Words = field(default_factory=lambda: np.zeros(0, np.int32))
    kernel: str = ""
    argument: str = ""

    def at(self, granule: int) -> Words:
        """The words for elements of another size: one is written if all of its bytes are."""
        if granule == self.granule and len(self.words):
            return self.words
        low, high = self.extent
        count = (high - low) // granule + 1
        if not len(self.words):
            words = np.zeros(count, np.int32)
        elif granule < self.granule:
            words = np.repeat(np.minimum(self.words, WRITTEN), self.granule // granule)[:count]
        else:
            each = granule // self.granule
            padded = np.zeros(count * each, np.int32)
            padded[: len(self.words)] = self.words[: count * each]
            words = np.minimum(padded.reshape(count, each).min(axis=1), WRITTEN)
        self.granule, self.words = granule, np.ascontiguousarray(words, np.int32)
        return self.words


class Shadow:
    """Words of the storages of this process, and the stamps that launches have used."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._base = _FIRST_STAMP
        self._pool: list[tuple[Words, Words]] = []
        self._stores: list[tuple[Words, Words]] = []
        self.clock: Words = np.ones(1, np.int32)
        self.watched: dict[int, Watched] = {}

    def begin(self, programs: int) -> int:
        """The base of a launch, a multiple of 4 as stamps have flags below it; none of its stamps has been used."""
        room = 4 * (programs // 2 + 2)
        if self._base + room > _LAST_STAMP:
            self._pool.clear()
            for watched in self.watched.values():
                np.minimum(watched.words, WRITTEN, out=watched.words)
            self._base = _FIRST_STAMP
        base, self._base = self._base, self._base + room
        return base

    def pair(self, number: int, extent: Extent, granule: int) -> tuple[Words, Words]:
        """Words for a storage: of its writers and of its readers.

        Args:
            number: of the storage in this launch.
            extent: of the storage.
            granule: bytes for each word.
        """
        count = (extent[1] - extent[0]) // granule + 1
        while len(self._pool) <= number:
            self._pool.append((np.zeros(0, np.int32), np.zeros(0, np.int32)))
        writer, reader = self._pool[number]
        if len(writer) < count:
            writer, reader = self._pool[number] = np.full(count, WRITTEN, np.int32), np.zeros(count, np.int32)
        watched = self.watched.get(extent[0])
        if watched is not None and watched.extent == extent:
            return watched.at(granule), reader
        return writer, reader

    def stores(self, number: int, extent: Extent, granule: int) -> tuple[Words, Words]:
        """Words of the last stores to a storage: when, by the clock, and by whom (`passes/check_barriers.py`).

        Args:
            number: of the storage in this launch.
            extent: of the storage.
            granule: bytes for each word.
        """
        if self.clock[0] > _LAST_STAMP // 2:
            self._stores.clear()
            self.clock[0] = 1
        count = (extent[1] - extent[0]) // granule + 1
        while len(self._stores) <= number:
            self._stores.append((np.zeros(0, np.int32), np.zeros(0, np.int32)))
        if len(self._stores[number][0]) < count:
            self._stores[number] = np.zeros(count, np.int32), np.zeros(count, np.int32)
        return self._stores[number]

    # -- storages without contents ---------------------------------------------------------------------------

    def watch(self, extent: Extent) -> None:
        """Somebody has made a storage and written nothing to it."""
        if extent[1] > extent[0]:
            self.watched[extent[0]] = Watched(extent)

    def forget(self, first: int) -> None:
        """A storage has gone, or has been written as a whole."""
        self.watched.pop(first, None)


shadow = Shadow()
