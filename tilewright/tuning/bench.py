"""Timing a function and comparing results: the part of `tilewright.testing` that needs no plotting.

Names, arguments and units are Triton's. On the CPU a call has finished when it returns, so the clock of the process
is the device's clock, and caches are left warm between runs. If a GPU is the active device its own clock counts, and
its cache is cleared ahead of each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from tilewright.backends.driver import DriverBase
from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.refusal import Refusal
from tilewright.devices.drivers import driver
from tilewright.devices.registry import gpu
from tilewright.tuning.search import Candidate, CpuSampler, Sampler, quantiles_of

_SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "min": min,
    "max": max,
    "mean": lambda times: sum(times) / len(times),
    "median": lambda times: quantiles_of(times, (0.5,))[0],
}
_ESTIMATES = 5
_REPLAYS = 10
_GRAPH_MS = 2.0  # of a graph that is one sample
_CACHE_BYTES = 256 << 20  # several times the L2 of any GPU so far


class Clock(Protocol):
    """Times calls on a device."""

    def times(self, fn: Callable[[], Any], count: int, before: Callable[[], Any]) -> list[float]:
        """Milliseconds of each of `count` calls of `fn`; `before` is called ahead of each, untimed."""


class CpuClock:
    """Times calls that have finished when they return."""

    def times(self, fn: Callable[[], Any], count: int, before: Callable[[], Any]) -> list[float]:
        """As `Clock.times`."""
        found = []
        for _ in range(count):
            before()
            begin = time.perf_counter()
            fn()
            found.append((time.perf_counter() - begin) * 1e3)
        return found


class GpuClock:
    """Times what calls queue in the current stream of a GPU, each with a cold cache.

    Args:
        ordinal: the GPU.
    """

    def __init__(self, ordinal: int) -> None:
        self._ordinal, self._cache = ordinal, gpu.Memory(_CACHE_BYTES, ordinal)

    def times(self, fn: Callable[[], Any], count: int, before: Callable[[], Any]) -> list[float]:
        """As `Clock.times`."""
        pairs = [(gpu.Event(self._ordinal), gpu.Event(self._ordinal)) for _ in range(count)]
        for begin, end in pairs:
            before()
            self._cache.clear()
            begin.record()
            fn()
            end.record()
        gpu.synchronize(self._ordinal)
        return [end.milliseconds_since(begin) for begin, end in pairs]

    def sample(self, candidate: Candidate, repeats: int) -> tuple[float, float]:
        """As `Sampler.sample`: by the GPU's own clock; all that is done for a sample counts as time spent."""
        start = time.perf_counter()
        candidate.before()
        try:
            times = self.times(candidate.run, repeats, _nothing)
        except Exception as error:
            candidate.after(error)
            raise
        candidate.after(None)
        return sum(times) / len(times) * 1e-3, time.perf_counter() - start


class GraphClock(GpuClock):
    """As `GpuClock`, of calls that the GPU takes from a graph, so that launching them costs next to nothing."""

    def __init__(self, ordinal: int) -> None:
        super().__init__(ordinal)
        self._graphs: dict[int, tuple[Callable[[], Any], int]] = {}

    def sample(self, candidate: Candidate, repeats: int) -> tuple[float, float]:
        """As `Sampler.sample`; nothing is called around the runs, as a graph holds launches only."""
        import torch

        start = time.perf_counter()
        with torch.cuda.device(self._ordinal):  # of its streams torch makes graphs
            if id(candidate) not in self._graphs:
                self._graphs[id(candidate)] = _graph_of(candidate.run, _GRAPH_MS, [], self)
            replay, count = self._graphs[id(candidate)]
            return self.times(replay, 1, _nothing)[0] / count * 1e-3, time.perf_counter() - start


def clock_of(ordinal: int | None, graphs: bool = False) -> Sampler:
    """What times candidates whose arrays are on a GPU, or on the host for None.

    Args:
        ordinal: number of the GPU.
        graphs: take the launches from a graph.
    """
    if ordinal is None:
        return CpuSampler()
    return GraphClock(ordinal) if graphs else GpuClock(ordinal)


def active_clock() -> Clock:
    """The clock of the active driver's device."""
    active = driver.active
    return GpuClock(active.get_current_device()) if active.has_queue else CpuClock()


def _summarize_statistics(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    """The quantiles (a number if there is one), else what `return_mode` says.

    Args:
        times: milliseconds.
        quantiles: each between 0 and 1, or None.
        return_mode: "min", "max", "mean", "median" or "all".
    """
    if return_mode not in _SUMMARIES and return_mode != "all":
        raise ArgumentError(
            f"return_mode is {return_mode!r}", hint=f"write one of {', '.join(map(repr, [*_SUMMARIES, 'all']))}"
        )
    if quantiles is not None:
        found = quantiles_of(times, quantiles)
        return found[0] if len(found) == 1 else found
    return list(times) if return_mode == "all" else _SUMMARIES[return_mode](list(times))


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    *,
    clock: Clock | None = None,
) -> Any:
    """Time a function on the active device.

    Args:
        fn: called without arguments.
        warmup: milliseconds of calls before timing starts; at least one call.
        rep: milliseconds of timed calls; at least one call.
        grad_to_none: tensors whose gradient is dropped before each call.
        quantiles: quantiles of the times to return, instead of `return_mode`.
        return_mode: "min", "max", "mean", "median", or "all" for the list of times.
        clock: of the device that runs the calls; default is the active one's.

    Returns:
        Milliseconds per call: a number, or a list for "all" and for several quantiles.

    Raises:
        ArgumentError: an unknown `return_mode`.
    """
    _summarize_statistics([0.0], quantiles, return_mode)  # a wrong argument shows before the time is spent
    clock = active_clock() if clock is None else clock
    tensors = list(grad_to_none or ())

    def drop_gradients() -> None:
        for tensor in tensors:
            tensor.grad = None

    fn()
    estimate = _estimate(fn, clock)
    for _ in range(max(1, int(warmup / estimate))):
        fn()
    times = clock.times(fn, max(1, int(rep / estimate)), drop_gradients)
    return _summarize_statistics(times, quantiles, return_mode)


DriverBase.benchmarker = staticmethod(do_bench)


def _nothing() -> None:
    pass


def _estimate(fn: Callable[[], Any], clock: Clock) -> float:
    """Milliseconds that a timed call takes with everything around it."""
    begin = time.perf_counter()
    clock.times(fn, _ESTIMATES, _nothing)
    return max((time.perf_counter() - begin) / _ESTIMATES * 1e3, 1e-6)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """`do_bench` of calls that a GPU takes from a graph, so that launching them costs next to nothing.

    On a CPU, which has no launch queue that a graph would shorten, `do_bench` without a warm-up of its own. On a GPU
    torch makes the graph; caches stay warm in it.
    """
    if not driver.active.has_queue:
        return do_bench(fn, 0, rep, grad_to_none, quantiles, return_mode)
    _summarize_statistics([0.0], quantiles, return_mode)
    return _summarize_statistics(_graph_times(fn, rep, list(grad_to_none or ())), quantiles, return_mode)


def _graph_times(fn: Callable[[], Any], rep: float, tensors: list[Any]) -> list[float]:
    """Milliseconds of a call, one entry per replay of a graph of many."""
    import torch

    clock = GpuClock(torch.cuda.current_device())
    with torch.cuda.stream(torch.cuda.Stream()):
        replay, count = _graph_of(fn, rep, tensors, clock)
        return [total / count for total in clock.times(replay, _REPLAYS, _nothing)]


def _graph_of(fn: Callable[[], Any], rep: float, tensors: list[Any], clock: Clock) -> tuple[Callable[[], Any], int]:
    """What replays a graph of many calls that takes about `rep` milliseconds, and how many calls it holds."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fn()
        for tensor in tensors:  # gradients keep their memory in the graph
            tensor.detach_().requires_grad_(True).grad = None
        count = max(1, int(rep / _estimate(fn, clock)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for _ in range(count):
                for tensor in tensors:
                    tensor.grad = None
                fn()
    torch.cuda.current_stream().wait_stream(side)
    return graph.replay, count


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Compare two arrays of any library, or numbers; NaN equals NaN.

    Args:
        x: what was computed.
        y: what is expected.
        atol: absolute tolerance; default 0.01.
        rtol: relative tolerance; default 0.
        err_msg: text for the failure.

    Raises:
        AssertionError: they differ; the message shows where and by how much.
    """
    np.testing.assert_allclose(
        _as_numpy(x),
        _as_numpy(y),
        rtol=0.0 if rtol is None else rtol,
        atol=1e-2 if atol is None else atol,
        equal_nan=True,
        err_msg=err_msg,
    )


def _as_numpy(value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.dtype.is_floating_point and value.element_size() < 8:
            value = value.float()  # numpy knows neither bfloat16 nor the 8-bit floats
        return value.resolve_conj().numpy()
    return np.asarray(value)


# --- figures of a device ------------------------------------------------------------------------------


_PROTON = "Proton is a profiler of Triton's; `do_bench` and `do_bench_cudagraph` time with the device's own clock"
do_bench_proton = Refusal("testing.do_bench_proton", _PROTON)
do_bench_cudagraph_proton = Refusal("testing.do_bench_cudagraph_proton", _PROTON)
cuda_memcheck = Refusal(
    "testing.cuda_memcheck", "compute-sanitizer runs a whole program: `compute-sanitizer python ...`"
)
cublas = Refusal("testing.cublas", "torch.matmul calls cuBLAS")


def _no_figure(what: str) -> NoReturn:
    raise UnsupportedError(f"{what} is not known here", hint="measure it: time a kernel with do_bench")


def get_dram_gbps(device: Any = None) -> float:
    """Memory bandwidth of a GPU in GB/s; raises UnsupportedError on the CPU, whose system does not tell it.

    Args:
        device: number of the GPU; default is the current one.
    """
    active = driver.active
    if not active.has_queue:
        _no_figure("the memory bandwidth")
    found = active.utils.get_device_properties(active.get_current_device() if device is None else device)
    return float(found["mem_clock_rate"] * found["mem_bus_width"]) * 2 / 8 / 1e6  # kHz, two transfers per clock


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Peak of a GPU's matrix units; raises UnsupportedError: no device tells it."""
    _no_figure("the peak rate of matrix units")


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Peak of a GPU's vector units; raises UnsupportedError: no device tells it."""
    _no_figure("the peak rate of vector units")


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Attributes that nvidia-smi reports; raises UnsupportedError."""
    _no_figure("what nvidia-smi reports")


def set_gpu_clock(ref_sm_clock: int = 1350, ref_mem_clock: int = 1215) -> NoReturn:
    """Fixes the clocks of a GPU; raises UnsupportedError."""
    _no_figure("a fixed clock")
