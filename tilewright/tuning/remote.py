"""Measuring candidates in other processes: whatever a `concurrent.futures.Executor` reaches.

::

    here: bind the call for each candidate -> (request, machine code, grid, arguments), pickled
    there: load, time the candidate in turns with the reference (the first candidate) -> times of both

Machines differ and are busy in different ways, so a time counts relative to the reference's on the same machine in the
same seconds; it is given as if the reference had taken everywhere what it took in the middle of all measurements.
"""

from __future__ import annotations

import pickle
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.base.grids import Grid
from tilewright.compile.build import Image, compile_request
from tilewright.compile.grid import grid3
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.request import Request
from tilewright.devices.places import gpu_of
from tilewright.launch.jit import JITFunction
from tilewright.tuning import arrays
from tilewright.tuning.bench import clock_of
from tilewright.tuning.heuristics import Heuristics
from tilewright.tuning.search import Candidate, quantiles_of, time_in_turns

C = TypeVar("C")
QUANTILES = (0.5, 0.2, 0.8)


@dataclass(frozen=True, slots=True)
class RemoteLaunch:
    """A launch that can be pickled.

    Args:
        request: of its kernel.
        image: machine code of it.
        grid: programs.
        values: an argument for every parameter, as they were passed.
        zeroed: indices of the arrays to zero before each run.
        restored: indices of the arrays to put back after each run.
    """

    request: Request
    image: Image
    grid: tuple[int, int, int]
    values: tuple[Any, ...]
    zeroed: tuple[int, ...]
    restored: tuple[int, ...]

    def candidate(self) -> Candidate:
        """What is timed, in this process."""
        kernel = compile_request(self.request, elsewhere=lambda: self.image)
        run = kernel[self.grid]
        if not self.zeroed and not self.restored:
            return Candidate(lambda: run(*self.values))
        saved = {index: arrays.copy(self.values[index]) for index in self.restored}

        def before() -> None:
            for index in self.zeroed:
                arrays.fill_zero(self.values[index])

        def after(error: BaseException | None) -> None:
            for index, value in saved.items():
                arrays.assign(self.values[index], value)

        return Candidate(lambda: run(*self.values), before, after)


def remote_launch(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    grid: Grid | None,
    zeroed: Sequence[str],
    restored: Sequence[str],
) -> RemoteLaunch | None:
    """The launch that `fn.run(*args, grid=grid, **kwargs)` would make; None if it cannot be made elsewhere.

    Args:
        fn: a kernel, or `Heuristics` around one.
        args, kwargs, grid: of the launch.
        zeroed, restored: names of arrays, as an autotuner has them.
    """
    while isinstance(fn, Heuristics):
        kwargs, fn = fn.computed(args, dict(kwargs)), fn.fn
    kernel = fn.warmup(*args, grid=grid, **kwargs) if isinstance(fn, JITFunction) else None
    if not isinstance(kernel, CompiledKernel):
        return None
    request, call = fn.request(*args, **kwargs)
    try:
        pickle.dumps(request)
    except Exception:  # a kernel that no module holds, or whatever the pickling of some constant raises
        return None
    programs = grid3(grid(call.by_name()) if callable(grid) else grid)
    by_name, names = call.by_name(), [param.name for param in call.params]
    lists = [[names.index(name) for name in some if by_name[name] is not None] for some in (zeroed, restored)]
    plain = {key: value for key, value in kernel.metadata.items() if key not in ("target", "hash")}
    image = Image(kernel.hash, kernel.binary, plain, {})
    return RemoteLaunch(request, image, programs, call.values, tuple(lists[0]), tuple(lists[1]))


def measure(pickled: bytes, warmup: float, rep: float) -> tuple[list[float], list[float]]:
    """Time a candidate in turns with the reference; milliseconds of each round, of the reference and of the candidate.

    Args:
        pickled: the two launches.
        warmup, rep: milliseconds for each.
    """
    launches: tuple[RemoteLaunch, RemoteLaunch] = pickle.loads(pickled)
    runs = {index: launch.candidate() for index, launch in enumerate(launches)}
    clock = clock_of(gpu_of(launches[0].values))
    times, _ = time_in_turns(runs, warmup, rep, clock=clock, drop=False)
    rounds = min(map(len, times.values()))
    return times[0][:rounds], times[1][:rounds]


def measure_remotely(
    executor: Executor,
    launches: Mapping[C, RemoteLaunch],
    warmup: float,
    rep: float,
    refusals: tuple[type[Exception], ...],
    step: Callable[[str], None],
) -> tuple[dict[C, list[float]], dict[C, Exception]]:
    """Quantiles of the times of all candidates, and the errors of those that cannot run.

    Args:
        executor: runs `measure`.
        launches: of the candidates; the first is the reference.
        warmup, rep: milliseconds for each.
        refusals: exceptions that take a candidate out of the race; others propagate.
        step: called when one is done.
    """
    reference = next(iter(launches.values()))
    running: dict[C, Future[Any]] = {
        name: executor.submit(measure, pickle.dumps((reference, launch)), warmup, rep)
        for name, launch in launches.items()
    }
    pairs: dict[C, tuple[list[float], list[float]]] = {}
    refused: dict[C, Exception] = {}
    for name, future in running.items():
        try:
            pairs[name] = future.result()
        except refusals as error:
            refused[name] = error
        step(str(name))
    if not pairs:
        return {}, refused
    usual = statistics.median(quantiles_of(mine, (0.5,))[0] for mine, _ in pairs.values())
    relative = {name: [b / a * usual for a, b in zip(mine, theirs)] for name, (mine, theirs) in pairs.items()}
    return {name: quantiles_of(times, QUANTILES) for name, times in relative.items()}, refused
