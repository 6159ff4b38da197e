"""Launching and compiling kernels: `@jit`, specialisation, caches, autotuning, devices.

The names below are what people use of `triton.runtime`.
"""

from tilewright.base.errors import InterpreterError, OutOfResources
from tilewright.devices.drivers import driver
from tilewright.devices.wrappers import MockTensor, TensorWrapper, reinterpret
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction
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
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
]
