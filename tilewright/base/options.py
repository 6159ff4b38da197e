"""Frozen compile options; the cache key is derived from every field, never remembered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tilewright.base.target import Target


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
        default_dot_input_precision: what `tl.dot` on f32 means when the call does not say: "ieee", "tf32", ...;
            `of` makes it "tf32" for a GPU.
        launch_cooperative_grid: all programs must be resident at once (GPU).
        launch_pdl: the kernel may start before the one ahead of it in the stream has ended (GPU).
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    debug: bool = False
    sanitize_overflow: bool = True
    enable_fp_fusion: bool = True
    default_dot_input_precision: str = "ieee"
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any], target: Target) -> Options:
        """The options `given` by name, the others as they are usual for `target`."""
        return cls(**{**_USUAL.get(target.backend, {}), **given})

    def key(self) -> str:
        """Text that differs whenever any field differs; part of the cache key."""
        return ",".join(f"{name}={value!r}" for name, value in sorted(asdict(self).items()))


_USUAL: dict[str, dict[str, Any]] = {"cuda": {"default_dot_input_precision": "tf32"}}
OPTION_NAMES = frozenset(f.name for f in fields(Options))
