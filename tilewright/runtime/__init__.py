"""Launching and compiling kernels: `@jit`, specialisation, caches, autotuning, devices.

The names below are what people use of `triton.runtime`.
"""

from tilewright.base.errors import InterpreterError, OutOfResources
from tilewright.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from tilewright.runtime.drivers import driver
from tilewright.runtime.interface import KernelInterface
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret

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
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
]
