"""Launches of kernels, and the same launches with the kernel's text given to Triton.

A module of spellings is loaded a second time with `import triton` in place of `import tilewright`; what its decorator
then registers are functions of Triton's. So one kernel's text runs by both compilers in one process.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

_FOLDER = tempfile.TemporaryDirectory(prefix="tilewright-peers-")  # Triton reads the text of its functions from files
_NAMES = {
    "import tilewright\n": "import triton as tilewright\n",
    "import tilewright.language as tl\n": "import triton.language as tl\n",
    "from tests.decisions.harness import Spelling, spelled\n": "from benchmarks.peers import spelled\n",
}


@dataclass(frozen=True)
class Launch:
    """A launch that can be repeated: kernel, grid, what it is given, and options."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return self.kernel[self.grid](*self.arguments, **self.options)

    def by_triton(self) -> Launch:
        """The launch of the same text by Triton.

        Raises:
            ImportError: there is no Triton.
        """
        function = self.kernel.fn
        return replace(self, kernel=getattr(_by_triton(function.__module__), function.__name__))


@functools.cache
def _by_triton(name: str) -> ModuleType:
    """A module of spellings whose kernels are Triton's."""
    path = sys.modules[name].__file__
    assert path is not None
    text = Path(path).read_text()
    for ours, its in _NAMES.items():
        text = text.replace(ours, its)
    place = Path(_FOLDER.name) / f"{name.rpartition('.')[2]}_by_triton.py"
    place.write_text(text)
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[place.stem] = module
    spec.loader.exec_module(module)
    return module


def spelled(*_: Any, **__: Any) -> Callable[[Callable[..., None]], Any]:
    """The decorator of spellings there: signatures and options are those of the launch."""
    import triton

    return triton.jit
