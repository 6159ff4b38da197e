"""A race of candidates: compile all beside each other, look at what each computes, time those that are left.

    enter ... -> compile (processes, or an executor) -> check -> time in turns | by the user's function | elsewhere

What does not compile, needs too much or computes something wrong is out, with its error; the race goes on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilewright.base.errors import (
    CompilationError,
    InternalError,
    MissingKernelSourceError,
    OutOfResources,
    UnsupportedError,
)
from tilewright.base.knobs import knobs
from tilewright.compile.forks import ForkExecutor, can_fork
from tilewright.compile.kernel import CompiledKernel
from tilewright.devices.places import gpu_of
from tilewright.launch import asynchronous
from tilewright.launch.asynchronous import AsyncCompileMode, FutureKernel
from tilewright.launch.jit import JITFunction
from tilewright.tuning.away import QUANTILES, RemoteLaunch, measure_away
from tilewright.tuning.bench import clock_of
from tilewright.tuning.progress import progress
from tilewright.tuning.report import SlowCompilationError, WrongResultError
from tilewright.tuning.search import Candidate, quantiles_of, time_in_turns

C = TypeVar("C", bound=Hashable)
REFUSALS = (OutOfResources, CompilationError, UnsupportedError, InternalError, WrongResultError)
"""Errors of one candidate; any other is the user's and ends the search."""
_PATIENCE = 10.0  # times the median of the candidates: code that takes so much longer to assemble spills registers


@dataclass(frozen=True, slots=True)
class Measure:
    """How candidates are timed: milliseconds of warm-up and of timing each; the user's own function; from graphs."""

    warmup: float
    rep: float
    do_bench: Callable[..., Any] | None
    graphs: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    candidate: Candidate
    compile: Callable[[], Any]
    elsewhere: Callable[[], RemoteLaunch | None]
    arguments: dict[str, Any]
    own: Any


class Race(Generic[C]):
    """A race.

    Args:
        kernel: whose configurations race.
        how: they are timed.
        executor: compiles and measures; None: this machine.
        check: called with the arguments by name after one run of each; False or an AssertionError is a wrong result.

    Attributes:
        errors: why candidates are out.
    """

    def __init__(
        self,
        kernel: JITFunction,
        how: Measure,
        executor: Executor | None,
        check: Callable[[dict[str, Any]], Any] | None,
    ) -> None:
        self._kernel, self._how, self._executor, self._check = kernel, how, executor, check
        self._entries: dict[C, _Entry] = {}
        self.errors: dict[C, Exception] = {}

    def enter(
        self,
        name: C,
        candidate: Candidate,
        compile: Callable[[], Any],
        elsewhere: Callable[[], RemoteLaunch | None],
        arguments: dict[str, Any],
        own: Any = None,
    ) -> None:
        """Add a candidate.

        Args:
            name: of it.
            candidate: what is timed.
            compile: compiles it without launching.
            elsewhere: gives its launch for another process; None if it must be measured here.
            arguments: of the launch by name.
            own: what only candidates that have it in common may share a measurement for.
        """
        self._entries[name] = _Entry(candidate, compile, elsewhere, arguments, own)

    def run(self) -> dict[C, list[float]]:
        """[median, 20 %, 80 %] in milliseconds of every candidate that has not failed."""
        stages = 2 + (self._check is not None)
        with progress(f"tuning {self._kernel.fn.__name__}", stages * len(self._entries)) as step:
            self._compile(step)
            self._look(step)
            return self._time(step)

    def _left(self) -> dict[C, _Entry]:
        return {name: entry for name, entry in self._entries.items() if name not in self.errors}

    # --- compiling -----------------------------------------------------------------------------------

    def _compile(self, step: Callable[[str], None]) -> None:
        """Compile all; where that would be no faster the first launch of each does it."""
        executor = self._executor or _processes(len(self._entries))
        if executor is None or not self._may_compile():
            return
        made: dict[C, Any] = {}
        try:
            with AsyncCompileMode(executor, ignore_errors=True):
                for name, entry in self._entries.items():
                    made[name] = entry.compile()
                for name, kernels in made.items():
                    for kernel in kernels if isinstance(kernels, list) else [kernels]:
                        self._compiled(name, kernel)
                    step(str(name))
        finally:
            if executor is not self._executor:
                executor.shutdown()

    def _may_compile(self) -> bool:
        return not (knobs.runtime.no_jit or self._kernel.is_interpreted or asynchronous.active())

    def _attempt(self, name: C, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except REFUSALS as error:
            self.errors.setdefault(name, error)

    def _compiled(self, name: C, kernel: Any) -> None:
        """Wait for a kernel of a candidate."""
        try:
            self._attempt(name, kernel.result if isinstance(kernel, FutureKernel) else lambda: None)
        except TimeoutError as late:
            self.errors.setdefault(name, SlowCompilationError(f"the compilation was {late}"))

    # --- checking ------------------------------------------------------------------------------------

    def _look(self, step: Callable[[str], None]) -> None:
        for name, entry in self._left().items() if self._check is not None else ():
            self._attempt(name, lambda entry=entry: self._check_one(entry))  # type: ignore[misc]
            step(str(name))

    def _check_one(self, entry: _Entry) -> None:
        assert self._check is not None
        entry.candidate.before()
        try:
            entry.candidate.run()
            accepted = self._check(entry.arguments)
        except AssertionError as error:
            raise WrongResultError(f"the check failed: {error}") from error
        finally:
            entry.candidate.after(None)
        if accepted is False:
            raise WrongResultError("the check returned False")

    # --- timing --------------------------------------------------------------------------------------

    def _time(self, step: Callable[[str], None]) -> dict[C, list[float]]:
        same = self._same_code()
        timings = self._measured({name: self._entries[name] for name in dict.fromkeys(same.values())}, step)
        for name, first in same.items():
            if first in self.errors:
                self.errors[name] = self.errors[first]
        return {name: timings[first] for name, first in same.items() if first in timings}

    def _same_code(self) -> dict[C, C]:
        """Each candidate that is left, with the first that is the same code: on a CPU most options change nothing."""
        found: dict[C, C] = {}
        firsts: dict[Any, C] = {}
        for name, entry in self._left().items() if self._may_compile() else ():
            made = self._attempt(name, entry.compile)
            kernels = made if isinstance(made, list) else [made]
            if all(isinstance(kernel, CompiledKernel) for kernel in kernels):
                found[name] = firsts.setdefault((*(kernel.hash for kernel in kernels), entry.own), name)
        return {name: found.get(name, name) for name in self._left()}

    def _measured(self, left: dict[C, _Entry], step: Callable[[str], None]) -> dict[C, list[float]]:
        """Times of these candidates, by the way that was asked for."""
        how = self._how
        if how.do_bench is not None:
            return self._time_by(how.do_bench, left, step)
        if self._executor is not None:
            launches = {name: self._attempt(name, entry.elsewhere) for name, entry in left.items()}
            found = {name: launch for name, launch in launches.items() if launch is not None}
            if len(found) == len(left):
                with contextlib.suppress(MissingKernelSourceError):  # what nobody else can launch is measured here
                    timings, refused = measure_away(self._executor, found, how.warmup, how.rep, REFUSALS, step)
                    self.errors |= refused
                    return timings
        arguments: Iterable[Any] = next(iter(left.values())).arguments.values() if left else ()
        plain = all(entry.candidate.repeatable for entry in left.values())
        clock = clock_of(gpu_of(arguments), how.graphs and plain)
        runs = {name: entry.candidate for name, entry in left.items()}
        times, refused = time_in_turns(runs, how.warmup, how.rep, REFUSALS, clock=clock, step=step)
        self.errors |= refused
        return {name: quantiles_of(times[name], QUANTILES) for name in left if name in times}

    def _time_by(self, bench: Callable[..., Any], left: dict[C, _Entry], step: Any) -> dict[C, list[float]]:
        """Times that the user's function reports."""
        timings: dict[C, list[float]] = {}
        for name, entry in left.items():
            found = self._attempt(name, lambda entry=entry: bench(entry.candidate.once, quantiles=QUANTILES))  # type: ignore[misc]
            if name not in self.errors:
                timings[name] = [float(x) for x in found] if isinstance(found, Iterable) else [float(found)] * 3
            step(str(name))
        return timings


def _processes(count: int) -> Executor | None:
    """Processes that compile `count` candidates; None where one would be all there is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(count, knobs.autotuning.workers or cores)
    return ForkExecutor(workers, _PATIENCE) if workers > 1 and can_fork() else None
