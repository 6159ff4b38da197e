"""What the drivers of all devices have in common, under the names that Triton uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tilewright.base.refusal import Refusal

_CACHE_BYTES = 256 << 20  # more than any last-level cache that is near
_NO_C = "launchers are machine code made by LLVM, not C; `CompiledKernel.run` is the launch"


class DriverBase:
    """A driver: the devices of one kind.

    Attributes:
        benchmarker: times a function on the active device; `tuning/bench.py` puts it here.
    """

    benchmarker: ClassVar[Callable[..., Any]]
    launcher_cls = Refusal("driver.active.launcher_cls", _NO_C)
    map_python_to_cpp_type = Refusal("driver.active.map_python_to_cpp_type", _NO_C)

    def get_active_torch_device(self) -> Any:
        """torch's object for the device in use."""
        raise NotImplementedError

    def get_benchmarker(self) -> Callable[..., Any]:
        """What times a function on this device: `benchmarker(fn, quantiles=..., ...)`, which is `testing.do_bench`."""
        return type(self).benchmarker

    def get_empty_cache_for_benchmark(self) -> Any:
        """A tensor that fills the caches of the device: `clear_cache` writes it."""
        import torch

        return torch.empty(_CACHE_BYTES // 4, dtype=torch.int32, device=self.get_active_torch_device())

    def clear_cache(self, cache: Any) -> None:
        """Have the caches hold nothing but `cache`.

        Args:
            cache: from `get_empty_cache_for_benchmark`.
        """
        cache.zero_()
