"""Tilewright: tile kernels written in Python, run as native code.

    import tilewright
    import tilewright.language as tl

    @tilewright.jit
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets, mask), mask)

    add[(tilewright.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
"""

from tilewright import language
from tilewright.base import errors
from tilewright.base.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    OutOfResources,
    TilewrightError,
    UnsupportedLanguageConstruct,
)
from tilewright.base.knobs import knobs
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.language.library import constexpr_function
from tilewright.runtime.compiler import CompiledKernel
from tilewright.runtime.host import cdiv, next_power_of_2
from tilewright.runtime.jit import JITFunction, jit
from tilewright.base.version import __version__

__all__ = [
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "JITFunction",
    "Options",
    "OutOfResources",
    "Target",
    "TilewrightError",
    "UnsupportedLanguageConstruct",
    "__version__",
    "cdiv",
    "constexpr_function",
    "errors",
    "jit",
    "knobs",
    "language",
    "next_power_of_2",
]
