"""Reading arrays: the element type, the address, the device, and whether the memory may be written.

torch tensors on the CPU or a CUDA GPU (by `data_ptr()` and `dtype`, without importing torch), numpy arrays, and
anything with `__array_interface__`, `__cuda_array_interface__` or `__dlpack__` are read. Strides are the kernel's
business. Arrays on other devices, or of elements that the language has no type for, raise an error naming the argument.
"""

from __future__ import annotations

import ctypes
import math
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.dtypes import dtype
from tilewright.base.errors import ArgumentError, DeviceError, GradientError
from tilewright.base.host_map import read_map
from tilewright.base.knobs import knobs
from tilewright.devices.host_descriptor import TensorDescriptor
from tilewright.devices.registry import gpu
from tilewright.frontend.records import taken_apart
from tilewright.ops.tensor_descriptor import tensor_descriptor
from tilewright.ops.values import constexpr

# Names as torch, numpy and ml_dtypes print them: signature type.
ELEMENT_TYPES = {
    "bool": "u1",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    "float8_e4m3b11fnuz": "fp8e4b15",
    "float4_e2m1fn_x2": "u8",  # bytes of two values
}
_names_of: dict[Any, str] = {}  # dtype object: signature type
_mentioned: list[str] = []  # the argument of which was said that it requires a gradient
_left: list[bool] = []  # whether somebody else says that
HOST = -1
"""Number of the CPU among devices; GPUs count from 0."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array argument, read.

    Args:
        dtype: signature type of an element (`"fp32"`).
        address: of the first element.
        writable: False if the owner forbids writing.
        owner: keeps the memory alive.
        device: number of the GPU whose memory it is, or `HOST`; None for a stand-in that is nowhere.
    """

    dtype: str
    address: int
    writable: bool = True
    owner: Any = None
    device: int | None = HOST


def element_type(kind: Any, name: str) -> str:
    """Signature type of a torch, numpy or Tilewright dtype.

    Args:
        kind: the dtype.
        name: of the argument, for the error.

    Raises:
        ArgumentError: the language has no such type.
    """
    try:
        return _names_of[kind]
    except (KeyError, TypeError):
        pass
    if isinstance(kind, dtype):
        found = kind.signature
    else:
        found = ELEMENT_TYPES.get(str(getattr(kind, "name", kind)).removeprefix("torch."), "")
    if not found or (isinstance(kind, np.dtype) and not kind.isnative):
        raise ArgumentError(
            f"argument `{name}` has elements of type {kind}, which the language does not have",
            hint=f"convert it to one of {', '.join(sorted(ELEMENT_TYPES))} in native byte order",
        )
    _names_of[kind] = found
    return found


def read(value: Any, name: str) -> Any:
    """`value` with arrays replaced by `Array`, and scalars of numpy by numbers (inside tuples too).

    Args:
        value: what the user passed.
        name: of the argument, for errors.

    Raises:
        DeviceError: the array is on a device that no back end reaches.
        GradientError: autograd records it, and the knob `torch.gradients` is "error".
        ArgumentError: its element type is unknown, or it has no memory.
    """
    if value is None or isinstance(value, (int, float, str, np.generic)):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, TensorDescriptor):
        return _read_descriptor(value, name)
    if hasattr(value, "tma_desc_cpu_ptr"):
        return _read_map(value, name)
    if isinstance(value, tuple):
        items = [read(item, f"{name}[{index}]") for index, item in enumerate(value)]
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
        return _read_tensor(value, name)
    if hasattr(value, "__cuda_array_interface__"):
        return _read_cuda_interface(value, name)
    if hasattr(value, "__array_interface__"):
        return _read_interface(value, name)
    if hasattr(value, "__dlpack__"):
        return _read_dlpack(value, name)
    record = taken_apart(value)
    return value if record is None else read(record, name)


def _read_descriptor(value: TensorDescriptor, name: str) -> tensor_descriptor:
    """The parts of a tensor descriptor in the order of the kernel's value; constants are marked as such."""
    block = tuple(constexpr(int(n)) for n in value.block_shape)
    strides = (*map(int, value.strides[:-1]), constexpr(1))
    parts = [read(value.base, f"{name}.base"), tuple(map(int, value.shape)), strides, block]
    return tensor_descriptor._make([*parts, constexpr(value.padding), constexpr(bool(value.round_f32_to_tf32))])


def _read_map(value: Any, name: str) -> tensor_descriptor:
    """A tensor map that the host wrote into memory of its own, as a descriptor of integers of the elements' width.

    Raises:
        ArgumentError: somebody else wrote it, and its bytes do not say where the tensor lies.
    """
    found = read_map(int(value.tma_desc_cpu_ptr()))
    if found is None:
        raise ArgumentError(
            f"argument `{name}` is a tensor map that CUDA's driver has encoded: it does not tell a kernel its tensor",
            hint="pass TensorDescriptor.from_tensor(tensor, block), or have driver.active.utils.fill_2d_tma_descriptor "
            "write the map",
        )
    device = gpu.owner_of(found.address, HOST) if gpu.device_count() else HOST
    base = Array(f"u{8 * found.element_bytes}", found.address, True, found, device)
    strides = (*found.shape[1:], constexpr(1))
    block = tuple(map(constexpr, found.block))
    return tensor_descriptor._make([base, found.shape, strides, block, constexpr("zero"), constexpr(False)])


def _wrong_device(name: str, device: object) -> DeviceError:
    return DeviceError(
        f"argument `{name}` is on {device}, which kernels cannot reach",
        hint=f"pass {name}.cpu(), or move it to a CUDA device",
    )


def _read_tensor(value: Any, name: str) -> Array:
    """A torch tensor, or anything that has its `data_ptr()` and `dtype`."""
    known = getattr(value, "is_cpu", False) or not hasattr(value, "device")
    device = HOST if known else _device_number(value.device, name)
    element = element_type(value.dtype, name)
    if hasattr(value, "fake_mode"):
        raise _no_memory(value, name)
    if getattr(value, "requires_grad", False):
        _mention_gradients(name)
    if getattr(value, "is_neg", bool)():
        raise ArgumentError(
            f"argument `{name}` is a view of negated numbers: its memory holds them with the other sign",
            hint=f"pass {name}.resolve_neg()",
        )
    try:
        address = int(value.data_ptr())
    except Exception as error:  # torch raises several classes for tensors without plain storage
        raise ArgumentError(
            f"argument `{name}` ({type(value).__name__}) has no plain memory: {error}", hint=_WITHOUT_MEMORY
        ) from error
    if address == 0 and _has_elements(value):
        raise _no_memory(value, name)
    if not hasattr(value, "device") and address and gpu.device_count():
        device = gpu.owner_of(address, HOST)
    return Array(element, address, True, value, device)


def leave_gradients_to_others() -> None:
    """Say nothing more of gradients here: `tilewright.torch` does, as a knob wants it."""
    _left.append(True)


def is_recorded(value: Any) -> bool:
    """Whether `value` is a tensor that requires a gradient, and autograd records."""
    return bool(getattr(value, "requires_grad", False)) and bool(sys.modules["torch"].is_grad_enabled())


def are_gradients_refused() -> bool:
    """Whether a launch on a tensor that autograd records may be an error here."""
    return not _left and knobs.torch.gradients == "error"


def _mention_gradients(name: str) -> None:
    """Say once that gradients end here, where autograd is recording; or refuse it, as the knob wants."""
    torch, wanted = sys.modules["torch"], knobs.torch.gradients
    if _left or wanted == "silent" or not torch.is_grad_enabled():
        return
    if torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradCPU):
        return
    if wanted == "error":
        raise GradientError(
            f"argument `{name}` requires a gradient: none flows through a kernel",
            hint="launch in the forward of a torch.autograd.Function or inside torch.no_grad(), or on detached tensors",
        )
    if not _mentioned:
        _mentioned.append(name)
        warnings.warn(
            f"argument `{name}` requires a gradient, but autograd does not see what a kernel does: call the kernel in "
            "the forward of a torch.autograd.Function, or pass a detached tensor",
            stacklevel=2,
        )


def _device_number(device: Any, name: str) -> int | None:
    """Number of a torch device (or of one that reads like it); None stays None."""
    kind = getattr(device, "type", device)
    if kind == "cuda":
        return int(getattr(device, "index", None) or 0)
    if device is None or kind == "cpu":
        return None if device is None else HOST
    raise _wrong_device(name, f"device {device}")


_WITHOUT_MEMORY = (
    "a kernel cannot be launched on fake or emptied tensors, or on those of a transform of torch.func; with "
    "`import tilewright.torch` ahead of it, it is an operator there: where PyTorch traces or transforms, it is recorded"
)


def _no_memory(value: Any, name: str) -> ArgumentError:
    return ArgumentError(
        f"argument `{name}` of type {type(value).__name__} has elements but no memory",
        hint=_WITHOUT_MEMORY,
    )


def _has_elements(value: Any) -> bool:
    numel = getattr(value, "numel", None)
    return bool(numel()) if callable(numel) else False


def _read_interface(value: Any, name: str) -> Array:
    """The array interface of numpy, version 3."""
    interface = value.__array_interface__
    kind = value.dtype if isinstance(value, np.ndarray) else np.dtype(interface["typestr"])
    element = element_type(kind, name)
    data = interface.get("data")
    if data is None:  # the memory is behind the buffer protocol
        return _read_interface(np.asarray(value), name)
    address, read_only = data
    return Array(element, int(address or 0), not read_only, value)


def _read_cuda_interface(value: Any, name: str) -> Array:
    """The array interface of Numba and CuPy, version 3."""
    interface = value.__cuda_array_interface__
    element = element_type(getattr(value, "dtype", None) or np.dtype(interface["typestr"]), name)
    address, read_only = interface["data"]
    if interface.get("stream"):
        gpu.wait_for_stream(interface["stream"])  # what its owner still has to write there
    device = gpu.device_of(address) if address else gpu.current_device()
    return Array(element, int(address or 0), not read_only, value, device)


# --- DLPack -------------------------------------------------------------------------------------------
# Structures of dlpack.h, version 1.1.

_CPU_DEVICES = {1, 3, 11}  # CPU, pinned memory of CUDA and ROCm
_CUDA_DEVICES = {2, 13}  # memory of a GPU, and memory that moves
_LEGACY_STREAM = 1  # DLPack's name for CUDA's default stream
_DEVICE_NAMES = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI"}
_READ_ONLY = 1  # bit of DLManagedTensorVersioned.flags
_DLPACK_NAMES = {
    **{(0, bits): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"u{bits}" for bits in (8, 16, 32, 64)},
    (2, 16): "fp16", (2, 32): "fp32", (2, 64): "fp64", (4, 16): "bf16", (6, 8): "u1",
    (9, 8): "fp8e4b15", (10, 8): "fp8e4nv", (11, 8): "fp8e4b8", (12, 8): "fp8e5", (13, 8): "fp8e5b16",
}  # fmt: skip


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


def _read_dlpack(value: Any, name: str) -> Array:
    device_type, device_id = value.__dlpack_device__()
    on_gpu = int(device_type) in _CUDA_DEVICES
    if not on_gpu and int(device_type) not in _CPU_DEVICES:
        device = _DEVICE_NAMES.get(int(device_type), f"DLPack device type {int(device_type)}")
        raise _wrong_device(name, f"device {device}:{device_id}")
    wishes = {"stream": gpu.current_stream(int(device_id)) or _LEGACY_STREAM} if on_gpu else {}
    try:
        capsule = value.__dlpack__(max_version=(1, 1), **wishes)
    except TypeError:  # a producer of before version 1
        capsule = value.__dlpack__(**wishes)
    tensor, flags = _open_capsule(capsule, name)
    element = _DLPACK_NAMES.get((tensor.code, tensor.bits))
    if element is None or tensor.lanes != 1:
        raise ArgumentError(
            f"argument `{name}` has elements of DLPack type code {tensor.code}, {tensor.bits} bits, "
            f"{tensor.lanes} lanes, which the language does not have"
        )
    # The capsule is never renamed, so its own destructor releases the tensor when the last owner goes.
    address, writable = (tensor.data or 0) + tensor.byte_offset, not flags & _READ_ONLY
    return Array(element, address, writable, (value, capsule), int(device_id) if on_gpu else HOST)


def _open_capsule(capsule: Any, name: str) -> tuple[_DLTensor, int]:
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    label = api.PyCapsule_GetName(capsule)
    if label == b"dltensor":
        return _DLTensor.from_address(api.PyCapsule_GetPointer(capsule, label)), 0
    if label == b"dltensor_versioned":
        managed = _DLManagedTensorVersioned.from_address(api.PyCapsule_GetPointer(capsule, label))
        if managed.major == 1:
            return managed.tensor, managed.flags
    raise ArgumentError(f"argument `{name}` gives a DLPack capsule of an unknown version ({label!r})")


def dlpack_layout(capsule: Any, name: str) -> tuple[int, list[int], list[int], int]:
    """Address, shape, strides in bytes and bytes per element of a DLPack capsule."""
    tensor, _ = _open_capsule(capsule, name)
    itemsize = tensor.bits // 8
    dims = [(ctypes.c_int64 * tensor.ndim).from_address(p) if p else None for p in (tensor.shape, tensor.strides)]
    shape = list(dims[0] or ())
    strides = [math.prod(shape[k + 1 :]) for k in range(len(shape))] if dims[1] is None else list(dims[1])
    return (tensor.data or 0) + tensor.byte_offset, shape, [stride * itemsize for stride in strides], itemsize


# --- the fast way to the address of a numpy array -----------------------------------------------------


def _probe_numpy_data() -> int:
    """Offset of the data pointer in a numpy array object, or -1.

    `PyArrayObject` begins with the object head and then the data pointer, the rank, and the addresses of shape and
    strides. The offset is tried on live arrays, and not used on interpreters where `id` is not an address.
    """
    if sys.implementation.name != "cpython":
        return -1
    offset = object.__basicsize__
    for size in (1, 7, 1000):
        array = np.empty(size)
        for view in (array, array[size // 2 :], array[::-1, None]):
            interface, fields = view.__array_interface__, id(view) + offset
            address, shape, strides = (ctypes.c_size_t.from_address(fields + 8 * word).value for word in (0, 2, 3))
            rank = ctypes.c_int32.from_address(fields + 8).value
            if (address, rank) != (interface["data"][0], view.ndim):
                return -1
            laid_out = [tuple((ctypes.c_ssize_t * rank).from_address(words)) for words in (shape, strides)]
            if laid_out != [view.shape, view.strides]:
                return -1
    return offset


NUMPY_DATA_OFFSET = _probe_numpy_data()


def numpy_address(array: np.ndarray[Any, Any]) -> int:
    """Address of the first element of an array of exactly the class `numpy.ndarray`."""
    if NUMPY_DATA_OFFSET < 0:
        return int(array.__array_interface__["data"][0])
    return ctypes.c_size_t.from_address(id(array) + NUMPY_DATA_OFFSET).value
