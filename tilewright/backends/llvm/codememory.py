"""Memory for code: zones of pages in which thousands of kernels take few mappings of the process.

    arena    [ code R-X ........ ][ constants R-- ........ ][ data RW- ........ ]     three zones, equally many pages

A piece is the run of pages with one index in all zones, so its parts always lie in reach of each other. Neighbours of
one protection are one mapping to the system, which allows a process about 65,000. Nothing is ever both writable and
executable: a piece is written, then protected. Pages that are given back are forgotten and may be written again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence

from tilewright.base import system
from tilewright.base.errors import InternalError, OutOfMemoryError, TilewrightError, UnsupportedError

READ, WRITE, EXECUTE = 1, 2, 4  # PROT_*
PROTECTIONS = (READ | EXECUTE, READ, READ | WRITE)  # of code, constants, data
_USUAL_PAGES = 1024  # of a zone; larger objects get an arena of their own

_arenas: list[_Arena] = []
_lock = system.this().hold_at_forks(threading.Lock())
_returned: deque[tuple[_Arena, int, int]] = deque()


class Piece:
    """Memory of one loaded object, given back when the last reference goes.

    Args:
        arena: where it lies.
        index: of its first page in each zone.
        pages: in each zone.
        sizes: bytes that are used of code, constants, data.

    Attributes:
        addresses: of code, constants, data.
    """

    def __init__(self, arena: _Arena, index: int, pages: int, sizes: Sequence[int]) -> None:
        self._arena, self._sizes = arena, sizes
        self.addresses = tuple(arena.address(zone, index) for zone in range(len(PROTECTIONS)))
        weakref.finalize(self, _give_back, arena, index, pages, tuple(map(bool, sizes))).atexit = False

    def write(self, contents: Sequence[bytes | bytearray | memoryview]) -> None:
        """Fill code, constants and data from their starts; call it before `protect`, once."""
        for address, part in zip(self.addresses, contents, strict=True):
            start = address - self._arena.base
            self._arena.memory[start : start + len(part)] = part

    def protect(self) -> None:
        """Let code run, and nobody write to code and constants any more.

        Raises:
            InternalError: the process has as many mappings as it may.
            UnsupportedError: the system does not let it run what it wrote.
        """
        for address, size, protection in zip(self.addresses, self._sizes, PROTECTIONS, strict=True):
            if size and protection != READ | WRITE:
                protect(address, size, protection)


class _Arena:
    """Three zones, and which of their pages are free.

    Args:
        pages: of each zone.
    """

    def __init__(self, pages: int) -> None:
        self.pages, self._free = pages, [(0, pages)]  # (first, count) in order, none touching another
        size = len(PROTECTIONS) * pages * mmap.PAGESIZE
        try:
            self.memory = system.this().map_private(size, sparse=True)
        except OSError as error:
            raise OutOfMemoryError(f"no memory for {size:,} bytes of code: {error}") from error
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def address(self, zone: int, index: int) -> int:
        """Of a page."""
        return self.base + (zone * self.pages + index) * mmap.PAGESIZE

    def take(self, count: int) -> int | None:
        """The first of `count` pages that are free in all zones; None if there are not so many in a row."""
        for number, (first, free) in enumerate(self._free):
            if free >= count:
                self._free[number : number + 1] = [(first + count, free - count)] if free > count else []
                return first
        return None

    def give(self, first: int, count: int) -> None:
        """Pages are free again."""
        runs = sorted([*self._free, (first, count)])
        self._free = runs[:1]
        for start, free in runs[1:]:
            before, size = self._free[-1]
            if before + size == start:
                self._free[-1] = before, size + free
            else:
                self._free.append((start, free))


def reserve(sizes: Sequence[int]) -> Piece:
    """Zeroed memory for an object, not yet executable.

    Args:
        sizes: bytes of code, constants and data.

    Raises:
        OutOfMemoryError: there is no memory.
    """
    pages = max(1, max(-(-size // mmap.PAGESIZE) for size in sizes))
    with _lock:
        while _returned:
            arena, index, count = _returned.popleft()
            arena.give(index, count)
        for arena in reversed(_arenas):
            first = arena.take(pages)
            if first is not None:
                return Piece(arena, first, pages, sizes)
        arena = _Arena(max(pages, _USUAL_PAGES))
        _arenas.append(arena)
        first = arena.take(pages)
        assert first is not None
        return Piece(arena, first, pages, sizes)


def _give_back(arena: _Arena, index: int, pages: int, used: Sequence[bool]) -> None:
    """Forget what the pages hold, and let them be written again. This runs whenever an object goes, perhaps within
    `reserve`: it takes no lock, and the next `reserve` counts the pages as free."""
    with contextlib.suppress(TilewrightError):  # pages that cannot be written again stay taken
        for zone, protection in enumerate(PROTECTIONS):
            if used[zone]:
                start = (zone * arena.pages + index) * mmap.PAGESIZE
                arena.memory.madvise(mmap.MADV_DONTNEED, start, pages * mmap.PAGESIZE)
                if protection != READ | WRITE:
                    protect(arena.base + start, pages * mmap.PAGESIZE, READ | WRITE)
        _returned.append((arena, index, pages))


def protect(address: int, size: int, protection: int) -> None:
    """Protect pages; errors as for `Piece.protect`."""
    if not _mprotect()(address, size, protection):
        return
    code = ctypes.get_errno()
    if code == errno.ENOMEM:
        raise InternalError(
            "this process has as many memory mappings as the system allows",
            hint="raise the limit (sysctl vm.max_map_count), or drop kernels that are no longer needed",
        )
    raise UnsupportedError(f"this system does not let a process run code that it wrote: {os.strerror(code)}")


@functools.cache
def _mprotect() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
