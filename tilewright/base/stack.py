"""Room for deeply nested kernels: Python's limit of nested calls, raised while one is compiled.

Branches inside branches, and chains of `elif`, are visited by functions that call themselves.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from tilewright.base import system

_DEEP = 20_000
_lock = system.this().hold_at_forks(threading.Lock())
_inside = 0
_usual = 0


@contextlib.contextmanager
def deep_calls() -> Iterator[None]:
    """Inside, functions may be nested several times as deep as Python allows by itself."""
    global _inside, _usual
    with _lock:
        if _inside == 0:
            _usual = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, _DEEP))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and sys.getrecursionlimit() == max(_usual, _DEEP):  # nobody else has set it meanwhile
                sys.setrecursionlimit(_usual)
