"""From the arguments of a launch to what a tracer can follow: tokens and run-time values.

A token says what an argument looks like in plain Python constants, so that Dynamo may hand it to code that it does not
trace: ("t", "float32") a tensor, ("i",) an integer, ("f",) and ("b",) a float and a boolean, ("c", type, value) a
constant, ("tuple", token, ...), ("d", ...) a tensor descriptor. `flatten` keeps to what Dynamo follows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tilewright.base.callable import BlockFunction, by_number
from tilewright.base.dtypes import dtype, scalar_from_signature
from tilewright.compile.kinds import BOOL, FLOAT, INT, Constant, Described, Kind
from tilewright.devices.arrays import element_type
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.ops.values import constexpr

Token = tuple[Any, ...]
_F = TypeVar("_F", bound=Callable[..., Any])


def untraced(fn: _F) -> _F:
    """Have Dynamo call `fn` while it traces, with constants, and take the result for a constant."""
    marked: _F = torch.compiler.assume_constant_result(fn)
    return marked


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
        return ("tuple", *[flatten(item, name, values) for item in value])
    if isinstance(value, TensorDescriptor):
        values.append(value.base)
        values.extend(value.shape)
        values.extend(value.strides[:-1])
        block = tuple(int(size) for size in value.block_shape)
        return ("d", str(value.base.dtype)[6:], block, value.padding, bool(value.round_f32_to_tf32))
    return constant(value, name)


def constant(value: Any, name: str) -> Token:
    """The token of a compile-time constant."""
    if isinstance(value, constexpr):
        value = value.value
    if value is None:
        return ("c", "none", None)
    if isinstance(value, (bool, torch.SymBool)):
        return ("c", "bool", True if value else False)  # noqa: SIM210 (bool() keeps a symbol a symbol)
    if isinstance(value, (int, torch.SymInt)):
        return (
            "c",
            "int",
            operator.index(value),
        )  # a symbolic integer becomes the number that it is now, for this trace
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
    if tag == "d":
        return Described(element_type(getattr(torch, token[1]), name), *token[2:])
    if tag == "c":
        return Constant(constant_value(token))
    return {"i": INT, "f": FLOAT, "b": BOOL}[tag]
