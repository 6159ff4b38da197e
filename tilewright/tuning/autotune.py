"""`@autotune` and `@heuristics`: choose the compile-time parameters of a kernel from the arguments of a launch.

    kernel[grid](*args) -> key of the arguments -> known: launch with the configuration found before
                                                -> new: prune, time the candidates in turns, remember, launch

Names, arguments and attributes are Triton's. What differs: candidates are timed in turns (A B A B ...), so that other
work on the machine hits all alike, a clearly slower one drops out early, and hooks are not part of the time.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.callable import BlockFunction, give_number
from tilewright.base.disk_cache import disk_cache
from tilewright.base.errors import (
    ArgumentError,
    AutotunerError,
    CompileTimeAssertionFailure,
    LanguageValueError,
    OutOfResources,
)
from tilewright.base.knobs import knobs
from tilewright.compile.request import fingerprint
from tilewright.devices.arrays import HOST
from tilewright.devices.drivers import target_at
from tilewright.devices.places import gpu_of
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction
from tilewright.tuning.bench import GpuClock, do_bench
from tilewright.tuning.known import KnownChoices
from tilewright.tuning.report import TuningRecord, describe_choice
from tilewright.tuning.search import Candidate, quantiles_of, time_in_turns

Hook = Callable[..., Any]
_QUANTILES = (0.5, 0.2, 0.8)
_WARMUP_MS, _REP_MS = 25.0, 100.0
_REFUSALS = (OutOfResources, CompileTimeAssertionFailure)


class Config:
    """One set of compile-time parameters and launch options to try.

    Args:
        kwargs: values of meta-parameters by name.
        num_warps: option of the launch; changes nothing on the CPU.
        num_stages: option of the launch; changes nothing on the CPU.
        num_ctas: option of the launch; changes nothing on the CPU.
        maxnreg: option of the launch; changes nothing on the CPU.
        pre_hook: called with the dictionary of all arguments before each run with this configuration.
        ir_override: file with tile IR to use instead of the kernel's own; not supported on the CPU.
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Hook | None = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs = dict(kwargs)
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = num_warps, num_stages, num_ctas, maxnreg
        self.pre_hook, self.ir_override = pre_hook, ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """Every keyword of a launch with this configuration; options that are None are left out."""
        options = {
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
            "ir_override": self.ir_override,
        }
        return self.kwargs | {name: value for name, value in options.items() if value is not None}

    def _identity(self) -> tuple[Any, ...]:
        return (tuple(self.all_kwargs().items()), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __str__(self) -> str:
        rows = [f"{name}: {value}" for name, value in self.kwargs.items()]
        rows += [f"num_warps: {self.num_warps}", f"num_ctas: {self.num_ctas}", f"num_stages: {self.num_stages}"]
        return ", ".join([*rows, f"maxnreg: {self.maxnreg}"])

    def __repr__(self) -> str:
        return f"Config({self})"


@dataclass(frozen=True, slots=True)
class _Measure:
    """How candidates are timed: milliseconds of warm-up and of timing each, or the user's own function."""

    warmup: float
    rep: float
    do_bench: Callable[..., Any] | None


class Autotuner(KernelInterface[Any]):
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
        warmup, rep: milliseconds of warm-up and of timing for each candidate.
        use_cuda_graph: kept for tools; candidates are timed without graphs.
        do_bench: times one candidate: `do_bench(call, quantiles=(0.5, 0.2, 0.8))`.
        cache_results: keep choices on disk.

    The choice falls on the lowest 20 % quantile; with `do_bench` on the first of the times that it returns.

    Attributes:
        cache: tuning key -> Config. configs_timings: Config -> [median, 20 %, 80 %] in ms of the last search.
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
    ) -> None:
        self.fn, self.arg_names = fn, list(arg_names)
        self.base_fn = _kernel_of(fn)
        self.configs = list(configs) or [Config({})]
        self.keys, self.cache_results = list(key), cache_results
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self._check_names()
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self._has_hooks = bool(pre_hook or post_hook or self.reset_to_zero or self.restore_value)
        self._saved: dict[str, Any] = {}
        self.pre_hook: Hook = pre_hook or self._prepare
        self.post_hook: Hook = post_hook or self._put_back
        pruning = dict(prune_configs_by or {})
        self.early_config_prune = pruning.get("early_config_prune")
        self.perf_model = pruning.get("perf_model")
        self.configs_top_k = pruning.get("top_k", 1.0)
        self._measure = _Measure(_WARMUP_MS if warmup is None else warmup, _REP_MS if rep is None else rep, do_bench)
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.configs_timings: dict[Config, list[float]] = {}
        self.best_config: Config | None = None
        self.bench_time = 0.0
        self.nargs: dict[str, Any] = {}
        self._known = KnownChoices()
        self.number = give_number(self)
        _named_after(self, self.base_fn)

    @property
    def changes_arguments(self) -> bool:
        """Whether hooks may change arrays that the kernel itself does not write."""
        return self._has_hooks or any(config.pre_hook is not None for config in self.configs)

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

    # --- hooks ---------------------------------------------------------------------------------------

    def _prepare(self, args: Mapping[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            if args.get(name) is not None:
                _fill_zero(args[name])
        if not reset_only:
            self._saved = {name: _copy(args[name]) for name in self.restore_value if args.get(name) is not None}

    def _put_back(self, args: Mapping[str, Any], exception: BaseException | None = None) -> None:
        for name, saved in self._saved.items():
            _assign(args[name], saved)
        self._saved = {}

    # --- choosing ------------------------------------------------------------------------------------

    def launcher(self, grid: Any) -> Callable[..., Any]:
        """What launches over `grid` with the best configuration for the arguments that it is called with."""
        return functools.partial(self._launch, grid)

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args))
        try:
            config = self._choose(args, kwargs, grid)
            self.best_config = config
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            launched = self.fn.run(*args, grid=grid, **kwargs, **config.all_kwargs())
            self._known.remember(self, self.tuning_key(kwargs), config, args, kwargs)
            return launched
        finally:
            self.nargs = {}

    def choice(self, key: tuple[Any, ...]) -> Config | None:
        """The configuration that launches of this tuning key have; None where it has not been sought."""
        return self.configs[0] if len(self.configs) == 1 else self.cache.get(key)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Config:
        key = self.tuning_key(kwargs)
        found = self.choice(key)
        if found is not None:
            return found
        candidates = self.prune_configs(kwargs)
        if len(candidates) == 1 or self.base_fn.is_interpreted:  # times of interpreted runs would say nothing
            config = candidates[0]
        else:
            config = self._search(key, candidates, args, kwargs, grid)
        self.cache[key] = config
        return config

    def tuning_key(self, kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of the `key` arguments, the dtype of every array, and the GPU of the launch in progress."""
        given = self.nargs | {name: value for name, value in kwargs.items() if name in self.arg_names}
        values = [given[name] for name in self.keys if name in given]
        dtypes = [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
        ordinal = gpu_of(given.values())
        return (*values, *dtypes, *([] if ordinal is None else [f"cuda:{ordinal}"]))

    def _search(
        self, key: tuple[Any, ...], candidates: list[Config], args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> Config:
        begin = time.perf_counter()
        ordinal = gpu_of([*self.nargs.values(), *kwargs.values()])
        record = TuningRecord(disk_cache(), self._disk_key(key, candidates, ordinal)) if self._keeps_results() else None
        timings = record.load(candidates) if record is not None else None
        from_disk = timings is not None
        if timings is None:
            timings = self._time_all(candidates, args, kwargs, grid)
            if record is not None:
                record.store(candidates, timings)
        config = min(timings, key=lambda candidate: self._rank(timings[candidate]))
        self.configs_timings, self.bench_time = timings, time.perf_counter() - begin
        self.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()}, reset_only=True)
        if knobs.autotuning.print:
            print(describe_choice(self.base_fn.fn.__name__, key, config, timings, self.bench_time, from_disk))
        listener = knobs.autotuning.listener
        if listener is not None:
            listener(
                fn=self.base_fn,
                key=key,
                best_config=config,
                configs_timings=timings,
                duration=self.bench_time,
                cache_hit=from_disk,
            )
        return config

    def _rank(self, times: list[float]) -> list[float]:
        """What the smallest is sought of: time that other processes take only ever adds, so the low quantile first."""
        return times if self._measure.do_bench is not None else [times[1], times[0]]

    def _time_all(
        self, candidates: list[Config], args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> dict[Config, list[float]]:
        """[median, 20 %, 80 %] in milliseconds of every candidate; infinite for those that cannot run."""
        measure, ordinal = self._measure, gpu_of([*self.nargs.values(), *kwargs.values()])
        bench = measure.do_bench
        if bench is None and ordinal is not None:  # launches return early there: the GPU's own clock counts
            bench = functools.partial(do_bench, warmup=measure.warmup, rep=measure.rep, clock=GpuClock(ordinal))
        timings: dict[Config, list[float]] = {}
        runs: dict[Config, Candidate] = {}
        for config in candidates:
            runs[config] = self._candidate(config, args, kwargs, grid)
            if bench is not None:
                timings[config] = _bench_by(bench, runs[config])
        if bench is None:
            times, refused = time_in_turns(runs, measure.warmup, measure.rep, _REFUSALS)
            timings = {config: quantiles_of(times[config], _QUANTILES) for config in candidates if config in times}
            timings |= {config: [float("inf")] * 3 for config in refused}
            if not times and refused:
                raise next(iter(refused.values()))
        return timings

    def _bench(self, *args: Any, config: Config, grid: Any, **meta: Any) -> list[float]:
        """Times of one candidate, under the name by which subclasses in libraries call it."""
        self.nargs = dict(zip(self.arg_names, args))
        return self._time_all([config], args, meta, grid)[config]

    def _candidate(self, config: Config, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Candidate:
        clash = kwargs.keys() & config.kwargs.keys()
        if clash:
            raise LanguageValueError(
                f"Conflicting meta-parameters: {', '.join(sorted(clash))}",
                hint="the autotuner chooses them: do not pass them at the launch",
            )
        current = {**kwargs, **config.all_kwargs()}
        full = {**self.nargs, **current}
        run = functools.partial(self.fn.run, *args, grid=grid, **current)
        if config.pre_hook is None and not self._has_hooks:
            return Candidate(run)

        def before() -> None:
            if config.pre_hook is not None:
                config.pre_hook(full)
            self.pre_hook(full)

        def after(error: BaseException | None) -> None:
            self.post_hook(full, exception=error)

        return Candidate(run, before, after)

    def _keeps_results(self) -> bool:
        """Hooks are code of the user that no key covers, so choices that they may change are not kept."""
        wanted = self.cache_results or knobs.autotuning.cache
        return wanted and not any(config.pre_hook for config in self.configs) and not knobs.cache.disabled

    def _disk_key(self, key: tuple[Any, ...], candidates: list[Config], ordinal: int | None) -> str:
        target = target_at(HOST if ordinal is None else ordinal)
        parts = [fingerprint(), self.base_fn.cache_key, repr(target), repr(knobs.cpu.num_threads), repr(key)]
        text = "\0".join([*parts, *map(str, candidates)])
        return f"at{hashlib.sha256(text.encode()).hexdigest()}"

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

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> list[Any]:
        """Compile every configuration that pruning leaves, without launching; returns the compiled kernels."""
        self.nargs = dict(zip(self.arg_names, args))
        try:
            candidates = self.configs if len(self.configs) == 1 else self.prune_configs(kwargs)
            return [self.fn.warmup(*args, grid=grid, **kwargs, **config.all_kwargs()) for config in candidates]
        finally:
            self.nargs = {}


class Heuristics(KernelInterface[Any]):
    """A kernel some of whose compile-time parameters are computed from its arguments; made by `heuristics`.

    Args:
        fn: a kernel, or an `Autotuner` or `Heuristics` around one.
        arg_names: its parameters.
        values: parameter -> function from the dictionary of arguments to its value.
    """

    def __init__(
        self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        self.fn, self.arg_names, self.values = fn, list(arg_names), dict(values)
        self.base_fn = _kernel_of(fn)
        self.number = give_number(self)
        _named_after(self, self.base_fn)

    def _computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        for name, compute in self.values.items():  # in order: a later one sees what an earlier one gave
            kwargs[name] = compute({**dict(zip(self.arg_names, args)), **kwargs})
        return kwargs

    def launcher(self, grid: Any) -> Callable[..., Any]:
        """What launches over `grid` with the computed parameters."""
        return functools.partial(self._launch, grid)

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, grid=grid, **self._computed(args, kwargs))

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile with the computed parameters, without launching."""
        return self.fn.warmup(*args, grid=grid, **self._computed(args, kwargs))


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
        warmup: milliseconds of warm-up for each candidate; default 25.
        rep: milliseconds of timing for each candidate; default 100.
        use_cuda_graph: accepted; it means nothing on the CPU.
        do_bench: `f(call, quantiles=...)` that times a candidate instead.
        cache_results: keep the choice on disk (also the knob `autotuning.cache`).

    Raises:
        LanguageValueError: a name in `key`, `reset_to_zero` or `restore_value` is no parameter.
    """

    def decorate(fn: Any) -> Autotuner:
        names = list(inspect.signature(_kernel_of(fn).fn).parameters)
        options: dict[str, Any] = {"warmup": warmup, "rep": rep, "do_bench": do_bench, "cache_results": cache_results}
        options.update(use_cuda_graph=use_cuda_graph)
        options.update(pre_hook=pre_hook, post_hook=post_hook, prune_configs_by=prune_configs_by)
        return Autotuner(fn, names, configs, key, reset_to_zero, restore_value, **options)

    return decorate


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorate a kernel so that some compile-time parameters follow from its arguments.

    Args:
        values: parameter name -> function of the dictionary of arguments (by name) that gives its value.
    """

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, list(inspect.signature(_kernel_of(fn).fn).parameters), values)

    return decorate


def _named_after(wrapper: Any, kernel: JITFunction) -> None:
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(kernel.fn, name):
            setattr(wrapper, name, getattr(kernel.fn, name))


def _kernel_of(fn: Any) -> JITFunction:
    """The kernel inside any number of autotuners and heuristics."""
    inner = fn
    while not isinstance(inner, BlockFunction) and hasattr(inner, "fn"):
        inner = inner.fn
    if not isinstance(inner, JITFunction):
        raise ArgumentError(
            f"autotune and heuristics decorate a kernel, got {type(fn).__name__}",
            hint="put @tilewright.jit directly above the function, below them",
        )
    return inner


def _bench_by(do_bench: Callable[..., Any], candidate: Candidate) -> list[float]:
    """Times that the user's function reports; infinite when the candidate cannot run."""
    try:
        found = do_bench(candidate.once, quantiles=_QUANTILES)
    except _REFUSALS:
        return [float("inf")] * 3
    return [float(value) for value in found] if isinstance(found, Iterable) else [float(found)] * 3


# --- arrays of any library ------------------------------------------------------------------------------


def _copy(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()


def _assign(array: Any, saved: Any) -> None:
    if hasattr(array, "copy_"):
        array.copy_(saved)
    else:
        array[...] = saved


def _fill_zero(array: Any) -> None:
    if hasattr(array, "zero_"):
        array.zero_()
    else:
        array[...] = 0
