"""Names in a kernel: local variables, what hides behind a branch or a loop, and globals.

A `Scope` is the variables of one activation of a function at one place; branches and loop
bodies work on copies. A name that exists only on some paths is remembered as *hidden*, so that the
error can say where it was assigned.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import enum
import sys
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewright.base.callable import BlockFunction
from tilewright.base.dtypes import Type
from tilewright.base.errors import UndefinedNameError
from tilewright.base.naming import home_of
from tilewright.frontend.advice import call_hint
from tilewright.frontend.content import resolve_name
from tilewright.frontend.records import record_fields
from tilewright.frontend.source import KernelSource
from tilewright.ops.builtin import Builtin
from tilewright.ops.values import constexpr

# Python's functions that a kernel may call; calls.py says what each does
PYTHON_BUILTINS: dict[str, Any] = {
    f.__name__: f
    for f in (
        len, range, float, int, bool, str, isinstance, getattr, hasattr, print, min, max, abs, tuple, list, type, dict,
        enumerate, zip, reversed, sum, any, all, sorted, round, divmod, pow, slice, issubclass, callable, repr, map,
        filter,
    )
}  # fmt: skip


class Scope:
    """The variables of a function at one place.

    Attributes:
        values: name to value.
        hidden: names that exist on some paths only, with the reason in words.
        constants: names declared ``name: tl.constexpr``, with the declaration.
        pending: names declared so without a value yet.
    """

    __slots__ = ("constants", "hidden", "pending", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.hidden: dict[str, str] = {}
        self.constants: dict[str, ast.AST] = {}
        self.pending: set[str] = set()

    def copy(self) -> Scope:
        """An independent scope with the same contents."""
        other = Scope()
        other.values = self.values.copy()
        other.hidden = self.hidden.copy()
        other.constants = self.constants.copy()
        other.pending = self.pending.copy()
        return other

    def bind(self, name: str, value: Any) -> None:
        """Give `name` a value."""
        self.values[name] = value
        if self.hidden:
            self.hidden.pop(name, None)

    def hide(self, names: Iterable[str], reason: str) -> None:
        """Take `names` away; reading one says `reason`."""
        for name in names:
            self.values.pop(name, None)
            self.constants.pop(name, None)
            self.hidden[name] = reason


def lookup(scope: Scope, source: KernelSource, name: str) -> Any:
    """Value of a name: local, then closure and globals, then Python's builtins.

    Raises:
        UndefinedNameError: no such name, or a global that a kernel may not use.
    """
    if name in scope.values:
        return scope.values[name]
    if name in scope.hidden:
        raise UndefinedNameError(f"{name} is not defined here: {scope.hidden[name]}", hint=_before(name))
    found = resolve_name(source, name)
    if found is not None:
        return usable_global(name, found[1])
    if name in PYTHON_BUILTINS:
        return PYTHON_BUILTINS[name]
    raise UndefinedNameError(f"{name} is not defined", hint=_suggestion(scope, source, name))


def _before(name: str) -> str:
    return f"give `{name}` a value of the same type before the branch or loop"


_INTERPRETED = "it works where kernels run as Python: TILEWRIGHT_INTERPRET=1, or @tilewright.jit(interpret=True)"


def _suggestion(scope: Scope, source: KernelSource, name: str) -> str:
    if name in ("breakpoint", "open", "input"):
        return f"Python's `{name}` cannot be used in a kernel: {_INTERPRETED}"
    if hasattr(builtins, name):
        known = ", ".join(PYTHON_BUILTINS)
        return f"Python's `{name}` cannot be used in a kernel; available builtins are {known}"
    if name in sys.stdlib_module_names:
        return (
            f"import {name} in the module of the kernel, for constants; functions of tiles are those of tl: tl.exp(x)"
        )
    names = [*scope.values, *source.closure, *source.globals, *PYTHON_BUILTINS]
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean `{close[0]}`?" if close else f"define `{name}` in the kernel or pass it as a parameter"


def usable_global(name: str, value: Any) -> Any:
    """`value` if a kernel may read it from outside, else an error that says how to pass it.

    Raises:
        UndefinedNameError: a global that is not a compile-time constant of the language.
    """
    if isinstance(value, (constexpr, types.ModuleType, BlockFunction, Builtin, Type, enum.Enum)):
        return value
    if isinstance(value, type) or getattr(value, "is_constexpr_function", False):
        return value
    if getattr(value, "__triton_builtin__", False):  # a function of the language that somebody else has written
        return value
    if home_of(value).startswith("tilewright.") or (name in PYTHON_BUILTINS and value is PYTHON_BUILTINS[name]):
        return value
    if _is_constant(value):
        return value
    if isinstance(value, types.FunctionType):
        raise UndefinedNameError(
            f"Unsupported function referenced: {value.__qualname__} is a plain Python function",
            hint=call_hint(value),
        )
    hint = f"pass `{name}` as a parameter"
    if isinstance(value, (list, dict, set)):
        hint = f"write `{name}` as a tuple of constants, or pass it as a tl.constexpr parameter"
    raise UndefinedNameError(
        f"Cannot access global variable {name} (a {type(value).__name__}) from within @jit'ed function. "
        "Tile kernels can only access global variables that are constants: numbers, text, None, and tuples of these.",
        hint=hint,
    )


_CONSTANTS = (bool, int, float, str, np.generic, constexpr, Type, BlockFunction, Builtin, enum.Enum)


def _is_constant(value: Any) -> bool:
    """Whether a global is a value that cannot change in place."""
    if isinstance(value, tuple):
        return all(_is_constant(part) for part in value)
    if value is None or isinstance(value, _CONSTANTS):
        return True
    fields = record_fields(type(value))
    frozen = hasattr(type(value), "_aggregate_fields") or _is_frozen(value)
    return fields is not None and frozen and all(_is_constant(getattr(value, name)) for name in fields)


def _is_frozen(value: Any) -> bool:
    params = getattr(type(value), "__dataclass_params__", None)
    return bool(params is not None and params.frozen)
