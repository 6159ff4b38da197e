"""Tensors that machine code makes: by torch's stable C functions for compiled models, and the C++ function that gives
an object of Python for a handle. They are tried before the first use; where one is missing nothing is made so.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from tilewright.backends.llvm.calls import tables as t
from tilewright.launch.native.libtorch import address_of, python_library, torch_library

_WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"  # PyObject* THPVariable_Wrap(const at::TensorBase&)
_FILLS = "_ZNK2at7Context23deterministicAlgorithmsEv"  # bool at::Context::deterministicAlgorithms() const
_CONTEXT = "_ZN2at13globalContextEv"  # at::Context& at::globalContext()
_REAL = "_ZN3c1031get_default_dtype_as_scalartypeEv"  # c10::ScalarType c10::get_default_dtype_as_scalartype()


def numbers_of(tensor: Any) -> tuple[int, int, int] | None:
    """torch's numbers of the type of an element, of the kind of device, of the device; None where it does not say."""
    found = []
    for name in ("dtype", "device_type", "device_index"):
        number = ctypes.c_int32()
        function = getattr(torch_library(), f"aoti_torch_get_{name}")
        function.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        if function(_handle(tensor), ctypes.byref(number)):
            return None
        found.append(number.value)
    return found[0], found[1], found[2]


def _handle(tensor: Any) -> int:
    """Address of the word of an object of Python that is the address of its tensor."""
    start = id(tensor)
    return next(at for at in range(start, start + 64, 8) if ctypes.c_size_t.from_address(at).value == tensor._cdata)


def table_of(tensor: Any, zero: bool) -> tuple[Any, list[Any]] | None:
    """The table of a tensor like this one, see `tables.MADE_WORDS`, and what must live as long."""
    numbers = numbers_of(tensor)
    if numbers is None:
        return None
    return _table(tensor.shape, tensor.stride(), numbers, zero)


def _table(
    sizes: Sequence[int], strides: Sequence[int], numbers: tuple[int, int, int], zero: bool
) -> tuple[Any, list[Any]]:
    axes = [(ctypes.c_int64 * max(len(row), 1))(*row) for row in (sizes, strides)]
    table = (ctypes.c_int64 * t.MADE_WORDS)()
    table[t.MADE_RANK] = len(sizes)
    table[t.MADE_SIZES], table[t.MADE_STRIDES] = map(ctypes.addressof, axes)
    table[t.MADE_TYPE], table[t.MADE_DEVICE], table[t.MADE_INDEX] = numbers
    table[t.MADE_ZERO] = int(zero)
    return table, axes


def settings() -> tuple[int, int, int] | None:
    """Addresses: of the function that tells whether new memory is filled, of what it is asked of, and of the function
    that gives the number of the type that floats are made of; None where torch cannot be asked."""
    try:
        fills, context, real = (getattr(torch_library(), name) for name in (_FILLS, _CONTEXT, _REAL))
    except (AttributeError, OSError, StopIteration):  # a compiler that names C++ functions otherwise, or another torch
        return None
    torch = sys.modules["torch"]
    fills.restype, fills.argtypes = ctypes.c_bool, (ctypes.c_void_p,)
    context.restype, context.argtypes = ctypes.c_void_p, ()
    real.restype, real.argtypes = ctypes.c_int8, ()
    usual = numbers_of(torch.empty(0, dtype=torch.get_default_dtype(), device="cpu"))
    asked = context()
    if fills(asked) is not torch.are_deterministic_algorithms_enabled() or usual is None or real() != usual[0]:
        return None
    return address_of(fills), asked, address_of(real)


def make_by(shared: Any) -> bool:
    """Have machine code make tensors, if that can be.

    Args:
        shared: the words of the process.
    """
    if not shared[t.SHARED_EMPTY]:
        with contextlib.suppress(AttributeError, OSError, StopIteration):
            library = torch_library()
            functions = [getattr(library, f"aoti_torch_{name}") for name in ("empty_strided", "zero_")]
            functions += [library.aoti_torch_delete_tensor_object, getattr(python_library(), _WRAP)]
            if _agree(functions):
                for word, function in enumerate(functions):
                    shared[t.SHARED_EMPTY + word] = address_of(function)
    return bool(shared[t.SHARED_EMPTY])


def _agree(functions: Sequence[Any]) -> bool:
    """Whether torch's functions make what they are asked for, and let go of it."""
    torch = sys.modules["torch"]
    empty, zero, delete, wrap = functions
    empty.argtypes = (ctypes.c_int64, *(ctypes.c_void_p,) * 2, *(ctypes.c_int32,) * 3, ctypes.c_void_p)
    wrap.restype = ctypes.py_object
    for function in (zero, delete, wrap):
        function.argtypes = (ctypes.c_void_p,)
    for like in (torch.ones(3, 2, dtype=torch.float64).t(), torch.ones((), dtype=torch.int8), torch.ones(0, 5)):
        numbers, handle = numbers_of(like), ctypes.c_void_p()
        if numbers is None:
            return False
        axes = [(ctypes.c_int64 * 2)(*row) for row in (like.shape, like.stride())]
        if empty(like.dim(), *axes, *numbers, ctypes.byref(handle)) or zero(handle):
            return False
        made = wrap(handle)
        if delete(handle) or type(made) is not torch.Tensor or made.requires_grad or sys.getrefcount(made) > 2:
            return False
        if (made.dtype, made.device, made.shape, made.stride()) != (like.dtype, like.device, like.shape, like.stride()):
            return False
        if made.any():
            return False
    return True
