"""`CompiledKernel.run` and `CompiledKernel[grid]` in machine code, once a call was made in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.base.grids import Grid
from tilewright.base.lazy import lazy_module
from tilewright.base.target import Placement
from tilewright.base.tracebacks import shorten_traceback
from tilewright.compile.kernel import CompiledKernel
from tilewright.compile.run import Launch

if TYPE_CHECKING:
    from tilewright.launch.native import builtin, columns
    from tilewright.launch.native.builtin import Builtin
else:  # loaded at the first launch
    builtin = lazy_module("tilewright.launch.native.builtin")
    columns = lazy_module("tilewright.launch.native.columns")


def native_run(kernel: CompiledKernel, in_python: Callable[..., None]) -> Callable[..., None]:
    """`run` of a compiled kernel that is made by machine code where it can be.

    Args:
        kernel: what is launched.
        in_python: `run` in Python.
    """
    hopeless: set[Any] = set()

    def missed(*args: Any) -> None:
        try:
            in_python(*args)
            _teach(made, kernel, args[_FIRST:], lambda: kernel.launcher(Placement(None)), hopeless)
        except Exception as error:
            shorten_traceback(error)
            raise

    made = builtin.make_builtin(missed, is_run=True)
    return in_python if made is None else made.call


def native_call(kernel: CompiledKernel, in_python: Callable[..., Launch]) -> Callable[..., None]:
    """What `kernel[grid]` calls, made by machine code where it can be.

    Args:
        kernel: what is launched.
        in_python: `call(grid, *arguments, stream=None)` in Python; gives the launch function that it found.
    """
    hopeless: set[Any] = set()

    def missed(grid: Grid, *args: Any, **kwargs: Any) -> None:
        try:
            launch = in_python(grid, *args, **kwargs)
            if not kwargs:
                _teach(made, kernel, args, lambda: launch, hopeless)
        except Exception as error:
            shorten_traceback(error)
            raise

    made = builtin.make_builtin(missed)
    return missed if made is None else made.call


def _teach(
    told: Builtin | None,
    kernel: CompiledKernel,
    args: tuple[Any, ...],
    launcher: Callable[[], Launch],
    hopeless: set[Any],
) -> None:
    """Have machine code make launches with arguments like these; `hopeless` has the forms for which it cannot."""
    form = tuple(map(type, args))
    if told is None or kernel.specialization is None or form in hopeless:
        return
    if len(form) != len(kernel.specialization.names):  # without compile-time constants: the table has a column for each
        return hopeless.add(form)
    launch, known = launcher(), columns.columns_of_run(told.machine, kernel.specialization, args)
    if known is None or not hasattr(launch, "packing"):
        hopeless.add(form)
    else:
        told.learn(known, launch, None)


_FIRST = 9  # (gx, gy, gz, stream, function, packed, facts, enter, exit) come before the arguments
