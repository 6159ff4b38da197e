"""Objects that are called: by their method in Python, or once the machine code of launches is loaded, by that.

A class keeps its `__call__`, which is what Dynamo follows, but the word of the class from which the interpreter calls
its objects is exchanged for a function that calls what they have in their first slot.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

_TP_CALL = 50  # Py_tp_call of typeslots.h
_get_slot = ctypes.pythonapi.PyType_GetSlot
_get_slot.restype, _get_slot.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)


class Called:
    """Something whose calls are those of `ready`, which its class says once more in `__call__`.

    Attributes:
        ready: called with the arguments.
    """

    __slots__ = ("ready",)  # the first: machine code looks for it there

    ready: Callable[..., Any]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if Called in cls.__bases__:
            _calls[cls] = cls.__dict__["__call__"]


_calls: dict[type[Called], Any] = {}
"""The classes whose `__call__` is known to do no more, and that."""


@functools.cache
def _place() -> int:
    """Where a class has the function that calls its objects; 0 where that is not found."""
    plain, named = type("plain", (), {}), type("named", (), {"__call__": lambda self: None})
    classes = [plain, named, functools.partial, type(len), type]
    for place in range(0, sys.getsizeof(plain), 8):
        if all(
            ctypes.c_size_t.from_address(id(cls) + place).value == (_get_slot(cls, _TP_CALL) or 0) for cls in classes
        ):
            return place
    return 0


def call_by(cls: type[Called], function: int) -> None:
    """Have the objects of a class called by the machine code at `function`, unless it was given another `__call__`."""
    if not _place() or _calls.get(cls) is not cls.__dict__.get("__call__", cls):
        return
    usual = _get_slot(type("named", (), {"__call__": print}), _TP_CALL)
    if _get_slot(cls, _TP_CALL) == usual:
        ctypes.c_size_t.from_address(id(cls) + _place()).value = function
