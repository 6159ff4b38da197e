"""Options of other compilers' back ends that programs of the field write into configurations and launches.

They say how code is to be made for hardware that is not here, never what it computes: each is taken, told of once, and
changes nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

FOREIGN: dict[str, str] = {
    **dict.fromkeys(
        (
            "matrix_instr_nonkdim", "waves_per_eu", "kpack", "allow_flush_denorm", "schedule_hint", "slice_k_tiles",
            "instruction_sched_variant", "matrix_core_version", "llvm_fn_attrs", "wgp_cu_mode",
            "fpsan_homomorphic_casts",
        ),
        "AMD GPUs",
    ),
    **dict.fromkeys(
        (
            "grf_mode", "threads_per_warp", "advance_path", "inject_split_barriers", "split_barriers_scope",
            "generate_native_code", "reduce_variable_liveness", "one_tile_per_eu",
        ),
        "Intel GPUs",
    ),
    **dict.fromkeys(("enable_fast_math", "vec_lib", "ukernels"), "other CPU compilers"),
    **dict.fromkeys(
        (
            "enable_warp_specialization", "enable_persistent", "num_buffers_warp_spec", "num_consumer_groups",
            "reg_dec_producer", "reg_inc_consumer", "cluster_dims", "optimize_epilogue", "minRegAutoWS",
            "maxRegAutoWS", "ctas_per_cga", "pingpongAutoWS", "data_partition_factor",
        ),
        "other versions of the CUDA back end",
    ),
}  # fmt: skip
"""Name of each, and for what it is."""

_told: set[str] = set()


def tell_of(names: Iterable[str]) -> None:
    """Warn of those of these options that are foreign, of each once in a process."""
    for name in names:
        if name in FOREIGN and name not in _told:
            _told.add(name)
            warnings.warn(f"option {name} is for {FOREIGN[name]} and changes nothing here", stacklevel=3)
