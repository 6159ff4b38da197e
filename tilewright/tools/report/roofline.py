"""Roofline: operations and bytes that were counted, peaks and times that were measured, one plot.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures", 2009.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.tools.report.svg import DOT, FAINT, LINE, plotting, svg_of
from tilewright.tuning.bench import do_bench

_COPY_BYTES = 128 << 20
_SIDE = 1024  # of the matrices whose product is timed
_GPU_COPY_BYTES, _GPU_SIDE = 1 << 30, 8192


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a machine reaches, by a copy and a product.

    Args:
        backend: "cpu" or "cuda".
        bandwidth: bytes that a copy reads and writes, per second.
        flops: operations of a product of matrices, per second.
        element: type of the matrices.
        by: how both ran, for people.
    """

    backend: str
    bandwidth: float
    flops: float
    element: str
    by: str


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel in the plot.

    Args:
        name: of the variant.
        flops: of a launch.
        moved: bytes of a launch, each element that is reached counted once.
        seconds: of the launch.
        backend: where it ran.
    """

    name: str
    flops: float
    moved: float
    seconds: float
    backend: str = "cpu"

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / max(1.0, self.moved)

    def bound(self, peaks: Peaks) -> tuple[str, float]:
        """What limits it, and the share of that limit that it reaches."""
        by_memory, by_flops = self.moved / peaks.bandwidth, self.flops / peaks.flops
        limit = "memory" if by_memory >= by_flops else "arithmetic"
        return limit, max(by_memory, by_flops) / self.seconds


def measure_peaks(backend: str = "cpu") -> Peaks:
    """Time a copy of arrays larger than the caches, and a product of matrices; the best of a few.

    Args:
        backend: "cpu", or "cuda" for the GPU in use, whose products are of float16.
    """
    if backend == "cuda":
        return _peaks_of_gpu()
    try:
        import torch
    except ImportError:
        x, a = np.ones(_COPY_BYTES // 4, np.float32), np.ones((_SIDE, _SIDE), np.float32)
        y, b = np.empty_like(x), np.empty_like(a)
        copy, product = lambda: np.copyto(y, x), lambda: np.matmul(a, a, out=b)
        by = "by numpy"
    else:
        s, m = torch.ones(_COPY_BYTES // 4), torch.ones(_SIDE, _SIDE)
        d, p = torch.empty_like(s), torch.empty_like(m)
        copy, product = lambda: d.copy_(s), lambda: torch.mm(m, m, out=p)
        by = f"with {torch.get_num_threads()} threads"
    return Peaks("cpu", 2 * _COPY_BYTES / _best(copy), 2 * _SIDE**3 / _best(product), "float32", by)


def _peaks_of_gpu() -> Peaks:
    import torch

    source = torch.empty(_GPU_COPY_BYTES, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    matrix = torch.randn(_GPU_SIDE, _GPU_SIDE, dtype=torch.float16, device="cuda")
    copy, product = lambda: target.copy_(source), lambda: torch.mm(matrix, matrix)
    seconds = [float(do_bench(f, warmup=20, rep=100, return_mode="min")) / 1e3 for f in (copy, product)]
    name = torch.cuda.get_device_name()
    return Peaks("cuda", 2 * _GPU_COPY_BYTES / seconds[0], 2 * _GPU_SIDE**3 / seconds[1], "float16", f"on {name}")


def _best(function: Callable[[], object], rounds: int = 5) -> float:
    function()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def plot(peaks: Peaks, points: Sequence[Point]) -> str:
    """The plot of one machine as SVG that takes the colours of the page; "" where matplotlib is not installed."""
    made = plotting()
    if made is None:
        return ""
    pyplot, style = made
    shown = [(number, p) for number, p in enumerate(points) if p.flops > 0]
    ridge = peaks.flops / peaks.bandwidth
    low = min([0.05, *(p.intensity / 2 for _, p in shown)])
    floor = min([low * peaks.bandwidth / 1e9, *(p.flops / p.seconds / 2e9 for _, p in shown)])
    top = max([peaks.flops / 3e8, *(p.flops / p.seconds / 5e8 for _, p in shown)])
    high = max([ridge * 10, *(p.intensity * 3 for _, p in shown)])
    with style:
        figure, axes = pyplot.subplots(figsize=(8.2, 4.0))
        _draw_roof(axes, peaks, (low, ridge, high))
        for number, point in shown:
            y = point.flops / point.seconds / 1e9
            (dot,) = axes.plot([point.intensity], [y], "o", color=DOT, markersize=8, zorder=3)
            dot.set_gid(f"roof-{peaks.backend}-{number}")
            left = point.intensity > (low * high) ** 0.5
            place: dict[str, Any] = {"xytext": (-10 if left else 10, -4), "ha": "right" if left else "left"}
            axes.annotate(point.name, (point.intensity, y), textcoords="offset points", **place)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(floor, top))
        axes.set(xlabel="operations per byte", ylabel="Gflop/s")
        axes.grid(True, which="major", color=FAINT, linewidth=0.5, alpha=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        text = svg_of(figure, f"roofline, {peaks.by}")
        pyplot.close(figure)
    return text


def _draw_roof(axes: Any, peaks: Peaks, across: tuple[float, float, float]) -> None:
    """The two limits, with what was measured; `across` is where the plot begins, where they meet, and where it ends."""
    low, ridge, high = across
    xs = np.array(across)
    axes.plot(xs, np.minimum(xs * peaks.bandwidth, peaks.flops) / 1e9, color=LINE, linewidth=2)
    style: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "color": LINE}
    middle = (low * ridge) ** 0.5
    slope = (middle, middle * peaks.bandwidth / 1e9)
    axes.annotate(f"copy {peaks.bandwidth / 1e9:.1f} GB/s", slope, xytext=(-8, 4), **style)
    flat = (high, peaks.flops / 1e9)
    axes.annotate(f"product {peaks.flops / 1e9:.0f} Gflop/s", flat, xytext=(-4, 7), **style)


def table(peaks: Peaks, points: Sequence[Point]) -> list[dict[str, Any]]:
    """A row for each point of one machine, with what limits it."""
    rows = []
    for point in points:
        limit, share = point.bound(peaks)
        rows.append({"name": point.name, "flops": point.flops, "moved": point.moved, "seconds": point.seconds,
                     "intensity": point.intensity, "limit": limit, "share": share})  # fmt: skip
    return rows
