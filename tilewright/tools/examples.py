"""Finds and loads the kernels of ``examples/``: one source for readers, the tour and the benchmarks.

In a clone they lie beside the package; a wheel carries them inside it. A module is executed anew on
every load, so that its kernels start with empty in-memory caches.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tilewright.base.errors import TilewrightError


def folder() -> Path:
    """The folder that holds the examples; raises TilewrightError when the installation has none."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "examples", package.parent / "examples"):
        if (candidate / "vector_add.py").is_file():
            return candidate
    raise TilewrightError("this installation has no examples", hint="Run the tour from a clone: make tour")


def load(stem: str) -> ModuleType:
    """Execute ``examples/<stem>.py`` and return it as a new module."""
    path = folder() / f"{stem}.py"
    name = f"tilewright_examples.{stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TilewrightError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
