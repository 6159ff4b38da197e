"""docs/hl_helion.md says of every name of Helion 1.5 whether it works, is ignored, comes later or is refused."""

from __future__ import annotations

import re

import pytest

from tests.meta.sources import ROOT
from tilewright import hl
from tilewright.hl import exc, settings
from tilewright.hl.tune.keys import KEYS

PAGE = (ROOT / "docs" / "hl_helion.md").read_text(encoding="utf-8")
MANUAL = (ROOT / "docs" / "hl.md").read_text(encoding="utf-8")

LANGUAGE = """
    AsyncCopyDescriptor ConstExpr ProcessGroupName StackTensor Tile arange associative_scan atomic_add
    atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor barrier breakpoint constexpr
    cumprod cumsum device_print dot dot_scaled float4_e2m1fn_x2_to_float32 full grid inline_asm_elementwise
    inline_triton jagged_tile join load load_bfloat16_x16_to_float16 load_float4_e2m1fn_x16_to_float16
    make_async_remote_copy pdl_launch_dependents pdl_wait rand rand4x randint reduce register_block_size
    register_tunable remote_barrier specialize split stacktensor_like static_range store subscript tile
    tile_begin tile_block_size tile_end tile_id tile_index triton_kernel zeros
"""
CONFIGURATION = """
    advanced_controls_file atomic_indexing block_sizes cross_loop_pipeline epilogue_subtile flatten_loops
    host_tensor_descriptors indexing l2_groupings load_cache_modifiers load_eviction_policies loop_orders
    matrix_instr_nonkdim maxnreg num_ctas num_sm_multiplier num_stages num_threads num_warps occupancy pid_type
    range_flattens range_multi_buffers range_num_stages range_unroll_factors range_warp_specializes
    reduction_fusion reduction_loops static_ranges store_cache_modifiers waves_per_eu xcd_remap
"""
SETTINGS = """
    allow_warp_specialize autotune_accuracy_check autotune_adaptive_timeout autotune_baseline_accuracy_check_fn
    autotune_baseline_atol autotune_baseline_fn autotune_baseline_rtol autotune_benchmark_fn
    autotune_benchmark_subprocess autotune_benchmark_timeout autotune_best_available_max_cache_scan
    autotune_best_available_max_configs autotune_best_of_k autotune_budget_seconds autotune_cache
    autotune_compile_timeout autotune_config_filter autotune_config_overrides autotune_effort
    autotune_force_persistent autotune_ignore_errors autotune_initial_population_strategy autotune_log
    autotune_log_details autotune_log_level autotune_log_search_space autotune_log_search_space_path
    autotune_log_search_space_verbose autotune_max_generations autotune_precompile autotune_precompile_jobs
    autotune_progress_bar autotune_random_seed autotune_rebenchmark_threshold autotune_search_acf
    autotune_seed_configs autotune_suspicious_rebenchmark_ratio autotune_with_torch_compile_fusion autotuner_fn
    backend debug_dtype_asserts disable_autotuner_heuristics distributed dot_precision fast_math force_autotune
    ignore_warnings index_dtype output_origin_lines persistent_reserved_sms print_output_code print_repro
    ref_mode static_shapes torch_compile_fusion triton_do_not_specialize
"""
OBJECTS = """
    kernel jit Kernel Config Settings RefMode cdiv next_power_of_2 exc language autotuner OutputCodeOptions
    aot_kernel from_cache runtime fn signature settings configs kernel_source bind specialization_key
    normalize_args autotune autotune_multi reset jax_fn config_spec to_code to_triton_code compile_config
    set_config ensure_config_exists get_cached_path format_kernel_decorator run_ref env bench_compile_config
    backend_cache_key maybe_log_repro is_cacheable supports_subprocess_benchmark extra_cache_key from_dict
    minimize to_json from_json RandomSearch PatternSearch FiniteSearch DifferentialEvolutionSearch
    DESurrogateHybrid LFBOPatternSearch LFBOTreeSearch LLMGuidedSearch LLMSeededSearch LLMSeededLFBOTreeSearch
"""


def _states():
    """name -> state, of the tables with one."""
    found = {}
    for line in PAGE.splitlines():
        cells = line.split("|")
        if len(cells) > 3 and cells[2].strip().split(" ")[0] in ("works", "ignored", "later", "refused"):
            for name in re.findall(r"`([\w.]+)`", cells[1]):
                found[name.rsplit(".", 1)[-1]] = cells[2].strip()
    return found


@pytest.mark.parametrize("name", [*LANGUAGE.split(), *OBJECTS.split()])
def test_a_name_has_a_state(name):
    assert name in _states()


@pytest.mark.parametrize("name", LANGUAGE.split())
def test_what_works_is_there(name):
    state = _states()[name]
    assert hasattr(hl, name) == hasattr(hl.language, name) == (state in ("works", "ignored") or hasattr(hl, name))
    assert state not in ("works", "ignored") or hasattr(hl, name)


@pytest.mark.parametrize("name", CONFIGURATION.split())
def test_a_key_of_a_configuration_is_accepted_and_described(name):
    assert name in KEYS and f"`{name}`" in MANUAL


@pytest.mark.parametrize("name", SETTINGS.split())
def test_a_setting_is_accepted_and_described(name):
    hl.Settings(**{name: None})
    known = f"`{name}`" in MANUAL if name in settings.WITHOUT_MEANING else name in hl.Settings.__doc__
    assert known


@pytest.mark.parametrize("name", sorted(exc.NEVER_RAISED | exc.NEVER_GIVEN))
def test_a_name_that_nothing_raises_can_be_written_and_has_a_reason(name):
    kind = getattr(exc, name)
    assert issubclass(kind, exc.Error if name in exc.NEVER_RAISED else Warning) and f"`{name}`" in PAGE
    assert getattr(exc, name) is kind  # one class, which `except` meets again
