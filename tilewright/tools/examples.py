"""Finds and loads the kernels of ``examples/``: one source for readers, the tour and the benchmarks.

In a clone they lie beside the package; a wheel carries them inside it. A module is executed anew on
every load, so that its kernels start with empty in-memory caches.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from tilewright.base.errors import TilewrightError
from tilewright.tools.modules import load_file


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
    return load_file(path, f"tilewright_examples.{stem}", register=True)
