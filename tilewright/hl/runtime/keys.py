"""The key of a binding: what of an argument the compiled code depends on."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl.constexpr import ConstExpr


def key_of(argument: Any, static: bool) -> Any:
    """What of one argument the compiled code depends on.

    Args:
        argument: anything a kernel may be called with.
        static: whether sizes and strides are constants of the code.
    """
    if isinstance(argument, torch.Tensor):
        if static:
            return argument.dtype, argument.device, argument.shape, argument.stride()
        ones = tuple(step == 1 for step in argument.stride())
        return argument.dtype, argument.device, argument.dim(), ones
    if type(argument) is int:
        return int
    if isinstance(argument, ConstExpr):
        return argument
    if isinstance(argument, list | tuple):
        return type(argument), tuple(key_of(item, static) for item in argument)
    if isinstance(argument, dict):
        return dict, tuple((name, key_of(item, static)) for name, item in argument.items())
    return type(argument), argument
