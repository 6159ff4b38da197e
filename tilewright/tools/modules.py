"""Python files as modules, whatever folder they lie in."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tilewright.base.errors import ArgumentError, TilewrightError


def load_file(path: Path, name: str | None = None, register: bool = False) -> ModuleType:
    """Execute a Python file and return it as a new module.

    Args:
        path: of the file.
        name: of the module; that of the file if none is given.
        register: whether `sys.modules` gets it, as pickling and dataclasses want.

    Raises:
        TilewrightError: Python has no loader for such a file.
        Exception: whatever the file raises.
    """
    name = name or path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TilewrightError(f"{path} cannot be loaded", hint="give a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    if register:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_beside(path: Path) -> ModuleType:
    """Execute a Python file as if it were run: modules beside it are found.

    Raises:
        ArgumentError: there is no such file.
    """
    if not path.is_file():
        raise ArgumentError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return load_file(path)
    finally:
        sys.path.remove(folder)
