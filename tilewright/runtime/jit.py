"""`triton.runtime.jit`: kernels and what stands for tensors."""

from typing import Any

from tilewright.base.callable import BlockFunction as JITCallable
from tilewright.compile.serialized import full_name as get_full_name
from tilewright.compile.specialize import Param as KernelParam
from tilewright.compile.specialize import SlotType, specialize
from tilewright.devices.arrays import read
from tilewright.devices.drivers import driver
from tilewright.devices.wrappers import MockTensor, TensorWrapper, reinterpret
from tilewright.language.library import ConstexprFunction, constexpr_function
from tilewright.launch.hooks import JitFunctionInfo
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction, jit


def native_specialize_impl(
    backend: Any, arg: Any, is_const: bool, specialize_value: bool, align: bool
) -> tuple[SlotType, Any]:
    """Signature type and key of one argument, by the rules of a launch.

    Args:
        backend: taken as Triton takes it; the rules are the same for all.
        arg: what would be passed.
        is_const: whether the kernel does not store through it.
        specialize_value: whether the key holds the value's facts (being 1, being divisible by 16).
        align: whether it holds divisibility.
    """
    param = KernelParam(0, "argument", is_const=is_const, specialize=specialize_value, specialize_alignment=align)
    return specialize(read(arg, param.name), param)


def mangle_type(arg: Any, specialize: bool = False) -> SlotType:
    """Signature type of an argument: `"*fp32"`, `"i32"`, `"constexpr"`."""
    return native_specialize_impl(None, arg, False, specialize, specialize)[0]


def get_jit_fn_file_line(fn: Any) -> tuple[str, int]:
    """File and line of the `def` of a kernel, or of the one inside autotuners and heuristics."""
    while not isinstance(fn, JITFunction):
        fn = fn.fn
    return fn.def_file_line_number


def get_device_key() -> str:
    """Name of the device that launches without arrays go to: `"cpu:0"`."""
    active = driver.active
    return f"{active.get_current_target().backend}:{active.get_current_device()}"


__all__ = [
    "ConstexprFunction", "JITCallable", "JITFunction", "JitFunctionInfo", "KernelInterface", "KernelParam",
    "MockTensor", "TensorWrapper", "constexpr_function", "get_device_key", "get_full_name", "get_jit_fn_file_line",
    "jit", "mangle_type", "native_specialize_impl", "reinterpret",
]  # fmt: skip
