"""Launching kernels under the names of `triton.runtime`.

The modules below are those of that package; they load when they are imported, or with `tilewright.as_triton()`.
"""

from tilewright.base.errors import InterpreterError, OutOfResources
from tilewright.devices.wrappers import MockTensor, TensorWrapper, reinterpret
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction
from tilewright.runtime.cache import RedisRemoteCacheBackend, RemoteCacheBackend
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
    "RedisRemoteCacheBackend",
    "RemoteCacheBackend",
    "TensorWrapper",
    "autotune",
    "driver",
    "heuristics",
    "reinterpret",
]
