"""What functions and classes of the language say of themselves, and where they are at home.

In a process that poses as Triton they say that they are Triton's, because tools write code with these names. Who asks
whose something is asks `home_of`, which is not changed by that, so hashes and diagnostics stay the same.
"""

from __future__ import annotations

from typing import Any

_package = ["tilewright"]
_homes: dict[int, tuple[str, str]] = {}


def package() -> str:
    """The name under which programs know Tilewright: "tilewright", or "triton"."""
    return _package[0]


def pose_as(name: str) -> None:
    """Have names that are written out begin with another package."""
    _package[0] = name


def home_of(thing: Any) -> str:
    """The module that defines a function or class (or the class of an object), whatever it says; "" if unknown."""
    found = _homes.get(id(thing)) or (None if isinstance(thing, type) else _homes.get(id(type(thing))))
    return found[0] if found else getattr(thing, "__module__", None) or ""


def name_at_home(thing: Any) -> str:
    """The qualified name by which that module defines a function or class."""
    found = _homes.get(id(thing))
    return found[1] if found else str(thing.__qualname__)


def rename(thing: Any, module: str, name: str) -> None:
    """Have a function or class of a module say that it is another's.

    Args:
        thing: it; module-level, so that it is never collected.
        module, name: where programs find it.
    """
    _homes.setdefault(id(thing), (thing.__module__, getattr(thing, "__qualname__", thing.__name__)))
    thing.__module__ = module
    if thing.__name__ != name:
        thing.__name__ = thing.__qualname__ = name
