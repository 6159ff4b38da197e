"""What everything that can be launched has in common: kernels, autotuned kernels, kernels with heuristics."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tilewright.launch.subscript import InPython, Subscript

T = TypeVar("T")


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

    def _launch_over(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.launcher(grid)(*args, **kwargs)

    def launcher(self, grid: Any) -> Callable[..., Any]:
        """What launches over `grid` when it is called with the arguments; no tracer is asked.

        By default that is `run`, where a subclass in a library has one of its own.
        """
        if type(self).run is KernelInterface.run:
            raise NotImplementedError(f"{type(self).__name__} has neither `launcher` nor `run`")
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`, or with `warmup` only compile."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return self[grid](*args, **kwargs)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile for these arguments without launching."""
        raise NotImplementedError
