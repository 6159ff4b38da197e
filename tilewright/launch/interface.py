"""What everything that can be launched has in common: kernels, autotuned kernels, kernels with heuristics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.launch import door


class KernelInterface:
    """Something that is launched as `kernel[grid](*args, **kwargs)`.

    Attributes:
        number: tells it from everything else that can be launched in this process.
    """

    number: str

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        if door.tracer is not None:
            return door.tracer(self, grid)
        return self.launcher(grid)

    def launcher(self, grid: Any) -> Callable[..., Any]:
        """What launches over `grid` when it is called with the arguments; no tracer is asked."""
        raise NotImplementedError

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`, or with `warmup` only compile."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        return self[grid](*args, **kwargs)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile for these arguments without launching."""
        raise NotImplementedError
