"""Machine code comes into memory and goes: one place for the hooks of `knobs.runtime` around that.

Hooks are called as `hook(module, function, name, metadata_group, hash)`, as Triton calls them.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from tilewright.base.cache_layers import disk_cache
from tilewright.base.knobs import knobs
from tilewright.base.target import Target
from tilewright.devices.registry import backend_of


class Loadable(Protocol):
    """A compiled kernel, as far as loading it goes."""

    name: str
    target: Target
    metadata: dict[str, Any]
    hash: str
    module: Any

    @property
    def binary(self) -> bytes:
        """The object file, or the cubin."""


def load_code(kernel: Loadable) -> None:
    """Load the binary of a kernel.

    Raises:
        InternalError, KeyError, TypeError, ValueError: it does not load.
    """
    start, end = knobs.runtime.kernel_load_start_hook, knobs.runtime.kernel_load_end_hook
    if start:
        start(*_facts(kernel.module, kernel.name, kernel.target, kernel.hash))
    kernel.module = backend_of(kernel.target).load(kernel.binary, kernel.metadata)
    if end:
        end(*_facts(kernel.module, kernel.name, kernel.target, kernel.hash))
    weakref.finalize(kernel, _gone, kernel.module, kernel.name, kernel.target, kernel.hash).atexit = False


def files_of(name: str, target: Any, hash: str) -> dict[str, str]:
    """The entry of the disk cache that has a kernel: path by file name; empty if there is none."""
    path = disk_cache().local.file(hash)
    return {} if path is None else {f"{name}.{backend_of(target).BINARY}": str(path)}


def _gone(*loaded: Any) -> None:
    hook = knobs.runtime.kernel_unload_hook
    if hook:
        hook(*_facts(*loaded))


def _facts(module: Any, name: str, target: Any, hash: str) -> tuple[Any, Any, str, dict[str, str], str]:
    return module, module, name, files_of(name, target, hash), hash
