"""`triton.runtime`: launching, caches, tuning, devices."""

from . import _allocation, autotuner, build, cache, errors, interpreter, jit
from .autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from .driver import driver  # the name then means the object, as in Triton, and no longer the module
from .errors import InterpreterError, OutOfResources
from .jit import JITFunction, KernelInterface, MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Autotuner", "Config", "Heuristics", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor",
    "OutOfResources", "TensorWrapper", "_allocation", "autotune", "autotuner", "build", "cache", "driver", "errors",
    "heuristics", "interpreter", "jit", "reinterpret",
]  # fmt: skip
