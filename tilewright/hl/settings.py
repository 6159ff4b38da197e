"""`Settings`: how a kernel is treated, as against the choices of a `Config`.

An argument of `hl.kernel` wins over the environment (`TILEWRIGHT_HL_` and the name in capitals), which is read when the
kernel is made.
"""

from __future__ import annotations

import difflib
import enum
import os
from typing import Any

import torch

from tilewright.hl import exc


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
    "force_autotune": False,
    "autotune_effort": "auto",
    "autotune_budget_seconds": 0.0,
    "autotune_max_generations": 20,
    "autotune_random_seed": 0,
    "autotune_accuracy_check": True,
    "autotune_baseline_fn": None,
    "autotune_baseline_atol": 1e-2,
    "autotune_baseline_rtol": 1e-2,
    "autotune_seed_configs": None,
    "autotune_config_overrides": None,
    "autotune_config_filter": None,
    "autotune_precompile_jobs": 0,
    "autotune_log_level": 1,
    "skip_cache": False,
}

WITHOUT_MEANING = frozenset(
    """
    allow_warp_specialize autotune_adaptive_timeout autotune_baseline_accuracy_check_fn autotune_benchmark_fn
    autotune_benchmark_subprocess autotune_benchmark_timeout autotune_best_available_max_cache_scan
    autotune_best_available_max_configs autotune_best_of_k autotune_cache autotune_compile_timeout
    autotune_force_persistent autotune_ignore_errors autotune_initial_population_strategy autotune_log
    autotune_log_details autotune_log_search_space autotune_log_search_space_path autotune_log_search_space_verbose
    autotune_precompile autotune_progress_bar autotune_rebenchmark_threshold autotune_search_acf
    autotune_suspicious_rebenchmark_ratio autotune_with_torch_compile_fusion autotuner_fn backend debug_dtype_asserts
    disable_autotuner_heuristics distributed ignore_warnings output_origin_lines persistent_reserved_sms
    print_repro torch_compile_fusion triton_do_not_specialize
    """.split()  # noqa: SIM905
)
"""Settings of Helion that are accepted and change nothing here."""

_TRUE = ("1", "true", "yes", "on")


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
        force_autotune: tune at the first call, whatever is known.
        autotune_effort: "auto" (what was found before, else the default), "none" (the default), "quick" or "full".
        autotune_budget_seconds: how long a search may take; 0 for what the effort says.
        autotune_max_generations: how many rounds of neighbours a search tries.
        autotune_random_seed: of the random configurations.
        autotune_accuracy_check: refuse configurations whose results differ from the baseline's.
        autotune_baseline_fn: computes the results to compare with; None for the default configuration.
        autotune_baseline_atol: absolute tolerance of the check.
        autotune_baseline_rtol: relative tolerance of the check; of a small element, the tolerance is that of the root
            of the mean square.
        autotune_seed_configs: configurations that a search begins with.
        autotune_config_overrides: choices that every configuration of a search has.
        autotune_config_filter: says of a configuration whether it may be tried.
        autotune_precompile_jobs: threads that compile candidates; 0 for all.
        autotune_log_level: 0 says nothing, 1 the result, 2 every candidate.
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
    autotune_log_level: int
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
            self.index_dtype = getattr(torch, self.index_dtype.removeprefix("torch."), None)
        if self.index_dtype not in (None, torch.int32, torch.int64):
            raise exc.InvalidAPIUsage(f"index_dtype={self.index_dtype!r}", hint="torch.int32, torch.int64 or None")

    def __repr__(self) -> str:
        changed = (name for name, default in _DEFAULTS.items() if getattr(self, name) != default)
        return f"hl.Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"


def _from_environment(name: str, default: Any) -> Any:
    variable = f"TILEWRIGHT_HL_{name.upper()}"
    text = os.environ.get(variable)
    if name == "ref_mode":
        eager = os.environ.get("TILEWRIGHT_HL_INTERPRET", "").lower() in _TRUE
        return RefMode(text) if text else RefMode.EAGER if eager else default
    if text is None:
        return default
    if isinstance(default, bool):
        return text.lower() in _TRUE
    try:
        return type(default)(text) if default is not None else text
    except ValueError:
        raise exc.InvalidAPIUsage(f"the environment variable {variable} is {text!r}", hint="give a number") from None
