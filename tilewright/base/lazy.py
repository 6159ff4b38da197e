"""Modules that load when they are first used.

The compiler half of Tilewright (front end, passes, back ends) is needed at the first compile, not by
`import tilewright`. A file that uses such a module names it twice: once under `TYPE_CHECKING`, where type checkers and
the layering test read it, and once through `lazy_module`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any


class LazyModule:
    """Stands for a module until one of its attributes is wanted.

    Args:
        name: dotted name.
        prepare: called with the module when it has been loaded through this object.
    """

    def __init__(self, name: str, prepare: Callable[[Any], None] | None = None) -> None:
        self._name, self._prepare = name, prepare
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            module = importlib.import_module(self._name)
            if self._prepare is not None:
                self._prepare(module)
            self._module = module
        return getattr(self._module, attribute)

    def __repr__(self) -> str:
        return f"<lazy module {self._name!r}>"


def lazy_module(name: str, prepare: Callable[[Any], None] | None = None) -> Any:
    """The module `name`, imported on first use; see :class:`LazyModule`."""
    return LazyModule(name, prepare)
