"""`@heuristics`: compile-time parameters that are computed from the arguments of a launch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.callable import BlockFunction, give_number
from tilewright.base.errors import ArgumentError
from tilewright.base.grids import Grid
from tilewright.launch.bind import NamedArguments
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction


class Heuristics(KernelInterface[Any]):
    """A kernel some of whose compile-time parameters are computed from its arguments; made by `heuristics`.

    Args:
        fn: a kernel, or an `Autotuner` or `Heuristics` around one.
        arg_names: its parameters.
        values: parameter -> function from the dictionary of arguments to its value.
    """

    def __init__(
        self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]
    ) -> None:
        self.fn, self.arg_names, self.values = fn, list(arg_names), dict(values)
        self.base_fn = kernel_of(fn)
        self.number = give_number(self)
        named_after(self, self.base_fn)

    def computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keywords of a launch, with the computed parameters added."""
        for name, compute in self.values.items():  # in order: a later one sees what an earlier one gave
            kwargs[name] = compute(NamedArguments({**dict(zip(self.arg_names, args)), **kwargs}))
        return kwargs

    def launcher(self, grid: Grid) -> Callable[..., Any]:
        """What launches over `grid` with the computed parameters."""
        return functools.partial(self._launch, grid)

    def _launch(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, grid=grid, **self.computed(args, kwargs))

    def warmup(self, *args: Any, grid: Grid | None = None, **kwargs: Any) -> Any:
        """Compile with the computed parameters, without launching."""
        return self.fn.warmup(*args, grid=grid, **self.computed(args, kwargs))


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorate a kernel so that some compile-time parameters follow from its arguments.

    Args:
        values: parameter name -> function of the dictionary of arguments (by name) that gives its value.
    """

    for name, compute in values.items():
        if not callable(compute):
            raise ArgumentError(
                f"heuristics: {name} is {compute!r}, not a function",
                hint=f'write {{"{name}": lambda args: ...}}, where args has the arguments by name',
            )

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, list(inspect.signature(kernel_of(fn).fn).parameters), values)

    return decorate


def named_after(wrapper: Any, kernel: JITFunction) -> None:
    """Give a wrapper the name and documentation of its kernel's function."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(kernel.fn, name):
            setattr(wrapper, name, getattr(kernel.fn, name))


def kernel_of(fn: Any) -> JITFunction:
    """The kernel inside any number of autotuners and heuristics."""
    inner = fn
    while not isinstance(inner, BlockFunction) and hasattr(inner, "fn"):
        inner = inner.fn
    if not isinstance(inner, JITFunction):
        raise ArgumentError(
            f"autotune and heuristics decorate a kernel, got {type(fn).__name__}",
            hint="put @tilewright.jit directly above the function, below them",
        )
    return inner
