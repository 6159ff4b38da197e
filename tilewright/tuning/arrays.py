"""What an autotuner does to arguments: copy, put back and zero arrays of any library, alone, described or in tuples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.devices.host_descriptor import TensorDescriptor


def arrays_of(value: Any) -> Iterator[Any]:
    """The arrays of an argument: itself, the base of a descriptor, those in a tuple or list; none of None."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from arrays_of(item)
    elif value is not None:
        yield value.base if isinstance(value, TensorDescriptor) else value


def copy(value: Any) -> list[Any]:
    """Copies of the contents of the arrays of an argument."""
    return [array.clone() if hasattr(array, "clone") else array.copy() for array in arrays_of(value)]


def assign(value: Any, saved: list[Any]) -> None:
    """Put contents back that `copy` gave."""
    for array, contents in zip(arrays_of(value), saved, strict=True):
        if hasattr(array, "copy_"):
            array.copy_(contents)
        else:
            array[...] = contents


def fill_zero(value: Any) -> None:
    """Set every element to zero."""
    for array in arrays_of(value):
        if hasattr(array, "zero_"):
            array.zero_()
        else:
            array[...] = 0
