"""Targets and back ends under the names of `triton.backends.compiler`: what programs ask of a back end's compiler.

Tilewright's own back ends are not these classes: they answer the questions that Inductor and libraries ask (options,
keys, which targets), and leave compiling to `triton.compile`.
"""

from __future__ import annotations

import dataclasses
import enum
from types import SimpleNamespace
from typing import Any

from tilewright.base.errors import UnsupportedError
from tilewright.base.target import Target as GPUTarget
from tilewright.compile.request import fingerprint
from tilewright.devices.registry import USUAL, options_for


class Language(enum.Enum):
    """Which language a source is in; Tilewright has the first."""

    TRITON = 0
    GLUON = 1


class BaseBackend:
    """A back end as programs see it.

    Args:
        target: what it compiles for.
    """

    name = ""
    binary_ext = ""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    @classmethod
    def supports_target(cls, target: GPUTarget) -> bool:
        """Whether it compiles for `target`."""
        return target.backend == cls.name

    def hash(self) -> str:
        """Text that differs whenever the compiled code may."""
        return f"tilewright-{fingerprint()}-{self.target}"

    def parse_options(self, options: dict[str, Any]) -> SimpleNamespace:
        """All options as attributes: the `options`, and the others as they usually are."""
        return SimpleNamespace(**{**USUAL, **dataclasses.asdict(options_for(self.target, {})), **options})

    def load_dialects(self, context: Any) -> None:
        """Nothing: there is no MLIR."""

    def parse_attr(self, text: str) -> list[list[Any]]:
        """Facts that a key of an argument stands for."""
        return [["tt.divisibility", 16]] if "D" in text else []

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        """Functions that the front end would ask the back end for: none."""
        return {}

    def get_module_map(self) -> dict[str, Any]:
        """Modules that a back end puts in place of others: none, `libdevice` decides by itself."""
        return {}


class CpuBackend(BaseBackend):
    """The CPU's."""

    name, binary_ext = "cpu", "obj"


class CudaBackend(BaseBackend):
    """NVIDIA's."""

    name, binary_ext = "cuda", "cubin"


def make_backend(target: GPUTarget) -> BaseBackend:
    """The back end that compiles for `target`, with the methods that programs ask of one.

    Raises:
        UnsupportedError: there is none.
    """
    for backend in (CpuBackend, CudaBackend):
        if backend.supports_target(target):
            return backend(target)
    raise UnsupportedError(f"no back end for target {target}", hint="there are cpu and cuda")


__all__ = ["BaseBackend", "CpuBackend", "CudaBackend", "GPUTarget", "Language", "make_backend"]
