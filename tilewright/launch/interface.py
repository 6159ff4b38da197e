"""What everything that can be launched has in common: kernels, autotuned kernels, kernels with heuristics."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class KernelInterface:
    """Something that is launched as `kernel[grid](*args, **kwargs)`."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch over `grid`, or with `warmup` only compile."""
        raise NotImplementedError

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile for these arguments without launching."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid)
