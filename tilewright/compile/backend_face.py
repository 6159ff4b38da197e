"""Back ends as programs of Triton see them: what they ask of a back end's compiler, under its names.

Tilewright's own back ends are not these classes: they answer the questions that Inductor and libraries ask (options,
keys, which targets), and leave compiling to `triton.compile`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from tilewright.base.errors import UnsupportedError
from tilewright.base.library import hashlib
from tilewright.base.refusal import Refusal
from tilewright.base.target import Target
from tilewright.compile.request import fingerprint
from tilewright.compile.specialize import ALIGNMENT, DIVISIBILITY, DIVISIBLE, VALUE, KeyOfInteger
from tilewright.devices.registry import USUAL, options_for


class Language(enum.Enum):
    """Which language a source is in; Tilewright has the first."""

    TRITON = 0
    GLUON = 1


class GivenOptions(SimpleNamespace):
    """All options as attributes."""

    def hash(self) -> str:
        """Differs whenever an option does."""
        rows = sorted((name, repr(value)) for name, value in vars(self).items())
        return hashlib.sha256(repr(rows).encode()).hexdigest()


class BaseBackend:
    """A back end as programs see it.

    Args:
        target: what it compiles for.
    """

    name = ""
    binary_ext = ""
    add_stages = Refusal(
        "BaseBackend.add_stages",
        "stages have another form (`CompiledKernel.asm` has the texts); `triton.compile` runs them",
    )

    def __init__(self, target: Target) -> None:
        self.target = target

    @classmethod
    def supports_target(cls, target: Target) -> bool:
        """Whether it compiles for `target`."""
        return target.backend == cls.name

    def hash(self) -> str:
        """Text that differs whenever the compiled code may."""
        return f"tilewright-{fingerprint()}-{self.target}"

    def parse_options(self, options: dict[str, Any]) -> GivenOptions:
        """All options as attributes: the `options`, and the others as they usually are."""
        return GivenOptions(**{**USUAL, **dataclasses.asdict(options_for(self.target, {})), **options})

    def load_dialects(self, context: Any) -> None:
        """Nothing: there is no MLIR."""

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        """What launches of Triton need of the facts of a kernel: (num_warps, num_ctas, shared)."""
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    @staticmethod
    def get_int_specialization(arg: int, **kwargs: Any) -> str:
        """The key of an integer: "D" if it is divisible by 16, and `align` among the keywords does not say no."""
        return _divisibility(arg, kwargs)

    @staticmethod
    def get_tensor_specialization(arg: Any, **kwargs: Any) -> str:
        """The key of a tensor, as of its address."""
        return _divisibility(arg.data_ptr(), kwargs)

    def parse_attr(self, text: str) -> list[list[Any]]:
        """Facts that a key of an argument stands for: its divisor; an integer, if the key remembers one."""
        facts: list[list[Any]] = [[DIVISIBILITY, ALIGNMENT]] if DIVISIBLE in text else []
        return [*facts, [VALUE, text.value]] if isinstance(text, KeyOfInteger) else facts

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        """Functions that the front end would ask the back end for: none."""
        return {}

    def get_module_map(self) -> dict[str, Any]:
        """Modules that a back end puts in place of others: none, `libdevice` decides by itself."""
        return {}


def _divisibility(number: int, keywords: Mapping[str, Any]) -> str:
    return DIVISIBLE if keywords.get("align", True) and number % ALIGNMENT == 0 else ""


class CpuBackend(BaseBackend):
    """The CPU's."""

    name, binary_ext = "cpu", "obj"


class CudaBackend(BaseBackend):
    """NVIDIA's."""

    name, binary_ext = "cuda", "cubin"


def min_dot_size(target: Any) -> Callable[[Any, Any], tuple[int, int, int]]:
    """What libraries choose blocks of products by: a function of the operands' types that gives the least (M, N, K).

    `tl.dot` takes tiles of any size; these are the sizes below which lanes of the matrix units stay empty along K.
    """

    def least(lhs: Any, rhs: Any) -> tuple[int, int, int]:
        bits = min(lhs.scalar.primitive_bitwidth, rhs.scalar.primitive_bitwidth)
        return 1, 1, 32 if bits == 8 else 16

    return least


def make_backend(target: Target) -> BaseBackend:
    """The back end that compiles for `target`, with the methods that programs ask of one.

    Raises:
        UnsupportedError: there is none.
    """
    for backend in (CpuBackend, CudaBackend):
        if backend.supports_target(target):
            return backend(target)
    raise UnsupportedError(f"no back end for target {target}", hint="there are cpu and cuda")
