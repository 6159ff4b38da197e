"""`CompiledKernel.run` in machine code, once a call of it was made in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy import lazy_module
from tilewright.base.target import Placement
from tilewright.compile.kernel import CompiledKernel

if TYPE_CHECKING:
    from tilewright.launch.native import builtin, columns
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
        in_python(*args)
        passed, told = args[_FIRST:], made
        form = tuple(map(type, passed))
        if told is None or kernel.specialization is None or form in hopeless:
            return
        launch = kernel.launcher(Placement(None))
        known = columns.columns_of_run(told.machine, kernel.specialization, passed)
        if known is None or not hasattr(launch, "packing"):
            hopeless.add(form)
        else:
            told.learn(known, launch, None)

    made = builtin.make_builtin(missed, is_run=True)
    return in_python if made is None else made.call


_FIRST = 9  # (gx, gy, gz, stream, function, packed, facts, enter, exit) come before the arguments
