"""`triton.runtime.jit`: kernels and what stands for tensors."""

from typing import Any

from tilewright.base.callable import BlockFunction as JITCallable
from tilewright.base.dtypes import signature_types
from tilewright.compile.serialized import full_name as get_full_name
from tilewright.compile.serialized import serialize_specialization_data
from tilewright.compile.specialize import PYTHON_TYPES, KeyOfInteger, SlotType, specialize
from tilewright.compile.specialize import Param as KernelParam
from tilewright.devices.arrays import ELEMENT_TYPES, read
from tilewright.devices.drivers import driver
from tilewright.devices.wrappers import MockTensor, TensorWrapper, reinterpret
from tilewright.frontend.finder import DependenciesFinder
from tilewright.language.library import ConstexprFunction, constexpr_function
from tilewright.launch.bind import Binder, Call, Prepared
from tilewright.launch.binding import TritonBinder, compute_cache_key
from tilewright.launch.hooks import JitFunctionInfo
from tilewright.launch.interface import KernelInterface
from tilewright.launch.jit import JITFunction, jit
from tilewright.launch.older import compute_spec_key


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

    Returns:
        The type and the key; that of an integer remembers the number, for torch's question what a kernel writes.
    """
    param = KernelParam(0, "argument", is_const=is_const, specialize=specialize_value, specialize_alignment=align)
    kind, key = specialize(read(arg, param.name), param)
    is_integer = isinstance(arg, int) and not isinstance(arg, bool)
    return kind, KeyOfInteger(key, arg) if is_integer and isinstance(key, str) else key


def mangle_type(arg: Any, specialize: bool = False) -> SlotType:
    """Signature type of an argument: `"*fp32"`, `"i32"`, `"constexpr"`."""
    return native_specialize_impl(None, arg, False, specialize, specialize)[0]


type_canonicalisation_dict = {**ELEMENT_TYPES, **signature_types(), **PYTHON_TYPES}
"""Signature type by the name that an annotation may have: "float32" and "fp32" are "fp32"."""


def create_function_from_signature(sig: Any, kparams: Any, backend: Any) -> TritonBinder:
    """A binder of calls: see `launch/binding.py`.

    Args:
        sig: the signature, which the parameters say too.
        kparams: the parameters of a kernel, as `kernel.params`.
        backend: taken as Triton takes it; the rules are the same for all.
    """

    def resolve(call: Call) -> Prepared:
        raise AssertionError("a binder launches nothing")

    return TritonBinder(Binder("kernel", kparams, resolve))


def convert_to_tuple_if_list(item: Any) -> Any:
    """Lists as tuples, to any depth; all else as it is."""
    return tuple(map(convert_to_tuple_if_list, item)) if isinstance(item, list) else item


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
    "ConstexprFunction", "DependenciesFinder", "JITCallable", "JITFunction", "JitFunctionInfo", "KernelInterface",
    "KernelParam", "MockTensor", "TensorWrapper", "compute_cache_key", "compute_spec_key", "constexpr_function",
    "convert_to_tuple_if_list", "create_function_from_signature", "get_device_key", "get_full_name",
    "get_jit_fn_file_line", "jit", "mangle_type", "native_specialize_impl", "reinterpret",
    "serialize_specialization_data", "type_canonicalisation_dict",
]  # fmt: skip
