"""The `tl.extra.cuda` namespace: what only NVIDIA GPUs have; elsewhere each name raises an error that says so."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import UnsupportedError
from tilewright.language.extra import libdevice
from tilewright.ops.builtin import Builtin, Emitter, builtin


def _only_on_gpus(name: str, meaning: str, hint: str) -> Builtin:
    """A function that no back end has yet, documented by what it does on a GPU."""

    def function(b: Emitter, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"tl.extra.cuda.{name} ({meaning}) is not available on {b.target.backend}: it belongs to NVIDIA GPUs",
            hint=hint,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning[:1].upper()}{meaning[1:]}; NVIDIA GPUs only."
    made: Builtin = builtin(function, export=False)
    return made


_GUARD = "guard it with `if tl.target_info.is_cuda():`"
globaltimer = _only_on_gpus("globaltimer", "nanoseconds of the GPU's clock", _GUARD)
smid = _only_on_gpus("smid", "number of the multiprocessor", _GUARD)
num_threads = _only_on_gpus("num_threads", "threads of a program", _GUARD)
num_warps = _only_on_gpus("num_warps", "warps of a program", _GUARD)
gdc_wait = _only_on_gpus("gdc_wait", "wait for the kernel launched before", _GUARD)
gdc_launch_dependents = _only_on_gpus("gdc_launch_dependents", "let the kernel launched next begin", _GUARD)
_CONVERT = "convert with x.to(dtype)"
convert_custom_float8_sm70 = _only_on_gpus("convert_custom_float8_sm70", "conversion of fp8e4b15", _CONVERT)
convert_custom_float8_sm80 = _only_on_gpus("convert_custom_float8_sm80", "conversion of fp8e4b15", _CONVERT)

__all__ = [
    "convert_custom_float8_sm70", "convert_custom_float8_sm80", "gdc_launch_dependents", "gdc_wait", "globaltimer",
    "libdevice", "num_threads", "num_warps", "smid",
]  # fmt: skip
