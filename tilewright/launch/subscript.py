"""`kernel[grid]`: in Python, or once the machine code of launches is loaded, by it.

A class of Python cannot have a method in machine code, but a class of C can. `Subscript` starts below an empty one,
`_Empty`, and is put below one whose subscript is the machine code when that is there; the two have the same layout. A
tracer that must see each `kernel[grid]` gets the method in Python back.
"""

from __future__ import annotations

import ctypes
import sys
from types import MethodType
from typing import Any

from tilewright.launch import door

_MP_SUBSCRIPT = 5  # typeslots.h
_BASETYPE, _HAVE_VERSION_TAG = 1 << 10, 1 << 18


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    )


def _class_of_c(name: str, subscript: int) -> Any:
    """A class like `object`, and with this function for subscripts if it is not 0."""
    slots = (_Slot * 2)(_Slot(_MP_SUBSCRIPT if subscript else 0, subscript or None), _Slot(0, None))
    text = f"tilewright.launch.subscript.{name}".encode()
    spec = _Spec(text, object.__basicsize__, 0, _BASETYPE | _HAVE_VERSION_TAG, ctypes.addressof(slots))
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p,)
    _kept.append((text, spec, slots))
    return make(ctypes.addressof(spec))


_kept: list[Any] = []
_Empty: Any = _class_of_c("Empty", 0) if sys.implementation.name == "cpython" else type("Empty", (), {"__slots__": ()})


class Subscript(_Empty):  # type: ignore[misc]
    """Something with `x[grid]`: the method of its launch function that has the grid.

    Attributes:
        ready: the launch function, `ready(grid, *args, **kwargs)`.
    """

    __slots__ = ("ready",)

    ready: Any


class InPython:
    """`x[grid]` in Python, which a tracer at the door can follow."""

    __slots__ = ()

    ready: Any

    def __getitem__(self, grid: Any) -> Any:
        if door.tracer is not None:
            return door.tracer(self, grid)
        return MethodType(self.ready, grid) if grid is not None else _Unsized(self.ready)


class _Unsized:
    """The launch of a kernel whose grid is None: an error when it is called."""

    def __init__(self, ready: Any) -> None:
        self._ready = ready

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ready(None, *args, **kwargs)


def subscript_by(address: int) -> None:
    """Have the machine code at `address` make the methods."""
    try:
        Subscript.__bases__ = (_class_of_c("Native", address),)
    except TypeError:  # an interpreter that lays the two classes out differently
        return


def _let_tracers_see(tracer: door.Tracer | None) -> None:
    if tracer is not None:
        Subscript.__getitem__ = InPython.__getitem__
    elif "__getitem__" in vars(Subscript):
        del Subscript.__getitem__


door.on_change = _let_tracers_see
