"""Schemas of the operators that `triton_op` makes, held against their functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from tilewright.base.errors import ArgumentError


def make_schema(name: str, fn: Callable[..., Any], mutates_args: str | Iterable[str], schema: str | None) -> str:
    """Text of the schema of an operator.

    Args:
        name: of the operator, for errors.
        fn: the function.
        mutates_args: names of the arguments that it changes, or "unknown".
        schema: as the user gave it; else it is made of the annotations.

    Raises:
        ArgumentError: an annotation is missing or says nothing to PyTorch, or the schema contradicts the function.
    """
    if schema is None:
        try:
            return str(torch.library.infer_schema(fn, mutates_args=mutates_args))
        except ValueError as error:
            raise ArgumentError(
                f"operator {name} has no schema: {error}",
                hint='annotate every parameter and the result, or pass schema="(Tensor x, float eps) -> Tensor"',
            ) from error
    try:
        parsed = torch._C.parse_schema(f"{name}{schema}")
    except RuntimeError as error:
        raise ArgumentError(f"operator {name}: {schema!r} is no schema: {error}") from error
    arguments, params = [argument.name for argument in parsed.arguments], list(inspect.signature(fn).parameters)
    if arguments != params:
        raise ArgumentError(
            f"operator {name}: its schema has the arguments ({', '.join(arguments)}), but the function has "
            f"({', '.join(params)})",
            hint="give them the same names in the same order",
        )
    for argument in parsed.arguments:  # the dispatcher leaves out what equals the default of the schema
        default = inspect.signature(fn).parameters[argument.name].default
        known = default is inspect.Parameter.empty or isinstance(default, (bool, int, float, str, type(None)))
        if argument.has_default_value() and known and default != argument.default_value:
            raise ArgumentError(
                f"operator {name}: its schema has the default {argument.name}={argument.default_value!r}, which the "
                "function has not",
                hint="give the parameter of the function the same default",
            )
    changed = {a.name for a in parsed.arguments if a.alias_info is not None and a.alias_info.is_write}
    if mutates_args != "unknown" and changed != set(mutates_args):
        raise ArgumentError(
            f"operator {name}: its schema changes {sorted(changed)}, but mutates_args is {sorted(mutates_args)}",
            hint='an argument that is changed is written "Tensor(a!) x" in a schema',
        )
    return schema


def check_results(schema: Any, name: str, found: Any) -> None:
    """Raise ArgumentError if a function returned something else than the schema of its operator says.

    Args:
        schema: of the operator.
        name: of it.
        found: what the function returned.
    """
    wanted = len(schema.returns)
    given = 0 if found is None else len(found) if isinstance(found, (tuple, list)) and wanted != 1 else 1
    if given != wanted:
        raise ArgumentError(
            f"operator {name} returns {given} values, but its schema says {wanted}: {schema}",
            hint="return what the schema or the annotation of the result says",
        )
