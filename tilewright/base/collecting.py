"""Python's collector of cyclic garbage waits while a kernel is compiled, and while Tilewright is imported.

A compile makes many objects that refer to each other and need them all to its end, so the collector finds nothing in
the many times that it looks. What is left over is collected when the last compile has ended. What an import makes
stays as long as the process.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pause:
    """How many compiles go on, and whether the collector was on before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.was_on = False

    def begin(self) -> None:
        with self.lock:
            if self.count == 0:
                self.was_on = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0 and self.was_on:
                gc.enable()
            others = self.count > 0 and self.was_on
        if others:  # where compiles always overlap nothing would be collected
            gc.collect(1)


_pause = _Pause()


def _begin_anew() -> None:
    """In a process that was forked: compiles of other threads do not go on here, and hold no lock."""
    global _pause
    if _pause.count and _pause.was_on:
        gc.enable()
    _pause = _Pause()


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, the collector does not run, unless others enable it."""
    pause = _pause
    pause.begin()
    try:
        yield
    finally:
        pause.end()


@contextmanager
def kept() -> Iterator[None]:
    """`uncollected` for what stays: the collector takes it for old, and does not go through it at the end either."""
    with uncollected():
        yield
        if gc.get_freeze_count() == 0:  # what somebody else has frozen stays so
            gc.freeze()
            gc.unfreeze()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
