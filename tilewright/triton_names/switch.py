"""The switch: from now on `import triton` means Tilewright, in this process and in those that it starts."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import warnings
from pathlib import Path

from tilewright.base import posing
from tilewright.base.environment import heed_triton
from tilewright.base.knobs import follow_triton_variables, knobs

POSE = posing.Pose(
    "triton",
    Path(__file__).parent,
    "call tilewright.as_triton() before the first import of triton, of torch._dynamo and of libraries "
    "that use them, or start the program as `python -m tilewright.as_triton program.py`",
)
STARTED = POSE.started
SHARED = (
    "language", "compiler", "runtime", "testing", "tools.disasm", "tools.mxfp", "tools.ragged_tma",
    "tools.tensor_descriptor",
)  # fmt: skip
"""Modules that Tilewright has as Triton has them, with all below them: under both names they are one object."""
_RENAMED = {"tilewright.compiler.backends": "triton.backends.compiler"}

TESTED_TORCH = ("2.11", "2.13")
"""Versions of torch whose Inductor the tests run; of others it is told once that they are unknown."""

_TOO_LATE = ("torch._dynamo", "torch._inductor", "helion")
"""Modules that look once, when they are imported, whether there is a Triton."""


def as_triton() -> None:
    """Have `import triton` give Tilewright in this process and in the processes that it starts.

    Call it before anything that imports Triton is imported. A second call does nothing.

    Raises:
        PosingError: the real Triton has been imported already.
    """
    if poses():
        return
    POSE.refuse_real()
    early = [name for name in _TOO_LATE if name in sys.modules and not hasattr(sys.modules[name], "__tilewright__")]
    if early:
        warnings.warn(
            f"tilewright.as_triton(): {early[0]} is imported already and may have noted that there is no Triton; "
            "call as_triton() first",
            RuntimeWarning,
            stacklevel=2,
        )
    if POSE.variable not in os.environ and (told := unknown_torch()):  # workers need not say again what was said
        warnings.warn(f"tilewright.as_triton(): {told}", RuntimeWarning, stacklevel=2)
    POSE.enter()
    importlib.import_module("triton")


def poses() -> bool:
    """Whether `triton` in this process is Tilewright."""
    return POSE.is_loaded


def unknown_torch() -> str:
    """What is to be said of the installed torch: nothing, if its Inductor has been tested or there is none."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
    if ".".join(version.split(".")[:2]) in TESTED_TORCH:
        return ""
    return f"torch {version} has not been tested with it ({' and '.join(TESTED_TORCH)} have); see docs/as_triton.md"


def describe() -> str:
    """Which Triton this process has, in a line, without importing one."""
    if not poses():
        return POSE.describe()
    told = unknown_torch()
    return f"Tilewright poses as triton {sys.modules['triton'].__version__}{told and f'; {told}'}"


def share() -> None:
    """Enter the shared modules under their second name; called by the posing package when it is imported.

    What is written for Triton waits for no kernel with assertions, unless the environment says that it should.
    """
    heed_triton()
    follow_triton_variables()
    if "TILEWRIGHT_ASSERTIONS" not in os.environ:
        knobs.cuda.assertions = "trap"
    for name in (shared for root in SHARED for shared in posing.with_submodules(f"tilewright.{root}")):
        posing.share(name, _RENAMED.get(name) or name.replace("tilewright", "triton", 1))
