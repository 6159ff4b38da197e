"""The `tl.extra.cuda` namespace: what only NVIDIA GPUs have; elsewhere a name raises an error that says so.

Those of launches that overlap do nothing on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tilewright.base import dtypes
from tilewright.base.errors import LanguageTypeError, UnsupportedError
from tilewright.language.extra import libdevice
from tilewright.ops.builtin import Builtin, Emitter, builtin, to_tensor
from tilewright.ops.casts import cast
from tilewright.ops.functions.debug import assembly
from tilewright.ops.functions.target import is_cuda
from tilewright.ops.values import constexpr, tensor, unwrap

_GUARD = "guard it with `if tl.target_info.is_cuda():`"


def _refused(b: Emitter, name: str, meaning: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        f"tl.extra.cuda.{name} ({meaning}) is not available on {b.target}: it belongs to NVIDIA GPUs", hint=hint
    )


def _on_gpus(name: str, meaning: str, compute: Callable[[Emitter], Any], least: int = 0) -> Builtin:
    """A function without parameters, documented by what it does; `least` is the compute capability that it needs."""

    def function(b: Emitter) -> Any:
        if not is_cuda(b.target):
            raise _refused(b, name, meaning, _GUARD)
        if int(b.target.arch) < least:
            raise UnsupportedError(
                f"tl.extra.cuda.{name} ({meaning}) needs compute capability {least / 10}, not {b.target}",
                hint=f"guard it with `if tl.target_info.cuda_capability_geq({least // 10}, {least % 10}):`",
            )
        return compute(b)

    return _described(function, name, meaning)


def _dependent_launch(name: str, meaning: str, instruction: str) -> Builtin:
    """A point at which a GPU may overlap launches. Where launches run one after another there is nothing to do."""
    on_gpu = _on_gpus(name, meaning, _effect(instruction), 90)

    def function(b: Emitter) -> None:
        if is_cuda(b.target):
            on_gpu.fn(b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning[:1].upper()}{meaning[1:]}; nothing on a CPU, where launches run one after another."
    made: Builtin = builtin(function, export=False)
    return made


def _described(function: Callable[..., Any], name: str, meaning: str) -> Builtin:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning[:1].upper()}{meaning[1:]}; NVIDIA GPUs only."
    made: Builtin = builtin(function, export=False)
    return made


def _assembly(text: str, element: dtypes.dtype, *, pure: bool = False) -> Callable[[Emitter], Any]:
    """One instruction with one result."""
    kind = "=l" if element.primitive_bitwidth == 64 else "=r"
    return lambda b: assembly(b, text, kind, [], [element], pure=pure, pack=1)[0]


def _conversion(name: str) -> Builtin:
    meaning = "conversion from or to fp8e4b15"

    def function(b: Emitter, arg: Any, dst_ty: Any, fp_downcast_rounding: Any = None) -> tensor:
        if not is_cuda(b.target):
            raise _refused(b, name, meaning, "convert with x.to(dtype)")
        if dtypes.float8e4b15 not in (to_tensor(b, arg).dtype, unwrap(dst_ty)):
            raise LanguageTypeError(f"tl.extra.cuda.{name} converts from or to fp8e4b15", hint="write x.to(dtype)")
        converted: tensor = cast.fn(b, arg, dst_ty, fp_downcast_rounding)
        return converted

    return _described(function, name, meaning)


def _effect(text: str) -> Callable[[Emitter], None]:
    """An instruction without a result: assembly must have one, which is a zero that nobody looks at."""

    def run(b: Emitter) -> None:
        _assembly(f"{text}; mov.u32 $0, 0;", dtypes.int32)(b)

    return run


def _warps(b: Emitter) -> int:
    """Warps of a program, of the options of a GPU's back end."""
    return int(asdict(b.options)["num_warps"])


globaltimer = _on_gpus(
    "globaltimer", "nanoseconds of the GPU's clock", _assembly("mov.u64 $0, %globaltimer;", dtypes.int64)
)
smid = _on_gpus("smid", "number of the multiprocessor", _assembly("mov.u32 $0, %smid;", dtypes.int32, pure=True))
num_threads = _on_gpus("num_threads", "threads of a program", lambda b: constexpr(b.target.warp_size * _warps(b)))
num_warps = _on_gpus("num_warps", "warps of a program", lambda b: constexpr(_warps(b)))
gdc_wait = _dependent_launch("gdc_wait", "wait for the kernel launched before", "griddepcontrol.wait")
gdc_launch_dependents = _dependent_launch(
    "gdc_launch_dependents", "let the kernel launched next begin", "griddepcontrol.launch_dependents"
)
convert_custom_float8_sm70 = _conversion("convert_custom_float8_sm70")
convert_custom_float8_sm80 = _conversion("convert_custom_float8_sm80")

__all__ = [
    "convert_custom_float8_sm70", "convert_custom_float8_sm80", "gdc_launch_dependents", "gdc_wait", "globaltimer",
    "libdevice", "num_threads", "num_warps", "smid",
]  # fmt: skip
