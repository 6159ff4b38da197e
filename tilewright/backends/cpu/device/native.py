"""The launcher's machine code: compiled once, kept in an object cache, loaded once per process.

The code is scalar and does not depend on the kernel, so a warm start only maps a few kilobytes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tilewright.backends.cpu.device import ir
from tilewright.backends.cpu.device.interrupt import Interrupts, load_interrupts
from tilewright.backends.llvm.codegen import Library, load_helper
from tilewright.backends.llvm.features import host_triple
from tilewright.backends.protocol import ByteCache
from tilewright.base import system
from tilewright.base.record import Record


class Native(Record):
    """The loaded launcher.

    Args:
        library: keeps the code alive.
        launch: `tw_launch`, taking the packed block; releases the GIL. Raises what a signal handler raised.
        launch_address: of `tw_launch`.
        address: addresses of the other entry points, by name.
        interrupts: what ends a grid on Ctrl-C, where there is such a thing.
    """

    library: Library
    launch: Callable[[bytes], None]
    launch_address: int
    address: dict[str, int]
    interrupts: Interrupts | None


_lock = system.this().hold_at_forks(threading.Lock())
_loaded: list[Native] = []


def native(cache: ByteCache | None = None) -> Native:
    """The launcher, loaded on the first call.

    Args:
        cache: where to look for its object, and where to keep it.
    """
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load(cache))
    return _loaded[0]


def _load(cache: ByteCache | None) -> Native:
    library = load_helper("launcher", ir.launcher_ir(host_triple()), ir.EXPORTS, cache)
    address = {name: library.address(name) for name in ir.EXPORTS}
    start, main = address["tw_launch"], threading.main_thread().ident
    interrupts = load_interrupts(start, main, cache) if main is not None else None
    plain: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(start)
    return Native(library, plain if interrupts is None else interrupts.launch, start, address, interrupts)
