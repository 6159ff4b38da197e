"""What a thread is doing: whether launches are recorded, and inside which operator."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


class _State(threading.local):
    """Args of each thread: `recording`: whether tracers see launches; `operators`: those being run, outermost first."""

    def __init__(self) -> None:
        self.recording = True
        self.operators: list[Any] = []


state = _State()


def is_wrap_triton_enabled() -> bool:
    """Whether launches are recorded where somebody traces, in this thread."""
    return state.recording


@contextlib.contextmanager
def set_wrap_triton_enabled(enabled: bool) -> Iterator[None]:
    """Inside, launches of this thread are recorded by tracers, or are made at once whoever looks on.

    Args:
        enabled: whether they are recorded; this is so at the start.
    """
    before = state.recording
    state.recording = enabled
    try:
        yield
    finally:
        state.recording = before


@contextlib.contextmanager
def inside(operator: Any) -> Iterator[None]:
    """Inside, this thread runs the body of `operator`."""
    state.operators.append(operator)
    try:
        yield
    finally:
        state.operators.pop()
