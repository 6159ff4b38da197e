"""The slot of the tracers: it is asked by every `kernel[grid]`.

A library that records launches instead of making them (`tilewright.torch`) puts a function here. It becomes the method
that `kernel[grid]` calls, and gives what is then called with the arguments: something of its own, or
`kernel.launcher(grid)`, which launches. While nobody is in the slot `kernel[grid]` is made by machine code.

A tracer that says how machine code finds out by itself whether there is anything to see (`Watch`) can give
`functools.partial(tracer_slot.over, kernel, grid)`: a built-in function that launches where nobody looks on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.base.hooks import settings_changed
from tilewright.base.record import Record

Tracer = Callable[[Any, Any], Callable[..., Any]]


class Watch(Record):
    """How machine code finds out whether a tracer would see a launch.

    Args:
        traced: does what it does of a launch that is seen, or not known, `traced(kernel, grid, *args, **kwargs)`.
        doing: has an attribute `doing`, which says what this thread is doing.
        usual: the object that is there while launches are seen where a mode or a transform of torch is on.
        judge: for any other: `judge(kernel)` says True if nobody sees a launch, whatever is on.
        followed: called with `over` when it is there.
    """

    traced: Callable[..., Any]
    doing: Any
    usual: Any
    judge: Callable[[Any], bool]
    followed: Callable[[Any], None]


class _Onlookers(threading.local):
    """Of a thread.

    Attributes:
        count: dispatch modes of torch that are on and only look on: they record no launch.
    """

    count = 0


onlookers = _Onlookers()
tracer: Tracer | None = None
watch: Watch | None = None
over: Callable[..., Any] | None = None
"""`over(kernel, grid, *args, **kwargs)` launches, or calls `watch.traced`; None while there is no machine code."""
listeners: list[Callable[[], None]] = []
"""Called when somebody else is in the slot."""


def install(found: Tracer | None, how: Watch | None = None) -> None:
    """Put `found` in the slot, or nobody.

    Args:
        found: the tracer.
        how: how machine code can spare it launches that it would not record.
    """
    global tracer, watch
    tracer, watch = found, how
    for listener in listeners:
        listener()
    settings_changed()  # what is remembered of a launch may be something to see


@contextlib.contextmanager
def held_by(found: Tracer | None, how: Watch | None = None) -> Iterator[None]:
    """Inside, `found` is in the slot, or nobody."""
    before = tracer, watch
    install(found, how)
    try:
        yield
    finally:
        install(*before)
