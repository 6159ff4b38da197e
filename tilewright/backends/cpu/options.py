"""What the list of back ends knows of the CPU before anything of it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.options import Options
from tilewright.base.target import Target


@dataclass(frozen=True, slots=True)
class CpuOptions(Options):
    """Options that change code for a CPU, beside those that all targets share.

    Args:
        launch_cooperative_grid: all programs run at once, each on a thread of its own.
    """

    launch_cooperative_grid: bool = False


def parse_arch(text: str) -> Target | None:
    """The target `cpu:<text>`, where the text is a CPU as LLVM names it; None if there is no text."""
    return Target("cpu", text) if text else None
