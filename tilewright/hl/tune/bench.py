"""Checking and timing candidates, in whatever process a worker is.

run each once, and compare --> run again, and drop what is hopelessly slow --> time the rest in turns with the reference

The first run of anything loads code, and that of the reference, which is the first of its process, also what all others
find loaded: it says nothing of either. The next ones may still be slow for the host's sake: it prepares launches, or
waits for a core.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilewright import testing
from tilewright.hl.tune.agreement import difference, same, tensors_in
from tilewright.hl.tune.outcomes import Compiled, Failed, Job, Outcome, Plan, Timed

_HOPELESS = 4.0  # times as long as the reference, and a millisecond at least: not timed again
_CHANCES = 3  # runs of which the fastest says whether a candidate is hopeless


@dataclass
class Subject:
    """What candidates are made of and run on.

    Args:
        args: arguments of the kernel.
        load: the host function of what stands for a candidate in a job.
        compile: compile that without running it, and give its kernels.
        expected: computes what is right, from the arguments; None for what the first candidate computes.
    """

    args: Sequence[Any]
    load: Callable[[Any], Callable[..., Any]]
    compile: Callable[[Any], Any]
    expected: Callable[..., Any] | None = None


Send = Callable[[int, Outcome], None]
Watch = Callable[[int], None]


class Bench:
    """Does the jobs of one worker.

    Args:
        subject: what they are about.
        watch: called with the number of a candidate ahead of everything that is done with it.
    """

    def __init__(self, subject: Subject, watch: Watch = lambda number: None) -> None:
        self.subject, self.watch = subject, watch
        self._args = tuple(subject.args)
        self._kept = [(arg, arg.clone()) for arg in tensors_in(self._args)]
        self._changed: list[tuple[Any, Any]] = []
        self._baseline: list[Any] | None = None

    def do(self, job: Job, send: Send) -> None:
        """Do a job; each outcome is sent as soon as it is known."""
        if job.plan is not None:
            self._measure(job, job.plan, send)
            return
        for number, what in job.items:
            self.watch(number)
            send(number, self._compiled(what))

    def _compiled(self, what: Any) -> Outcome:
        begin = time.perf_counter()
        try:
            kernels = self.subject.compile(what) or ()
        except Exception as error:
            return Failed.of(error, compiling=True)
        registers = max((kernel.n_regs for kernel in kernels), default=0)
        return Compiled(time.perf_counter() - begin, registers, sum(kernel.n_spills for kernel in kernels))

    def _measure(self, job: Job, plan: Plan, send: Send) -> None:
        deadline = time.perf_counter() + plan.seconds
        runs: dict[int, testing.Candidate] = {}
        again: dict[int, float] = {}  # milliseconds of the second run
        reference = -1  # the first that is right
        for number, what in job.items:
            if runs and time.perf_counter() > deadline:
                break
            self.watch(number)
            try:
                run, wrong = self._tried(what, plan)
                hopeless = max(1.0, _HOPELESS * again[reference]) if plan.drop and runs else math.inf
                ms = 0.0 if wrong else self._again(run, hopeless if runs else 0.0)
            except Exception as error:
                send(number, Failed.of(error))
                continue
            if wrong:
                send(number, Failed("wrong result", f"its results are not those of the baseline: {wrong}"))
            elif ms > hopeless:
                send(number, Timed((ms,), (again[reference],)))
            else:
                reference = number if not runs else reference
                runs[number], again[number] = run, ms
        times = self._times(runs, plan, deadline, send)
        beside = times.get(reference, [])
        for number, rounds in times.items():
            both = min(len(rounds), len(beside))
            if both:
                send(number, Timed(tuple(rounds[:both]), tuple(beside[:both])))
            else:  # there was no time for turns
                send(number, Timed((again[number],), (again[reference],)))
        self._restore()

    def _times(
        self, runs: dict[int, testing.Candidate], plan: Plan, deadline: float, send: Send
    ) -> dict[int, list[float]]:
        """Milliseconds of what was right, by rounds of turns; empty where the deadline came first."""
        how = {"drop": plan.drop, "clock": testing.clock_of(self._gpu()), "watch": self.watch, "deadline": deadline}
        times, refused = testing.time_in_turns(runs, plan.warmup, plan.rep, (Exception,), **how)  # type: ignore[arg-type]
        for number, error in refused.items():
            send(number, Failed.of(error))
        return {number: times.get(number, []) for number in runs if number not in refused}

    def _tried(self, what: Any, plan: Plan) -> tuple[testing.Candidate, str]:
        """What to time, and where its results are wrong."""
        function = self.subject.load(what)
        if plan.check and self._baseline is None and self.subject.expected is not None:
            self._baseline, _ = self._results(self.subject.expected)
        found, results = self._results(function)
        wrong = ""
        if plan.check:
            self._baseline = found if self._baseline is None else self._baseline
            wrong = difference(found, self._baseline, results, plan.atol, plan.rtol)

        def call() -> None:
            function(*self._args)

        run = testing.Candidate(call, before=self._restore) if self._changed else testing.Candidate(call)
        return run, wrong

    def _again(self, run: testing.Candidate, hopeless: float) -> float:
        """Milliseconds of a further run; of the fastest of a few while they take longer than `hopeless`.

        All runs of the reference do: others are hopeless beside it.
        """
        ms = 1e3 * self._seconds(run.once)
        for _ in range(_CHANCES - 1):
            if ms > hopeless:
                ms = min(ms, 1e3 * self._seconds(run.once))
        return ms

    def _seconds(self, run: Callable[[], None]) -> float:
        """Seconds of a run, until a GPU has done it."""
        begin = time.perf_counter()
        run()
        if self._gpu() is not None:
            torch.cuda.synchronize(self._gpu())
        return time.perf_counter() - begin

    def _results(self, function: Callable[..., Any]) -> tuple[list[Any], int]:
        """Tensors that a run returns, and those among the arguments behind it; how many it returns."""
        self._restore()
        results = [tensor.clone() for tensor in tensors_in(function(*self._args))]
        for arg, kept in self._kept:
            if not same(arg, kept) and not any(arg is changed for changed, _ in self._changed):
                self._changed.append((arg, kept))
        return [*results, *(arg.clone() for arg, _ in self._kept)], len(results)

    def _restore(self) -> None:
        for arg, kept in self._changed:
            arg.copy_(kept)

    def _gpu(self) -> int | None:
        """Number of the GPU on which the arguments are."""
        return next((arg.device.index for arg, _ in self._kept if arg.is_cuda), None)
