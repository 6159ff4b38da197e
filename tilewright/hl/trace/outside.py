"""What a kernel reads besides its arguments: globals and closures, its own and those of functions that it is given.

Numbers and functions found there become part of the compiled code, so a binding holds only while they are what they
were. Tensors become arguments of the generated kernels.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

_CONSTANTS = (bool, int, float, complex, str, type(None), torch.dtype, torch.device)
_FOREIGN = frozenset(("torch", "tilewright", "builtins", "types", "functools", "triton", "numpy", "math", "typing"))
_DEEPEST = 5


@dataclass(frozen=True)
class Read:
    """Something that was found outside.

    Args:
        text: expression of the arguments, of `_globals` and of `_cells`.
        value: what it was.
        live: whether it belongs to an argument, so that another tensor may stand there at the next call.
    """

    text: str
    value: Any
    live: bool = False


def reads(function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[Read]:
    """Everything that `function` and the functions among its arguments can read, as far as it is data."""
    seen: dict[int, str] = {}
    found = list(_function(function, "_globals", "_cells", seen, 0))
    for name, argument in arguments.items():
        found += [Read(read.text, read.value, True) for read in _argument(argument, name, seen)]
    return found


def namespace(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that texts of reads use besides arguments."""
    return {"_globals": function.__globals__, "_cells": function.__closure__}


def check(read: Read, at: int, known: dict[str, Any]) -> str:
    """The condition that what was read is what it was; constants are put into `known`."""
    name = f"_read_{at}"
    value = read.value
    if isinstance(value, torch.Tensor) and read.live:
        known[name] = value.dtype, value.device, value.shape, value.stride()
        text = read.text
        return f"({text}.dtype, {text}.device, {text}.shape, {text}.stride()) == {name}"
    if isinstance(value, _CONSTANTS) and value == value:
        known[name] = type(value), value
        return f"(type({read.text}), {read.text}) == {name}"
    known[name] = value
    return f"{read.text} is {name}"


def _argument(argument: Any, text: str, seen: dict[int, str]) -> Iterator[Read]:
    """Numbers and tensors that are arguments are in the key already; what functions hold is not."""
    if isinstance(argument, dict):
        items: Any = argument.items()
    elif isinstance(argument, list | tuple):
        items = enumerate(argument)
    elif callable(argument) and not isinstance(argument, type):
        yield from _walk(argument, text, seen, 0)
        return
    elif hasattr(argument, "__dict__") and not isinstance(argument, type | types.ModuleType | torch.Tensor):
        if not dataclasses.is_dataclass(argument):  # of which the parts are arguments
            yield from _walk(argument, text, seen, 0)
        return
    else:
        return
    for key, item in items:
        yield from _argument(item, f"{text}[{key!r}]", seen)


def _walk(value: Any, text: str, seen: dict[int, str], depth: int) -> Iterator[Read]:
    if isinstance(value, (*_CONSTANTS, torch.Tensor)):
        yield Read(text, value)
        return
    if id(value) in seen:  # what it holds is checked where it was found first
        yield Read(f"({text}) is ({seen[id(value)]})", True)
        return
    if callable(value) and _foreign(value):
        yield Read(text, value)
        return
    if depth > _DEEPEST or isinstance(value, type | types.ModuleType) or _foreign(value):
        return
    seen[id(value)] = text
    if isinstance(value, types.FunctionType):
        yield Read(f"{text}.__code__", value.__code__)
        yield from _function(value, f"{text}.__globals__", f"{text}.__closure__", seen, depth)
        for at, item in enumerate(value.__defaults__ or ()):
            yield from _walk(item, f"{text}.__defaults__[{at}]", seen, depth + 1)
        for name, item in (value.__kwdefaults__ or {}).items():
            yield from _walk(item, f"{text}.__kwdefaults__[{name!r}]", seen, depth + 1)
    elif isinstance(value, types.MethodType):
        yield from _walk(value.__func__, f"{text}.__func__", seen, depth + 1)
        yield from _walk(value.__self__, f"{text}.__self__", seen, depth + 1)
    elif isinstance(value, functools.partial):
        yield from _walk(value.func, f"{text}.func", seen, depth + 1)
        yield from _walk(value.args, f"{text}.args", seen, depth + 1)
        yield from _walk(value.keywords, f"{text}.keywords", seen, depth + 1)
    elif isinstance(value, list | tuple | dict):
        yield Read(f"len({text})", len(value))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if not isinstance(key, str | int):
                continue
            yield from _walk(item, f"{text}[{key!r}]", seen, depth + 1)
    elif isinstance(value, torch.nn.Module):
        for part in ("_parameters", "_buffers", "_modules"):
            for key, item in getattr(value, part).items():
                yield from _walk(item, f"{text}.{part}[{key!r}]", seen, depth + 1)
        for key, item in vars(value).items():
            if isinstance(item, (*_CONSTANTS, torch.Tensor, list, tuple, dict)) and not key.startswith("_"):
                yield from _walk(item, f"{text}.{key}", seen, depth + 1)
    elif hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            yield from _walk(item, f"{text}.{key}", seen, depth + 1)


def _function(function: Callable[..., Any], scope: str, cells: str, seen: dict[int, str], depth: int) -> Iterator[Read]:
    """What a function's text can reach by name."""
    for at, cell in enumerate(function.__closure__ or ()):
        try:
            value = cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
        yield from _walk(value, f"{cells}[{at}].cell_contents", seen, depth + 1)
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield from _walk(function.__globals__[name], f"{scope}[{name!r}]", seen, depth + 1)


@functools.lru_cache(maxsize=512)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """The globals that a text reads, functions inside it included."""
    own = [found.argval for found in dis.get_instructions(code) if found.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _names(part)]
    return tuple(sorted({*own, *inner}))


def _foreign(value: Any) -> bool:
    """Whether something is of a library that is not asked what it reads."""
    if isinstance(value, torch.nn.Module | list | tuple | dict):
        return False
    kind = value if isinstance(value, types.FunctionType | types.BuiltinFunctionType) else type(value)
    return str(kind.__module__).split(".")[0] in _FOREIGN and not isinstance(
        value, types.MethodType | functools.partial
    )
