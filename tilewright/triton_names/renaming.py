"""What is reached from `triton` says that it is Triton's, as torch writes `__module__` and `__name__` into code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from tilewright import language
from tilewright.base import naming
from tilewright.base.dtypes import ALL_DTYPES

_FIRST = (
    "triton.language.core", "triton.language.standard", "triton.language.math", "triton.language.random",
    "triton.language.semantic", "triton.language.target_info", "triton.language.extra.libdevice",
    "triton.language.extra.cuda", "triton.language", "triton.runtime.jit", "triton.runtime.autotuner",
    "triton.runtime.errors", "triton.compiler.errors", "triton.compiler.compiler", "triton.backends.compiler",
    "triton.backends.driver", "triton.testing", "triton",
)  # fmt: skip
"""Modules in which programs know things to be, where these are in several."""


def rename_all() -> None:
    """Give every class and function of the modules named `triton...` the module, and the name, by which it is found.

    Data types are found in `triton.language` under their short names too, by which torch writes them.
    """
    naming.pose_as("triton")
    for short in ALL_DTYPES:
        vars(language).setdefault(short.name, short)
    places: dict[int, tuple[Any, str, str]] = {}
    for module in _modules():
        for name, thing in list(vars(sys.modules[module]).items()):
            if not _is_named(thing) or (name.startswith("_") and name != thing.__name__):
                continue
            if module not in _FIRST and _is_error(thing):  # which it raises
                continue
            _, _, found = places.get(id(thing), (thing, "", ""))
            if not found or (found != thing.__name__ and name == thing.__name__):
                places[id(thing)] = thing, module, name
    for thing, module, name in places.values():
        naming.rename(thing, module, name)


def _modules() -> Iterator[str]:
    """All, in order of preference; those that can be imported, but that no attributes lead to, are the last."""
    known = [name for name in sys.modules if name.partition(".")[0] == "triton"]
    order = {name: index for index, name in enumerate(_FIRST)}
    yield from sorted(known, key=lambda n: (not _leads_to(n), order.get(n, len(order)), n.count("."), n))


def _leads_to(name: str) -> bool:
    value: Any = sys.modules["triton"]
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return isinstance(value, ModuleType) and value is sys.modules[name]


def _is_error(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _is_named(thing: Any) -> bool:
    """Whether it is a class or function of Tilewright's that has its own module and name."""
    if isinstance(thing, (type, FunctionType)) or "__module__" in getattr(thing, "__dict__", ()):
        return naming.home_of(thing).startswith("tilewright.") and isinstance(getattr(thing, "__name__", None), str)
    return False
