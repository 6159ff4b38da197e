"""What a thread is doing: whether launches are recorded, and inside which operator."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple


class Doing(NamedTuple):
    """What a thread is doing.

    Args:
        recording: whether tracers see launches.
        operator: the innermost operator of `triton_op` whose body runs, or None.
        trial: is told of launches, `trial(kernel, grid, args, kwargs)`, while the operator is tried out; else None.
    """

    recording: bool
    operator: Any
    trial: Any = None


class _State(threading.local):
    doing = Doing(True, None)  # one attribute: each look at a thread's own costs


state = _State()


def is_wrap_triton_enabled() -> bool:
    """Whether launches are recorded where somebody traces, in this thread."""
    return state.doing.recording


@contextlib.contextmanager
def doing(recording: bool, operator: Any, trial: Any = None) -> Iterator[None]:
    """Inside, this thread is doing this; see `Doing`."""
    before = state.doing
    state.doing = Doing(recording, operator, trial)
    try:
        yield
    finally:
        state.doing = before


def set_wrap_triton_enabled(enabled: bool) -> contextlib.AbstractContextManager[None]:
    """Inside, launches of this thread are recorded by tracers, or are made at once whoever looks on.

    Args:
        enabled: whether they are recorded; this is so at the start.
    """
    return doing(enabled, state.doing.operator)
