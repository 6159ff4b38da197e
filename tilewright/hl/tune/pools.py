"""Which workers a tuning has: forked processes, fresh ones, an executor's, or none but this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, as_completed
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch

import tilewright
from tilewright import testing
from tilewright.hl.config import Config
from tilewright.hl.settings import Settings
from tilewright.hl.tune.agreement import tensors_in
from tilewright.hl.tune.bench import Bench, Subject
from tilewright.hl.tune.loading import load_compiler
from tilewright.hl.tune.outcomes import Compiled, Failed, Job, Outcome
from tilewright.hl.tune.program import Generated, NotPortable, Portable, fresh, portable, program_of
from tilewright.hl.tune.spec import ConfigSpec
from tilewright.hl.tune.workers import Pool, forked

_STEP = 0.02  # seconds that are waited for a compiler before a look at who measures
_PATIENCE = 5.0  # times the median of the other compilations that one may take, as the next round waits for it


class Tunable(Protocol):
    """A bound kernel, as tuning sees it."""

    name: str
    settings: Settings
    config_spec: ConfigSpec

    def compile_config(self, config: Config) -> Callable[..., Any]:
        """The host function for a configuration."""

    def precompile(self, config: Config, args: Sequence[Any]) -> Any:
        """Compile a configuration for these arguments without running it, and give its kernels."""


class Workers(Protocol):
    """Whoever does jobs; see `workers.Pool`."""

    together: bool

    @property
    def devices(self) -> int:
        """How many candidates are measured at once."""

    def submit(self, job: Job) -> None:
        """Have a job done."""

    def outcomes(self, deadline: float = ...) -> Iterator[tuple[int, Outcome]]:
        """Outcomes as they come."""

    def close(self) -> None:
        """Make an end of the workers."""


Form = Callable[[Config], Any]
"""What stands for a configuration in a job."""


class Here:
    """Does the jobs in this process, one after the other: what crashes ends the program, and no limit holds."""

    together, devices = False, 1

    def __init__(self, subject: Subject, tick: Callable[[], None]) -> None:
        self._bench, self._tick = Bench(subject), tick
        self._jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        """Have a job done."""
        self._jobs.append(job)

    def outcomes(self, deadline: float = float("inf")) -> Iterator[tuple[int, Outcome]]:
        """As `Pool.outcomes`; a job that has begun is done to its end."""
        while self._jobs:
            job = self._jobs.pop(0)
            if time.monotonic() < deadline:
                made: list[tuple[int, Outcome]] = []
                self._bench.do(job, lambda number, outcome, made=made: made.append((number, outcome)))  # type: ignore[misc]
                yield from made
            self._tick()

    def close(self) -> None:
        """Nothing is left behind."""
        self._jobs.clear()


class Ahead:
    """Compiles for a GPU ahead of measuring on it: the host code of candidates runs here, where it may use the GPU, and
    what its launches would compile is compiled by forked processes, which may not. Others measure meanwhile.

    Args:
        bound: the kernel.
        args: its arguments.
        jobs: how many processes compile at once.
        benches: the workers that measure; they find on disk what was compiled.
        form: what stands for a configuration in their jobs.
        tick: called after each part.
    """

    together = True

    def __init__(
        self,
        bound: Tunable,
        args: Sequence[Any],
        jobs: int,
        benches: Pool,
        form: Form,
        tick: Callable[[], None],
    ) -> None:
        self._bound, self._args, self._count, self._benches = bound, args, jobs, benches
        self._form, self._tick = form, tick
        self._jobs: list[tuple[int, Config, float]] = []

    @property
    def devices(self) -> int:
        """How many candidates are measured at once."""
        return self._benches.devices

    def submit(self, job: Job) -> None:
        """Have a job done; one that compiles says by `Config` what."""
        if job.plan is None:
            self._jobs += [(number, what, job.limit) for number, what in job.items]
        else:
            items = [(number, self._form(what)) for number, what in job.items]
            self._benches.submit(Job(items, job.plan, job.limit))

    def outcomes(self, deadline: float = float("inf")) -> Iterator[tuple[int, Outcome]]:
        """As `Pool.outcomes`: what is compiled comes as soon as it is, and is measured while the others compile."""
        executor = _Recording(self._count, _PATIENCE, deadline, LostError)
        begun: dict[int, _Begun] = {}
        with executor, tilewright.AsyncCompileMode(executor, ignore_errors=True):
            while True:
                for at in range(len(self._jobs)):  # the host code of all may take a second
                    if time.monotonic() >= deadline:
                        self._jobs.clear()
                        break
                    number, config, executor.limit = self._jobs.pop(0)
                    begun[number] = executor.begin(lambda config=config: self._bound.precompile(config, self._args))  # type: ignore[misc]
                    if at == self._count - 1:
                        executor.pump(0.0)
                    yield from self._benches.turn(deadline, 0.0) or ()
                for number in [number for number, made in begun.items() if made.done()]:
                    outcome = begun.pop(number).outcome(deadline)
                    if outcome is not None:
                        yield number, outcome
                if begun:
                    executor.pump(_STEP)
                heard = self._benches.turn(deadline, 0.0 if begun else _STEP)
                yield from heard or ()
                self._tick()
                if heard is None and not begun and not self._jobs:
                    return

    def close(self) -> None:
        """Make an end of the workers."""
        self._jobs.clear()
        self._benches.close()


class LostError(RuntimeError):
    """A process that compiled has died."""


@dataclass(frozen=True)
class _Begun:
    """A candidate whose host code has run.

    Args:
        kernels: that it compiles, or why it does not.
        parts: what other processes do of that.
    """

    kernels: Sequence[Any] | Exception
    parts: Sequence[Any]

    def done(self) -> bool:
        """Whether everything has been compiled, or has failed."""
        return all(part.done() for part in self.parts)

    def outcome(self, deadline: float) -> Outcome | None:
        """What has become of it; None where the deadline came before its compilation had ended."""
        try:
            if isinstance(self.kernels, Exception):
                raise self.kernels
            made = [kernel.result() if hasattr(kernel, "result") else kernel for kernel in self.kernels]
        except CancelledError:
            return None
        except LostError as error:
            return Failed("crash", str(error))
        except TimeoutError as error:
            return None if time.monotonic() >= deadline else Failed("timeout", str(error))
        except Exception as error:
            return Failed.of(error, compiling=True)
        registers = max((kernel.n_regs for kernel in made), default=0)
        seconds = sum(part.seconds for part in self.parts)
        return Compiled(seconds, registers, sum(kernel.n_spills for kernel in made))


class _Recording(testing.ForkExecutor):
    """Remembers what it is given to do."""

    _parts: list[Any]

    def begin(self, compile: Callable[[], Any]) -> _Begun:
        """Run the host code of a candidate."""
        self._parts = []
        try:
            return _Begun(list(compile() or ()), self._parts)
        except Exception as error:
            return _Begun(error, self._parts)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have a child call `fn`."""
        self._parts.append(future := super().submit(fn, *args, **kwargs))
        return future


class Elsewhere:
    """Has the jobs done by an executor: a task for each candidate, which compiles it and times it beside the reference.

    Args:
        executor: of processes on this machine or others, with the same version of Tilewright.
        sent: the arguments.
        tick: called a few times a second.
    """

    together, devices = False, 1 << 20

    def __init__(self, executor: Executor, sent: Portable, tick: Callable[[], None]) -> None:
        self._executor, self._sent, self._tick = executor, sent, tick
        self._jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        """Have a job done."""
        self._jobs.append(job)

    def outcomes(self, deadline: float = float("inf")) -> Iterator[tuple[int, Outcome]]:
        """As `Pool.outcomes`; compiling is part of measuring."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            yield from ((number, Compiled(0.0)) for number, _ in job.items if job.plan is None)
        tasks = {self._executor.submit(perform, self._sent, job): job for job in jobs if job.plan is not None}
        left = None if deadline == float("inf") else max(0.0, deadline - time.monotonic())
        try:
            for task in as_completed(tasks, left):
                self._tick()
                try:
                    yield from task.result()
                except Exception as error:
                    yield tasks[task].items[-1][0], Failed.of(error)
        except LateError:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """The executor is the user's."""
        self._jobs.clear()


def perform(sent: Portable, job: Job) -> list[tuple[int, Outcome]]:
    """Do a job wherever this is called; see `Elsewhere`."""
    made: list[tuple[int, Outcome]] = []
    Bench(sent.subject()).do(job, lambda number, outcome: made.append((number, outcome)))
    return made


def make_pool(bound: Tunable, args: Sequence[Any], tick: Callable[[], None]) -> tuple[Workers, Form, str]:
    """The workers of a tuning, what stands for a configuration in their jobs, and what is to be said of them.

    Args:
        bound: the kernel.
        args: arguments to time it with.
        tick: called a few times a second while they work.
    """
    settings = bound.settings
    expected = settings.autotune_baseline_fn
    here = Subject(args, bound.compile_config, lambda config: bound.precompile(config, args), expected)
    on_gpu = any(tensor.is_cuda for tensor in tensors_in(list(args)))
    executor = tilewright.knobs.autotuning.executor
    if not settings.autotune_benchmark_subprocess:
        return Here(here, tick), _itself, ""
    jobs = settings.autotune_precompile_jobs or tilewright.knobs.autotuning.workers or cores()
    if executor is None and not on_gpu and settings.autotune_devices is None and testing.can_fork():
        load_compiler("cpu")
        start = forked(lambda: here)
        return Pool([start] * jobs, [start], tick), _itself, ""
    try:
        kernel = cast("Generated", bound)
        program_of(kernel, bound.config_spec.default_config())
        sent = portable(args, expected)
    except NotPortable as reason:
        return Here(here, tick), _itself, f"candidates run in this process: {reason}"

    def form(config: Config) -> Any:
        return program_of(kernel, config)

    if executor is not None:
        return Elsewhere(executor, sent, tick), form, ""
    benches = [fresh(sent, device) for device in _devices(settings, on_gpu)]
    if testing.can_fork():
        measuring = Pool([], benches, tick, together=True)  # which start meanwhile
        load_compiler("cuda" if on_gpu else "cpu")
        return Ahead(bound, args, jobs, measuring, form, tick), _itself, ""
    return Pool([fresh(sent, None)] * jobs, benches, tick), form, ""


def _devices(settings: Settings, on_gpu: bool) -> list[str | None]:
    """Where candidates are measured; None for where the arguments are."""
    wanted = settings.autotune_devices
    if wanted == "all":
        return [f"cuda:{at}" for at in range(torch.cuda.device_count())] if on_gpu else [None]
    return [None] if wanted is None else [str(device) for device in wanted]


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _itself(config: Config) -> Any:
    return config
