"""`breakpoint()` while a kernel is traced: it stops nowhere, as the values are invented, and its place is kept.

Python's own function asks `sys.breakpointhook`, so `breakpoint()`, `hl.breakpoint()` and those of functions that a
kernel calls are one thing. Where the kernel runs as a reference nobody stands between Python and the user's debugger.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.hl.trace.state import current, place_of

_LOCK = threading.Lock()
_traces = 0  # how many run, in all threads
_users: Callable[..., Any] = sys.breakpointhook


def _noted(*args: Any, **kwargs: Any) -> Any:
    trace = current()
    if trace is None:  # another thread, which traces nothing
        return _users(*args, **kwargs)
    trace.stop = trace.stop or place_of(trace) or (trace.line, None, None, None)


@contextmanager
def noted_breakpoints() -> Iterator[None]:
    """A block in which `breakpoint()` only leaves its place in the trace of its thread."""
    global _traces, _users
    with _LOCK:
        _traces += 1
        if _traces == 1:
            _users, sys.breakpointhook = sys.breakpointhook, _noted
    try:
        yield
    finally:
        with _LOCK:
            _traces -= 1
            if not _traces:
                sys.breakpointhook = _users
