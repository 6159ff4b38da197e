"""The list of functions of libraries that `library_functions.py` checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {}
"""Name -> the library's function, the same in PyTorch, inputs: shapes of noise, or functions that give a value."""


def case(name: str, fn: Callable[..., Any], expected: Callable[..., Any], *inputs: Any) -> None:
    """Enter a function."""
    CASES[name] = fn, expected, inputs
