"""Who gives kernels device memory to work in.

CPU kernels bring their own; the setting is kept for back ends that ask.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol

from tilewright.base.errors import LaunchError


class Buffer(Protocol):
    """Memory that an allocator returns."""

    def data_ptr(self) -> int:
        """Its address."""


Allocator = Callable[[int, int, "int | None"], Any]


class NullAllocator:
    """The allocator while nobody has set one: it refuses."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> NoReturn:
        raise LaunchError(
            "Kernel requires a runtime memory allocation, but no allocator was set.",
            hint="call tilewright.set_allocator(fn), fn(size, alignment, stream) -> object with data_ptr()",
        )


_NOBODY = NullAllocator()
_allocator: ContextVar[Allocator] = ContextVar("_allocator")


def set_allocator(allocator: Allocator) -> None:
    """Set who gives kernels the memory that they ask for at a launch, in this context.

    Args:
        allocator: `f(size, alignment, stream)` gives an object with `data_ptr()`; sizes in bytes.
    """
    _allocator.set(allocator)


def get_allocator() -> Allocator:
    """The allocator of this context."""
    return _allocator.get(_NOBODY)
