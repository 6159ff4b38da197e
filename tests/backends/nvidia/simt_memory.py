"""Memory of the simulated GPU: bytes of global memory behind fake addresses, and shared memory that finds races.

Threads run in lockstep, so a missing barrier would not show in the results. Shared memory therefore remembers who
touched each byte last, and since which barrier; an access that no barrier orders after a conflicting one of another
thread raises `SimtError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.nvidia.simt_text import NOISE
from tilewright.layouts.access import count_wavefronts

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x1000_0000_0000  # where generic addresses see shared memory
_GUARD = 512
_NOBODY, _SEVERAL = -1, -2


class SimtError(AssertionError):
    """The kernel did what real hardware may punish: a race, a divergent barrier, an address out of bounds."""


class GlobalMemory:
    """Arrays at fake addresses, with gaps between them in which an access is an error."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, np.ndarray]] = []
        self._size = _GUARD
        self.data = np.zeros(0, np.uint8)
        self.valid = np.zeros(0, bool)

    def add(self, array: np.ndarray) -> int:
        """Map an array (or bytes); gives its address. Call `start` before the first access."""
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        address = GLOBAL_BASE + self._size
        self._pieces.append((self._size, raw))
        self._size += -(-(raw.size + _GUARD) // _GUARD) * _GUARD
        return address

    def start(self) -> None:
        """Lay the mapped arrays out."""
        self.data, self.valid = np.full(self._size, NOISE, np.uint8), np.zeros(self._size, bool)
        for at, raw in self._pieces:
            self.data[at : at + raw.size] = raw
            self.valid[at : at + raw.size] = True

    def contents(self, address: int, size: int) -> np.ndarray:
        """Bytes from an address on."""
        return self.data[address - GLOBAL_BASE : address - GLOBAL_BASE + size]

    def load(self, addresses: np.ndarray, size: int) -> np.ndarray:
        """Bytes (access, size) at addresses (access,)."""
        return self.data[self._places(addresses, size)]

    def store(self, addresses: np.ndarray, values: np.ndarray) -> None:
        """Bytes (access, size) to addresses (access,)."""
        self.data[self._places(addresses, values.shape[1])] = values

    def _places(self, addresses: np.ndarray, size: int) -> np.ndarray:
        places = addresses.astype(np.int64)[:, None] - GLOBAL_BASE + np.arange(size)
        if places.size and (places.min() < 0 or places.max() >= self.valid.size or not self.valid[places].all()):
            wrong = next(
                int(a)
                for a, p in zip(addresses, places)
                if p[0] < 0 or p[-1] >= self.valid.size or not self.valid[p].all()
            )
            raise SimtError(f"access of {size} bytes at {wrong:#x} lies outside of every array")
        return places


class SharedMemory:
    """Shared memory of one block.

    Args:
        size: bytes.
        threads: of the block.
        counts: whether `wavefronts` (memory cycles) are counted, which takes time.
    """

    def __init__(self, size: int, threads: int, counts: bool = False) -> None:
        self.counts = counts
        self.data = np.full(size, NOISE, np.uint8)
        self.epoch = 0  # block barriers so far
        self.warp_epoch = np.zeros(-(-threads // 32), np.int64)  # warp barriers of each warp, block barriers included
        self._writer = np.full(size, _NOBODY)
        self._reader = np.full(size, _NOBODY)  # thread, if one alone
        self._reader_warp = np.full(size, _NOBODY)  # warp, if one alone
        self._times = {name: np.full(size, -1) for name in ("write", "read", "warp write", "warp read")}
        self.wavefronts = 0
        self.watch: Callable[[np.ndarray], None] | None = None  # told of every place that a thread of the block touches
        self.clocks: Any = None  # `simt_roles.Clocks`, where warps do not all wait at the same barriers

    def barrier(self) -> None:
        """All threads wait for each other."""
        self.epoch += 1
        self.warp_epoch += 1

    def warp_barrier(self, warps: np.ndarray) -> None:
        """The lanes of these warps wait for each other."""
        self.warp_epoch[warps] += 1

    def load(self, threads: np.ndarray, addresses: np.ndarray, size: int) -> np.ndarray:
        """Bytes (access, size) that `threads` read at `addresses`, both (access,)."""
        places = self._places(addresses, size)
        self._count(threads, addresses, size)
        self._check(self._unordered_writes(threads, places), places, threads, "reads what another wrote")
        self._note_reads(threads, places)
        return self.data[places]

    def store(self, threads: np.ndarray, addresses: np.ndarray, values: np.ndarray) -> None:
        """Bytes (access, size) to addresses (access,), written by `threads`."""
        places = self._places(addresses, values.shape[1])
        self._count(threads, addresses, values.shape[1])
        changed = self.data[places] != values
        self._check(self._unordered_writes(threads, places) & changed, places, threads, "overwrites what another wrote")
        self._check(self._unordered_reads(threads, places), places, threads, "overwrites what another reads")
        self.data[places] = values
        if (self.data[places] != values).any():
            raise SimtError("threads store different values to one place of shared memory at once")
        self.note_write(threads, places)

    def atomic(self, threads: np.ndarray, addresses: np.ndarray, size: int) -> np.ndarray:
        """Check an atomic access: ordered after ordinary ones. Gives the places; the caller changes `data` there."""
        places = self._places(addresses, size)
        unordered = self._unordered_writes(threads, places) & (self._writer[places] != _SEVERAL)
        self._check(unordered, places, threads, "has an atomic where another wrote")
        self._check(self._unordered_reads(threads, places), places, threads, "has an atomic where another reads")
        self.note_write(threads, places)
        self._writer[places] = _SEVERAL
        return places

    def note_write(self, threads: np.ndarray, places: np.ndarray) -> None:
        """Remember that `threads` write these places (access, size) now."""
        self._writer[places] = threads[:, None]
        self._times["write"][places] = self.epoch
        self._times["warp write"][places] = self.warp_epoch[threads // 32][:, None]
        if self.clocks is not None:
            self.clocks.note_write(threads // 32, places)

    # -- who touched what --------------------------------------------------------------------------------

    def _places(self, addresses: np.ndarray, size: int) -> np.ndarray:
        places = addresses.astype(np.int64)[:, None] + np.arange(size)
        if places.size and (places.min() < 0 or places.max() >= self.data.size):
            raise SimtError(f"access to byte {places.max()} of {self.data.size} bytes of shared memory")
        if self.watch is not None:
            self.watch(places)
        return places

    def _unordered_writes(self, threads: np.ndarray, places: np.ndarray) -> np.ndarray:
        me, writer = threads[:, None], self._writer[places]
        same_warp = (writer // 32 == me // 32) & (writer >= 0)
        warp_now = self._times["warp write"][places] == self.warp_epoch[threads // 32][:, None]
        if self.clocks is None:
            elsewhere = self._times["write"][places] == self.epoch
        else:
            elsewhere = self.clocks.unordered_writes(threads // 32, writer // 32, places)
        now = np.where(same_warp, warp_now, elsewhere)
        return now & (writer != me) & (writer != _NOBODY)

    def _unordered_reads(self, threads: np.ndarray, places: np.ndarray) -> np.ndarray:
        warp = (threads // 32)[:, None]
        if self.clocks is None:
            elsewhere = (self._times["read"][places] == self.epoch) & (self._reader_warp[places] != warp)
        else:
            elsewhere = self.clocks.unordered_reads(threads // 32, places)
        now = self._times["warp read"][places] == self.warp_epoch[threads // 32][:, None]
        inside = (self._reader_warp[places] == warp) & now & (self._reader[places] != threads[:, None])
        return elsewhere | inside

    def _note_reads(self, threads: np.ndarray, places: np.ndarray) -> None:
        warps = threads // 32
        if self.clocks is not None:
            self.clocks.note_read(warps, places)
        for table, time, mine, clock in (
            (self._reader_warp, "read", warps, np.full(len(threads), self.epoch)),
            (self._reader, "warp read", threads, self.warp_epoch[warps]),
        ):
            mine, clock = np.broadcast_to(mine[:, None], places.shape), np.broadcast_to(clock[:, None], places.shape)
            before = np.where(self._times[time][places] == clock, table[places], mine)
            table[places], self._times[time][places] = mine, clock
            several = (table[places] != mine) | (before != mine)
            table[places[several]] = _SEVERAL

    def _check(self, wrong: np.ndarray, places: np.ndarray, threads: np.ndarray, what: str) -> None:
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise SimtError(f"race: thread {threads[row]} {what}, byte {places[row, column]} of shared memory")

    def _count(self, threads: np.ndarray, addresses: np.ndarray, size: int) -> None:
        if not self.counts:
            return
        for warp in np.unique(threads // 32):
            self.wavefronts += count_wavefronts(addresses[threads // 32 == warp].astype(np.int64), min(size, 16))
