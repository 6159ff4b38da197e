"""What a kernel is compiled for, and where a launch of it goes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target.

    Args:
        backend: ``"cpu"``, ``"cuda"`` or ``"null"``.
        arch: CPU name as LLVM spells it (``"znver5"``), or compute capability (``90``).
        warp_size: lanes of a warp; 1 on a CPU.
        features: comma-separated feature string (``"+avx2,+fma"``); empty for CUDA.
        triple: LLVM target triple; empty means the host's.
    """

    backend: str
    arch: str | int
    warp_size: int = 1
    features: str = ""
    triple: str = ""

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


def parse_target(given: Target | str) -> Target:
    """A target by its text: `"cuda:90"`, `"cuda:sm_90a"`, or `"cpu:znver5"` and other names of LLVM.

    Raises:
        UnsupportedError: the text is no target.
    """
    if isinstance(given, Target):
        return given
    backend, _, arch = given.partition(":")
    if backend == "cuda":
        digits = arch.removeprefix("sm_").rstrip("af")
        if digits.isdigit():
            return Target("cuda", int(digits), warp_size=32)
    elif backend == "cpu" and arch:
        return Target("cpu", arch)
    raise UnsupportedError(f"{given!r} is no target", hint='write "cuda:90", "cuda:120" or "cpu:x86-64-v3"')


@dataclass(frozen=True, slots=True)
class Placement:
    """Where launches go.

    Args:
        device: number of the GPU; None is the one that the calling thread uses.
        stream: handle of the GPU's stream; None is the one that is current at each launch.
        num_threads: threads of the CPU; None is the usual number.
    """

    device: int | None = None
    stream: int | None = None
    num_threads: int | None = None
