"""`triton.runtime.interpreter`: kernels that run as Python are jit functions here, and one can be asked which it is."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import InterpreterError
from tilewright.launch.jit import JITFunction


class _WhatIsInterpreted(type):
    """The class of `InterpretedFunction`: its instances are the kernels that a launch now would run as Python."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, JITFunction) and thing.is_interpreted

    def __call__(cls, fn: Any, **options: Any) -> JITFunction:
        return JITFunction(fn, **{**options, "interpret": True})


class InterpretedFunction(metaclass=_WhatIsInterpreted):
    """A kernel that runs as Python: a `JITFunction` whose launches are interpreted.

    Args:
        fn: Python function in the block language.
        options: as for `JITFunction`.
    """


__all__ = ["InterpretedFunction", "InterpreterError"]
