"""A race of candidates: compile all beside each other, look at what each computes, time those that are left.

    launches -> compile (processes, or an executor) -> check -> time in turns | by the user's function | elsewhere

What does not compile, needs too much or computes something wrong is out, with its error; the race goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from tilewright.base import system
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
from tilewright.tuning.bench import clock_of
from tilewright.tuning.config import Config
from tilewright.tuning.launch import ConfiguredLaunch
from tilewright.tuning.progress import progress
from tilewright.tuning.remote import QUANTILES, measure_remotely
from tilewright.tuning.report import SlowCompilationError, WrongResultError
from tilewright.tuning.search import Candidate, quantiles_of, time_in_turns

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


class Race:
    """A race.

    Args:
        kernel: whose configurations race.
        launches: the launch of each.
        how: they are timed.
        executor: compiles and measures; None: this machine.
        check: called with the arguments by name after one run of each; False or an AssertionError is a wrong result.

    Attributes:
        errors: why candidates are out.
    """

    def __init__(
        self,
        kernel: JITFunction,
        launches: Mapping[Config, ConfiguredLaunch],
        how: Measure,
        executor: Executor | None,
        check: Callable[[dict[str, Any]], Any] | None,
    ) -> None:
        self._kernel, self._how, self._executor, self._check = kernel, how, executor, check
        self._launches = dict(launches)
        self._made: dict[Config, list[Any]] = {}  # kernels of the candidates
        self.errors: dict[Config, Exception] = {}

    def run(self) -> dict[Config, list[float]]:
        """[median, 20 %, 80 %] in milliseconds of every candidate that has not failed."""
        stages = 2 + (self._check is not None)
        with progress(f"tuning {self._kernel.fn.__name__}", stages * len(self._launches)) as step:
            self._compile(step)
            self._look(step)
            return self._time(step)

    def _left(self) -> dict[Config, ConfiguredLaunch]:
        return {name: launch for name, launch in self._launches.items() if name not in self.errors}

    # --- compiling -----------------------------------------------------------------------------------

    def _compile(self, step: Callable[[str], None]) -> None:
        """Compile all; where that would be no faster the first launch of each does it."""
        executor = self._executor or _processes(len(self._launches))
        if executor is None or not self._may_compile():
            return
        made: dict[Config, Any] = {}
        own = executor if executor is not self._executor else contextlib.nullcontext()
        with own, AsyncCompileMode(executor, ignore_errors=True):
            for name, launch in self._launches.items():
                made[name] = self._attempt(name, launch.compile)
            for name, kernels in made.items():
                self._made[name] = [self._compiled(name, kernel) for kernel in _listed(kernels)]
                step(str(name))

    def _may_compile(self) -> bool:
        return not (knobs.runtime.no_jit or self._kernel.is_interpreted or asynchronous.active())

    def _attempt(self, name: Config, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except REFUSALS as error:
            self.errors.setdefault(name, error)

    def _compiled(self, name: Config, kernel: Any) -> Any:
        """Wait for a kernel of a candidate."""
        try:
            return self._attempt(name, kernel.result if isinstance(kernel, FutureKernel) else lambda: kernel)
        except TimeoutError as late:
            self.errors.setdefault(name, SlowCompilationError(f"the compilation was {late}"))

    # --- checking ------------------------------------------------------------------------------------

    def _look(self, step: Callable[[str], None]) -> None:
        for name, launch in self._left().items() if self._check is not None else ():
            self._attempt(name, lambda launch=launch: self._check_one(launch))  # type: ignore[misc]
            step(str(name))

    def _check_one(self, launch: ConfiguredLaunch) -> None:
        def look() -> None:
            assert self._check is not None
            launch.run()
            try:
                accepted = self._check(launch.named)
            except AssertionError as error:
                raise WrongResultError(f"the check failed: {error}") from error
            if accepted is False:
                raise WrongResultError("the check returned False")

        Candidate(look, launch.enter, launch.leave).once()

    # --- timing --------------------------------------------------------------------------------------

    def _time(self, step: Callable[[str], None]) -> dict[Config, list[float]]:
        same = self._same_code()
        timings = self._measured({name: self._launches[name] for name in dict.fromkeys(same.values())}, step)
        for name, first in same.items():
            if first in self.errors:
                self.errors[name] = self.errors[first]
        return {name: timings[first] for name, first in same.items() if first in timings}

    def _same_code(self) -> dict[Config, Config]:
        """Each candidate that is left, with the first that is the same code: on a CPU most options change nothing."""
        found: dict[Config, Config] = {}
        firsts: dict[Any, Config] = {}
        for name, launch in self._left().items() if self._may_compile() else ():
            if name not in self._made:
                self._made[name] = _listed(self._attempt(name, launch.compile))
            kernels = self._made[name]
            if all(isinstance(kernel, CompiledKernel) for kernel in kernels):
                found[name] = firsts.setdefault((*(kernel.hash for kernel in kernels), launch.beside_code()), name)
        return {name: found.get(name, name) for name in self._left()}

    def _measured(self, left: dict[Config, ConfiguredLaunch], step: Callable[[str], None]) -> dict[Config, list[float]]:
        """Times of these candidates, by the way that was asked for."""
        how = self._how
        runs = {name: launch.candidate() for name, launch in left.items()}
        if how.do_bench is not None:
            return self._time_by(how.do_bench, runs, step)
        if self._executor is not None:
            launches = {name: self._attempt(name, launch.elsewhere) for name, launch in left.items()}
            found = {name: launch for name, launch in launches.items() if launch is not None}
            if len(found) == len(left):
                with contextlib.suppress(MissingKernelSourceError):  # what nobody else can launch is measured here
                    timings, refused = measure_remotely(self._executor, found, how.warmup, how.rep, REFUSALS, step)
                    self.errors |= refused
                    return timings
        arguments: Iterable[Any] = next(iter(left.values())).named.values() if left else ()
        clock = clock_of(gpu_of(arguments), how.graphs and all(run.repeatable for run in runs.values()))
        times, refused = time_in_turns(runs, how.warmup, how.rep, REFUSALS, clock=clock, step=step)
        self.errors |= refused
        return {name: quantiles_of(times[name], QUANTILES) for name in left if name in times}

    def _time_by(
        self, bench: Callable[..., Any], runs: dict[Config, Candidate], step: Any
    ) -> dict[Config, list[float]]:
        """Times that the user's function reports."""
        timings: dict[Config, list[float]] = {}
        for name, run in runs.items():
            found = self._attempt(name, lambda run=run: bench(run.once, quantiles=QUANTILES))  # type: ignore[misc]
            if name not in self.errors:
                timings[name] = [float(x) for x in found] if isinstance(found, Iterable) else [float(found)] * 3
            step(str(name))
        return timings


def _listed(kernels: Any) -> list[Any]:
    """The kernels that a warm-up gave: an autotuner's gives several."""
    return kernels if isinstance(kernels, list) else [kernels]


def _processes(count: int) -> Executor | None:
    """Processes that compile `count` candidates; None where one would be all there is."""
    workers = min(count, knobs.autotuning.workers or system.this().processors())
    return ForkExecutor(workers, _PATIENCE) if workers > 1 and can_fork() else None
