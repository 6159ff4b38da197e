"""Declared variants: every combination of the types, constants and options that somebody says will be launched.

{"x_ptr": "*fp32:16", "n": ["i32", "i32:16"], "BLOCK": [64, 128]}, num_warps=[4, 8]     -> 8 variants
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.base.dtypes import scalar_from_signature
from tilewright.base.errors import ArgumentError
from tilewright.compile.function import KernelFunction
from tilewright.compile.specialize import ALIGNMENT, DIVISIBLE, Param, Specialization, specialize


def declared_variants(
    fn: KernelFunction, signature: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterator[tuple[Specialization, dict[str, Any]]]:
    """The specialisations and options of every combination.

    Args:
        fn: the kernel.
        signature: by parameter name: for a `tl.constexpr` parameter its value; for any other a type ("*fp32", "i32",
            ...), with ":16" behind it where the address or integer is divisible by 16, or None or 1 for what is passed
            as such. A list stands for alternatives. Parameters with a default may be left out.
        options: by name; a list stands for alternatives.

    Raises:
        ArgumentError: there is no such parameter, one is missing, or an entry is neither type nor constant.
    """
    unknown = signature.keys() - set(fn.arg_names)
    if unknown:
        raise ArgumentError(
            f"{fn.fn.__name__} has no parameter {', '.join(sorted(unknown))}",
            hint=f"its parameters are {', '.join(fn.arg_names)}",
        )
    entries = [_alternatives(fn, param, signature) for param in fn.params]
    wanted = [value if isinstance(value, list) else [value] for value in options.values()]
    for choice in itertools.product(*entries, *wanted):
        given = dict(zip(options, choice[len(entries) :]))
        yield _specialization(fn, choice[: len(entries)]), given


def _alternatives(fn: KernelFunction, param: Param, signature: Mapping[str, Any]) -> list[Any]:
    if param.name in signature:
        value = signature[param.name]
        return value if isinstance(value, list) else [value]
    if param.has_default:
        return [_Default(param.default)]
    raise ArgumentError(f"{fn.fn.__name__}: parameter `{param.name}` has neither a type nor a value")


class _Default:
    """A value that is none of the user's entries."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _specialization(fn: KernelFunction, choice: tuple[Any, ...]) -> Specialization:
    pairs = [_pair(fn.fn.__name__, param, entry) for param, entry in zip(fn.params, choice, strict=True)]
    return Specialization(tuple(fn.arg_names), tuple(kind for kind, _ in pairs), tuple(key for _, key in pairs))


def _pair(kernel: str, param: Param, entry: Any) -> tuple[Any, Any]:
    """Type and key, as `specialize` gives them for an argument."""
    if isinstance(entry, _Default):
        return specialize(entry.value, param)
    if param.is_constexpr or entry is None or (entry == 1 and not isinstance(entry, (str, bool))):
        return specialize(entry, param)
    kind, _, fact = entry.partition(":") if isinstance(entry, str) else ("", "", "")
    if fact not in ("", str(ALIGNMENT)) or not is_type(kind):
        raise ArgumentError(
            f"{kernel}: {entry!r} for `{param.name}`, which is no tl.constexpr, is no type",
            hint='write "*fp32", "*fp32:16", "i32", "i32:16", "fp32"; None or 1 for what is passed as such',
        )
    if kind.startswith("*") and param.is_const and not kind.startswith("*k"):
        kind = f"*k{kind[1:]}"
    kind = param.fixed_type or kind
    if kind == "u1" or not kind.startswith(("*", "i", "u")) or not param.specialize:
        return kind, None
    return kind, DIVISIBLE if fact and param.specialize_alignment else ""


def is_type(text: str) -> bool:
    """Whether a text is a type of arguments: "*fp32", "i32", ..."""
    try:
        return scalar_from_signature(text).signature != "void"
    except ValueError:
        return False
