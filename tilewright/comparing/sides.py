"""The ways in which a kernel can run here, and one run: its arrays afterwards, or what it raised."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import ArgumentError, UnsupportedError
from tilewright.base.grids import Grid
from tilewright.base.knobs import knobs
from tilewright.comparing.copies import Bytes, Copies, arrays_of, is_tensor
from tilewright.devices.registry import gpu

INTERPRETER, CPU, CUDA = SIDES = ("interpreter", "cpu", "cuda")


def has_gpu() -> bool:
    """Whether kernels can run on a GPU here."""
    return bool(gpu.device_count())


@contextmanager
def running_as(side: str) -> Iterator[None]:
    """A block in which launches are interpreted, or compiled."""
    with knobs.runtime.scope():
        knobs.runtime.interpret = side == INTERPRETER
        yield


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that is made once on each side.

    Args:
        kernel: a kernel of `tl` or `hl`, or a function that launches kernels.
        args, kwargs: of the call.
        grid: of a kernel of `tl`; None for what is called without.
    """

    kernel: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grid: Grid | None = None

    @property
    def name(self) -> str:
        """Of the kernel."""
        fn = getattr(self.kernel, "fn", self.kernel)
        return str(getattr(fn, "__name__", getattr(getattr(fn, "fn", None), "__name__", type(fn).__name__)))

    def sides(self, wanted: Sequence[str] | None) -> list[str]:
        """The sides to run on: those that are asked for, or all that there are.

        Raises:
            ArgumentError: there is no such side, or it cannot run here.
        """
        on_gpu = has_gpu() and any(is_tensor(array) for _, array in arrays_of([*self.args, *self.kwargs.values()], ""))
        for side in wanted or ():
            if side not in SIDES:
                raise ArgumentError(f"compare: there is no side {side!r}", hint=f"sides are {', '.join(SIDES)}")
            if side == CUDA and not on_gpu:
                raise ArgumentError(
                    "compare: nothing can run on a GPU here",
                    hint="that takes a GPU, and tensors of PyTorch as arguments",
                )
        return list(wanted) if wanted else [INTERPRETER, CPU, *([CUDA] if on_gpu else [])]

    def names(self) -> list[str]:
        """Names of the positional arguments."""
        fn = getattr(self.kernel, "fn", self.kernel)
        fn = getattr(fn, "fn", fn)  # an autotuner is around a kernel
        try:
            known = list(inspect.signature(fn).parameters)
        except (TypeError, ValueError):
            known = []
        return [known[i] if i < len(known) else f"argument {i}" for i in range(len(self.args))]


@dataclass(slots=True)
class Outcome:
    """What a run left behind.

    Args:
        side: "interpreter", "cpu", "cuda" or "reference".
        arrays: arguments and results by name, in order; results are "result" or parts of it.
        gaps: bytes of memory beside the arguments, by storage; None where nobody looked.
        error: what was raised.
        refused: the error says that the side cannot run such a kernel.
    """

    side: str
    arrays: dict[str, Any] = field(default_factory=dict)
    gaps: list[Bytes] | None = None
    error: Exception | None = None
    refused: bool = False


def run(asked: Asked, side: str, call: Callable[..., Any] | None = None) -> Outcome:
    """Run a call on copies of its arguments.

    Args:
        asked: the call.
        side: where.
        call: the function to call in place of the kernel.
    """
    copies = Copies("cuda" if side == CUDA else "cpu")
    args = [copies.of(value) for value in asked.args]
    kwargs = {name: copies.of(value) for name, value in asked.kwargs.items()}
    function = asked.kernel if asked.grid is None else asked.kernel[asked.grid]
    try:
        with running_as(side):
            result = (call or function)(*args, **kwargs)
    except UnsupportedError as error:
        return Outcome(side, error=error, refused=True)
    except Exception as error:
        return Outcome(side, error=error)
    given = [*zip(asked.names(), args), *kwargs.items()]
    arrays = {name: array for known, value in given for name, array in arrays_of(value, known)}
    if asked.grid is None or call is not None:
        arrays.update(arrays_of(result, "result"))
    return Outcome(side, arrays, copies.gaps())
