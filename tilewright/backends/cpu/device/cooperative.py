"""Launches of grids whose programs wait for each other in any direction: each program has a thread of its own.

The team (`ir.py`) runs programs one after the other, in an order in which a program may wait for earlier ones only. A
barrier of the whole grid needs all of them running at once, whatever the number of processors; the system takes turns.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tilewright.backends.cpu import abi
from tilewright.backends.cpu.device.arena import arena_stride, arenas
from tilewright.backends.cpu.device.ir import BLOCK_ARGS
from tilewright.base.errors import OutOfResources

MOST_PROGRAMS = 512
_RANGE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 3)


def make_cooperative_launch(address: int, scratch_bytes: int, pack: Callable[..., bytes]) -> Callable[..., None]:
    """A function that runs the kernel over a grid, all programs at once, and returns when they have finished.

    Args:
        address: of the kernel.
        scratch_bytes: scratch of one program.
        pack: `pack(record, threads, arena, *values, gx, gy, gz)` gives the block of a launch.

    Returns:
        `launch(gx, gy, gz, *values)`, which raises `OutOfResources` for a grid of more programs than `MOST_PROGRAMS`.
    """
    kernel, stride = _RANGE(address), arena_stride(scratch_bytes)

    def launch(gx: int, gy: int, gz: int, *values: Any) -> None:
        total = gx * gy * gz
        if total > MOST_PROGRAMS:
            raise OutOfResources(total, MOST_PROGRAMS, "programs of a cooperative grid")
        block = ctypes.create_string_buffer(pack(0, 0, 0, *values, gx, gy, gz))
        never = ctypes.create_string_buffer(abi.STOP_BYTES)
        arena = arenas.take(stride * total) if stride else None
        start = arena.address if arena else 0
        shared = ctypes.addressof(block) + BLOCK_ARGS
        stop = ctypes.addressof(never)
        programs = [
            threading.Thread(target=kernel, args=(number, number + 1, shared, start + stride * number, stop))
            for number in range(total)
        ]
        for program in programs:
            program.start()
        for program in programs:
            program.join()
        if arena:
            arenas.give(arena)

    return launch
