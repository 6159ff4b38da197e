"""The switch: from now on `import helion` means Tilewright, in this process and in those that it starts."""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.base import posing
from tilewright.triton_names import switch as triton_switch

POSE = posing.Pose(
    "helion",
    Path(__file__).parent,
    "call tilewright.as_helion() before the first import of helion, or start the program as "
    "`python -m tilewright.as_helion program.py`",
)


def as_helion(triton: bool = True) -> None:
    """Have `import helion` give Tilewright in this process and in the processes that it starts.

    Nothing of it is loaded until it is imported. A second call does nothing.

    Args:
        triton: pose as Triton too: functions of `triton.jit` that kernels call are Tilewright's then.

    Raises:
        PosingError: the real Helion, or (with `triton`) the real Triton, has been imported already.
    """
    POSE.refuse_real()
    if triton:
        triton_switch.as_triton()
    if not poses():
        POSE.enter()


def poses() -> bool:
    """Whether `import helion` gives Tilewright in this process."""
    return POSE.is_loaded or POSE.folder in sys.path
