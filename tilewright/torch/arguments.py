"""From the arguments of a launch to what a tracer can follow: tokens and run-time values.

A token says what an argument looks like in plain Python constants, so that Dynamo may hand it to code that it does not
trace: ("t", "float32") a tensor, ("i",) an integer, ("f",) and ("b",) a float and a boolean, ("c", type, value) a
constant, ("tuple", token, ...), ("named", class, token, ...) a named tuple or a dataclass, ("d", ...) a tensor
descriptor, ("k", constant) what is a constant wherever it stands. `flatten` keeps to what Dynamo follows.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tilewright.base.callable import BlockFunction, by_number, give_number
from tilewright.base.dtypes import dtype, scalar_from_signature
from tilewright.base.errors import ArgumentError
from tilewright.compile.kinds import BOOL, FLOAT, INT, Constant, Described, Kind
from tilewright.devices.arrays import element_type
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.devices.wrappers import TensorWrapper
from tilewright.frontend.records import parts_class, record_layout
from tilewright.ops.values import constexpr
from tilewright.torch.unguarded import unguarded

Token = tuple[Any, ...]
_F = TypeVar("_F", bound=Callable[..., Any])


def untraced(fn: _F) -> _F:
    """Have Dynamo call `fn` while it traces, with constants, and take the result for a constant."""
    marked: _F = torch.compiler.assume_constant_result(fn)
    return marked


_classes: dict[type, str] = {}


def class_number(cls: type) -> str:
    """A number for a class of named tuples or a dataclass, by which `by_number` finds it; "" for a plain tuple."""
    if issubclass(cls, (tuple, list)) and not hasattr(cls, "_make"):
        return ""
    if cls not in _classes:
        _classes[cls] = give_number(cls)
    return _classes[cls]


_class_number = untraced(class_number)


@untraced
def _fields(cls: type) -> tuple[tuple[str, bool], ...]:
    """Name of each field of a dataclass, and whether it is annotated as a constant; nothing for other classes."""
    return record_layout(cls) or ()


@untraced
def _torch_type(signature: str, name: str) -> str:
    """Name of the type of torch that the language calls `signature`."""
    for word in dir(torch):
        if isinstance(getattr(torch, word), torch.dtype):
            with contextlib.suppress(ArgumentError):
                if element_type(getattr(torch, word), name) == signature:
                    return word
    raise ArgumentError(
        f"a launch cannot be traced: argument `{name}` has elements of type {signature}, which PyTorch does not have"
    )


@unguarded
def constant(value: Any, name: str) -> Token:
    """The token of a compile-time constant."""
    if isinstance(value, constexpr):
        value = value.value
    if value is None:
        return ("c", "none", None)
    if isinstance(value, (bool, torch.SymBool)):
        return ("c", "bool", True if value else False)  # noqa: SIM210 (bool() keeps a symbol a symbol)
    if isinstance(value, (int, torch.SymInt)):
        return ("c", "int", operator.index(value))  # a symbol becomes the number that it is now, for this trace
    if isinstance(value, float):
        return ("c", "float", value)
    if isinstance(value, str):
        return ("c", "str", value)
    if isinstance(value, dtype):
        return ("c", "dtype", value.signature)
    if isinstance(value, BlockFunction):
        return ("c", "function", value.number)
    if isinstance(value, (tuple, list)):
        return ("c", "tuple", *[constant(item, name) for item in value])
    return ("c", "object", value)


@unguarded
def flatten(value: Any, name: str, values: list[Any]) -> Token:
    """The token of an argument; its run-time values are appended to `values`.

    Args:
        value: of an argument that is no compile-time constant by its parameter.
        name: of the parameter, for the error.
        values: what the operator will be called with.
    """
    if isinstance(value, torch.Tensor):
        values.append(value)
        return ("t", str(value.dtype)[6:])
    if isinstance(value, bool):
        values.append(value)
        return ("b",)
    if isinstance(value, (int, torch.SymInt)):
        values.append(value)
        return ("i",)
    if isinstance(value, (float, torch.SymFloat)):
        values.append(value)
        return ("f",)
    if isinstance(value, (tuple, list)):
        number = _class_number(type(value))
        head = ("named", number) if number else ("tuple",)
        return (*head, *[flatten(item, name, values) for item in value])
    if isinstance(value, TensorDescriptor):
        values.append(value.base)
        values.extend(value.shape)
        values.extend(value.strides[:-1])
        block = tuple(int(size) for size in value.block_shape)
        return ("d", str(value.base.dtype)[6:], block, value.padding, bool(value.round_f32_to_tf32))
    if isinstance(value, TensorWrapper):
        element = _torch_type(value.dtype.signature, name)
        values.append(value.base.view(getattr(torch, element)))
        return ("t", element)
    if isinstance(value, constexpr):
        return ("k", constant(value, name))
    fields = _fields(type(value))
    if fields:
        parts: list[Any] = []
        for field, is_constant in fields:
            part = getattr(value, field)
            parts.append(("k", constant(part, name)) if is_constant else flatten(part, name, values))
        return ("named", _class_number(type(value)), *parts)
    return constant(value, name)


def constant_value(token: Token) -> Any:
    """The constant that a token stands for."""
    kind, rest = token[1], token[2:]
    if kind == "tuple":
        return tuple(constant_value(item) for item in rest)
    if kind == "dtype":
        return scalar_from_signature(rest[0])
    return by_number(rest[0]) if kind == "function" else rest[0]


def kind_of(token: Token, name: str) -> Kind:
    """The kind of argument that a token stands for.

    Raises:
        ArgumentError: the language has no such element type.
    """
    tag = token[0]
    if tag == "t":
        return f"*{element_type(getattr(torch, token[1]), name)}"
    if tag == "tuple":
        return tuple(kind_of(item, name) for item in token[1:])
    if tag == "named":
        cls = by_number(token[1])
        make = cls._make if issubclass(cls, tuple) else parts_class(cls)._make
        made: tuple[Kind, ...] = make([kind_of(item, name) for item in token[2:]])
        return made
    if tag == "k":
        return Constant(constexpr(constant_value(token[1])))
    if tag == "d":
        return Described(element_type(getattr(torch, token[1]), name), *token[2:])
    if tag == "c":
        return Constant(constant_value(token))
    return {"i": INT, "f": FLOAT, "b": BOOL}[tag]
