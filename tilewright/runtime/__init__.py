"""Launching kernels under the names of `triton.runtime`: the functions and classes, and the modules of that package."""

from tilewright.base.errors import InterpreterError, OutOfResources
from tilewright.devices.wrappers import MockTensor, TensorWrapper, reinterpret
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction
from tilewright.runtime import _allocation, autotuner, build, cache, errors, interpreter, jit
from tilewright.runtime.driver import driver  # from here on the name means the object, as in Triton, not the module
from tilewright.tuning.autotune import Autotuner, Config, Heuristics, autotune, heuristics

__all__ = [
    "Autotuner",
    "Config",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "_allocation",
    "autotune",
    "autotuner",
    "build",
    "cache",
    "driver",
    "errors",
    "heuristics",
    "interpreter",
    "jit",
    "reinterpret",
]
