"""Zeroed, page-aligned memory for the launcher's tables and for the scratch of kernels.

Pages come from anonymous private mappings, so they cost nothing until a thread touches them (its own
NUMA node then holds them) and a forked child gets copies. Arenas are kept in a pool: two launches in
flight never share one, and a launch after another reuses pages that are already warm.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap

from tilewright.backends.cpu import tuning
from tilewright.base import system
from tilewright.base.errors import OutOfMemoryError

PAGE = 4096
HUGE = 2 << 20


class Memory:
    """A zeroed block of memory.

    Args:
        size: bytes wanted; blocks of 4 MiB and more start on a 2 MiB boundary and ask for huge pages.

    Raises:
        OutOfMemoryError: the process may have no more memory.
    """

    __slots__ = ("_mapping", "_view", "address", "size")

    def __init__(self, size: int) -> None:
        huge = size >= 2 * HUGE
        length = size + HUGE if huge else size
        try:
            self._mapping = system.this().map_private(length)
        except OSError as error:
            raise OutOfMemoryError(f"no memory for {length:,} bytes of scratch of a launch: {error}") from error
        if huge and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a system without transparent huge pages: small ones work as well
                self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self._view = ctypes.c_char.from_buffer(self._mapping)
        start = ctypes.addressof(self._view)
        self.address = (start + HUGE - 1) // HUGE * HUGE if huge else start
        self.size = size

    def word(self, offset: int) -> ctypes.c_int64:
        """The 8-byte word at `offset`, readable and writable through `.value`."""
        return ctypes.c_int64.from_address(self.address + offset)


def arena_stride(scratch_bytes: int) -> int:
    """Bytes from one thread's scratch to the next: an odd number of pages, at least `scratch_bytes`.

    Whole pages keep neighbours off each other's cache lines; an odd number spreads the same offset of
    different threads over the sets of a cache that they share.
    """
    pages = -(-scratch_bytes // PAGE)
    return (pages | 1) * PAGE if pages else 0


class ArenaPool:
    """Scratch blocks that are not in use.

    `list.pop` and `list.append` are atomic, so it needs no lock.
    """

    def __init__(self) -> None:
        self._free: list[Memory] = []

    def take(self, size: int) -> Memory:
        """A block of at least `size` bytes that no other launch holds."""
        smaller: list[Memory] = []
        try:
            while (arena := self._free.pop()).size < size:
                smaller.append(arena)
        except IndexError:
            arena = Memory(size)
            del smaller[:1]  # the new block takes its place
        for block in smaller:
            self.give(block)
        return arena

    def give(self, arena: Memory) -> None:
        """Return a block taken before."""
        if len(self._free) < tuning.KEPT_ARENAS:
            self._free.append(arena)

    def bytes(self) -> int:
        """Bytes of address space kept for later launches."""
        return sum(arena.size for arena in list(self._free))

    def clear(self) -> None:
        """Give the kept blocks back to the system."""
        self._free.clear()


arenas = ArenaPool()


class Borrowed(int):
    """The address of a block of the pool, which is given back with the last reference."""

    arena: Memory

    def __del__(self) -> None:
        arenas.give(self.arena)


class Spare:
    """The block that machine code takes by itself while it holds the lock of the interpreter.

    A launch may take it at any moment, so a block that was here once is kept: each is at least twice as large as the
    one before, all of them together at most twice as large as the last.

    Attributes:
        words: address, bytes, whether a launch has it.
    """

    def __init__(self) -> None:
        self.words = (ctypes.c_int64 * 3)()
        self._blocks: list[Memory] = []

    def borrow(self, size: int) -> Borrowed:
        """Another block, for a launch that cannot have this one; the next that wants so much can."""
        if size > self.words[1]:
            block = Memory(max(size, 2 * self.words[1]))
            self._blocks.append(block)
            self.words[:2] = [block.address, block.size]  # at once, as the lock of the interpreter is held
        arena = arenas.take(size)
        borrowed = Borrowed(arena.address)
        borrowed.arena = arena
        return borrowed


spare = Spare()
