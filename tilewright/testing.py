"""Timing, comparing and reporting, under the names of `triton.testing`."""

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
    "ForkExecutor",
    "Mark",
    "_summarize_statistics",
    "assert_close",
    "can_fork",
    "clock_of",
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
    "time_in_turns",
]
