"""Timing a function and comparing results: the part of `tilewright.testing` that needs no plotting.

Names, arguments and units are Triton's. On the CPU a call has finished when it returns, so the clock of the process
is the device's clock; caches are left warm between runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.runtime.timing import quantiles_of

_SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "min": min,
    "max": max,
    "mean": lambda times: sum(times) / len(times),
    "median": lambda times: quantiles_of(times, (0.5,))[0],
}
_ESTIMATES = 5


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
) -> Any:
    """Time a function on the CPU.

    Args:
        fn: called without arguments.
        warmup: milliseconds of calls before timing starts; at least one call.
        rep: milliseconds of timed calls; at least one call.
        grad_to_none: tensors whose gradient is dropped before each call.
        quantiles: quantiles of the times to return, instead of `return_mode`.
        return_mode: "min", "max", "mean", "median", or "all" for the list of times.

    Returns:
        Milliseconds per call: a number, or a list for "all" and for several quantiles.

    Raises:
        ArgumentError: an unknown `return_mode`.
    """
    _summarize_statistics([0.0], quantiles, return_mode)  # a wrong argument shows before the time is spent
    tensors = list(grad_to_none or ())
    fn()
    begin = time.perf_counter()
    for _ in range(_ESTIMATES):
        fn()
    estimate = max((time.perf_counter() - begin) / _ESTIMATES * 1e3, 1e-6)
    for _ in range(max(1, int(warmup / estimate))):
        fn()
    times = []
    for _ in range(max(1, int(rep / estimate))):
        for tensor in tensors:
            tensor.grad = None
        begin = time.perf_counter()
        fn()
        times.append((time.perf_counter() - begin) * 1e3)
    return _summarize_statistics(times, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """`do_bench` without a warm-up of its own; a CPU has no launch queue that a graph would shorten."""
    return do_bench(fn, 0, rep, grad_to_none, quantiles, return_mode)


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


def _no_figure(what: str) -> NoReturn:
    raise UnsupportedError(f"{what} is not known for a CPU", hint="measure it: time a kernel with do_bench")


def get_dram_gbps(device: Any = None) -> float:
    """Memory bandwidth of a GPU in GB/s; raises UnsupportedError on the CPU, whose system does not tell it."""
    _no_figure("the memory bandwidth")


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Peak of a GPU's matrix units; raises UnsupportedError on the CPU."""
    _no_figure("the peak rate of matrix units")


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Peak of a GPU's vector units; raises UnsupportedError on the CPU."""
    _no_figure("the peak rate of vector units")


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Attributes that nvidia-smi reports; raises UnsupportedError on the CPU."""
    _no_figure("what nvidia-smi reports")


def set_gpu_clock(ref_sm_clock: int = 1350, ref_mem_clock: int = 1215) -> NoReturn:
    """Fixes the clocks of a GPU; raises UnsupportedError on the CPU."""
    _no_figure("a fixed clock")
