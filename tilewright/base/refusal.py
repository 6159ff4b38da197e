"""Names that are there to say why the thing is not.

Programs import names at the top and use some of them, so a name that Tilewright refuses is an object like any other
until it is used: then it raises, with the reason and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tilewright.base.errors import RefusedNameError


class Refusal:
    """Stands for a function, class or group of settings that Tilewright does not have.

    Calling it, reading a member and deriving a class from it raise; nothing is an instance of it.

    Args:
        name: of what is not there, as a program finds it.
        why: the reason, or what to write instead.
    """

    def __init__(self, name: str, why: str) -> None:
        self.__name__, self.why = name, why

    def raise_error(self) -> NoReturn:
        """Raise RefusedNameError."""
        raise RefusedNameError(f"{self.__name__} is not there: {self.why}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.raise_error()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self.raise_error()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self.raise_error()

    def __instancecheck__(self, thing: Any) -> bool:
        return False

    def __subclasscheck__(self, cls: Any) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.__name__} is not there: {self.why}>"


def refusals(module: str, rows: dict[str, str]) -> dict[str, Refusal]:
    """Refusals by the last part of their names.

    Args:
        module: what the names are in.
        rows: reason by name.
    """
    return {name: Refusal(f"{module}.{name}", why) for name, why in rows.items()}


def absent(module: str, rows: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """A `__getattr__` for a module: names by whose absence programs tell versions apart, with the reason for who asks.

    Args:
        module: its name.
        rows: reason by name.
    """

    def __getattr__(name: str) -> NoReturn:
        if name in rows:
            raise RefusedNameError(f"{module}.{name} is not there: {rows[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


class OneValue:
    """A setting of Triton's that has one value here: a member of a class that is read, and may be set to just that.

    Args:
        value: it.
        why: there is no other, or what to write instead.
    """

    def __init__(self, value: Any, why: str) -> None:
        self._value, self._why = value, why

    def __str__(self) -> str:
        return f"{self._value!r} alone: {self._why}"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        return self if group is None else self._value

    def __set__(self, group: Any, value: Any) -> None:
        if value != self._value:
            raise RefusedNameError(f"{self._name} is {self._value!r} and cannot be {value!r}: {self._why}")
