"""The modules of the posing package, made of the list of names."""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.base import posing
from tilewright.base.knobs import knobs
from tilewright.base.lazy import load_behind
from tilewright.helion_names.surface import MODULES, REFUSED, ROWS, Row
from tilewright.hl import environment, exc

SHARED = {"helion.exc": "tilewright.hl.exc"}
"""Modules that are Tilewright's own under both names."""


class Refused:
    """Stands for a name of Helion that is not there: it can be imported, and raises the reason where it is used.

    Args:
        name: with its module.
        why: the reason.
    """

    def __init__(self, name: str, why: str) -> None:
        self._name, self._why = name, why

    def _error(self) -> exc.BackendUnsupported:
        return exc.BackendUnsupported(f"{self._name} is not there where Tilewright poses as helion", hint=self._why)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._error()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise self._error()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # questions of Python's own, such as `__wrapped__`
            raise AttributeError(name)
        raise self._error()

    def __repr__(self) -> str:
        return f"<{self._name}: {self._why}>"


def enter(package: str) -> None:
    """Make the modules and have settings read Helion's variables; called by the posing package when it is imported.

    Args:
        package: "helion".
    """
    environment.pose_as("helion")
    load_behind("torch._dynamo", "tilewright.torch")
    _heed_environment()
    for name in MODULES:
        if name != package:
            sys.modules[name] = _module(name)
    for name, home in SHARED.items():
        posing.share(home, name)
    for row in ROWS:
        vars(sys.modules[row.module]).update(_things(row))
    for name in [*MODULES, *SHARED]:
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, sys.modules[name])
    for name in MODULES:
        vars(sys.modules[name])["__all__"] = sorted(n for row in ROWS if row.module == name for n in row.names)


def _things(row: Row) -> dict[str, Any]:
    """The names of a row, and what they stand for."""
    if row.state == REFUSED:
        return {name: Refused(f"{row.module}.{name}", row.why) for name in row.names}
    home = importlib.import_module(row.home)
    return {name: getattr(home, name) for name in row.names}


def _module(name: str) -> ModuleType:
    """An empty module that imports find."""
    made = ModuleType(name, f"`{name}` where Tilewright poses as Helion.")
    loader: Any = posing.SharedLoader(None, made)
    is_package = any(other.startswith(f"{name}.") for other in MODULES)
    made.__spec__ = importlib.machinery.ModuleSpec(name, loader, is_package=is_package)
    made.__loader__ = loader
    made.__package__ = name.rpartition(".")[0]
    if made.__spec__.submodule_search_locations is not None:
        made.__path__, made.__package__ = [], name
    return made


def _heed_environment() -> None:
    """What variables of Helion say that is no setting: the folder for caches, and what is logged."""
    folder = os.environ.get("HELION_CACHE_DIR")
    if folder and "TILEWRIGHT_CACHE_DIR" not in os.environ:
        knobs.cache.dir = Path(folder)
    if os.environ.get("HELION_LOGS"):
        logger = logging.getLogger("tilewright.hl")
        logger.setLevel(logging.DEBUG)
        if not logger.handlers:
            logger.addHandler(logging.StreamHandler())
