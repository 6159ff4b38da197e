"""Roofline: operations and bytes that were counted, peaks and times that were measured, one plot.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures", 2009.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_COPY_BYTES = 128 << 20
_SIDE = 1024  # of the matrices whose product is timed


@dataclass(frozen=True, slots=True)
class Peaks:
    """What this machine reaches, by a copy and a product.

    Args:
        bandwidth: bytes that a copy reads and writes, per second.
        flops: operations of a product of float32 matrices, per second.
        threads: that both had; 0 where numpy decides.
    """

    bandwidth: float
    flops: float
    threads: int


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel in the plot.

    Args:
        name: of the variant.
        flops: of a launch.
        moved: bytes of a launch, each element that is reached counted once.
        seconds: of the launch.
    """

    name: str
    flops: float
    moved: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / max(1.0, self.moved)

    def bound(self, peaks: Peaks) -> tuple[str, float]:
        """What limits it, and the share of that limit that it reaches."""
        by_memory, by_flops = self.moved / peaks.bandwidth, self.flops / peaks.flops
        limit = "memory" if by_memory >= by_flops else "arithmetic"
        return limit, max(by_memory, by_flops) / self.seconds


def measure_peaks() -> Peaks:
    """Time a copy of arrays larger than the caches, and a product of matrices; the best of a few."""
    try:
        import torch
    except ImportError:
        x, a = np.ones(_COPY_BYTES // 4, np.float32), np.ones((_SIDE, _SIDE), np.float32)
        y, b = np.empty_like(x), np.empty_like(a)
        copy, product = lambda: np.copyto(y, x), lambda: np.matmul(a, a, out=b)
        threads = 0
    else:
        s, m = torch.ones(_COPY_BYTES // 4), torch.ones(_SIDE, _SIDE)
        d, p = torch.empty_like(s), torch.empty_like(m)
        copy, product = lambda: d.copy_(s), lambda: torch.mm(m, m, out=p)
        threads = torch.get_num_threads()
    return Peaks(2 * _COPY_BYTES / _best(copy), 2 * _SIDE**3 / _best(product), threads)


def _best(function: Callable[[], object], rounds: int = 5) -> float:
    function()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def plot(peaks: Peaks, points: Sequence[Point]) -> str:
    """The plot as SVG that takes the colours of the page; "" where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return ""
    matplotlib.use("agg")
    from matplotlib import pyplot

    ink, faint, line, dot = "#010101", "#020202", "#030303", "#040404"  # stand for colours of the page
    style = {
        "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "text.color": ink, "axes.labelcolor": ink,
        "xtick.color": ink, "ytick.color": ink, "axes.edgecolor": faint, "svg.hashsalt": "tilewright",
    }  # fmt: skip
    shown = [p for p in points if p.flops > 0]
    ridge = peaks.flops / peaks.bandwidth
    low = min([0.05, *(p.intensity / 2 for p in shown)])
    floor = min([low * peaks.bandwidth / 1e9, *(p.flops / p.seconds / 2e9 for p in shown)])
    high = max([ridge * 10, *(p.intensity * 3 for p in shown)])
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(8.2, 4.0))
        xs = np.array([low, ridge, high])
        axes.plot(xs, np.minimum(xs * peaks.bandwidth, peaks.flops) / 1e9, color=line, linewidth=2)
        style_of_line: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "color": line}
        middle = (low * ridge) ** 0.5
        axes.annotate(
            f"copy {peaks.bandwidth / 1e9:.1f} GB/s",
            (middle, middle * peaks.bandwidth / 1e9),
            xytext=(-8, 4),
            **style_of_line,
        )
        axes.annotate(
            f"product {peaks.flops / 1e9:.0f} Gflop/s", (high, peaks.flops / 1e9), xytext=(-4, 7), **style_of_line
        )
        for number, point in enumerate(shown):
            y = point.flops / point.seconds / 1e9
            (made,) = axes.plot([point.intensity], [y], "o", color=dot, markersize=8, zorder=3)
            made.set_gid(f"roof-{number}")
            left = point.intensity > (low * high) ** 0.5
            place: dict[str, Any] = {"xytext": (-10 if left else 10, -4), "ha": "right" if left else "left"}
            axes.annotate(point.name, (point.intensity, y), textcoords="offset points", **place)
        axes.set(
            xscale="log",
            yscale="log",
            xlim=(low, high),
            ylim=(floor, peaks.flops / 3e8),
            xlabel="operations per byte",
            ylabel="Gflop/s",
        )
        axes.grid(True, which="major", color=faint, linewidth=0.5, alpha=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)
    return _themed(out.getvalue(), {ink: "var(--ink)", faint: "var(--line)", line: "var(--accent)", dot: "var(--warm)"})


def _themed(svg: str, colours: dict[str, str]) -> str:
    svg = svg[svg.index("<svg") :]
    for stands, meant in colours.items():
        svg = svg.replace(stands, meant)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'font: ([^;"]*?)(?:\'[^;"]*|sans-serif[^;"]*)', r"font: \1var(--sans)", svg)
    return svg.replace("<svg ", '<svg role="img" aria-label="roofline" ', 1)


def table(peaks: Peaks, points: Sequence[Point]) -> list[dict[str, Any]]:
    """A row for each point, with what limits it."""
    rows = []
    for point in points:
        limit, share = point.bound(peaks)
        rows.append({"name": point.name, "flops": point.flops, "moved": point.moved, "seconds": point.seconds,
                     "intensity": point.intensity, "limit": limit, "share": share})  # fmt: skip
    return rows
