"""The run-time arguments of a call, in the order in which compiled code takes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.compile.specialize import Path
from tilewright.devices.arrays import HOST, Array, numpy_address


def slot_values(arguments: tuple[Any, ...], paths: Iterable[Path]) -> list[Any]:
    """Addresses and numbers for a kernel's slots.

    Args:
        arguments: by parameter, with arrays read.
        paths: of the run-time ones, in the order of the slots.
    """
    return [_slot_value(at_path(arguments, path)) for path in paths]


def plain_values(args: Sequence[Any], slots: Sequence[int]) -> tuple[list[Any], int] | None:
    """Addresses and numbers for a kernel's slots, and the device of its arrays, without looking at anything else.

    Args:
        args: by parameter, as they were passed.
        slots: the parameters that have a slot, in order.

    Returns:
        None where an argument is something else than a tensor of torch, an array of numpy or a number of Python, where
        no argument is an array, and where they are not on one device.
    """
    torch = sys.modules.get("torch")
    tensor = None if torch is None else torch.Tensor
    values: list[Any] = []
    device: int | None = None
    for slot in slots:
        value = args[slot]
        kind = value.__class__
        if kind is int or kind is float or kind is bool:
            values.append(value)
            continue
        if kind is tensor:
            address = value.data_ptr()
            here = HOST if value.is_cpu else value.get_device() if value.is_cuda else None
        elif kind is np.ndarray:
            address, here = numpy_address(value), HOST
        else:
            return None
        if here is None or not address or (here != device and device is not None):
            return None
        device = here
        values.append(address)
    return None if device is None else (values, device)


def at_path(arguments: tuple[Any, ...], path: Path) -> Any:
    """The argument, or the part of a tuple argument, to which `path` leads."""
    value: Any = arguments
    for index in path:
        value = value[index]
    return value


def _slot_value(argument: Any) -> Any:
    return argument.address if isinstance(argument, Array) else argument
