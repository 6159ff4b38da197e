"""What the host function of a generated module reads from the user's module, as statements that bring it there."""

from __future__ import annotations

import builtins
import inspect
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))
_THERE = frozenset(("torch", "tilewright", "tl", "libdevice"))


def imports(text: str, scope: Mapping[str, Any], captured: Mapping[str, Any]) -> Iterator[str]:
    """The statements that define the globals of a host function.

    Args:
        text: the function.
        scope: the names that the user's function sees.
        captured: tensors that the kernel found outside, by the names that the launcher has for them.
    """
    for name in sorted(set(_globals(symtable.symtable(text, "<host>", "exec"))) - _THERE):
        if name in captured:
            yield f"# {name}: a tensor from outside, {captured[name].dtype} {list(captured[name].shape)}"
        elif name in scope and scope[name] is not getattr(builtins, name, scope):
            yield from _definition(name, scope[name])


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that a module's code reads without giving them a value."""
    outermost = table.get_type() == "module"
    for symbol in table.get_symbols():
        if not symbol.is_assigned() if outermost else symbol.is_global():
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _definition(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"import {value.__name__} as {name}"
    elif isinstance(value, _CONSTANTS):
        yield f"{name} = {value!r}"
    elif _importable(value):
        yield f"from {value.__module__} import {value.__qualname__} as {name}"
    elif isinstance(value, FunctionType) and value.__name__ == name:
        try:
            yield from textwrap.dedent(inspect.getsource(value)).splitlines()
        except OSError:
            yield f"# {name}: a function without a text"
    else:
        yield f"# {name}: an object of type {type(value).__name__}, of the user's module"


def _importable(value: Any) -> bool:
    """Whether `from module import name` gives this object in a fresh process."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if module in (None, "__main__") or not name.isidentifier():
        return False
    return getattr(sys.modules.get(str(module)), name, None) is value
