"""Kernels that are launched by machine code, or not at all."""

from __future__ import annotations

from typing import Any

import pytest


def warm(kernel: Any, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
    """A kernel whose launches in Python fail from now on."""
    for _ in range(3):
        kernel[grid](*args, **kwargs)
    if kernel._binder.builtin is None:
        pytest.skip("this interpreter is not as machine code needs it")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the launch went through Python")

    kernel._binder._in_python = fail
    return kernel
