"""The names of the block language as users of Triton know them: what the state page lists, and the tests look for.

Groups follow the language reference. A name is looked up in `tl` unless its group says otherwise; what a back end does
not have is stated here with the reason, and nothing is left out silently.
"""

from __future__ import annotations

from tilewright.language.extra import cuda, libdevice

GROUPS: dict[str, str] = {
    "Data types": """
        void int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e4nv float8e5
        float8e4b15 float8e4b8 float8e5b16 pi32_t""",
    "Types and values": """
        dtype pointer_type block_type tuple_type constexpr_type tensor_descriptor_type str_to_ty const constexpr tensor
        tuple slice tensor_descriptor PropagateNan""",
    "Programming model": "program_id num_programs",
    "Creation and casts": "arange full zeros zeros_like to_tensor cast",
    "Shapes": """
        broadcast broadcast_to expand_dims reshape view ravel item permute trans squeeze unsqueeze join split interleave
        cat flip swizzle2d""",
    "Selection": "where expect_zero gather histogram",
    "Memory": "load store make_block_ptr advance make_tensor_descriptor load_tensor_descriptor store_tensor_descriptor",
    "Atomics": """
        atomic_add atomic_max atomic_min atomic_and atomic_or atomic_xor atomic_xchg atomic_cas atomic_load atomic_store
        atomic_poll""",
    "Matrix products": "dot dot_scaled",
    "Arithmetic": "add sub mul fdiv div_rn fma abs umulhi minimum maximum clamp cdiv logical_and logical_or",
    "Mathematics": "exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf floor ceil sigmoid softmax",
    "Reductions": "reduce sum max min argmax argmin xor_sum reduce_or",
    "Scans and sorting": "associative_scan cumsum cumprod sort topk bitonic_merge",
    "Random numbers": """
        philox_impl philox randint randint4x rand rand4x randn randn4x uint_to_uniform_float pair_uniform_to_normal""",
    "Loops": "range static_range condition",
    "Hints": "multiple_of max_contiguous max_constancy assume",
    "Debugging": "static_print static_assert device_print device_assert debug_barrier",
    "Functions": """
        constexpr_function aggregate aggregate_replace must_use_result map_elementwise inline_asm_elementwise""",
    "Modules": "core math random semantic standard target_info extra",
}
MODULES: dict[str, str] = {
    "core": "base_type base_value builtin extern extern_elementwise get_int_dtype is_builtin CONSTEXPR_0",
    "semantic": "TritonSemantic computation_type_impl integer_promote_impl to_tensor",
    "math": """
        abs ceil clamp cos div_rn erf exp exp2 fdiv floor fma log log2 maximum minimum pow rsqrt sin sqrt sqrt_rn
        tanh umulhi""",
    "target_info": """
        current_target is_cuda cuda_capability_geq is_hip is_hip_cdna3 is_hip_cdna4 is_hip_gfx1250""",
    "extra.cuda": """
        globaltimer smid num_threads num_warps gdc_wait gdc_launch_dependents convert_custom_float8_sm70
        convert_custom_float8_sm80 libdevice""",
    "extra.libdevice": " ".join(libdevice.FUNCTIONS),
}
MEMBERS = """
    to cast logical_and logical_or broadcast_to trans permute split view item reshape expand_dims store advance
    atomic_load atomic_store atomic_cas atomic_poll atomic_xchg atomic_add atomic_max atomic_min atomic_and atomic_or
    atomic_xor exp exp2 log log2 cos sin sqrt sqrt_rn rsqrt abs erf floor ceil reduce associative_scan histogram gather
    cdiv sigmoid softmax ravel max argmax min argmin sum xor_sum reduce_or cumsum cumprod flip shape dtype type numel T
    handle"""
DESCRIPTOR_MEMBERS = """
    load store gather scatter atomic_add atomic_min atomic_max atomic_and atomic_or atomic_xor block_type block_shape
    dtype shape strides type"""

_AMD = "a format of AMD's GPUs; fp8e4nv and fp8e5 are NVIDIA's"
_CLOCK = "time limits other than zero need a clock, which a CPU kernel has not"
_PDL = "compute capability 9.0 or more"
_LAUNCHES = ("gdc_wait", "gdc_launch_dependents")

# Names that a back end refuses, with the reason; using one raises an error that says so. The interpreter refuses what
# the CPU refuses.
REFUSED_ON: dict[str, dict[str, str]] = {
    "cpu": {
        **{f"extra.libdevice.{name}": reason for name, reason in libdevice.REFUSED.items()},
        **{
            f"extra.cuda.{name}": "belongs to NVIDIA GPUs"
            for name in sorted(set(cuda.__all__) - {"libdevice", *_LAUNCHES})
        },
    },
    "cuda": {"float8e4b8": _AMD, "float8e5b16": _AMD},
}
# Names whose function is there in part or with a condition, per back end ("" for all of them).
REMARKS: dict[str, dict[str, str]] = {
    "float8e4nv": {"cuda": "compute capability 8.9 or more"},
    "atomic_poll": {"cpu": _CLOCK},
    "core.extern_elementwise": {
        "cpu": "symbols of libdevice, but for those that are refused there, and of libraries in `extern_libs`",
        "cuda": "symbols of libdevice, and of bitcode in `extern_libs`",
    },
    "dot_scaled": {"": "decoded and multiplied in bfloat16 (float16 beside float16)"},
    "make_block_ptr": {"": "removed from Triton 3.9; behaves as in Triton 3.7"},
    "advance": {"": "removed from Triton 3.9; behaves as in Triton 3.7"},
    "make_tensor_descriptor": {
        "cuda": "blocks move by ordinary loads and stores (by TMA if the host made the descriptor, or if a loop "
        "copies them ahead for a product)"
    },
    "range": {
        "cpu": "options are accepted and have no effect",
        "cuda": "num_stages sets the depth of the pipeline, warp_specialize has four warps of their own copy what "
        "the copy engine loads (Hopper; one loop with products a kernel, outside of conditions; `explain` says why "
        "not, and the kernel runs as without); the other options are accepted and have no effect",
    },
    "inline_asm_elementwise": {"cpu": "instructions on registers are computed by operations, others are refused"},
    "device_print": {"cuda": "lines of different threads come in any order"},
    "device_assert": {
        "cuda": "a launch with assertions waits for its kernel (`TILEWRIGHT_ASSERTIONS=trap`: none does)"
    },
    "map_elementwise": {"cuda": "the elements are computed one after the other"},
    **{f"extra.cuda.{name}": {"cuda": _PDL, "cpu": "nothing to do, launches run in order"} for name in _LAUNCHES},
    "extra.cuda.libdevice": {"cuda": "what is neither operation nor instruction needs libdevice.10.bc (nvidia-nvvm)"},
}
