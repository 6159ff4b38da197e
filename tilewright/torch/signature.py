"""What an operator is: the signature of its launches, and the record of what it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import UnsupportedError
from tilewright.base.location import Location
from tilewright.compile.kinds import ArgumentKind
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction
from tilewright.launch.native.operators import Launched
from tilewright.torch.arguments import Token
from tilewright.tuning.autotune import Autotuner, Config

NAMESPACE = "tilewright_kernels"


@dataclass(frozen=True, slots=True)
class Signature:
    """What distinguishes the operators of one kernel, in plain constants.

    Args:
        number: of the kernel.
        tokens: (parameter, token) of the arguments that the caller gives.
        options: keywords of the launch that are no parameters.
        computed: for each configuration, (parameter, token) of what heuristics gave.
        rank: how many axes a grid has; each costs an argument.
    """

    number: str
    tokens: tuple[tuple[str, Token], ...]
    options: tuple[tuple[str, Any], ...] = ()
    computed: tuple[tuple[tuple[str, Token], ...], ...] = ((),)
    rank: int = 3


@dataclass(slots=True)
class KernelOperator:
    """An operator that launches a kernel.

    Args:
        name: in the namespace.
        kernel: what is launched: a kernel, or an autotuner or heuristics around one.
        signature: of its arguments.
        kinds: of the arguments that the operator takes.
        leaves: (name, kind) of the run-time values.
        written: numbers of the run-time values whose memory may be written, with the place of one such store.
        unsure: why all arrays count as written, or "".
        configs: of the autotuner; None stands for a kernel without one.
        scope: variables of what the operator calls.
        launched: the same in machine code, once it was called and where that can be made.
    """

    name: str
    kernel: KernelInterface[Any]
    signature: Signature
    kinds: tuple[ArgumentKind, ...]
    leaves: tuple[tuple[str, str], ...]
    written: dict[int, Location | None]
    unsure: str = ""
    configs: tuple[Config | None, ...] = (None,)
    scope: dict[str, Any] = field(default_factory=dict)
    launched: Launched | None = None

    @property
    def base(self) -> JITFunction:
        """The kernel itself."""
        return base_of(self.kernel)

    @property
    def axes(self) -> str:
        """Names of the axes of a grid."""
        return "xyz"[: self.signature.rank]

    def schema(self) -> str:
        """As `torch.library` wants it."""
        fields = []
        for index, (name, kind) in enumerate(self.leaves):
            mark = f"(a{index}!)" if index in self.written else ""
            kinds = {"int": "SymInt", "float": "float", "bool": "bool"}
            fields.append(f"{kinds.get(kind, f'Tensor{mark}')} {name.replace('.', '_')}")
        grids = [f"SymInt grid{number}_{axis}" for number in range(len(self.configs)) for axis in self.axes]
        return f"{self.name}({', '.join([*fields, *grids])}) -> ()"


def base_of(kernel: Any) -> JITFunction:
    """The kernel inside autotuners and heuristics."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def layers(kernel: Any) -> Iterator[Any]:
    """A kernel's wrappers from the outside in, then the kernel."""
    while not isinstance(kernel, JITFunction):
        yield kernel
        kernel = kernel.fn
    yield kernel


def autotuner_of(kernel: Any) -> Autotuner | None:
    """The autotuner among a kernel's wrappers, or None.

    Raises:
        UnsupportedError: there are two.
    """
    found = [layer for layer in layers(kernel) if isinstance(layer, Autotuner)]
    if len(found) > 1:
        raise UnsupportedError(
            f"kernel `{base_of(kernel).fn.__name__}` has {len(found)} autotuners: such launches cannot be traced",
            hint="put all configurations into one",
        )
    return found[0] if found else None
