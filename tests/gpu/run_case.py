"""A random kernel on a GPU, for the fuzz tests."""

from __future__ import annotations

from typing import Any

from tests.fuzz.case import Loaded
from tests.fuzz.check import Array, arguments, contents
from tests.gpu.harness import Compiled
from tilewright.base.options import Options


def run_on_gpu(case: Loaded, module: Any) -> dict[str, Array]:
    """Contents of the arrays after `module`, the tile IR of `case`, has run; consumes the module."""
    arrays = contents(case)
    Compiled(module, Options(**case.options))(case.grid, *arguments(case, arrays))
    return arrays
