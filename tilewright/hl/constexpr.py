"""`hl.constexpr`: parameters and arguments that are constants of the compiled kernel."""

from __future__ import annotations

from typing import Any


class ConstExpr:
    """Marks a parameter (`n: hl.constexpr`) or an argument (`hl.constexpr(3)`) that is a constant of the kernel.

    Args:
        value: the constant.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstExpr) and self.value == other.value

    def __hash__(self) -> int:
        return hash(("constexpr", self.value))


def plain(argument: Any) -> Any:
    """An argument as host code takes it: a marked constant is its value."""
    return argument.value if isinstance(argument, ConstExpr) else argument
