"""Which kernels a function may launch, found in its bytecode without running it.

Every global, closure variable and attribute that the function reads is looked at; functions among them are searched in
turn. A kernel that is read but not launched is found too: this only makes the name of an operator depend on it.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch._ops import OpOverload, OpOverloadPacket

from tilewright.base.callable import BlockFunction
from tilewright.base.naming import home_of
from tilewright.frontend.content import follow, globals_read, is_library
from tilewright.hl import Kernel
from tilewright.launch.interface import KernelInterface

MOST_CALLS = 5
operator_body: Callable[[str], Any] = lambda name: None  # noqa: E731  (set by triton_op.py, which imports this file)


def kernels_in(fn: Callable[..., Any]) -> list[Any]:
    """The kernels that `fn` reads, itself or through functions up to five calls away, each once, as they are met.

    Args:
        fn: a Python function, method, partial, or an operator made by `triton_op`.
    """
    search = _Search()
    search.visit(fn, 0)
    return list(search.found.values())


class _Search:
    """Attributes: `found`: kernels by identity, in the order in which they were met."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}
        self._met: set[int] = set()
        self._kept: list[Any] = []  # so that an identity is not used again

    def visit(self, value: Any, depth: int) -> None:
        """Look at a value; functions are searched."""
        if isinstance(value, (KernelInterface, Kernel)):
            self.found.setdefault(id(value), value)
            return
        if id(value) in self._met or depth > MOST_CALLS or isinstance(value, BlockFunction):
            return
        self._met.add(id(value))
        self._kept.append(value)
        for inner, steps in _inside(value):
            self.visit(inner, depth + steps)


def _inside(value: Any) -> Iterator[tuple[Any, int]]:
    """What is reached from a value, and how many calls away that is."""
    if isinstance(value, functools.partial):
        yield from ((inner, 0) for inner in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
        yield from _read_by(value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        if not is_library(home_of(value)):
            yield from _read_by(value, _class_of(value))
            yield getattr(value, "__wrapped__", None), 0
    elif isinstance(value, (OpOverload, OpOverloadPacket)):
        name = value._schema.name if isinstance(value, OpOverload) else value._qualified_op_name
        yield operator_body(name), 1
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((item, 0) for item in value)
    elif isinstance(value, dict):
        yield from ((item, 0) for item in value.values())
    elif isinstance(value, type):
        if not is_library(home_of(value)):
            yield from ((member, 0) for member in vars(value).values())
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__, 0
    elif isinstance(value, property):
        yield value.fget, 0
    else:  # a wrapper around a kernel, or an object that is called
        yield inspect.getattr_static(value, "fn", None), 0
        call = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(call, types.FunctionType):
            yield types.MethodType(call, value), 0


def _read_by(fn: types.FunctionType, owner: Any) -> Iterator[tuple[Any, int]]:
    """The values that a function reads.

    Args:
        fn: the function.
        owner: the object or class whose method it is, or None.
    """
    for chain in sorted(globals_read(fn.__code__)):
        if chain[0] in fn.__globals__:
            yield _value_at(chain, fn.__globals__), 1
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents, 1
        except ValueError:  # not filled yet
            continue
    for default in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
        yield default, 1
    yield from ((value, 1) for code in _codes(fn.__code__) for value in _imported(code))
    if owner is not None:
        yield from ((functools.reduce(_attribute, names, owner), 1) for names in _own_attributes(fn.__code__))


def _value_at(chain: tuple[str, ...], space: dict[str, Any]) -> Any:
    """What a dotted name leads to: through modules and classes, then through attributes of objects."""
    _, name, value, ours = follow(chain, space)
    if ours:
        return None
    for attribute in chain[chain.index(name) + 1 :]:
        value = _attribute(value, attribute)
    return value


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # a property of the user that needs more than there is now
        return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _imported(code: types.CodeType) -> Iterator[Any]:
    """What a function imports when it runs, where that is loaded already."""
    module: Any = None
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = sys.modules.get(str(step.argval))
        elif step.opname == "IMPORT_FROM" and module is not None:
            yield getattr(module, str(step.argval), None)


def _own_attributes(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Attributes that a method reads of its first parameter, and those of attributes, as chains."""
    chain: tuple[str, ...] | None = None
    first = code.co_varnames[:1]
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain is not None:
            chain = (*chain, str(step.argval))
            yield chain
        else:
            chain = () if step.opname.startswith("LOAD_FAST") and (step.argval,) == first else None


def _class_of(fn: types.FunctionType) -> Any:
    """The class in whose body a function was written, where its name leads there."""
    value: Any = None
    for index, part in enumerate(fn.__qualname__.split(".")[:-1]):
        value = fn.__globals__.get(part) if index == 0 else _attribute(value, part)
    return value if isinstance(value, type) else None
