"""Frozen compile options; the cache key is derived from every field, never remembered."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one compilation, given as keywords of a launch.

    GPU-only fields are accepted on the CPU, so that one launch line serves both; they do not change CPU code.

    Args:
        num_warps: warps per program (GPU), a power of two.
        num_stages: software pipeline depth (GPU).
        num_ctas: programs per cluster (GPU).
        maxnreg: register limit per thread (GPU).
        debug: keep `device_assert` and overflow checks.
        sanitize_overflow: with `debug`, assert that integer arithmetic does not overflow.
        enable_fp_fusion: contract ``x * y + z`` to a fused multiply-add.
        default_dot_input_precision: what `tl.dot` on f32 means when the call does not say: "ieee", "tf32", ...
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    debug: bool = False
    sanitize_overflow: bool = True
    enable_fp_fusion: bool = True
    default_dot_input_precision: str = "ieee"

    def key(self) -> str:
        """Text that differs whenever any field differs; part of the cache key."""
        return ",".join(f"{name}={value!r}" for name, value in sorted(asdict(self).items()))


OPTION_NAMES = frozenset(f.name for f in fields(Options))
