"""`@autotune`: choose the compile-time parameters of a kernel by timing, from the arguments of a launch.

    kernel[grid](*args) -> key of the arguments -> known: launch with the configuration found before
                                                -> new: prune, race the candidates (`race.py`), remember, launch

Names, arguments and attributes are Triton's. What differs: candidates compile beside each other, are timed in turns
(A B A B ...), so that other work on the machine hits all alike, a clearly slower one drops out early, one that does not
compile ends nothing, hooks are not part of the time, and results are kept on disk.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from tilewright.base import logs
from tilewright.base.callable import give_number
from tilewright.base.errors import ArgumentError, AutotunerError, LanguageValueError
from tilewright.base.grids import Grid
from tilewright.base.knobs import knobs
from tilewright.base.refusal import Refusal
from tilewright.compile.request import fingerprint
from tilewright.compile.run import Unsaved
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import target_at
from tilewright.devices.places import gpu_of
from tilewright.launch.interface import KernelInterface
from tilewright.tuning.arrays import arrays_of
from tilewright.tuning.bench import do_bench
from tilewright.tuning.cached_choices import CachedChoices
from tilewright.tuning.config import Config, Hook
from tilewright.tuning.heuristics import Heuristics, heuristics, kernel_of, named_after
from tilewright.tuning.hooks import Hooked, Hooks
from tilewright.tuning.launch import Asked, ConfiguredLaunch
from tilewright.tuning.race import Measure, Race
from tilewright.tuning.report import Failure, TuningResults, describe_choice, describe_failures, id_of

__all__ = ["Autotuner", "Config", "Heuristics", "autotune", "heuristics"]
_WARMUP_MS, _REP_MS = 25.0, 100.0
_NEVER = [float("inf")] * 3


class Autotuner(Hooked, KernelInterface[Any]):
    """A kernel that picks its configuration by timing; made by `autotune`.

    Args:
        fn: a kernel, or another `Autotuner` or `Heuristics` around one.
        arg_names: its parameters.
        configs: candidates; an empty list stands for one `Config` without meta-parameters.
        key: arguments whose values, when they change, call for a new choice.
        reset_to_zero, restore_value: arguments to zero before, and to put back after, each timed run.
        pre_hook, post_hook: replacements of the two that these lists make: `pre_hook(args, reset_only=False)`,
            `post_hook(args, exception=...)`.
        prune_configs_by: "early_config_prune", "perf_model" and "top_k", see `autotune`.
        warmup, rep: milliseconds of warm-up for all candidates together, and of timing for each.
        use_cuda_graph: time launches from a graph, on a GPU.
        do_bench: times one candidate: `do_bench(call, quantiles=(0.5, 0.2, 0.8))`.
        cache_results: keep choices on disk also where `do_bench` or the knob would have them made anew.
        check, executor: see `autotune`.

    The choice falls on the lowest 20 % quantile; with `do_bench` on the first of the times that it returns.

    Attributes:
        cache: tuning key -> Config. configs_timings: Config -> [median, 20 %, 80 %] in ms of the last search.
        failures: of the last search, Config -> what kind of failure, and what was said.
        best_config: of the last launch. bench_time: seconds of the last search.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Hook | None = None,
        post_hook: Hook | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: Callable[..., Any] | None = None,
        cache_results: bool = False,
        check: Callable[[dict[str, Any]], Any] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.fn, self.arg_names = fn, list(arg_names)
        self.base_fn = kernel_of(fn)
        self.configs = list(configs) or [Config({})]
        for config in self.configs:
            if not hasattr(config, "all_kwargs"):
                raise LanguageValueError(
                    f"autotune: {config!r} is no configuration", hint='write Config({"BLOCK": 64}, num_warps=4)'
                )
        self.keys, self.cache_results = list(key), cache_results
        self.hooks = Hooks(reset_to_zero or (), restore_value or (), pre_hook, post_hook)
        self.reset_to_zero, self.restore_value = self.hooks.reset_to_zero, self.hooks.restore_value
        self._check_names()
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        pruning = dict(prune_configs_by or {})
        self.early_config_prune = pruning.get("early_config_prune")
        self.perf_model = pruning.get("perf_model")
        self.configs_top_k = pruning.get("top_k", 1.0)
        times = (_WARMUP_MS if warmup is None else warmup, _REP_MS if rep is None else rep)
        self._measure = Measure(*times, do_bench, use_cuda_graph)
        self.check, self.executor = check, executor
        self.failures: dict[Config, Failure] = {}
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.configs_timings: dict[Config, list[float]] = {}
        self.best_config: Config | None = None
        self.bench_time = 0.0
        self._turns, self._calls = Unsaved(), Unsaved()  # locks by process, `nargs` by thread
        self._known, self._has_own_run = CachedChoices(), type(self).run is not Autotuner.run
        self.number = give_number(self)
        named_after(self, self.base_fn)

    @property
    def changes_arguments(self) -> bool:
        """Whether hooks may change arrays that the kernel itself does not write."""
        return bool(self.hooks) or _are_hooked(self.configs)

    @property
    def do_bench(self) -> Callable[..., Any]:
        """What times one candidate: the user's function, or that of the active driver."""
        return self._measure.do_bench or do_bench

    @property
    def nargs(self) -> dict[str, Any]:
        """Positional arguments by name of the call that this thread makes."""
        named: dict[str, Any] = self._calls.get(threading.get_ident(), {})
        return named

    @nargs.setter
    def nargs(self, named: dict[str, Any]) -> None:
        if named:
            self._calls[threading.get_ident()] = named
        else:
            self._calls.pop(threading.get_ident(), None)

    def _check_names(self) -> None:
        ignored = [name for name in self.keys if name not in self.arg_names]
        if ignored:
            warnings.warn(
                f"autotune: the key names {', '.join(map(repr, ignored))}, which is no parameter of "
                f"{self.base_fn.fn.__name__} and is ignored; its parameters are {', '.join(self.arg_names)}",
                stacklevel=4,
            )
        for what, names in (("reset_to_zero", self.reset_to_zero), ("restore_value", self.restore_value)):
            unknown = [name for name in names if name not in self.arg_names]
            if unknown:
                raise LanguageValueError(
                    f"autotune: {what} names {', '.join(map(repr, unknown))}, "
                    f"but {self.base_fn.fn.__name__} has no such parameter",
                    hint=f"its parameters are {', '.join(self.arg_names)}",
                )

    check_disk_cache = Refusal(
        "Autotuner.check_disk_cache", "results are read and kept by a search; `autotune(cache_results=...)` asks for it"
    )

    # --- choosing ------------------------------------------------------------------------------------

    def launcher(self, grid: Grid) -> Callable[..., Any]:
        """What launches over `grid` with the best configuration for the arguments that it is called with."""
        return super().launcher(grid) if self._has_own_run else functools.partial(self._launch, grid)

    def run(self, *args: Any, grid: Grid, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`, or with `warmup` only compile; subclasses in libraries put their own before it."""
        if self._has_own_run and not warmup:
            return self._launch(grid, *args, **kwargs)
        return super().run(*args, grid=grid, warmup=warmup, **kwargs)

    def _launch(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args))
        try:
            key = self.tuning_key(kwargs)
            launch = self._choose(key, self._asked(args, kwargs, grid))
            self.best_config = launch.config
            launched = launch.make()
            if not self._has_own_run:
                self._known.remember(self, key, launch)
            return launched
        finally:
            self.nargs = {}

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Grid | None) -> Asked:
        return Asked(self.fn, args, kwargs, grid, dict(zip(self.arg_names, args)), self.hooks)

    def choice(self, key: tuple[Any, ...]) -> Config | None:
        """The configuration that launches of this tuning key have; None where it has not been sought."""
        return self.configs[0] if len(self.configs) == 1 else self.cache.get(key)

    def _choose(self, key: tuple[Any, ...], asked: Asked) -> ConfiguredLaunch:
        """The launch with the best configuration, which is sought where it is not known.

        One thread at a time searches: hooks keep for each run what they put back, and times would be of two searches.
        """
        found = self.choice(key)
        if found is None:
            with self._turns.setdefault(os.getpid(), threading.RLock()):  # in a forked child nobody has it
                found = self.choice(key)
                if found is None:
                    return self._sought(key, asked)
        return asked.launch(found)

    def _sought(self, key: tuple[Any, ...], asked: Asked) -> ConfiguredLaunch:
        """The launch with the best configuration for the arguments of a call, which are then what they were."""
        candidates = self.prune_configs(asked.kwargs)
        if len(candidates) == 1 or self.base_fn.is_interpreted:  # times of interpreted runs would say nothing
            self.cache[key] = candidates[0]
            return asked.launch(candidates[0])
        launches = asked.launches(candidates)
        config = self._search(key, candidates, asked, launches)
        self.cache[key] = config
        launches[config].reset()
        return launches[config]

    def tuning_key(self, kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of the `key` arguments, the dtype of every array, and the GPU of the launch in progress."""
        given = self.nargs | {name: value for name, value in kwargs.items() if name in self.arg_names}
        values = [given[name] for name in self.keys if name in given]
        dtypes = [str(array.dtype) for value in given.values() for array in arrays_of(value) if hasattr(array, "dtype")]
        ordinal = gpu_of(given.values())
        return (*values, *dtypes, *([] if ordinal is None else [f"cuda:{ordinal}"]))

    def _search(
        self,
        key: tuple[Any, ...],
        candidates: list[Config],
        asked: Asked,
        launches: Mapping[Config, ConfiguredLaunch],
    ) -> Config:
        begin = time.perf_counter()
        results, id, facts = self._results(key, candidates, gpu_of(asked.values()))
        keeps = self._keeps_results(candidates)
        outcomes = results.load(id, len(candidates)) if keeps else None
        from_disk = outcomes is not None
        if outcomes is None:
            if type(self)._bench is Autotuner._bench:
                timings = self._time_all(asked, launches)
            else:
                calls = {config: functools.partial(self._bench, *asked.args, config=config) for config in candidates}
                timings = {config: bench(grid=asked.grid, **asked.kwargs) for config, bench in calls.items()}
            if keeps:
                rows = [(config.all_kwargs(), self.failures.get(config, timings[config])) for config in candidates]
                results.store(id, facts, rows)
        else:
            found = dict(zip(candidates, outcomes, strict=True))
            self.failures = {config: it for config, it in found.items() if isinstance(it, Failure)}
            timings = {config: _NEVER if isinstance(it, Failure) else it for config, it in found.items()}
        config = min(timings, key=lambda candidate: self._rank(timings[candidate]))
        self.configs_timings, self.bench_time = timings, time.perf_counter() - begin
        self._tell(key, config, from_disk)
        return config

    def _tell(self, key: tuple[Any, ...], config: Config, from_disk: bool) -> None:
        """Tell whoever wants to know of the choice."""
        timings = self.configs_timings
        choice = describe_choice(self.base_fn.fn.__name__, key, config, timings, self.bench_time, from_disk)
        logs.tuning.info("%s", choice, extra={"kernel": self.base_fn.fn.__name__, "seconds": self.bench_time})
        for candidate, times in timings.items():
            failure = self.failures.get(candidate)
            logs.tuning.debug("  %s: %s", candidate, f"{times[0]:.4g} ms" if failure is None else failure.kind)
        if knobs.autotuning.print:
            print(choice)
            print(*describe_failures(self.failures), sep="\n", end="\n" if self.failures else "")
        listener = knobs.autotuning.listener
        if listener is not None:
            listener(
                fn=self.base_fn,
                key=key,
                best_config=config,
                configs_timings=timings,
                duration=None if from_disk else self.bench_time,
                cache_hit=from_disk,
            )

    def _rank(self, times: list[float]) -> list[float]:
        """What the smallest is sought of: time that other processes take only ever adds, so the low quantile first."""
        return times if self._measure.do_bench is not None else [times[1], times[0]]

    def _time_all(self, asked: Asked, launches: Mapping[Config, ConfiguredLaunch]) -> dict[Config, list[float]]:
        """[median, 20 %, 80 %] in milliseconds of every candidate; infinite for those that cannot run.

        Raises:
            Exception: of the first candidate, if none can run.
        """
        timings, errors = self._race(asked, launches)
        self.failures = {config: Failure.of(error) for config, error in errors.items()}
        if len(errors) == len(launches):
            raise next(errors[config] for config in launches)
        return {config: timings.get(config, list(_NEVER)) for config in launches}

    def _race(
        self, asked: Asked, launches: Mapping[Config, ConfiguredLaunch]
    ) -> tuple[dict[Config, list[float]], dict[Config, Exception]]:
        """Times of those that can run, and why the others cannot; arguments are then what they were, as records go."""
        if self.use_cuda_graph and gpu_of(asked.values()) is None:
            warnings.warn("autotune: use_cuda_graph means nothing on a CPU, which has no graphs", stacklevel=7)
        elif self.use_cuda_graph and (self.hooks or _are_hooked(launches)):
            warnings.warn("autotune: use_cuda_graph is not done where hooks must run between launches", stacklevel=7)
        race = Race(self.base_fn, launches, self._measure, self._executor(), self.check)
        try:
            return race.run(), race.errors
        finally:
            asked.records.put_back()

    def _executor(self) -> Executor | None:
        return knobs.autotuning.executor if self.executor is None else self.executor

    def _bench(self, *args: Any, config: Config, grid: Grid | None, warmup: bool = False, **meta: Any) -> list[float]:
        """Times of one candidate, infinite if it cannot run; for subclasses in libraries to call or to replace."""
        asked = self._asked(args, meta, grid)
        self.nargs = asked.nargs
        return self._race(asked, asked.launches([config]))[0].get(config, list(_NEVER))

    def _keeps_results(self, candidates: Sequence[Config]) -> bool:
        """Code of the user that no key covers (hooks, timers, checks) may change a choice: then it is kept if asked."""
        own = self._measure.do_bench or self.hooks.are_own or self.check
        wanted = self.cache_results or (knobs.autotuning.cache and not own)
        return wanted and not _are_hooked([*self.configs, *candidates]) and not knobs.cache.disabled

    def _results(
        self, key: tuple[Any, ...], candidates: list[Config], ordinal: int | None
    ) -> tuple[TuningResults, str, dict[str, Any]]:
        """Where the result of a search is kept, its id, and the facts that it is kept with."""
        target = target_at(HOST if ordinal is None else ordinal)
        name, source, version = self.base_fn.fn.__name__, self.base_fn.cache_key, fingerprint()
        head = {"kernel": name, "target": str(target), "source": source, "tilewright": version}
        file = f"{name}-{id_of([source, version, repr(target)])}.json"
        facts = {"key": [str(part) for part in key], "threads": knobs.cpu.num_threads}
        id = id_of([repr(facts), repr(key), *map(str, candidates)])
        return TuningResults(knobs.cache.dir / "tuning" / file, head), id, facts

    # --- pruning -------------------------------------------------------------------------------------

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """The candidates that are worth timing for the launch in progress.

        Raises:
            AutotunerError: `early_config_prune` left none.
        """
        found = list(self.configs)
        if self.early_config_prune is not None:
            found = list(self.early_config_prune(found, self.nargs, **kwargs))
            if not found:
                raise AutotunerError(
                    f"autotune: early_config_prune left no configuration of {self.base_fn.fn.__name__}",
                    hint="let it return at least one of the configurations that it is given",
                )
        if self.perf_model is None:
            return found
        top_k = self.configs_top_k
        if isinstance(top_k, float) and top_k <= 1.0:
            top_k = max(1, int(len(self.configs) * top_k))
        elif not isinstance(top_k, int):
            raise ArgumentError(f"autotune: top_k is an integer or a fraction up to 1.0, got {top_k!r}")
        if len(found) <= top_k:
            return found
        model = self.perf_model
        return sorted(found, key=lambda config: model(**self.nargs, **kwargs, **config.all_kwargs()))[:top_k]

    def warmup(self, *args: Any, grid: Grid | None = None, **kwargs: Any) -> list[Any]:
        """Compile every configuration that pruning leaves, without launching; returns the compiled kernels."""
        asked = self._asked(args, kwargs, grid)
        self.nargs = asked.nargs
        try:
            candidates = self.configs if len(self.configs) == 1 else self.prune_configs(kwargs)
            return [launch.compile() for launch in asked.launches(candidates).values()]
        finally:
            asked.records.put_back()
            self.nargs = {}


def _are_hooked(configs: Iterable[Config]) -> bool:
    return any(config.pre_hook is not None for config in configs)


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Hook | None = None,
    post_hook: Hook | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
    *,
    check: Callable[[dict[str, Any]], Any] | None = None,
    executor: Executor | None = None,
) -> Callable[[Any], Autotuner]:
    """Decorate a kernel so that it finds the fastest of `configs` by itself.

    The kernel runs many times during a search: what it updates in place belongs in `reset_to_zero` or
    `restore_value`.

    Args:
        configs: candidates.
        key: names of arguments; a launch where one of them (or a dtype) is new starts a search.
        prune_configs_by: "early_config_prune": `f(configs, named_args, **kwargs)` gives the candidates to keep;
            "perf_model": `f(**args)` estimates a time, and "top_k" (a number, or a fraction of all) are kept.
        reset_to_zero: arrays zeroed before each run of a search and before the launch that follows.
        restore_value: arrays put back after each run of a search.
        pre_hook: `f(args, reset_only=False)` in place of what these two do before a run.
        post_hook: `f(args, exception=None)` in place of what they do after it.
        warmup: milliseconds of warm-up, for all candidates together as they take turns; default 25.
        rep: milliseconds of timing for each candidate that is in the race to its end; default 100.
        use_cuda_graph: time launches from a graph of many; warns on the CPU, which has none.
        do_bench: `f(call, quantiles=...)` that times a candidate instead.
        cache_results: keep the result on disk even if code of the user (`do_bench`, hooks, `check`) had a part in it;
            other results are kept unless the knob `autotuning.cache` is off.
        check: `f(args)` gets all arguments by name after one run of each candidate; a candidate for which it returns
            False or raises AssertionError is out, with a "wrong result".
        executor: any `concurrent.futures.Executor`: compiles and measures the candidates (also the knob
            `autotuning.executor`); arguments must pickle, and grids are evaluated here. By default as many processes
            as there are cores compile, and this process measures.

    Raises:
        LanguageValueError: a name in `key`, `reset_to_zero` or `restore_value` is no parameter.
    """

    def decorate(fn: Any) -> Autotuner:
        names = list(inspect.signature(kernel_of(fn).fn).parameters)
        options: dict[str, Any] = {"warmup": warmup, "rep": rep, "do_bench": do_bench, "cache_results": cache_results}
        options.update(use_cuda_graph=use_cuda_graph, check=check, executor=executor)
        options.update(pre_hook=pre_hook, post_hook=post_hook, prune_configs_by=prune_configs_by)
        return Autotuner(fn, names, configs, key, reset_to_zero, restore_value, **options)

    return decorate
