"""What the list of back ends knows of the CPU before anything of it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.options import ExternLibrary, Options, extern_libraries
from tilewright.base.target import Target


@dataclass(frozen=True, slots=True)
class CpuOptions(Options):
    """Options that change code for a CPU, beside those that all targets share.

    Args:
        launch_cooperative_grid: all programs run at once, each on a thread of its own.
        extern_libs: path by name of libraries whose functions `extern_elementwise` calls: LLVM's bitcode, object files,
            shared objects.

    Raises:
        ArgumentError: a library is no file.
    """

    launch_cooperative_grid: bool = False
    extern_libs: Any = ()

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        object.__setattr__(self, "extern_libs", extern_libraries(self.extern_libs))

    @property
    def libraries(self) -> tuple[ExternLibrary, ...]:
        """The libraries; libdevice's functions need none here."""
        return tuple(library for library in self.extern_libs if library.name != "libdevice")


def parse_arch(text: str) -> Target | None:
    """The target `cpu:<text>`, where the text is a CPU as LLVM names it; None if there is no text."""
    return Target("cpu", text) if text else None
