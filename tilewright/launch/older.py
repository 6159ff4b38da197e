"""What launches of Triton 2.x to 3.2 computed of their arguments in Python, for tools that still ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.errors import ArgumentError
from tilewright.compile.specialize import ALIGNMENT, DIVISIBLE, int_type
from tilewright.devices.arrays import element_type


class Forgetting(dict[Any, Any]):
    """What a kernel has by device or by key, as of now; clearing it has the kernel forget its variants.

    Args:
        rows: what there is.
        forget: called when it is cleared.
        absent: gives what there is for other keys.
    """

    def __init__(
        self, rows: dict[Any, Any], forget: Callable[[], None], absent: Callable[[], Any] | None = None
    ) -> None:
        super().__init__(rows)
        self._forget, self._absent = forget, absent

    def __missing__(self, key: Any) -> Any:
        if self._absent is None:
            raise KeyError(key)
        return self._absent()

    def clear(self) -> None:
        """Have the kernel forget its variants."""
        super().clear()
        self._forget()


def key_of(arg: Any) -> Any:
    """What an argument was keyed by: its dtype, or the type of a number.

    Raises:
        ArgumentError: it is no argument.
        IntegerRangeError: an integer that 64 bits do not hold.
    """
    if arg is None or hasattr(arg, "dtype"):
        return getattr(arg, "dtype", None)
    if isinstance(arg, bool):
        return "i1"
    if isinstance(arg, int):
        return int_type(arg)
    if isinstance(arg, float):
        return "fp32"
    raise ArgumentError(f"Unsupported type {type(arg).__name__} for {arg!r}", hint="pass a tensor or a number")


def type_of(key: Any, is_const: bool = False) -> str:
    """The signature type that such a key stands for: `"*fp32"`.

    Args:
        key: from `key_of`.
        is_const: whether the kernel does not store through it.
    """
    if key is None:
        return "*i8"
    return key if isinstance(key, str) else f"*{'k' if is_const else ''}{element_type(key, 'argument')}"


def compute_spec_key(v: Any, align: bool = True) -> str:
    """The facts that an argument was specialised on.

    Args:
        v: the argument.
        align: whether divisibility counts.

    Returns:
        "D" for what is divisible by 16, "1" for that number, else "N".
    """
    number = v.data_ptr() if hasattr(v, "data_ptr") else v
    if isinstance(number, int):
        if align and number % ALIGNMENT == 0:
            return DIVISIBLE
        if number is v and v == 1:
            return "1"
    return "N"
