"""What the list of back ends knows of NVIDIA GPUs before anything of theirs is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ArgumentError
from tilewright.base.options import Options
from tilewright.base.target import Target


@dataclass(frozen=True, slots=True)
class CudaOptions(Options):
    """Options that change code for an NVIDIA GPU, or how it is launched.

    Args:
        default_dot_input_precision: as for all targets; usually "tf32" here.
        num_warps: warps per program, a power of two.
        num_stages: software pipeline depth.
        num_ctas: programs per cluster.
        maxnreg: register limit per thread.
        launch_cooperative_grid: all programs must be resident at once.
        launch_pdl: the kernel may start before the one ahead of it in the stream has ended.

    Raises:
        ArgumentError: `num_warps` is no power of two.
    """

    default_dot_input_precision: str = "tf32"
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False

    def __post_init__(self) -> None:
        check_warps(self.num_warps)


def check_warps(warps: object) -> None:
    """Raise ArgumentError where `warps` is no number of warps that a program can have."""
    if not isinstance(warps, int) or warps < 1 or warps & (warps - 1):
        raise ArgumentError(f"num_warps must be a power of 2, got {warps!r}", hint="write 1, 2, 4, 8, ...")


def parse_arch(text: str) -> Target | None:
    """The target `cuda:<text>`, where the text is a compute capability: `"90"` or `"sm_90a"`; None if it is none."""
    digits = text.removeprefix("sm_").rstrip("af")
    return Target("cuda", int(digits), warp_size=32) if digits.isdigit() else None
