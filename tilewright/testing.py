"""Timing, comparing and reporting, under the names of `triton.testing`; `compare` and `assert_kernel`."""

from tilewright.comparing.arrays import array
from tilewright.comparing.asserting import assert_kernel, strategies
from tilewright.comparing.backward import assert_backward
from tilewright.comparing.compare import Comparison, ComparisonError, compare
from tilewright.compile.forks import ForkExecutor, can_fork
from tilewright.tuning.bench import (
    _summarize_statistics,
    assert_close,
    clock_of,
    cublas,
    cuda_memcheck,
    do_bench,
    do_bench_cudagraph,
    do_bench_cudagraph_proton,
    do_bench_proton,
    get_dram_gbps,
    get_max_simd_tflops,
    get_max_tensorcore_tflops,
    nvsmi,
    set_gpu_clock,
)
from tilewright.tuning.perf_report import Benchmark, Mark, perf_report
from tilewright.tuning.search import Candidate, time_in_turns

__all__ = [
    "Benchmark",
    "Candidate",
    "Comparison",
    "ComparisonError",
    "ForkExecutor",
    "Mark",
    "_summarize_statistics",
    "array",
    "assert_backward",
    "assert_close",
    "assert_kernel",
    "can_fork",
    "clock_of",
    "compare",
    "cublas",
    "cuda_memcheck",
    "do_bench",
    "do_bench_cudagraph",
    "do_bench_cudagraph_proton",
    "do_bench_proton",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
    "set_gpu_clock",
    "strategies",
    "time_in_turns",
]
