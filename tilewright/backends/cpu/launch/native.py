"""The launcher's machine code: compiled once, kept in an object cache, loaded once per process.

The code is scalar and does not depend on the kernel, so a warm start only maps a few kilobytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cpu.launch import ir
from tilewright.backends.llvm.codegen import Library, compile_object, load, versions
from tilewright.backends.llvm.features import host
from tilewright.backends.llvm.identity import ByteCache
from tilewright.base.errors import InternalError


@dataclass(frozen=True)
class Native:
    """The loaded launcher.

    Args:
        library: keeps the code alive.
        launch: `tw_launch`, taking the packed block; releases the GIL.
        address: addresses of the other entry points, by name.
    """

    library: Library
    launch: Callable[[bytes], None]
    address: dict[str, int]


_lock = threading.Lock()
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
    isa = host()
    text = ir.launcher_ir(isa.triple)
    identity = "\0".join(("launcher", text, versions(), isa.triple, isa.cpu, isa.flags))
    key = hashlib.sha256(identity.encode()).hexdigest()
    image = cache.get_bytes(key) if cache is not None else None
    library = None
    if image is not None:
        try:
            library = load(image, ir.EXPORTS)
        except InternalError:
            library = None  # an object from a damaged cache: make it anew
    if library is None:
        image = compile_object(text, isa)
        if cache is not None:
            cache.put_bytes(key, image)
        library = load(image, ir.EXPORTS)
    address = {name: library.address(name) for name in ir.EXPORTS}
    launch: Any = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address["tw_launch"])
    return Native(library, launch, address)
