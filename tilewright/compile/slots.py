"""The run-time arguments of a call, in the order in which compiled code takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.compile.specialize import Path
from tilewright.devices.arrays import Array


def slot_values(arguments: tuple[Any, ...], paths: Iterable[Path]) -> list[Any]:
    """Addresses and numbers for a kernel's slots.

    Args:
        arguments: by parameter, with arrays read.
        paths: of the run-time ones, in the order of the slots.
    """
    return [_slot_value(at_path(arguments, path)) for path in paths]


def at_path(arguments: tuple[Any, ...], path: Path) -> Any:
    """The argument, or the part of a tuple argument, to which `path` leads."""
    value: Any = arguments
    for index in path:
        value = value[index]
    return value


def _slot_value(argument: Any) -> Any:
    return argument.address if isinstance(argument, Array) else argument
