"""What a kernel is compiled for: back end, architecture and feature string."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target.

    Args:
        backend: ``"cpu"``, ``"cuda"`` or ``"null"``.
        arch: CPU name as LLVM spells it (``"znver5"``), or compute capability (``90``).
        features: comma-separated feature string (``"+avx2,+fma"``); empty for CUDA.
        triple: LLVM target triple; empty means the host's.
        warp_size: lanes of a warp; 1 on a CPU.
    """

    backend: str
    arch: str | int
    features: str = ""
    triple: str = ""
    warp_size: int = 1

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"
