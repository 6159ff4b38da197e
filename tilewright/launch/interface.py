"""What everything that can be launched has in common: kernels, autotuned kernels, kernels with heuristics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tilewright.base.errors import InternalError
from tilewright.base.grids import Grid
from tilewright.base.tracebacks import shorten_traceback
from tilewright.launch.subscript import InPython, Subscript

T = TypeVar("T")
Reporter = Callable[[Any, Sequence[Any], Mapping[str, Any], Any, Sequence[str] | None, str], Any]


def _no_reporter(*_: Any) -> Any:
    raise InternalError("nobody has installed what makes reports")


reporter: Reporter = _no_reporter


def install_reporter(function: Reporter) -> None:
    """Have `function(kernel, args, kwargs, grid, targets, checks)` make the pages of `kernel.report`."""
    global reporter
    reporter = function


class KernelInterface(Subscript, InPython, Generic[T]):
    """Something that is launched as `kernel[grid](*args, **kwargs)`.

    Attributes:
        number: tells it from everything else that can be launched in this process.
    """

    number: str

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        made.waiting = []
        return made

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has of it: not the machine code, nor each `x[grid]`, which launch this one."""
        return vars(self).copy()

    def _launch_over(self, grid: Grid, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.launcher(grid)(*args, **kwargs)
        except Exception as error:
            shorten_traceback(error)
            raise

    def launcher(self, grid: Grid) -> Callable[..., Any]:
        """What launches over `grid` when it is called with the arguments; no tracer is asked.

        By default that is `run`, where a subclass in a library has one of its own.
        """
        if type(self).run is KernelInterface.run:
            raise NotImplementedError(f"{type(self).__name__} has neither `launcher` nor `run`")
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Grid, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`, or with `warmup` only compile."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return self[grid](*args, **kwargs)

    def warmup(self, *args: Any, grid: Grid | None = None, **kwargs: Any) -> Any:
        """Compile for these arguments without launching."""
        raise NotImplementedError

    def report(
        self, *args: Any, grid: Grid, targets: Sequence[str] | None = None, checks: str = "", **kwargs: Any
    ) -> Any:
        """Launch with these arguments, and make a page that shows what the compiler and the programs did.

        Args:
            args, kwargs: as for a launch.
            grid: of the launch.
            targets: what else to compile for, in order: ("cuda:90",); None for that where the launch is on a CPU.
            checks: names of checks ("bounds,races"), with which the launch is made once more; what they find stands at
                its line.

        Returns:
            The page: notebooks show it, `.save(path)` writes it.

        Raises:
            UnsupportedError: jinja2 is not installed.
        """
        return reporter(self, args, kwargs, grid, targets, checks)
