"""What the drivers of all devices have in common, under the names that Triton uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from tilewright.base.errors import LanguageValueError
from tilewright.base.refusal import Refusal

_CACHE_BYTES = 256 << 20  # more than any last-level cache that is near
_FLOATS = ("fp16", "bf16", "fp32", "f32", "fp64")
_NO_C = "launchers are machine code made by LLVM, not C; `CompiledKernel.run` is the launch"


class DriverBase:
    """A driver: the devices of one kind.

    Attributes:
        benchmarker: times a function on the active device; `tuning/bench.py` puts it here.
    """

    benchmarker: ClassVar[Callable[..., Any]]
    launcher_cls = Refusal("driver.active.launcher_cls", _NO_C)
    pointer_in_c: ClassVar[str] = "void*"

    def map_python_to_cpp_type(self, ty: str) -> str:
        """The type in C of a launch's parameter.

        Args:
            ty: signature type: `"*fp32"`, `"i32"`, `"tensordesc<fp16[64, 64]>"`.

        Raises:
            LanguageValueError: there is no such type.
        """
        if ty.startswith("*"):
            return self.pointer_in_c
        if ty.startswith("tensordesc") or ty == "nvTmaDesc":
            return "CUtensorMap"
        if ty in _FLOATS:
            return "double"  # as Python has it; the launcher narrows it
        bits = ty[1:]
        if ty in ("u1", "i1") or (ty[:1] in "iu" and bits in ("8", "16", "32", "64")):
            return f"{'u' if ty[0] == 'u' else ''}int{8 if bits == '1' else bits}_t"
        raise LanguageValueError(f"there is no type {ty!r} of parameters", hint="as *fp32, i32, u1, fp16, constexpr")

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
