"""`Settings`: how a kernel is treated, as against the choices of a `Config`.

An argument of `hl.kernel` wins over the environment (`TILEWRIGHT_HL_` and the name in capitals), which is read when the
kernel is made; in a process that poses as Helion its variables stand in.
"""

from __future__ import annotations

import difflib
import enum
import json
import os
from pathlib import Path
from typing import Any

import torch

from tilewright.hl import environment, exc


class RefMode(enum.Enum):
    """Whether a kernel runs as plain Python: not; with whole ranges as tiles; with tiles of the configured sizes."""

    OFF = "off"
    EAGER = "eager"
    TILED = "tiled"


_DEFAULTS: dict[str, Any] = {
    "static_shapes": True,
    "check_trace": True,
    "fast_math": False,
    "dot_precision": "",
    "index_dtype": None,
    "ref_mode": RefMode.OFF,
    "print_output_code": False,
    "ignore_warnings": [],
    "force_autotune": False,
    "autotune_effort": "auto",
    "autotune_budget_seconds": 0.0,
    "autotune_max_generations": 0,
    "autotune_random_seed": 0,
    "autotune_accuracy_check": True,
    "autotune_baseline_fn": None,
    "autotune_baseline_atol": 1e-2,
    "autotune_baseline_rtol": 1e-2,
    "autotune_seed_configs": None,
    "autotune_config_overrides": None,
    "autotune_config_filter": None,
    "autotune_precompile_jobs": 0,
    "autotune_compile_timeout": 60.0,
    "autotune_benchmark_timeout": 30.0,
    "autotune_benchmark_subprocess": True,
    "autotune_devices": None,
    "autotuner_fn": None,
    "autotune_log_level": 1,
    "autotune_progress_bar": True,
    "skip_cache": False,
}

WITHOUT_MEANING = frozenset(
    """
    allow_warp_specialize autotune_adaptive_timeout autotune_baseline_accuracy_check_fn autotune_benchmark_fn
    autotune_handoff autotune_handoff_budget_seconds cute_flatten_nested_reductions cute_full_slice_matmul_tiling
    cute_materialize_transformed_operands cute_region_fission cute_rng_stream cute_segmented_matmul_tiling
    pallas_collective_id pallas_interpret pallas_topk_recall_target
    autotune_best_available_max_cache_scan autotune_best_available_max_configs autotune_best_of_k autotune_cache
    autotune_force_persistent autotune_ignore_errors autotune_initial_population_strategy autotune_log
    autotune_log_details autotune_log_search_space autotune_log_search_space_path
    autotune_log_search_space_verbose autotune_precompile autotune_rebenchmark_threshold autotune_search_acf
    autotune_suspicious_rebenchmark_ratio autotune_with_torch_compile_fusion backend debug_dtype_asserts
    disable_autotuner_heuristics distributed output_origin_lines persistent_reserved_sms
    print_repro torch_compile_fusion triton_do_not_specialize
    """.split()  # noqa: SIM905
)
"""Settings of Helion that are accepted and change nothing here."""

_OF_TUNING = ("autotune", "force_autotune", "skip_cache", "print_output_code")

_EFFORTS = ("auto", "none", "quick", "full")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


class Settings:
    """How a kernel is traced, compiled, tuned and run.

    Args:
        given: settings by name; those left out come from the environment, else from the defaults.

    Attributes:
        static_shapes: sizes and strides of arguments are constants of the compiled kernel.
        check_trace: trace twice with other samples, to find invented numbers that reach the code.
        fast_math: 16-bit values stay float32 between operations of a chain.
        dot_precision: what products of float32 are computed with; "" for the default of the device.
        index_dtype: `torch.int32` or `torch.int64` for indices and offsets; None for what the tensors need.
        ref_mode: run as plain Python instead.
        print_output_code: print the generated module when a configuration is compiled first.
        ignore_warnings: classes of warnings that are not given, of `exc.BaseWarning`; names in the environment, with
            commas between them.
        force_autotune: tune at the first call, whatever is known.
        autotune_effort: "auto" (what was found before, else the default), "none" (the default), "quick" or "full".
        autotune_budget_seconds: how long a search may take; 0 for what the effort says.
        autotune_max_generations: how many rounds a search has behind the first; 0 for as many as there is time for.
        autotune_random_seed: of the search: with the same times it tries the same configurations.
        autotune_accuracy_check: refuse configurations whose results differ from the baseline's.
        autotune_baseline_fn: computes the results to compare with; None for the default configuration.
        autotune_baseline_atol: absolute tolerance of the check.
        autotune_baseline_rtol: relative tolerance of the check; of a small element, the tolerance is that of the root
            of the mean square.
        autotune_seed_configs: configurations that a search begins with.
        autotune_config_overrides: choices that every configuration of a search has.
        autotune_config_filter: says of a configuration whether it may be tried.
        autotune_precompile_jobs: processes that compile candidates; 0 for one a core.
        autotune_compile_timeout: seconds that compiling a candidate may take.
        autotune_benchmark_timeout: seconds that one run of a candidate may take.
        autotune_benchmark_subprocess: candidates run in a process of their own, so that one that crashes is all that is
            lost.
        autotune_devices: GPUs that measure, as a list, or "all"; None for the one that the arguments are on.
        autotuner_fn: the strategy of a search: "random", "pattern", "differential_evolution", "surrogate", or a
            function that is called with the binding and the arguments and gives an object with
            `propose(space, times, count)`.
        autotune_log_level: 0 says nothing, 1 the progress and the result, 2 every candidate.
        autotune_progress_bar: show how a search is doing.
        skip_cache: use and keep no results of tuning.

    Raises:
        InvalidAPIUsage: a name that no setting has, or a value in the environment that it cannot have.
    """

    static_shapes: bool
    check_trace: bool
    fast_math: bool
    dot_precision: str
    index_dtype: Any
    ref_mode: RefMode
    print_output_code: bool
    ignore_warnings: Any
    force_autotune: bool
    autotune_effort: str
    autotune_budget_seconds: float
    autotune_max_generations: int
    autotune_random_seed: int
    autotune_accuracy_check: bool
    autotune_baseline_fn: Any
    autotune_baseline_atol: float
    autotune_baseline_rtol: float
    autotune_seed_configs: Any
    autotune_config_overrides: Any
    autotune_config_filter: Any
    autotune_precompile_jobs: int
    autotune_compile_timeout: float
    autotune_benchmark_timeout: float
    autotune_benchmark_subprocess: bool
    autotune_devices: Any
    autotuner_fn: Any
    autotune_log_level: int
    autotune_progress_bar: bool
    skip_cache: bool

    def __init__(self, **given: Any) -> None:
        for name in given:
            if name not in _DEFAULTS and name not in WITHOUT_MEANING:
                near = difflib.get_close_matches(name, [*_DEFAULTS, *WITHOUT_MEANING], 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_DEFAULTS)}"
                raise exc.InvalidAPIUsage(f"hl.kernel has no setting {name!r}", hint=hint)
        for name, default in _DEFAULTS.items():
            setattr(self, name, given[name] if name in given else _from_environment(name, default))
        if isinstance(self.index_dtype, str):
            self.index_dtype = getattr(torch, self.index_dtype.removeprefix("torch."), self.index_dtype)
        self.ignore_warnings = _warnings(self.ignore_warnings)
        if self.index_dtype not in (None, torch.int32, torch.int64):
            raise exc.InvalidAPIUsage(f"index_dtype={self.index_dtype!r}", hint="torch.int32, torch.int64 or None")
        if self.autotune_effort not in (None, *_EFFORTS):
            raise exc.InvalidAPIUsage(
                f"autotune_effort={self.autotune_effort!r}", hint=f"one of {', '.join(map(repr, _EFFORTS))}"
            )

    @classmethod
    def default(cls) -> Settings:
        """The settings of a kernel that says nothing of them: those of the environment, and the defaults."""
        return cls()

    def changed(self, tuning: bool = True) -> str:
        """The settings that are not the defaults, as arguments of `hl.kernel`; with those of tuning or without."""
        changed = [name for name, default in _DEFAULTS.items() if getattr(self, name) != default]
        changed = [name for name in changed if tuning or not name.startswith(_OF_TUNING)]
        return ", ".join(f"{name}={_shown(getattr(self, name))}" for name in changed)

    def __repr__(self) -> str:
        return f"{environment.package()}.Settings({self.changed()})"


def _warnings(given: Any) -> list[type[exc.BaseWarning]]:
    """The classes of warnings that a setting names."""
    kinds = list(given) if isinstance(given, list | tuple) else [] if given is None else [given]
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, exc.BaseWarning)):
            raise exc.InvalidAPIUsage(
                f"ignore_warnings={given!r}", hint="give a list of classes, for instance [hl.exc.OverwrittenStore]"
            )
    return kinds


def _shown(value: Any) -> str:
    package = environment.package()
    if isinstance(value, list) and value and isinstance(value[0], type):
        return f"[{', '.join(f'{package}.exc.{kind.__name__}' for kind in value)}]"
    return f"{package}.{value}" if isinstance(value, RefMode) else repr(value)


def _from_environment(name: str, default: Any) -> Any:
    variable, text = environment.read(name)
    if name == "ref_mode":
        if text in {mode.value for mode in RefMode} - {*_TRUE, *_FALSE}:
            return RefMode(text)
        switch = ("TILEWRIGHT_HL_INTERPRET", os.environ.get("TILEWRIGHT_HL_INTERPRET", ""))
        return RefMode.EAGER if _is_on(*((variable, text) if text else switch)) else default
    if text is None:
        return default
    if isinstance(default, bool):
        return _is_on(variable, text)
    try:
        return _read(name, text, default)
    except ValueError:
        raise exc.InvalidAPIUsage(f"the environment variable {variable} is {text!r}", hint="give a number") from None


def _is_on(variable: str, text: str) -> bool:
    """What a switch of the environment says."""
    if text.lower() not in (*_TRUE, *_FALSE):
        raise exc.InvalidAPIUsage(f"the environment variable {variable} is {text!r}", hint="give 1 or 0")
    return text.lower() in _TRUE


def _read(name: str, text: str, default: Any) -> Any:
    if name == "autotune_config_overrides":  # JSON, or a file of it
        return json.loads(text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8"))
    if name == "index_dtype" and text == "auto":
        return default
    if name == "ignore_warnings":
        return [getattr(exc, kind.strip().rpartition(".")[2], kind) for kind in text.split(",") if kind.strip()]
    return type(default)(text) if default is not None else text
