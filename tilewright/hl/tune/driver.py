"""Tuning: candidates are compiled beside each other, checked against a baseline, and timed in turns.

    propose -> compile in processes -> run once and compare -> time in turns -> propose near the best ...

What does not compile or computes something else is out, with its reason. Arguments that the kernel changes are put back
before every run.
"""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch

import tilewright
from tilewright import testing
from tilewright.hl import exc
from tilewright.hl.config import Config
from tilewright.hl.settings import Settings
from tilewright.hl.tune.spec import ConfigSpec

_SECONDS = {"quick": 10.0, "full": 600.0}
_FIRST, _NEXT, _PARENTS = 16, 16, 3  # candidates of the first round and of later ones; how many have neighbours tried
_WARMUP, _REP = 1.0, 15.0  # milliseconds, of all and of each candidate
_ENOUGH = 0.005  # two rounds that improve less end a search


class Tunable(Protocol):
    """A bound kernel, as tuning sees it."""

    name: str
    settings: Settings
    config_spec: ConfigSpec

    def compile_config(self, config: Config) -> Callable[..., Any]:
        """The host function for a configuration."""

    def precompile(self, config: Config, args: Sequence[Any]) -> None:
        """Compile a configuration for these arguments without running it."""


class Driver:
    """One tuning.

    Args:
        bound: the kernel.
        args: arguments to time it with.

    Attributes:
        times: milliseconds of every configuration that ran, as measured last.
        failures: why the others are out.
    """

    def __init__(self, bound: Tunable, args: Sequence[Any]) -> None:
        self.bound, self.args, self.settings = bound, tuple(args), bound.settings
        self.spec = bound.config_spec
        self.times: dict[Config, float] = {}
        self.failures: dict[Config, str] = {}
        self.began = time.perf_counter()
        self._kept = [(arg, arg.clone()) for arg in _tensors(self.args)]
        self._changed: list[tuple[Any, Any]] = []
        self._baseline: tuple[list[Any], list[Any]] | None = None

    # --- strategies ----------------------------------------------------------------------------------

    def among(self, configs: Iterable[Config]) -> Config:
        """The fastest of some configurations.

        Raises:
            NoConfigFound: none of them works.
        """
        self.race([self.spec.normalize(config) for config in configs])
        return self.best()

    def search(self, effort: str) -> Config:
        """Random configurations, then neighbours of the best ones, until the time is over or nothing gets better."""
        seconds = self.settings.autotune_budget_seconds or _SECONDS.get(effort, _SECONDS["quick"])
        rng = random.Random(self.settings.autotune_random_seed)
        seeds = [self.spec.default_config(), *map(self.spec.normalize, self.settings.autotune_seed_configs or ())]
        self.race([*seeds, *(self.spec.random(rng) for _ in range(_FIRST - len(seeds)))])
        idle, best = 0, self.times[self.best()]
        for _ in range(self.settings.autotune_max_generations):
            if time.perf_counter() - self.began > seconds or idle == 2:
                break
            parents = sorted(self.times, key=lambda config: self.times[config])[:_PARENTS]
            near = [near for parent in parents for near in self.spec.neighbors(parent)]
            fresh = [config for config in dict.fromkeys(near) if config not in self.times | self.failures]
            if not fresh:
                break
            self.race([parents[0], *rng.sample(fresh, min(_NEXT, len(fresh)))])
            now = self.times[self.best()]
            idle, best = (idle + 1, best) if now > best * (1 - _ENOUGH) else (0, now)
        return self.best()

    def best(self) -> Config:
        """The fastest so far.

        Raises:
            NoConfigFound: no candidate works.
        """
        if not self.times:
            reasons = "\n".join(f"  {config!r}: {reason}" for config, reason in list(self.failures.items())[:5])
            raise exc.NoConfigFound(f"no configuration of {self.bound.name} works:\n{reasons}")
        return min(self.times, key=lambda config: self.times[config])

    # --- one round -----------------------------------------------------------------------------------

    def race(self, configs: Sequence[Config]) -> None:
        """Compile, check and time some configurations."""
        wanted = list(dict.fromkeys(self._allowed(configs)))
        jobs = self.settings.autotune_precompile_jobs or os.cpu_count() or 1
        executor = testing.ForkExecutor(jobs) if testing.can_fork() else ThreadPoolExecutor(jobs)
        with executor, tilewright.AsyncCompileMode(executor, ignore_errors=True):
            wanted = [config for config in wanted if self._begun(config)]
        candidates = {config: self._candidate(config) for config in wanted if self._checked(config)}
        times, refused = testing.time_in_turns(candidates, _WARMUP, _REP, (Exception,))
        for config, error in refused.items():
            self._fail(config, error)
        for config, measured in times.items():
            self.times[config] = sorted(measured)[len(measured) // 2]
            self._say(2, f"  {self.times[config]:.4f} ms  {config!r}")
        self._restore()

    def _allowed(self, configs: Sequence[Config]) -> Iterable[Config]:
        fixed, allowed = self.settings.autotune_config_overrides or {}, self.settings.autotune_config_filter
        for config in configs:
            made = self.spec.normalize({**config, **fixed}) if fixed else config
            if allowed is None or allowed(made):
                yield made

    def _begun(self, config: Config) -> bool:
        """Have a configuration compiled; what is wrong with generated code is seen when it runs first."""
        try:
            self.bound.precompile(config, self.args)
        except Exception as error:
            self._fail(config, error)
            return False
        return True

    def _checked(self, config: Config) -> bool:
        """Whether a configuration runs and computes what the baseline does."""
        try:
            found = self._results(self.bound.compile_config(config))
        except Exception as error:
            self._fail(config, error)
            return False
        if self.settings.autotune_accuracy_check and not self._agrees(found):
            self.failures[config] = "its results are not those of the baseline"
            return False
        return True

    def _results(self, function: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
        """(tensors of the result, tensors of the arguments afterwards) of one run."""
        self._restore()
        out = function(*self.args)
        results = [tensor.clone() for tensor in _tensors(out)]
        for arg, kept in self._kept:
            if not _same(arg, kept) and not any(arg is changed for changed, _ in self._changed):
                self._changed.append((arg, kept))
        return results, [arg.clone() for arg, _ in self._kept]

    def _agrees(self, found: tuple[list[Any], list[Any]]) -> bool:
        if self._baseline is None:
            function = self.settings.autotune_baseline_fn or self.bound.compile_config(self.spec.default_config())
            self._baseline = self._results(function)
        pairs = zip([*found[0], *found[1]], [*self._baseline[0], *self._baseline[1]], strict=True)
        atol, rtol = self.settings.autotune_baseline_atol, self.settings.autotune_baseline_rtol
        return all(_close(one, other, atol, rtol) for one, other in pairs)

    def _candidate(self, config: Config) -> Any:
        function, args = self.bound.compile_config(config), self.args
        waits = next((arg.device for arg, _ in self._kept if arg.device.type == "cuda"), None)

        def run() -> None:
            function(*args)
            if waits is not None:
                torch.cuda.synchronize(waits)

        return testing.Candidate(run, before=self._restore) if self._changed else testing.Candidate(run)

    def _restore(self) -> None:
        for arg, kept in self._changed:
            arg.copy_(kept)

    def _fail(self, config: Config, error: Exception) -> None:
        lines = str(error).splitlines()
        self.failures[config] = f"{type(error).__name__}: {lines[0] if lines else ''}"
        self._say(2, f"  out: {self.failures[config]}  {config!r}")

    # --- report ----------------------------------------------------------------------------------------

    def report(self, config: Config) -> None:
        """Say what was found, with the decorator to paste."""
        seconds = time.perf_counter() - self.began
        self._say(
            1,
            f"{self.bound.name}: {len(self.times)} configurations timed, {len(self.failures)} out, {seconds:.1f} s. "
            f"Best: {self.times[config]:.4f} ms with\n{decorator(config)}",
        )

    def _say(self, level: int, text: str) -> None:
        if self.settings.autotune_log_level >= level:
            print(f"[hl] {text}", file=sys.stderr)


def several(pairs: Sequence[tuple[Any, Sequence[Any]]], aggregation: str) -> Config:
    """One configuration for several bound kernels: candidates are those that each finds best, and the default.

    Args:
        pairs: bound kernels and arguments.
        aggregation: "geomean" or "max" of the times relative to the default's.
    """
    drivers = [Driver(bound, args) for bound, args in pairs]
    default = drivers[0].bound.config_spec.default_config()
    found = [driver.search("quick") for driver in drivers]
    wanted = list(dict.fromkeys([default, *found]))
    for driver in drivers:
        driver.race(wanted)
    ratios = {
        config: [driver.times[config] / driver.times[default] for driver in drivers]
        for config in wanted
        if all(config in driver.times for driver in drivers)
    }
    if not ratios:
        raise exc.NoConfigFound("no configuration works for all sets of arguments")
    join = max if aggregation == "max" else math.prod
    return min(ratios, key=lambda config: join(ratios[config]))


def decorator(config: Config) -> str:
    """The line to put above the kernel."""
    return f"@hl.kernel(config={config!r})"


def _tensors(tree: Any) -> list[Any]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _same(left: Any, right: Any) -> bool:
    return torch.equal(_wide(left), _wide(right)) or bool(((left == right) | (left != left)).all())


def _close(found: Any, expected: Any, atol: float, rtol: float) -> bool:
    """Whether two results agree. What cancels to a small number in a sum has the error of its terms, so the relative
    part is at least that of a usual element, the root of the mean square."""
    found, expected = _wide(found), _wide(expected)
    if expected.dtype.is_floating_point and (finite := expected[expected.isfinite()]).numel():
        atol += rtol * finite.norm().item() / math.sqrt(finite.numel())
    return bool(torch.allclose(found, expected, rtol, atol, equal_nan=True))


def _wide(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4 else tensor
