"""`assert_kernel` as it is called, and the strategies for it; hypothesis is loaded when one of them is used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import MissingPackageError
from tilewright.base.grids import Grid

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from tilewright.comparing import strategies as strategies
else:

    class _Strategies(ModuleType):
        """The module `tilewright.comparing.strategies`, once somebody asks for a name of it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(_with_hypothesis("strategies"), name)

    strategies = _Strategies("tilewright.testing.strategies", "Strategies for `assert_kernel`.")


def assert_kernel(
    kernel: Any,
    reference: Callable[..., Any] | None,
    arguments: Mapping[str, Any],
    *,
    grid: Grid | None = None,
    dims: Mapping[str, SearchStrategy[int]] | None = None,
    calls: int = 50,
    torch: bool = False,
    sides: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Hold a kernel against a reference on many calls that hypothesis draws; each is what `compare` does.

    Args:
        kernel, reference: as of `compare`.
        arguments: by parameter, in order: `strategies.arrays` and kin, a strategy of hypothesis, a function of what was
            drawn before (a dictionary of arguments and named extents), or a value.
        grid: of a kernel of `tl`; a function of the arguments too.
        dims: strategies of named extents; default is `strategies.sizes()`.
        calls: how many are drawn.
        torch: arrays are tensors of PyTorch, else of numpy.
        sides, outputs, rtol, atol: as of `compare`.

    Raises:
        ComparisonError: an AssertionError: the kernel is wrong for the smallest call that was found, which its text has
            as a program to paste.
        MissingPackageError: hypothesis is not installed.
    """
    _with_hypothesis("property").check(
        kernel, reference, arguments, grid=grid, dims=dims, calls=calls, torch=torch, sides=sides, outputs=outputs,
        rtol=rtol, atol=atol,
    )  # fmt: skip


def _with_hypothesis(module: str) -> Any:
    try:
        return importlib.import_module(f"tilewright.comparing.{module}")
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise MissingPackageError(
            "tilewright.testing.assert_kernel draws its calls with hypothesis, which is not installed",
            hint="pip install 'tilewright[testing]'",
        ) from None
