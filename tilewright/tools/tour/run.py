"""Runs one case of the tour: compile cold, compile from disk, check, time.

The example is executed anew before each of the two compilations, so its kernels know nothing: the first call after the
first load compiles, the first call after the second reads the disk cache. Both times are what the kernels say of
themselves, all that a call needs together; the compiler itself has been loaded before (`load_compiler`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import tilewright
import tilewright.language as tl
from tilewright.base.knobs import knobs
from tilewright.tools import examples
from tilewright.tools.timing import Sample, compare
from tilewright.tools.tour.cases import Case, Tensor, Work


@dataclass(frozen=True, slots=True)
class Result:
    """What the tour found out about a case; times in seconds, errors relative to the largest reference value."""

    title: str
    shape: str
    error: float = float("nan")
    rival_error: float | None = None
    tolerance: float = 0.0
    ours: Sample | None = None
    rival: Sample | None = None
    cold: float = float("nan")
    warm: float = float("nan")
    failure: str = ""

    @property
    def passed(self) -> bool:
        """Whether the kernel ran and its error is within the tolerance."""
        return not self.failure and self.error <= self.tolerance


def run(case: Case, quick: bool, step: Callable[[str], None]) -> Result:
    """Run `case`; a kernel that raises gives a Result with `failure` set.

    Args:
        quick: small sizes and little time, for a smoke test.
        step: told what happens now ("compiling", ...), for the progress display.
    """
    step("preparing")
    work = case.prepare(quick)
    try:
        return _measure(case, work, quick, step)
    except Exception as error:  # whatever went wrong becomes a red row: the tour shows the other kernels
        return Result(case.title, work.shape, failure=f"{type(error).__name__}: {error}")


def _measure(case: Case, work: Work, quick: bool, step: Callable[[str], None]) -> Result:
    step("compiling")
    _, cold = _first_call(case, work)
    step("loading from disk")
    module, warm = _first_call(case, work)
    step("checking")
    reference = work.reference()
    error = _error(work.ours(module), reference)
    rival_error = _error(work.rival(), reference) if work.compare_rival else None
    step("timing")
    samples = compare(
        {"ours": lambda: work.ours(module), "torch": work.rival}, seconds=0.05 if quick else 1.5, min_rounds=5
    )
    return Result(
        case.title, work.shape, error, rival_error, work.tolerance, samples["ours"], samples["torch"], cold, warm
    )


@tilewright.jit
def _smallest(p: Any, B: tl.constexpr) -> None:
    i = tl.arange(0, B)
    tl.store(p + i, tl.exp(tl.load(p + i)))


def load_compiler() -> None:
    """Compile a kernel that nobody asked for: the first one waits for LLVM and for Tilewright's own modules."""
    _smallest[(1,)](np.zeros(8, np.float32), B=8)


def _first_call(case: Case, work: Work) -> tuple[ModuleType, float]:
    """Load the example anew and call it; gives it with the seconds in which its kernels were made (NaN if none was)."""
    module = examples.load(case.example)
    made: list[float] = []
    before = knobs.compilation.listener
    knobs.compilation.listener = lambda times, **facts: made.append(times.total * 1e-6)
    try:
        work.ours(module)
    finally:
        knobs.compilation.listener = before
    return module, sum(made) if made else float("nan")


def _error(result: Tensor, reference: Tensor) -> float:
    """Largest difference over the largest reference value; NaN or infinity never passes."""
    worst = (result.double() - reference).abs().max() / reference.abs().max()
    return float("inf") if worst.isnan() else float(worst)
