"""Timing of calls: candidates in turns, one sample after the other.

    warm-up, then rounds:  for each candidate:  before();  t0; run(); t1;  after()

A round visits every candidate that is still in the race; one whose best time is far behind the best median drops out,
and when one is left the race is over. Of those that are near each other the slower half drops out after each of k parts
of the time, each twice as long as the one before, so that all parts cost alike and 2 ** k candidates take about
k / (2 ** k - 1) of what timing all to the end would (sequential halving: Karnin, Koren, Somekh, "Almost optimal
exploration in multi-armed bandits", 2013). Only `run` is timed. A call shorter than the clock can tell is repeated
inside one sample.
"""

from __future__ import annotations

import math
import time
from bisect import insort
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

_MIN_ROUNDS, _MAX_ROUNDS = 3, 10_000
# (rounds, factor): a candidate whose best time of so many rounds exceeds the best median by this factor has lost.
_BEHIND = ((3, 1.5), (6, 1.2), (10, 1.08), (16, 1.04))
_ENOUGH = 6  # rounds after which the last one in the race is known well enough
_SHORTEST_SAMPLE = 2e-5  # seconds; the clock and the call around a sample cost well under a microsecond

C = TypeVar("C", bound=Hashable)


def _nothing() -> None:
    pass


def _nothing_after(error: BaseException | None) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the things to time.

    Args:
        run: what is timed.
        before: called ahead of each `run`.
        after: called behind each `run`, with the exception that it raised, or None.
    """

    run: Callable[[], Any]
    before: Callable[[], Any] = _nothing
    after: Callable[[BaseException | None], Any] = _nothing_after

    def once(self) -> None:
        """Run once with what belongs around it."""
        self.sample()

    def sample(self, repeats: int = 1) -> float:
        """Seconds of one call, averaged over `repeats` calls in a row."""
        self.before()
        try:
            begin = time.perf_counter()
            for _ in range(repeats):
                self.run()
            seconds = time.perf_counter() - begin
        except Exception as error:
            self.after(error)
            raise
        self.after(None)
        return seconds / repeats

    @property
    def repeatable(self) -> bool:
        """Whether nothing has to happen between two runs."""
        return self.before is _nothing and self.after is _nothing_after


class Sampler(Protocol):
    """The clock of a device."""

    def sample(self, candidate: Candidate, repeats: int) -> tuple[float, float]:
        """Seconds of one call, averaged over `repeats` in a row; and seconds that taking the sample counts for."""


class CpuSampler:
    """The clock of the process, for calls that have finished when they return."""

    def sample(self, candidate: Candidate, repeats: int) -> tuple[float, float]:
        """As `Sampler.sample`; what happens around the calls does not count."""
        seconds = candidate.sample(repeats)
        return seconds, seconds * repeats


def time_in_turns(
    candidates: Mapping[C, Candidate],
    warmup: float,
    rep: float,
    refusals: tuple[type[Exception], ...] = (),
    *,
    clock: Sampler | None = None,
    drop: bool = True,
    step: Callable[[str], None] = lambda name: None,
    watch: Callable[[C], None] = lambda name: None,
    deadline: float = math.inf,
) -> tuple[dict[C, list[float]], dict[C, Exception]]:
    """Time the candidates in turns.

    Args:
        candidates: what to time.
        warmup: milliseconds for all together before the first sample, as they warm the machine up for each other; each
            runs at least twice.
        rep: milliseconds for each.
        refusals: exceptions that take a candidate out of the race; others propagate.
        clock: of the device that runs the calls; default is that of the process.
        drop: let those that are clearly slower drop out.
        step: called whenever a candidate has been timed enough.
        watch: called ahead of each use of a candidate.
        deadline: the `time.perf_counter()` after which no sample is begun; what was timed until then is the result.

    Returns:
        Milliseconds per call, one entry per round, of each candidate that ran; and the exceptions of the others.
    """
    clock = CpuSampler() if clock is None else clock
    warm = _WarmUp(candidates, clock, refusals, step, watch)
    warm.run(warmup * 1e-3, deadline)
    repeats = {name: _repeats(candidates[name], min(warm.seconds[name])) for name in warm.racing}
    times: dict[C, list[float]] = {name: [] for name in repeats}
    ordered: dict[C, list[float]] = {name: [] for name in repeats}  # kept so: sorting anew in each round takes seconds
    racing, spent, rounds = list(repeats), dict.fromkeys(repeats, 0.0), 0
    halvings = _halvings(len(racing), rep * 1e-3)
    while racing and rounds < _MAX_ROUNDS:
        for name in racing:
            if time.perf_counter() >= deadline:
                return times, warm.refused
            watch(name)
            seconds, cost = clock.sample(candidates[name], repeats[name])
            times[name].append(seconds * 1e3)
            insort(ordered[name], seconds * 1e3)
            spent[name] += cost
        racing.append(racing.pop(0))
        rounds += 1
        if rounds >= _MIN_ROUNDS:
            best = min(_median(ordered[name]) for name in racing)
            behind = min(factor for least, factor in _BEHIND if rounds >= least) if drop else float("inf")
            left = [name for name in racing if spent[name] < rep * 1e-3 and ordered[name][0] <= best * behind]
            if drop and halvings and left and min(spent[name] for name in left) >= halvings[0]:
                halvings, left = halvings[1:], _faster_half(left, times)
            if drop and len(left) == 1 < len(candidates) and rounds >= _ENOUGH:
                left = []
            for name in [name for name in racing if name not in left]:
                step(str(name))
            racing = left
    return times, warm.refused


def _median(ordered: Sequence[float]) -> float:
    """Of numbers in ascending order."""
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-middle - 1]) / 2


def _halvings(count: int, rep: float) -> list[float]:
    """When, of `rep` seconds, the slower half drops out, so that two are left in the last part."""
    parts = math.ceil(math.log2(max(2, count)))
    return [rep * (2**part - 1) / (2**parts - 1) for part in range(1, parts)]


def _faster_half(racing: Sequence[C], times: Mapping[C, Sequence[float]]) -> list[C]:
    """Those in the lower half of the 20 % quantiles, in the order of `racing`; two stay two."""
    most = max(2, (len(racing) + 1) // 2)
    faster = sorted(racing, key=lambda name: quantiles_of(times[name], (0.2,)))[:most]
    return [name for name in racing if name in faster]


class _WarmUp(Generic[C]):
    """The runs before the first sample that counts, in turns.

    Args:
        candidates, clock, refusals, step, watch: as for `time_in_turns`.

    Attributes:
        seconds: of a call, in each run of a candidate but its first.
        racing: candidates that may win.
        refused: exceptions of those that cannot run.
    """

    def __init__(
        self,
        candidates: Mapping[C, Candidate],
        clock: Sampler,
        refusals: tuple[type[Exception], ...],
        step: Callable[[str], None],
        watch: Callable[[C], None],
    ) -> None:
        self._candidates, self._clock, self._refusals = candidates, clock, refusals
        self._step, self._watch = step, watch
        self.seconds: dict[C, list[float]] = {}
        self.racing: list[C] = []
        self.refused: dict[C, Exception] = {}

    def run(self, warmup: float, deadline: float) -> None:
        """Run each at least twice, and all together for `warmup` seconds; after the deadline no more of them."""
        for name, candidate in self._candidates.items():
            if time.perf_counter() < deadline and self._attempt(name, candidate.once):  # compiles
                self.racing.append(name)
                self.seconds[name] = []
        begin, warm = time.perf_counter(), False
        while self.racing and not warm:
            self.racing = [name for name in self.racing if self._attempt(name, lambda name=name: self._sample(name))]  # type: ignore[misc]
            warm = time.perf_counter() - begin >= warmup

    def _attempt(self, name: C, do: Callable[[], Any]) -> bool:
        """Whether it can run."""
        self._watch(name)
        try:
            do()
        except self._refusals as error:
            self.refused[name] = error
            self._step(str(name))
            return False
        return True

    def _sample(self, name: C) -> None:
        self.seconds[name].append(self._clock.sample(self._candidates[name], 1)[0])


def _repeats(candidate: Candidate, seconds: float) -> int:
    """How many calls of so many seconds make a sample that the clock can tell."""
    return max(1, round(_SHORTEST_SAMPLE / max(seconds, 1e-9))) if candidate.repeatable else 1


def quantiles_of(times: Sequence[float], quantiles: Sequence[float]) -> list[float]:
    """Quantiles of some times by linear interpolation between the two nearest.

    Args:
        times: at least one number.
        quantiles: each between 0 and 1.
    """
    ordered = sorted(times)
    found = []
    for quantile in quantiles:
        place = quantile * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] + (ordered[high] - ordered[low]) * (place - low))
    return found
