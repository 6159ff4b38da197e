"""`triton.runtime.autotuner`."""

from tilewright.runtime.errors import AutotunerError, OutOfResources, PTXASError
from tilewright.runtime.jit import JITFunction, KernelInterface
from tilewright.tuning.autotune import Autotuner, Config, Heuristics, autotune, heuristics
from tilewright.tuning.bench import do_bench, do_bench_cudagraph

__all__ = [
    "Autotuner", "AutotunerError", "Config", "Heuristics", "JITFunction", "KernelInterface", "OutOfResources",
    "PTXASError", "autotune", "do_bench", "do_bench_cudagraph", "heuristics",
]  # fmt: skip
