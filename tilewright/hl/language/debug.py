"""What helps to see what a kernel does."""

from __future__ import annotations

import builtins as python
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.symbols import Sym
from tilewright.hl.trace import builtins
from tilewright.hl.trace.state import current, device_trace

breakpoint = python.breakpoint  # while a kernel is traced: trace/stops.py


def device_print(prefix: str, *values: Any) -> None:
    """Print values while the kernel runs.

    Args:
        prefix: what is written before each line.
        values: tiles, sizes and numbers.
    """
    trace = device_trace("hl.device_print")
    if not isinstance(prefix, str):
        raise exc.InvalidAPIUsage(
            f"what is printed first is no text, but of type {type(prefix).__name__}",
            hint='a text comes first: print("x", x)',
        )
    given = [trace.scalar(value) if isinstance(value, Sym) else value for value in values]
    words = [value for value in given if isinstance(value, str)]
    given = [value if isinstance(value, torch.Tensor) else trace.number(value) for value in given if value not in words]
    trace.record("print", (" ".join([prefix, *words]), given), None)


def _print(*values: Any, **options: Any) -> None:
    """`print` in a kernel: of the host it is the launcher's, in a loop it is `device_print`."""
    trace = current()
    if trace is not None and trace.region is not None:
        device_print(*values)


builtins.provide("print", _print)
