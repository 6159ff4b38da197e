"""What a kernel is compiled for, and where a launch of it goes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target.

    Args:
        backend: name of the back end, as in ``"cpu"`` or ``"cuda"``; `devices/registry.py` lists them.
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

    def __repr__(self) -> str:
        """Its name is fixed: keys of caches are made of it, and the class has another where it poses as Triton's."""
        return f"Target({', '.join(f'{field.name}={getattr(self, field.name)!r}' for field in fields(self))})"

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


# Of operations that are built without being compiled for anything: what every target has.
NO_TARGET = Target("none", "generic")


class Placement(NamedTuple):
    """Where launches go.

    Args:
        device: number of the GPU; None is the one that the calling thread uses.
        stream: handle of the GPU's stream; None is the one that is current at each launch.
        num_threads: threads of the CPU; None is the usual number.
    """

    device: int | None = None
    stream: int | None = None
    num_threads: int | None = None
