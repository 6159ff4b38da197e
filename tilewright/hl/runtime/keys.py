"""The key of a binding: what of an argument the compiled code depends on."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import torch

from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.trace import carried
from tilewright.hl.trace.offsets import reaches


def key_of(argument: Any, static: bool) -> Any:
    """What of one argument the compiled code depends on.

    Args:
        argument: anything a kernel may be called with.
        static: whether sizes and strides are constants of the code; where not, those that are 1 are.
    """
    if isinstance(argument, torch.Tensor):
        if static:
            return argument.dtype, argument.device, argument.shape, argument.stride()
        ones = tuple(number == 1 for number in (*argument.shape, *argument.stride()))
        return argument.dtype, argument.device, argument.dim(), ones, reaches(argument)
    if type(argument) in (int, float):
        return type(argument)
    if isinstance(argument, ConstExpr):
        return argument
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
    return type(argument), argument
