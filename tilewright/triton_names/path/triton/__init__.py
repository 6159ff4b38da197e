"""Tilewright under the name `triton`: the public names of Triton's version 3.9, each where Tilewright has it."""

# ruff: noqa: E402 -- the mark comes first: importing Tilewright asks for it where the environment says to pose

__tilewright__ = True

from tilewright import (
    AsyncCompileMode,
    CompilationError,
    Config,
    FutureKernel,
    InterpreterError,
    JITFunction,
    KernelInterface,
    MockTensor,
    OutOfResources,
    TensorWrapper,
    TritonError,
    aggregate,
    autotune,
    cdiv,
    compile,
    compiler,
    constexpr_function,
    heuristics,
    jit,
    language,
    must_use_result,
    next_power_of_2,
    reinterpret,
    runtime,
    set_allocator,
    testing,
)
from tilewright.triton_names import renaming as _renaming
from tilewright.triton_names import switch as _switch

__version__ = "3.9.0"

_switch.share()

from . import _C, backends, errors, knobs, tools

_switch.share()  # a shared module may lie in a package that has just been loaded
_renaming.rename_all()

__all__ = [
    "_C",
    "AsyncCompileMode",
    "CompilationError",
    "Config",
    "FutureKernel",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TritonError",
    "__version__",
    "aggregate",
    "autotune",
    "backends",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "errors",
    "heuristics",
    "jit",
    "knobs",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "tools",
]  # fmt: skip
