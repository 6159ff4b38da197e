"""The library of torch in this process, whose functions machine code calls."""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path


@functools.cache
def torch_library() -> ctypes.CDLL:
    """The library that has torch's C++ functions, those of c10 included.

    Raises:
        StopIteration, OSError: it is not where it should be.
    """
    torch = sys.modules["torch"]
    return ctypes.CDLL(str(next(Path(torch.__file__ or "").parent.glob("lib/*torch_cpu.*"))))


@functools.cache
def python_library() -> ctypes.PyDLL:
    """The library that has torch's objects of Python; it is called with the lock of the interpreter held."""
    return ctypes.PyDLL(sys.modules["torch"]._C.__file__)


def address_of(function: object) -> int:
    """Address of a function of `ctypes`."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
