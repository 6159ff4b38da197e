"""Every public name of Helion 1.5.1: where Tilewright has it, or why not.

A row is for names of one module that are alike. What *works* or is *ignored* (accepted, and changes nothing) is found
in a module of ours; what is *refused* can be imported, and raises its reason where it is used. The modules of the
posing package, and docs/state_helion.md, are made of this list.
"""

from __future__ import annotations

from dataclasses import dataclass

WORKS, IGNORED, REFUSED = "works", "ignored", "refused"


@dataclass(frozen=True)
class Row:
    """Names that are alike.

    Args:
        module: where programs find them.
        state: "works", "ignored" or "refused".
        home: our module which has them; "" for refused ones.
        text: the names, separated by blanks.
        why: what is to be said of them; for refused ones the reason, for users.
    """

    module: str
    state: str
    home: str
    text: str
    why: str = ""

    @property
    def names(self) -> list[str]:
        """The names."""
        return self.text.split()


_BACK_ENDS = "it belongs to another back end of Helion; Tilewright compiles for CPUs and NVIDIA GPUs"
_SEARCH = "searches are chosen with autotune_effort and kernel.autotune; Helion's own classes are not there"
_CACHE = "the best configuration is kept in one file per question (get_cached_path); skip_cache turns that off"
_HANDOFF = "handing a search to an agent is a tool of Helion's own"
_DEVICES = "kernels of Tilewright see the memory of one device: send with torch.distributed between kernels"
_AOT = "the table beside the source tells calls apart by their sizes (docs/tuning.md)"
_AHEAD = "`shapes=` declares arguments; `kernel.aot()` or `tilewright tuned ahead` writes the table beside the source"
_SKIPS = "decorators of tests"

ROWS = (
    # --- helion ------------------------------------------------------------------------------------
    Row(
        "helion", WORKS, "tilewright.hl",
        "Config Kernel RefMode Settings cdiv exc jit kernel language next_power_of_2",
    ),
    Row("helion", IGNORED, "tilewright.helion_names.runtime", "OutputCodeOptions", "generated code needs Tilewright"),
    Row("helion", WORKS, "tilewright.hl", "aot_kernel", _AHEAD),
    Row("helion", REFUSED, "", "from_cache", _CACHE),
    Row(
        "helion", REFUSED, "",
        "CuteStructuralConfig CuteStructuralPolicy resolve_cute_structural_policy", _BACK_ENDS,
    ),
    # --- helion.language ---------------------------------------------------------------------------
    Row(
        "helion.language", WORKS, "tilewright.hl.language",
        "ConstExpr StackTensor Tile arange associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min "
        "atomic_or atomic_xchg atomic_xor barrier breakpoint constexpr cumprod cumsum device_print dot dot_scaled "
        "float4_e2m1fn_x2_to_float32 full grid inline_asm_elementwise inline_triton jagged_tile join load "
        "load_bfloat16_x16_to_float16 load_float4_e2m1fn_x16_to_float16 rand rand4x randint reduce "
        "register_block_size register_tunable specialize split stacktensor_like static_range store subscript tile "
        "tile_begin tile_block_size tile_end tile_id tile_index triton_kernel zeros",
    ),
    Row(
        "helion.language", IGNORED, "tilewright.hl.language", "pdl_launch_dependents pdl_wait", "launches run in order",
    ),
    Row("helion.language", REFUSED, "", "AsyncCopyDescriptor make_async_remote_copy remote_barrier", _DEVICES),
    Row("helion.language", REFUSED, "", "ProcessGroupName", _DEVICES),
    # --- helion.runtime ----------------------------------------------------------------------------
    Row("helion.runtime", WORKS, "tilewright.hl", "BoundKernel Config Kernel RefMode Settings kernel"),
    Row("helion.runtime", WORKS, "tilewright.helion_names.runtime", "get_num_sm get_num_xcd"),
    Row(
        "helion.runtime", IGNORED, "tilewright.helion_names.runtime", "OutputCodeOptions set_triton_allocator",
        "descriptors need no memory of their own",
    ),
    Row("helion.runtime", REFUSED, "", "default_launcher", "generated modules launch their kernels themselves"),
    Row(
        "helion.runtime", REFUSED, "",
        "cute_cuda_graph default_cute_launcher default_flydsl_launcher default_metal_launcher default_pallas_launcher "
        "get_max_active_clusters", _BACK_ENDS,
    ),
    Row("helion.runtime.config", WORKS, "tilewright.hl", "Config"),
    Row("helion.runtime.kernel", WORKS, "tilewright.hl", "BoundKernel Kernel kernel"),
    Row("helion.runtime.kernel", IGNORED, "tilewright.helion_names.runtime", "OutputCodeOptions"),
    Row("helion.runtime.settings", WORKS, "tilewright.hl", "RefMode Settings"),
    Row("helion.runtime.settings", REFUSED, "", "default_autotuner_fn", _SEARCH),
    Row("helion.runtime.ref_mode", WORKS, "tilewright.hl", "RefMode"),
    # --- helion.autotuner --------------------------------------------------------------------------
    Row(
        "helion.autotuner", WORKS, "tilewright.hl.autotuner",
        "BooleanFragment ConfigSpec EnumFragment IntegerFragment PowerOfTwoFragment",
    ),
    Row("helion.autotuner", WORKS, "tilewright.helion_names.runtime", "NumThreadsFragment"),
    Row("helion.autotuner", REFUSED, "", "ListOf", "a tunable is one number: register one for each"),
    Row("helion.autotuner", WORKS, "tilewright.hl", "aot_kernel", _AHEAD),
    Row("helion.autotuner", REFUSED, "", "AOTAutotuneCache", _AOT),
    Row(
        "helion.autotuner", REFUSED, "",
        "LLMGuidedSearch LLMSeededLFBOTreeSearch LLMSeededSearch AutotuneEffortProfile DifferentialEvolutionConfig "
        "FinalSelectionConfig LLMSearchConfig PatternSearchConfig RandomSearchConfig "
        "InitialPopulationStrategy UserConfigSpec autotune", _SEARCH,
    ),
    Row(
        "helion.autotuner", REFUSED, "",
        "CachedFiniteSearch LocalAutotuneCache StrictLocalAutotuneCache RemoteAutotuneCache RemoteCacheBackend "
        "StrictRemoteAutotuneCache from_cache", _CACHE,
    ),
    Row(
        "helion.autotuner", REFUSED, "",
        "HandoffCandidate HandoffMeasurement HandoffPoint HandoffPolicy HandoffProgress find_handoff "
        "HandoffAgentResult HandoffAgentRound HandoffBundle build_handoff CLISourceAgent HandoffCaseResult "
        "HandoffEvaluation evaluate_handoff", _HANDOFF,
    ),
    Row(
        "helion.autotuner", WORKS, "tilewright.helion_names.runtime",
        "cache_classes initial_population_strategies", "empty: none can be chosen by name",
    ),
    Row(
        "helion.autotuner", WORKS, "tilewright.helion_names.searches",
        "DESurrogateHybrid DifferentialEvolutionSearch FiniteSearch LFBOPatternSearch LFBOTreeSearch PatternSearch "
        "RandomSearch search_algorithms",
        "strategies of Tilewright's driver (docs/tuning.md); options of Helion's algorithms change nothing",
    ),
    Row(
        "helion.autotuner.config_fragment", WORKS, "tilewright.hl.autotuner",
        "BooleanFragment EnumFragment IntegerFragment PermutationFragment PowerOfTwoFragment",
    ),
    Row(
        "helion.autotuner.config_fragment", WORKS, "tilewright.helion_names.runtime",
        "BaseIntegerFragment BlockSizeFragment ConfigSpecFragment NumThreadsFragment NumWarpsFragment "
        "assert_integer_power_of_two integer_power_of_two",
    ),
    Row("helion.autotuner.config_fragment", REFUSED, "", "Category FragmentFingerprint ListOf", _SEARCH),
    Row("helion.autotuner.config_spec", WORKS, "tilewright.hl.autotuner", "ConfigSpec"),
    Row(
        "helion.autotuner.config_spec", WORKS, "tilewright.helion_names.runtime",
        "DEFAULT_NUM_STAGES DEFAULT_NUM_WARPS VALID_KEYS VALID_PID_TYPES",
    ),
    # --- helion.experimental -----------------------------------------------------------------------
    Row(
        "helion.experimental", WORKS, "tilewright.helion_names.gradients", "backward",
        "through autograd, of which kernels are a part (docs/hl_gradients.md)",
    ),
    Row("helion.experimental", WORKS, "tilewright.hl", "aot_kernel", _AHEAD),
    Row("helion.experimental", REFUSED, "", "aot_key extract_shape_features make_aot_key", _AOT),
    # --- what examples and tests use ---------------------------------------------------------------
    Row(
        "helion._testing", WORKS, "tilewright.hl.testing",
        "CosSimilarity DEVICE EXAMPLES_DIR HALF_DTYPE LONG_INT_TYPE PROJECT_ROOT assert_close_with_mismatch_tolerance "
        "assert_relative_l2_close check_example code_and_output import_path output_only run_example",
        "examples are looked for below the working directory",
    ),
    Row(
        "helion._testing", WORKS, "tilewright.helion_names.unit_tests",
        "PRETUNED_KERNELS_DIR RefEagerTestBase RefEagerTestDisabled TestCase assert_helion_compilation "
        "assert_helion_ref_mode assert_ref_eager_mode default_cute_mma_support float32_matmul_precision "
        "get_nvidia_gpu_model get_test_dot_precision get_test_float32_matmul_precision is_cuda is_mtia matchesBackends "
        "onlyBackends patch_cute_mma_support skipIfCudaCapabilityLessThan skipIfFn skipIfLowVRAM skipIfNotCUDA "
        "skipIfPyTorchBaseVerLessThan skipIfSharedMemoryLessThan skipUnlessBackends skipUnlessChunkLowering "
        "sync_object track_run_ref_calls xfailIfFn",
        "`assertExpectedJournal` and `assertEqualCode` pass: the text of generated code is Tilewright's own",
    ),
    Row(
        "helion._testing", WORKS, "tilewright.helion_names.unit_tests",
        "skipIfA10G skipIfCute skipIfMTIA skipIfMetal skipIfNormalMode skipIfNotTriton skipIfPallas "
        "skipIfPallasInterpret skipIfPallasTpu skipIfRefEager skipIfRocm skipIfTileIR skipIfXPU "
        "skipUnlessAMDCDNA skipUnlessBlockPtr "
        "skipUnlessCuteAvailable skipUnlessHostTensorDescriptor skipUnlessMTIA skipUnlessMultiXCD skipUnlessPallas "
        "skipUnlessTensorDescriptor skipUnlessTf32Supported skipUnlessTileIR xfailIfCute xfailIfPallas "
        "xfailIfPallasInterpret xfailIfPallasTpu", _SKIPS,
    ),
    Row("helion._testing", REFUSED, "", "AssertExpectedJournal", "generated text is Tilewright's own"),
    Row("helion._utils", WORKS, "tilewright.hl", "cdiv next_power_of_2"),
    Row("helion._utils", WORKS, "tilewright.helion_names.compat", "counters prev_power_of_2 triton_is_available"),
    Row(
        "helion._compat", WORKS, "tilewright.helion_names.compat",
        "device_num_sm extract_device get_device_name get_triton_version is_hip min_dot_size num_compute_units "
        "requires_cuda_version requires_torch_version supports_amd_cdna_tunables supports_block_ptr "
        "supports_host_tensor_descriptor supports_maxnreg supports_mtia_tunables supports_tensor_descriptor "
        "supports_tf32_precision_on_amd supports_torch_compile_fusion target_device_capability warps_to_threads",
    ),
    Row("helion._hardware", WORKS, "tilewright.helion_names.compat", "HardwareInfo get_hardware_info"),
)  # fmt: skip

MODULES = tuple(dict.fromkeys(row.module for row in ROWS))
"""The modules that these names are in, packages before what is in them."""
