"""Reading arrays: torch tensors, numpy arrays, the array interface, DLPack, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from tilewright.base.dtypes import bfloat16
from tilewright.base.errors import ArgumentError, DeviceError
from tilewright.devices.arrays import Array, element_type, numpy_address, read

torch = pytest.importorskip("torch")

NUMPY_TYPES = {
    "bool": "u1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
}
TORCH_TYPES = NUMPY_TYPES | {
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}


def fields(array: Array) -> tuple[str, int, bool]:
    return array.dtype, array.address, array.writable


# --- torch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), TORCH_TYPES.items())
def test_torch_types(name: str, kind: str) -> None:
    tensor = torch.zeros(4, dtype=getattr(torch, name))
    assert fields(read(tensor, "x")) == (kind, tensor.data_ptr(), True)


def test_torch_views_and_parameters() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    for view in (base[1:, 2:], base.t(), base[::2], torch.nn.Parameter(base), base[:0]):
        assert read(view, "x").address == view.data_ptr()


def test_torch_on_another_device() -> None:
    with pytest.raises(DeviceError, match="`weights`.*meta"):
        read(torch.zeros(4, device="meta"), "weights")


def test_torch_without_memory() -> None:
    emptied = torch.zeros(8)
    emptied.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="`x`.*no memory"):
        read(emptied, "x")
    with pytest.raises(ArgumentError, match="`x`.*no plain memory"):
        read(torch.zeros(2, 2).to_sparse(), "x")


def test_fake_tensors_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(4)
    with pytest.raises(ArgumentError, match="`x`"):
        read(fake, "x")


def test_lazy_clones_get_memory_of_their_own() -> None:
    base = torch.ones(16)
    clone = torch._lazy_clone(base)
    assert read(clone, "x").address not in (0, read(base, "x").address)


def test_anything_with_data_ptr_and_dtype() -> None:
    class Wrapper:
        dtype = bfloat16

        def data_ptr(self) -> int:
            return 4096

    assert fields(read(Wrapper(), "x")) == ("bf16", 4096, True)


# --- numpy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), NUMPY_TYPES.items())
def test_numpy_types(name: str, kind: str) -> None:
    array = np.zeros(4, name)
    assert fields(read(array, "x")) == (kind, array.ctypes.data, True)


def test_numpy_read_only_and_views() -> None:
    array = np.arange(20, dtype=np.int32)
    array.flags.writeable = False
    assert not read(array, "x").writable
    assert not read(np.broadcast_to(np.float32(1), (3, 3)), "x").writable
    view = np.zeros((4, 6))[1:, ::-1]
    assert fields(read(view, "x")) == ("fp64", view.__array_interface__["data"][0], True)


def test_numpy_address_is_the_data_pointer() -> None:
    for array in (np.zeros(5), np.zeros((4, 4))[1:, 2:], np.zeros(4)[::-1], np.empty(0), np.array(3.0)):
        assert numpy_address(array) == array.__array_interface__["data"][0]


@pytest.mark.parametrize("name", ["complex64", ">f4", "datetime64[s]", "U4", "O", "longdouble"])
def test_numpy_types_that_the_language_lacks(name: str) -> None:
    with pytest.raises(ArgumentError, match="`x` has elements of type"):
        read(np.zeros(2, np.dtype(name)), "x")


def test_ml_dtypes_names() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"):
        assert read(np.zeros(2, getattr(ml_dtypes, name)), "x").dtype == element_type(np.dtype(name), "x")


def test_array_interface_of_other_objects() -> None:
    memory = np.arange(8, dtype=np.uint16)

    class Foreign:
        __array_interface__ = {
            "version": 3, "typestr": "<u2", "shape": (8,), "data": (memory.ctypes.data, True),
        }  # fmt: skip

    assert fields(read(Foreign(), "x")) == ("u16", memory.ctypes.data, False)


# --- DLPack -----------------------------------------------------------------------------------------------


class Exporter:
    """Only DLPack, nothing else, of a tensor or array."""

    def __init__(self, inner: Any, *, old: bool = False) -> None:
        self.inner, self.old = inner, old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.inner.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        if self.old and keywords:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.inner.__dlpack__(**keywords)


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_of_torch_and_numpy(old: bool) -> None:
    tensor = torch.zeros(8, dtype=torch.bfloat16)[2:]
    assert fields(read(Exporter(tensor, old=old), "x")) == ("bf16", tensor.data_ptr(), True)
    array = np.zeros((4, 4), np.int64)[1:]
    assert fields(read(Exporter(array, old=old), "x")) == ("i64", array.ctypes.data, True)


@pytest.mark.parametrize(("name", "kind"), TORCH_TYPES.items())
def test_dlpack_types(name: str, kind: str) -> None:
    tensor = torch.zeros(4, dtype=getattr(torch, name))
    try:
        tensor.__dlpack__(max_version=(1, 1))
    except (BufferError, RuntimeError):
        pytest.skip("torch does not export this type")
    assert read(Exporter(tensor), "x").dtype == kind


def test_dlpack_read_only_flag() -> None:
    array = np.arange(4.0)
    array.flags.writeable = False
    try:
        array.__dlpack__(max_version=(1, 1))
    except BufferError:
        pytest.skip("this numpy does not export read-only arrays")
    assert not read(Exporter(array), "x").writable


def test_dlpack_memory_lives_as_long_as_the_array() -> None:
    array = np.arange(4.0)
    alive = weakref.ref(array)
    read_array = read(Exporter(array), "x")
    del array
    gc.collect()
    assert alive() is not None
    assert ctypes.c_double.from_address(read_array.address + 24).value == 3.0
    del read_array
    gc.collect()
    assert alive() is None


def test_dlpack_on_another_device() -> None:
    class OnGpu:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (10, 1)

        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError("must not be asked")

    with pytest.raises(DeviceError, match="`x` is on device ROCm:1"):
        read(OnGpu(), "x")


def test_dlpack_complex_is_refused() -> None:
    with pytest.raises(ArgumentError, match="code 5, 64 bits"):
        read(Exporter(torch.zeros(2, dtype=torch.complex64)), "x")


# --- everything else --------------------------------------------------------------------------------------


def test_other_values_pass_through() -> None:
    for value in (None, 1, True, 2.5, "text", [1, 2], object()):
        assert read(value, "x") is value


@pytest.mark.parametrize("value", [np.int64(3), np.int32(1), np.uint8(3), np.bool_(True), np.float16(3), np.float64(2)])
def test_scalars_of_numpy_are_numbers(value: np.generic) -> None:
    number = read(value, "x")
    assert number == value and type(number) in (bool, int, float) and read((value,), "x") == (number,)


def test_tuples_are_read_inside() -> None:
    Pair = namedtuple("Pair", "data size")
    array = np.zeros(4, np.int8)
    got = read(Pair(array, (array, 3)), "x")
    assert type(got) is Pair and got.data.dtype == "i8" and got.size[0].dtype == "i8" and got.size[1] == 3
    with pytest.raises(ArgumentError, match=r"`x\[1\]\[0\]`"):
        read((1, (np.zeros(1, complex),)), "x")
