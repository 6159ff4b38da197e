"""What an autotuner does to arrays of any library: keep a copy, put it back, zero them."""

from __future__ import annotations

from typing import Any


def copy(array: Any) -> Any:
    """A copy of the contents."""
    return array.clone() if hasattr(array, "clone") else array.copy()


def assign(array: Any, saved: Any) -> None:
    """Put contents back."""
    if hasattr(array, "copy_"):
        array.copy_(saved)
    else:
        array[...] = saved


def fill_zero(array: Any) -> None:
    """Set every element to zero."""
    if hasattr(array, "zero_"):
        array.zero_()
    else:
        array[...] = 0
