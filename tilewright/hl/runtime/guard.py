"""The guard of a binding: one generated expression that says whether a call is like the one before.

A call that it accepts needs neither a key nor a search among bindings. Arguments of other kinds than tensors, numbers,
constants, types, functions, and lists and tuples of these but tensors, have no guard; their calls take the general way,
which gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch.autograd import forward_ad

import tilewright
from tilewright.hl.constexpr import ConstExpr
from tilewright.hl.runtime import tracer_slot
from tilewright.hl.trace.numbers import float_text
from tilewright.hl.trace.offsets import LIMIT
from tilewright.hl.trace.outside import Read, check

Guard = Callable[..., bool]

_VALUES = frozenset({bool, int, float, str, torch.dtype, torch.device})
"""Types whose values say all that code may depend on."""


def make_holds(parameters: list[str], facts: list[tuple[str, Any]], found: list[Read], names: dict[str, Any]) -> Guard:
    """A function of the arguments that says whether what a trace assumed is true of them.

    Args:
        parameters: names of the arguments.
        facts: (expression of the arguments, what it must be).
        found: what the kernel reads besides them.
        names: what texts of `found` use.
    """
    known = dict(names)
    checks = _facts(facts, found, known)
    return _function(parameters, checks, known)


def _function(parameters: Iterable[str], checks: list[str], known: dict[str, Any]) -> Guard:
    """A function that says whether all checks hold; what is not there any more is not what it was.

    Tensors without sizes or strides (nested, sparse) raise a RuntimeError where those are asked for.
    """
    lines = (
        f"def guard({', '.join(parameters)}):",
        " try:",
        f"  return {' and '.join(checks) or 'True'}",
        " except (LookupError, AttributeError, TypeError, ValueError, RuntimeError):",
        "  return False",
    )
    known["tilewright"] = tilewright  # facts may name powers of two
    exec("\n".join(lines), known)
    guard: Guard = known["guard"]
    return guard


def _facts(facts: list[tuple[str, Any]], found: list[Read], known: dict[str, Any]) -> list[str]:
    checks = [check(read, at, known) for at, read in enumerate(found)]
    return checks + [f"({text}) == {float_text(expected)}" for text, expected in facts]


def make_guard(
    arguments: Mapping[str, Any],
    static: bool,
    facts: list[tuple[str, Any]],
    found: list[Read],
    names: dict[str, Any],
    detached: bool = False,
) -> Guard | None:
    """A function of the arguments that is true only for calls with the key of these, while nobody looks on.

    Args:
        arguments: the arguments of the binding call, by name.
        static: whether sizes and strides are constants of the code.
        facts: (expression of the arguments, what it must be).
        found: what the kernel reads besides them.
        names: what texts of `found` use.
        detached: whether a tensor that wants a gradient makes it another call.

    Returns:
        The guard, or None where an argument is of a kind that it does not know.
    """
    known = {**names, "_modes": tracer_slot.modes, "_transform": tracer_slot.transform, "_tangents": forward_ad}
    checks: list[str] = ["not _modes()", "_transform() is None", "_tangents._current_level < 0"]
    for name, argument in arguments.items():
        made = _checks(name, name, argument, static, known)
        if made is None:
            return None
        checks += made
    if detached:
        known["_watched"] = torch.is_grad_enabled
        tensors = [name for name, argument in arguments.items() if _may_want(argument)]
        tensors += [read.text for read in found if _may_want(read.value)]
        wanted = " or ".join(f"{text}.requires_grad" for text in tensors)
        if tensors:  # first: a call that wants gradients has the other guard to pass
            checks.insert(0, f"not (({wanted}) and _watched())")
    checks += _facts(facts, found, known)
    return _function(arguments, checks, known)


def _may_want(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor) and argument.dtype.is_floating_point


def _checks(name: str, label: str, argument: Any, static: bool, known: dict[str, Any]) -> list[str] | None:
    """What must hold of an argument; None for kinds without a guard.

    Args:
        name: its text.
        label: a word for it.
        argument: that of the binding call.
        static: whether sizes and strides are constants of the code.
        known: takes what the checks compare with.
    """

    def constant(what: str, value: Any) -> str:
        known[f"_{label}_{what}"] = value
        return f"_{label}_{what}"

    if isinstance(argument, ConstExpr):  # calls give the value itself, whose key has its type and value
        value = argument.value
        if value is not None and type(value) not in _VALUES:
            return None
        return [f"type({name}) is {constant('type', type(value))}", f"{name} == {constant('value', value)}"]
    checks = [f"type({name}) is {constant('type', type(argument))}"]
    if isinstance(argument, torch.Tensor):
        if type(argument) not in tracer_slot.PLAIN:
            return None  # its class is asked at each call
        device = "is_cpu" if argument.is_cpu else f"device == {constant('device', argument.device)}"  # half the time
        checks += [f"{name}.dtype is {constant('dtype', argument.dtype)}", f"{name}.{device}"]
        if static:
            checks.append(f"{name}.shape == {constant('shape', argument.shape)}")
            checks.append(f"{name}.stride() == {constant('stride', argument.stride())}")
        else:
            ones = tuple(min(number, 2) for number in (*argument.shape, *argument.stride()))
            numbers = f"(*{name}.shape, *{name}.stride())"
            checks.append(f"tuple([number if number < 2 else 2 for number in {numbers}]) == {constant('ones', ones)}")
            if argument.untyped_storage().nbytes() >= LIMIT:
                return None  # whether offsets pass 32 bits is found the general way
            checks.append(f"{name}.untyped_storage().nbytes() < {LIMIT}")
        return checks
    if type(argument) in (int, float):  # what of them is a constant is among the facts
        return checks
    if argument is None or type(argument) in _VALUES:
        return [*checks, f"{name} == {constant('value', argument)}"]
    if type(argument) in (list, tuple) and not any(isinstance(item, torch.Tensor) for item in argument):
        checks.append(f"len({name}) == {len(argument)}")
        for at, item in enumerate(argument):
            made = _checks(f"{name}[{at}]", f"{label}_{at}", item, static, known)
            if made is None:
                return None
            checks += made
        return checks
    if isinstance(argument, FunctionType):  # what it reads is among the facts
        return [*checks, f"{name}.__code__ is {constant('code', argument.__code__)}"]
    return None
