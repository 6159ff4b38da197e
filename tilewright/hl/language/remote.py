"""Names of Helion for several machines: Tilewright runs on one, so each says so."""

from __future__ import annotations

from typing import Any

from tilewright.hl import exc


def _refused(name: str, instead: str) -> exc.BackendUnsupported:
    return exc.BackendUnsupported(f"hl.{name}: kernels of Tilewright see the memory of one device", hint=instead)


def make_async_remote_copy(*args: Any, **kwargs: Any) -> Any:
    """Refused: a copy to another device inside a kernel."""
    raise _refused("make_async_remote_copy", "send with torch.distributed between two kernels")


def remote_barrier(*args: Any, **kwargs: Any) -> Any:
    """Refused: a barrier between devices inside a kernel."""
    raise _refused("remote_barrier", "call torch.distributed.barrier between two kernels")


class AsyncCopyDescriptor:
    """Refused: what `make_async_remote_copy` would return."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _refused("AsyncCopyDescriptor", "send with torch.distributed between two kernels")
