"""`kernel[grid]`: in Python, or once the machine code of launches is loaded, by it.

A class of Python cannot have a method in machine code, but a class of C can. `Subscript` starts below an empty one,
`_Empty`, and is put below one whose subscript is the machine code when that is there; the two have the same layout. A
tracer in the slot is the method itself.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from types import MethodType
from typing import TYPE_CHECKING, Any

from tilewright.base.grids import Grid
from tilewright.launch import tracer_slot

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
if TYPE_CHECKING:

    class _Empty: ...

else:
    _Empty = _class_of_c("Empty", 0) if sys.implementation.name == "cpython" else type("Empty", (), {"__slots__": ()})


class Subscript(_Empty):
    """Something with `x[grid]`: the method of its launch function that has the grid.

    Attributes:
        ready: the launch function in machine code, `ready(grid, *args, **kwargs)`; unset until there is one.
        waiting: each `x[grid]` that was made before, and still lives; None when there is machine code.
    """

    __slots__ = ("ready", "waiting")  # `ready` is the first: machine code looks for it there

    ready: Any
    waiting: list[weakref.ref[Any]] | None

    def _launch_over(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def become(self, ready: Any) -> None:
        """Launch by `ready` from now on, also what was made by `x[grid]` before."""
        self.ready = ready
        waiting, self.waiting = self.waiting, None
        for kept in filter(None, (reference() for reference in waiting or ())):
            kept.__setstate__((ready, kept.args, {}, None))

    def _over(self, grid: Grid) -> Any:
        """`x[grid]` that goes through Python until there is machine code."""
        waiting = self.waiting
        if waiting is None:
            return MethodType(self.ready, grid)
        if len(waiting) & (len(waiting) - 1) == 0:  # a power of two: now and then
            waiting[:] = [reference for reference in waiting if reference() is not None]
        made = functools.partial(self._launch_over, grid)
        waiting.append(weakref.ref(made))
        return made


class InPython:
    """`x[grid]` in Python."""

    __slots__ = ()

    def __getitem__(self, grid: Grid) -> Any:
        launch: Any = self._over(grid)  # type: ignore[attr-defined]
        return launch if grid is not None else _Unsized(launch)


class _Unsized:
    """The launch of a kernel whose grid is None: an error when it is called."""

    def __init__(self, launch: Any) -> None:
        self._launch = launch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._launch(*args, **kwargs)


def subscript_by(address: int) -> None:
    """Have the machine code at `address` make the methods."""
    try:
        Subscript.__bases__ = (_class_of_c("Native", address),)
    except TypeError:  # an interpreter that lays the two classes out differently
        return


def _let_tracers_see() -> None:
    subscript: Any = Subscript
    if tracer_slot.tracer is not None:
        subscript.__getitem__ = tracer_slot.tracer
    elif "__getitem__" in vars(Subscript):
        del subscript.__getitem__


tracer_slot.listeners.append(_let_tracers_see)
