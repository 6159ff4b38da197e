"""The door of the tracers: one slot that is asked by every `kernel[grid]`.

A library that records launches instead of making them (`tilewright.torch`) puts a function here. It is called with the
kernel and the grid, and gives what is then called with the arguments: something of its own, or `kernel.launcher(grid)`,
which launches. While nobody is at the door `kernel[grid]` is made by machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tracer = Callable[[Any, Any], Callable[..., Any]]

tracer: Tracer | None = None
on_change: Callable[[Tracer | None], None] | None = None
"""Called by `install`; for `subscript.py`."""


def install(found: Tracer | None) -> None:
    """Put `found` at the door, or nobody."""
    global tracer
    tracer = found
    if on_change is not None:
        on_change(found)
