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

from typing import TYPE_CHECKING

from tilewright.base.collecting import kept
from tilewright.base.lazy import lazy_module as lazy_module
from tilewright.base.lazy import load_behind as load_behind
from tilewright.base.lazy import names_on_first_use
from tilewright.base.lazy import torch_needed as torch_needed

with kept():
    from tilewright import language
    from tilewright.base import errors
    from tilewright.base import syntax as syntax
    from tilewright.base.checks import UNINITIALISED, parse_checks
    from tilewright.base.errors import (
        CompilationError,
        CompileTimeAssertionFailure,
        InterpreterError,
        OutOfResources,
        TilewrightError,
        UnsupportedLanguageConstruct,
    )
    from tilewright.base.knobs import knobs
    from tilewright.base.options import Options
    from tilewright.base.target import Target
    from tilewright.base.tracebacks import shorten_traceback as shorten_traceback
    from tilewright.base.version import __version__
    from tilewright.compile.ast_source import compile
    from tilewright.compile.kernel import CompiledKernel
    from tilewright.devices.allocation import set_allocator
    from tilewright.devices.wrappers import MockTensor, TensorWrapper, reinterpret
    from tilewright.language.aggregate import aggregate, must_use_result
    from tilewright.language.host import cdiv, next_power_of_2
    from tilewright.language.library import constexpr_function
    from tilewright.launch.interface import KernelInterface
    from tilewright.launch.interface import install_reporter as _install_reporter
    from tilewright.launch.jit import JITFunction, jit

if TYPE_CHECKING:
    from tilewright import compiler, runtime, testing
    from tilewright.compile.bundle import write_bundle
    from tilewright.launch.asynchronous import AsyncCompileMode, FutureKernel
    from tilewright.launch.bundled import load_bundle
    from tilewright.launch.gradient import grad
    from tilewright.tuning.autotune import Autotuner, Config, Heuristics, autotune, heuristics
else:
    __getattr__ = names_on_first_use(
        globals(),
        {
            "tilewright": ("compiler", "runtime", "testing"),
            "tilewright.compile.bundle": ("write_bundle",),
            "tilewright.launch.asynchronous": ("AsyncCompileMode", "FutureKernel"),
            "tilewright.launch.bundled": ("load_bundle",),
            "tilewright.launch.gradient": ("grad",),
            "tilewright.tuning.autotune": ("Autotuner", "Config", "Heuristics", "autotune", "heuristics"),
        },
    )

TritonError = TilewrightError  # the root of Triton's errors, for programs that catch it
_switch = lazy_module("tilewright.triton_names.switch")
_helion_switch = lazy_module("tilewright.helion_names.switch")
_pages = lazy_module("tilewright.tools.report.page")
_checking = lazy_module("tilewright.sanitize.checking")
_install_reporter(lambda *launch: _pages.report_of_launch(*launch))


def as_triton() -> None:
    """Have `import triton` give Tilewright in this process and in the processes that it starts.

    Call it before anything that imports Triton is imported (torch itself may be, torch.compile may not have run).

    Raises:
        PosingError: the real Triton has been imported already.
    """
    _switch.as_triton()


def as_helion(triton: bool = True) -> None:
    """Have `import helion` give Tilewright in this process and in the processes that it starts.

    Call it before anything that imports Helion is imported.

    Args:
        triton: pose as Triton too, as programs of Helion expect one.

    Raises:
        PosingError: the real Helion, or (with `triton`) the real Triton, has been imported already.
    """
    _helion_switch.as_helion(triton)


__all__ = [
    "AsyncCompileMode",
    "Autotuner",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "Config",
    "FutureKernel",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "Options",
    "OutOfResources",
    "Target",
    "TensorWrapper",
    "TilewrightError",
    "TritonError",
    "UnsupportedLanguageConstruct",
    "__version__",
    "aggregate",
    "as_helion",
    "as_triton",
    "autotune",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "errors",
    "grad",
    "heuristics",
    "jit",
    "knobs",
    "language",
    "load_bundle",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "write_bundle",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if knobs.runtime.as_triton:  # a worker of a process that poses
    as_triton()
if knobs.runtime.as_helion:
    as_helion(triton=False)
if UNINITIALISED in parse_checks(knobs.runtime.sanitize):  # whatever makes arrays from here on
    _checking.follow_process()
# Kernels are operators to PyTorch's tracers from their first; Inductor knows those of a process that poses as Triton.
load_behind("torch._dynamo", "tilewright.torch", unless=lambda: _switch.poses())
