"""The text of a kernel after each pass: on standard error by the knobs `compilation.print_passes` and `print_llvm`, or
as data for a tool that asks (`collected`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tilewright.base.knobs import ALL_KERNELS, knobs

Shown = list[tuple[str, str]]
"""(what, text) in order; the text is empty where nothing changed."""

_collected: ContextVar[Shown | None] = ContextVar("_collected", default=None)
_AS_BEFORE = "// as before"


@contextmanager
def collected() -> Iterator[Shown]:
    """While this is open, what would be printed of every kernel that is compiled in this thread goes to the list."""
    shown: Shown = []
    token = _collected.set(shown)
    try:
        yield shown
    finally:
        _collected.reset(token)


def is_shown(kernel: str) -> bool:
    """Whether the passes over this kernel are to be shown."""
    return _collected.get() is not None or knobs.compilation.print_passes in (ALL_KERNELS, kernel)


def show(kernel: str, what: str, text: str) -> None:
    """Print what a kernel is at some point, or keep it for the tool that asks."""
    shown = _collected.get()
    if shown is not None:
        shown.append((what, "" if text == _AS_BEFORE else text))
        return
    print(f"// -----// {kernel} after {what} //----- //\n{text}", file=sys.stderr)


def printer(kernel: str, render: Callable[[Any], str]) -> Callable[[str, Any, bool], None] | None:
    """What prints the module after a pass, `told(name, module, changed)`; None where nobody wants to see it.

    Args:
        kernel: its name.
        render: the module as text.
    """
    if not is_shown(kernel):
        return None
    return lambda name, module, changed: show(kernel, name, render(module) if changed else _AS_BEFORE)
