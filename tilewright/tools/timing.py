"""Fair timing of alternatives on a machine that others use too.

The candidates take turns within one process, in another order every round, so that drift of the clock, of the
caches and of the neighbours hits all of them alike: each comes after each of the others, and finds what that one left
in the caches. What is reported is the median over the rounds and the median of the *paired* ratios.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.base.knobs import knobs
from tilewright.base.lazy import torch_needed


@dataclass(frozen=True, slots=True)
class Sample:
    """Times of one candidate: seconds per call, one entry per round."""

    times: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median time of a call in seconds."""
        return statistics.median(self.times)

    @property
    def iqr(self) -> float:
        """Distance between the quartiles in seconds; 0 for fewer than two rounds."""
        if len(self.times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4)
        return third - first

    def ratio_to(self, other: Sample) -> float:
        """How many times faster than `other`: the median over rounds of ``other / self``."""
        return statistics.median(theirs / ours for ours, theirs in zip(self.times, other.times, strict=True))


def compare(
    candidates: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 0.6,
    min_rounds: int = 7,
    sample_seconds: float = 1e-3,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Sample]:
    """Time the candidates in turns. A race in which one call outlasts `seconds` ends after its first round.

    Args:
        candidates: name -> function without arguments; each is called `warmup` times first.
        seconds: time to spend on all of them together, after the warm-up.
        min_rounds: rounds to run even when `seconds` are over, up to ten times as long.
        sample_seconds: a sample of a faster function repeats it until it lasts about this long.
        clock: of the samples; `time.thread_time` counts the processor alone, where all work is in this thread.
    """
    repeats = {name: _repeats(function, sample_seconds, warmup, seconds) for name, function in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    order, chance = list(candidates), random.Random(0)
    end = time.perf_counter() + seconds
    last = end + max(9 * seconds, 1.0)
    while (len(times[order[0]]) < min_rounds and time.perf_counter() < last) or time.perf_counter() < end:
        for name in order:
            times[name].append(_time(candidates[name], repeats[name], clock))
        chance.shuffle(order)
    return {name: Sample(tuple(done)) for name, done in times.items()}


def duration(seconds: float) -> str:
    """A time with three significant digits and a unit: ``"1.34 ms"``; one that was not measured (NaN) is a dash."""
    if seconds != seconds:
        return "–"
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    unit, scale = next(((unit, scale) for unit, scale in units if seconds >= scale), ("ns", 1e-9))
    value = seconds / scale
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def _time(function: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for _ in range(repeats):
        function()
    return (clock() - start) / repeats


def _repeats(function: Callable[[], object], sample_seconds: float, warmup: int, limit: float) -> int:
    """Calls that make one sample of `function` last about `sample_seconds`; 1 at once for one slower than `limit`."""
    for _ in range(warmup):
        if _time(function, 1) > max(limit, 1.0):
            return 1
    repeats = 1
    while (elapsed := _time(function, repeats) * repeats) < sample_seconds / 2:
        repeats = max(repeats * 2, int(repeats * sample_seconds / max(elapsed, 1e-7) / 2))
    return max(1, round(repeats * sample_seconds / elapsed)) if elapsed < sample_seconds else repeats


@contextmanager
def threads(count: int | None) -> Iterator[int]:
    """Run a block with `count` threads in torch and in Tilewright alike (``None``: leave torch's number)."""
    with torch_needed("timing beside PyTorch"):
        import torch

    before = (torch.get_num_threads(), knobs.cpu.num_threads)
    try:
        if count is not None:
            torch.set_num_threads(count)
            knobs.cpu.num_threads = count
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before[0])
        knobs.cpu.num_threads = before[1]
