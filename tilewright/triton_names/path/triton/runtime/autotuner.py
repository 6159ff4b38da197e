"""`triton.runtime.autotuner`."""

from tilewright.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
from tilewright.runtime.testing import do_bench, do_bench_cudagraph

from .errors import AutotunerError, OutOfResources, PTXASError
from .jit import JITFunction, KernelInterface

__all__ = [
    "Autotuner", "AutotunerError", "Config", "Heuristics", "JITFunction", "KernelInterface", "OutOfResources",
    "PTXASError", "autotune", "do_bench", "do_bench_cudagraph", "heuristics",
]  # fmt: skip
