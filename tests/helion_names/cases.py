"""The list of programs, and what enters one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {}
"""Name -> what to call, the same in PyTorch, what makes the arguments."""


def case(expected: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """Enter a kernel, or a function that calls one, with what it must give."""

    def enter(fn: Any) -> Any:
        CASES[fn.__name__ if hasattr(fn, "__name__") else fn.name] = fn, expected, inputs
        return fn

    return enter


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers on the device that is the default."""
    return torch.randn(shape, dtype=dtype)
