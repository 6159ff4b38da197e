"""A call of a kernel of `tilewright.hl` while somebody traces: the call of an operator.

Dynamo cannot say what a kernel returns before it is bound, and binding needs sizes, which Dynamo has as symbols. So it
puts `in_graph` into its graph, which tracers below it open to the operator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.fx.node import has_side_effect

from tilewright.base.errors import ArgumentError
from tilewright.hl import Kernel
from tilewright.hl.runtime import tracer_slot
from tilewright.hl.runtime.kernel import KERNELS, is_constant
from tilewright.torch import gradients
from tilewright.torch.arguments import untraced
from tilewright.torch.hl_arguments import Token, constant, flatten, is_fixed, returned
from tilewright.torch.hl_operators import operator_for
from tilewright.torch.state import state
from tilewright.torch.unguarded import unguarded

_results: dict[tuple[str, tuple[Token, ...]], Token] = {}
"""What the last call traced with these tokens returns."""


@untraced
def _bind(number: str, count: int, keywords: tuple[str, ...]) -> tuple[tuple[str, bool, str, Any], ...]:
    """For each parameter its name, whether it is a constant, and where its argument comes from.

    Args:
        number: of the kernel.
        count: how many positional arguments there are.
        keywords: names of the others.

    Returns:
        Rows ending in ("position", index), ("keyword", name) or ("default", value).
    """
    kernel = KERNELS[number]
    try:
        given = kernel.signature.bind(*range(count), **{name: name for name in keywords}).arguments
    except TypeError as error:
        raise ArgumentError(f"{kernel.name}: {error}") from None
    rows: list[tuple[str, bool, str, Any]] = []
    for name, parameter in kernel.signature.parameters.items():
        if name not in given:
            where: tuple[str, Any] = "default", parameter.default
        else:
            where = "keyword" if name in keywords else "position", given[name]
        rows.append((name, is_constant(parameter), *where))
    return tuple(rows)


@untraced
def _advise(number: str) -> None:
    if state.doing.operator is None and KERNELS[number].backward is None:
        gradients.advise(KERNELS[number])


@untraced
def _result(number: str, tokens: tuple[Token, ...]) -> Token:
    """What the call that was put into the graph last returns."""
    return _results[number, tokens]


def _call(number: str, tokens: tuple[Token, ...], *values: Any) -> tuple[Any, ...]:
    """Call the operator; the tensors that it makes."""
    operator = operator_for(KERNELS[number], tokens, values)
    _results[number, tokens] = operator.result
    if is_fixed(operator.result):
        _fix(values)
    made = operator.overload(*values)
    return () if made is None else made if isinstance(made, tuple) else (made,)


def _fix(values: tuple[Any, ...]) -> None:
    """Make sizes and numbers constants of the trace: other ones are traced anew."""
    for value in values:
        if isinstance(value, torch.Tensor):
            for number in (*value.shape, *value.stride()):
                int(number)
        elif isinstance(value, (torch.SymInt, torch.SymFloat)):
            int(value) if isinstance(value, torch.SymInt) else float(value)


in_graph = has_side_effect(torch.compiler.allow_in_graph(_call))


@unguarded
def _record(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Put a call into the graph of whoever traces."""
    values: list[Any] = []
    tokens: list[Token] = []
    for name, baked, source, where in _bind(kernel.number, len(args), tuple(kwargs)):
        value = args[where] if source == "position" else kwargs[where] if source == "keyword" else where
        tokens.append(constant(value) if baked else flatten(value, name, values))
    if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values):
        _advise(kernel.number)
    made = in_graph(kernel.number, tuple(tokens), *values)
    return returned(_result(kernel.number, tuple(tokens)), values, made)


def _outside_dynamo(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    doing = state.doing
    if doing.recording or doing.trial is not None:
        return _record(kernel, args, kwargs)
    given = kernel.normalize_args(*args, **kwargs)
    return kernel.found(given)(*given)


@unguarded
def call(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call, or make it where this thread records nothing: what stands in the slot of kernels."""
    if is_dynamo_compiling():
        return _record(kernel, args, kwargs)
    return _outside_dynamo(kernel, args, kwargs)


def install() -> None:
    """Stand in the slot of kernels."""
    tracer_slot.install(call)
