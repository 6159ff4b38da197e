"""Updates of host tensors that many programs may make at once; each returns what was there before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.trace import indexing
from tilewright.hl.trace.state import device_trace

_ORDERS = ("relaxed", "acquire", "release", "acq_rel")


def _update(name: str, target: Any, index: Sequence[Any], values: tuple[Any, ...], sem: str) -> Any:
    trace = device_trace(f"hl.{name}")
    if sem not in _ORDERS:
        raise exc.InvalidAPIUsage(f"hl.{name} with the order {sem!r}", hint=f"orders are {', '.join(_ORDERS)}")
    if not trace.is_host(target):
        raise exc.AtomicOnDeviceTensor(
            f"hl.{name} of a tile", hint="only tensors of the host are shared between programs; write x = x + y"
        )
    with torch._C.DisableTorchFunction():
        return indexing.update(trace, name, target, index, values, sem)


def _family(name: str, meaning: str) -> Callable[..., Any]:
    def function(target: Any, index: Sequence[Any], value: Any, sem: str = "relaxed") -> Any:
        return _update(name, target, index, (value,), sem)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{meaning}.

    Args:
        target: a tensor of the host.
        index: one subscript per dimension.
        value: a tile that fits the subscript, or a number.
        sem: "relaxed", "acquire", "release" or "acq_rel".

    Returns:
        What was there before.
    """
    return function


atomic_add = _family("atomic_add", "Add `value`")
atomic_and = _family("atomic_and", "Clear the bits that `value` does not have")
atomic_max = _family("atomic_max", "Keep the larger of what is there and `value`")
atomic_min = _family("atomic_min", "Keep the smaller of what is there and `value`")
atomic_or = _family("atomic_or", "Set the bits that `value` has")
atomic_xchg = _family("atomic_xchg", "Put `value` there")
atomic_xor = _family("atomic_xor", "Flip the bits that `value` has")


def atomic_cas(target: Any, index: Sequence[Any], expected: Any, value: Any, sem: str = "relaxed") -> Any:
    """Put `value` there if `expected` is there; returns what was there before."""
    return _update("atomic_cas", target, index, (expected, value), sem)
