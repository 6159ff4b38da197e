"""Traces that hold PyTorch's calls as they are: each with its operator and all arguments, and composites in one piece.

A trace for a kernel holds what emission needs. One from which gradients are derived (`hl.grad`) must be able to call
every operation again, and is smaller where PyTorch has a formula for the derivative of a composite.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from tilewright.hl.trace.state import Trace

_NAMES = """
_log_softmax _log_softmax_backward_data _softmax _softmax_backward_data gelu gelu_backward silu silu_backward
sigmoid_backward tanh_backward threshold_backward
cat constant_pad_nd flip roll select select_backward slice slice_backward split split_with_sizes stack unbind
dist linalg_vector_norm norm
special_entr special_spherical_bessel_j0 special_xlog1py xlogy
"""
COMPOSITES = frozenset(_NAMES.split())
"""Operations that have a recipe and stay one call, as PyTorch's derivative of them is made of others in this list."""


def record_whole(
    trace: Trace, function: torch._ops.OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """Record a call of PyTorch's operator `function`, the result of which on samples is `out`."""
    sizes = _sizes_of(function)
    names = [argument.name for argument in function._schema.arguments]
    held = [_size(trace, arg) if key in sizes else arg for key, arg in zip(names, args, strict=False)]
    trace.record(name, held, out, {key: _size(trace, arg) if key in sizes else arg for key, arg in kwargs.items()})
    assert trace.region is not None
    trace.region.nodes[-1].function = function
    return out


def as_fill(
    trace: Trace, function: torch._ops.OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch._ops.OpOverload, str, tuple[Any, ...], dict[str, Any]]:
    """A call as it is, but for a tile like a tensor of the host, of which nothing is read: `full`."""
    if name not in _NEW or not trace.is_host(args[0]):
        return function, name, args, kwargs
    value = args[2] if name == "new_full" else _NEW[name]
    named = {**kwargs, "dtype": kwargs.get("dtype") or args[0].dtype}
    return torch.ops.aten.full.default, "full", (args[1], value), named


_NEW = {"new_zeros": 0, "new_ones": 1, "new_full": None, "new_empty": 0}


@functools.lru_cache(512)
def _sizes_of(function: torch._ops.OpOverload) -> frozenset[str]:
    """The parameters of an operator that are sizes."""
    return frozenset(re.findall(r"SymInt\S* (\w+)", str(function._schema)))


def _size(trace: Trace, value: Any) -> Any:
    """A size, or several: the symbol that an extent of samples stands for."""
    if isinstance(value, list | tuple):
        return [_size(trace, item) for item in value]
    return trace.factors.size(value) if isinstance(value, int) and value > 1 else value
