"""Windows on x86-64. Written, and tested as far as Linux can; it has not run on Windows yet."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import Any

from tilewright.base.system.protocol import System

_LOCKED_BYTES = 1


class Windows(System):
    """Windows. Folders of a user are that user's by the rights that they inherit, which `os.stat` does not show."""

    name = "Windows"

    def user(self) -> str:
        return getpass.getuser()

    def identity(self) -> tuple[str, ...] | None:
        return None  # there is no /proc/cpuinfo: LLVM is asked each time

    def lock(self, handle: int) -> None:
        lock_first_byte(handle, _locking())


def lock_first_byte(handle: int, locking: Callable[[int, int], None]) -> None:
    """Lock the first byte of a file, which stands for all of it.

    Args:
        handle: of the file.
        locking: locks so many bytes from the place of a handle, or raises `OSError` after no long wait.

    Raises:
        BlockingIOError: somebody else has it.
    """
    os.lseek(handle, 0, os.SEEK_SET)
    try:
        locking(handle, _LOCKED_BYTES)
    except PermissionError as error:  # EACCES is what `_locking` says of a byte that is taken
        raise BlockingIOError(error.errno, "locked by another process") from error


def _locking() -> Callable[[int, int], None]:
    import msvcrt

    module: Any = msvcrt
    return lambda handle, count: module.locking(handle, module.LK_NBLCK, count)
