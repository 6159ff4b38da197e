"""A package of ours under the name of another: its folder goes first on `sys.path`, here and in processes started here.

Worker processes of torch and of `multiprocessing` take `sys.path` over; other processes find the folder by
`PYTHONPATH`. A package of that name which is only installed is shadowed by that and by nothing else.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.base.errors import PosingError


@dataclass(frozen=True)
class Pose:
    """A name that Tilewright takes.

    Args:
        name: of the package.
        room: the folder with `path`, in which the posing package is, and `started`, which other processes get: what is
            there under the name makes way for the posing package, or for a real one.
        advice: what to do where the real package is imported already.
    """

    name: str
    room: Path
    advice: str

    @property
    def folder(self) -> str:
        """What is on `sys.path`."""
        return str(self.room / "path")

    @property
    def started(self) -> str:
        """What is on `PYTHONPATH`."""
        return str(self.room / "started")

    @property
    def variable(self) -> str:
        """The variable of the environment which says that a process poses."""
        return f"TILEWRIGHT_AS_{self.name.upper()}"

    @property
    def is_loaded(self) -> bool:
        """Whether the package that has been imported under the name is ours."""
        return getattr(sys.modules.get(self.name), "__tilewright__", False) is True

    def refuse_real(self) -> None:
        """Raise `PosingError` where the real package has been imported already."""
        if self.name in sys.modules and not self.is_loaded:
            found = origin(sys.modules[self.name])
            raise PosingError(f"the real {self.name.title()} is imported already, from {found}", hint=self.advice)

    def enter(self) -> None:
        """Have imports in this process, and in those that it starts, find the posing package first."""
        os.environ[self.variable] = "1"
        entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        others = [entry for entry in entries if entry and entry != self.started]
        os.environ["PYTHONPATH"] = os.pathsep.join([self.started, *others])
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        importlib.invalidate_caches()
        found = importlib.util.find_spec(self.name)
        if found is None or not Path(found.origin or "").is_relative_to(self.folder):
            raise PosingError(
                f"`import {self.name}` still finds {found and found.origin}",
                hint="an import hook of this process goes before sys.path; take it away",
            )

    def describe(self) -> str:
        """Which package of the name this process has, in a line, without importing one."""
        if self.name in sys.modules:
            return f"the real one, imported from {origin(sys.modules[self.name])}"
        found = importlib.util.find_spec(self.name)
        if found is None:
            return f"not installed; tilewright.as_{self.name}() would pose as it"
        if found.origin and Path(found.origin).is_relative_to(self.room):
            return "Tilewright poses as it once it is imported"
        place = f"the real one is installed ({found.origin}) and not imported"
        return f"{place}; tilewright.as_{self.name}() would shadow it"


def origin(module: ModuleType) -> str:
    """The file of a module, or what stands for it."""
    return str(getattr(module, "__file__", None) or module)


# --- one object under two names ------------------------------------------------------------------------


class SharedLoader:
    """The loader of a module with two names: it gives the module that is there instead of making a second one.

    Programs that load a module by hand (`module_from_spec`, then `exec_module`) would otherwise run its file again.

    Args:
        loader: the module's own, asked for everything else.
        module: what it has loaded.
    """

    def __init__(self, loader: Any, module: ModuleType) -> None:
        self._loader, self._module = loader, module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module itself."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the module has run."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def share(home: str, second: str) -> None:
    """Enter a module of ours under a second name.

    Args:
        home: its own name; it is imported.
        second: the other. Where its package has something else under the last part (`runtime.driver`), that stays.
    """
    module = importlib.import_module(home)
    spec = module.__spec__
    if spec is not None and not isinstance(spec.loader, SharedLoader):
        spec.loader = SharedLoader(spec.loader, module)  # type: ignore[assignment]
    sys.modules[second] = module
    parent, _, leaf = second.rpartition(".")
    if parent in sys.modules:
        vars(sys.modules[parent]).setdefault(leaf, module)


def with_submodules(name: str) -> Iterator[str]:
    """A module's name, and those of all modules below it."""
    yield name
    for found in pkgutil.walk_packages(getattr(importlib.import_module(name), "__path__", ()), f"{name}."):
        yield found.name
