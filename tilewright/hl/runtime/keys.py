"""The key of a binding: what of an argument the compiled code depends on."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.trace import carried
from tilewright.hl.trace.offsets import reaches


def key_of(argument: Any, static: bool) -> Any:
    """What of one argument the compiled code depends on.

    Args:
        argument: anything a kernel may be called with.
        static: whether sizes and strides are constants of the code; where not, those that are 0 or 1 are.
    """
    if isinstance(argument, torch.Tensor):
        _check_tensor(argument)
        if static:
            return argument.dtype, argument.device, argument.shape, argument.stride()
        ones = tuple(min(number, 2) for number in (*argument.shape, *argument.stride()))
        return argument.dtype, argument.device, argument.dim(), ones, reaches(argument)
    if type(argument) in (int, float):
        return type(argument)
    if isinstance(argument, ConstExpr):
        return ConstExpr, type(argument.value), argument.value
    if isinstance(argument, list | tuple):
        return type(argument), tuple(key_of(item, static) for item in argument)
    if isinstance(argument, dict):
        return dict, tuple((name, key_of(item, static)) for name, item in argument.items())
    if isinstance(argument, FunctionType):
        return argument.__code__, len(argument.__closure__ or ())  # what it reads is compared apart
    if isinstance(argument, MethodType):
        return MethodType, argument.__func__.__code__, type(argument.__self__)
    parts = carried.children(argument)
    if parts:
        return type(argument), tuple((name, key_of(item, static)) for name, item in parts)
    try:
        hash(argument)
    except TypeError:
        raise _unsupported(argument) from None
    return type(argument), argument


def _check_tensor(tensor: torch.Tensor) -> None:
    """Raise where a tensor's elements are not at addresses that sizes and strides give."""
    if tensor.is_nested:
        raise exc.UnsupportedPythonType("is a nested tensor", hint=hint_for_nested(tensor))
    if tensor.is_quantized:
        raise exc.UnsupportedPythonType("is a quantized tensor", hint="pass tensor.int_repr() and the scale")
    if tensor.layout != torch.strided:
        raise exc.UnsupportedPythonType(
            f"is a tensor of layout {tensor.layout}, whose elements have no addresses", hint="pass tensor.to_dense()"
        )


def hint_for_nested(tensor: torch.Tensor) -> str:
    """What to pass instead of a nested tensor."""
    parts = "pass its values() and offsets()"
    return parts if tensor.layout == torch.jagged else f"make it with layout=torch.jagged, and {parts}"


def _unsupported(argument: Any) -> exc.UnsupportedPythonType:
    """The error for an argument of which it cannot be told whether it has changed."""
    kind = type(argument)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    hint = "give its parts as arguments, or make its class a dataclass"
    if isinstance(argument, set | bytearray):
        hint = f"pass a tuple, or a {'frozenset' if isinstance(argument, set) else 'bytes object'}"
    if name == "numpy.ndarray":
        hint = "pass torch.from_numpy(array)"
    return exc.UnsupportedPythonType(f"is of type {name}, which kernels do not take", hint=hint)
