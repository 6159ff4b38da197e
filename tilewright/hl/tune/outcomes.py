"""What workers say of candidates, and what they are asked: plain records, which travel between processes."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright import errors

_SURE = 0.99  # what is surely faster takes at most so much of its reference's time


@dataclass(frozen=True)
class Compiled:
    """A configuration has been compiled.

    Args:
        seconds: that took.
        registers: per thread of its largest kernel; 0 on a CPU.
        spills: bytes per thread of all kernels.
    """

    seconds: float
    registers: int = 0
    spills: int = 0


@dataclass(frozen=True)
class Timed:
    """A configuration was right and has been timed.

    Args:
        rounds: milliseconds of a call in each round.
        reference: those of the reference in the same rounds, as many; empty where there was none.
    """

    rounds: tuple[float, ...]
    reference: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        """The median over the rounds of its time relative to the reference's."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.rounds, self.reference, strict=True))

    def spread(self) -> tuple[float, float]:
        """The 20 % and 80 % quantiles of the rounds."""
        ordered = sorted(self.rounds)
        return ordered[len(ordered) // 5], ordered[-1 - len(ordered) // 5]


def is_faster(timed: Timed) -> bool:
    """Whether a candidate is surely faster than its reference: the upper end of the 95 % interval of the median ratio
    (by order statistics, so that outliers and the shape of the noise do not matter) is below `_SURE`."""
    ratios = sorted(mine / theirs for mine, theirs in zip(timed.rounds, timed.reference, strict=True))
    below = math.floor((len(ratios) - 1.96 * math.sqrt(len(ratios))) / 2)
    return ratios[len(ratios) - 1 - max(0, below)] < _SURE


@dataclass(frozen=True)
class Failed:
    """A configuration is out.

    Args:
        kind: "compile error", "out of resources", "wrong result", "crash", "timeout" or "error".
        why: what was said.
    """

    kind: str
    why: str

    @staticmethod
    def of(error: BaseException, compiling: bool = False) -> Failed:
        """The failure that an error is."""
        lines = str(error).splitlines()
        why = f"{type(error).__name__}: {lines[0] if lines else ''}"
        if isinstance(error, errors.OutOfResources):
            return Failed("out of resources", why)
        if compiling or isinstance(error, errors.CompilationError):
            return Failed("compile error", why)
        return Failed("error", why)


Outcome = Compiled | Timed | Failed


@dataclass(frozen=True)
class Plan:
    """How candidates are checked and timed.

    Args:
        check: compare what they compute with what the first of them does, or with `Subject.expected`.
        atol, rtol: tolerances of the check; see `agreement`.
        warmup: milliseconds for all together before the first sample.
        rep: milliseconds for each.
        drop: let those that are clearly slower drop out.
        seconds: after which no sample is begun, from when the job was made.
    """

    check: bool = True
    atol: float = 1e-2
    rtol: float = 1e-2
    warmup: float = 1.0
    rep: float = 15.0
    drop: bool = True
    seconds: float = float("inf")


@dataclass
class Job:
    """Something for one worker to do.

    Args:
        items: numbers of candidates, with what a worker makes a function of: a `Config`, or a `Program`.
        plan: measure them, the first one being the reference; None: compile them.
        limit: seconds that each step of one candidate may take.
        made: when, by `time.monotonic()`.
    """

    items: list[tuple[int, Any]]
    plan: Plan | None = None
    limit: float = float("inf")
    made: float = field(default_factory=time.monotonic)

    def begun(self) -> Job:
        """The job as its worker gets it: the time for which nobody had taken it is gone."""
        if self.plan is None:
            return self
        now = time.monotonic()
        return replace(self, plan=replace(self.plan, seconds=self.plan.seconds - (now - self.made)), made=now)
