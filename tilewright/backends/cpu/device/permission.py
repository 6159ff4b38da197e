"""What this process must ask the system for before it may use some instructions."""

from __future__ import annotations

import ctypes
import functools
import sys


@functools.cache
def request_permission() -> bool:
    """Ask Linux to let this process use tile registers (arch_prctl ARCH_REQ_XCOMP_PERM, XTILEDATA).

    Call before starting threads: a thread's signal stack is sized at its start. False if the kernel or the processor
    refuses: then compile with the AMX features removed.
    """
    if not sys.platform.startswith("linux"):
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18
    try:
        return int(ctypes.CDLL(None).syscall(arch_prctl, request, tile_data)) == 0
    except (OSError, AttributeError):
        return False
