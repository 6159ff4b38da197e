"""`hl.constexpr`: parameters, arguments and expressions that are constants of the compiled kernel."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any


class ConstExpr:
    """Marks a parameter (`n: hl.constexpr`) or a value (`hl.constexpr(3)`) that is a constant of the kernel.

    Inside a kernel, and where it runs as a reference, `hl.constexpr(value)` is the value itself. Outside, where it
    marks an argument, it behaves as its value does: it is true, compares, computes, indexes and hashes alike.

    Args:
        value: the constant.
    """

    value: Any

    def __new__(cls, value: Any) -> Any:
        value = plain(value)
        for inside, constant in _KERNELS:
            if inside():
                return constant(value)
        self = object.__new__(cls)
        self.value = value
        return self

    def __getnewargs__(self) -> tuple[Any]:
        return (self.value,)

    def __getattr__(self, name: str) -> Any:
        if name == "value":  # of an object that is still being made
            raise AttributeError(name)
        return getattr(self.value, name)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __contains__(self, item: Any) -> bool:
        return plain(item) in self.value

    def __getitem__(self, key: Any) -> Any:
        return self.value[plain(key)]

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, form: str) -> str:
        return format(self.value, form)

    def __repr__(self) -> str:
        return f"constexpr({self.value!r})"

    def __round__(self, digits: Any = None) -> Any:
        return round(self.value, digits)


_UNARY: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(operator, name) for name in ("neg", "pos", "abs", "invert", "index")},
    "int": int,
    "float": float,
    "complex": complex,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
}
_BINARY = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "lshift",
    "rshift",
    "and_",
    "or_",
    "xor",
    "divmod",
)


def _methods() -> None:
    for name, function in _UNARY.items():
        setattr(ConstExpr, f"__{name}__", lambda self, function=function: function(self.value))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(operator, name)
        setattr(ConstExpr, f"__{name}__", lambda self, other, compare=compare: compare(self.value, plain(other)))
    for name in _BINARY:
        combine = divmod if name == "divmod" else getattr(operator, name)
        name = name.rstrip("_")
        setattr(ConstExpr, f"__{name}__", lambda self, other, combine=combine: combine(self.value, plain(other)))
        setattr(ConstExpr, f"__r{name}__", lambda self, other, combine=combine: combine(plain(other), self.value))


_methods()

# (whether a kernel of some kind runs, what a constant is in it): tracing and references are above this file
_KERNELS: list[tuple[Callable[[], bool], Callable[[Any], Any]]] = []


def in_kernels(inside: Callable[[], bool], constant: Callable[[Any], Any]) -> None:
    """Register a way in which kernels run.

    Args:
        inside: whether one does.
        constant: what `hl.constexpr(value)` is in it, from the value.
    """
    _KERNELS.append((inside, constant))


def plain(argument: Any) -> Any:
    """An argument as host code takes it: a marked constant is its value."""
    return argument.value if isinstance(argument, ConstExpr) else argument
