"""Where launches go: reading arrays on GPUs, mixed arguments, the active driver, interpretation of GPU arrays."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tests.devices.gpu_arrays import CudaArray, Tensor, aligned
from tilewright.backends.cpu.device.active import CpuDriver
from tilewright.backends.nvidia.device.active import CudaDriver
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.base.errors import DeviceError, DriverError, UnknownOptionError, UnsupportedError
from tilewright.base.knobs import knobs
from tilewright.base.target import Placement, Target
from tilewright.compile.specialize import parse_params
from tilewright.compiler import GPUTarget
from tilewright.devices.arrays import HOST, read
from tilewright.devices.drivers import DriverConfig, driver, target_at
from tilewright.devices.places import place_of
from tilewright.devices.registry import options_for, parse_target
from tilewright.launch.bind import Binder, Call, Prepared

X, Y = aligned(64), aligned(64)


@tilewright.jit
def fill_all(out, value, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, value, mask=i < n)


@pytest.fixture
def fake() -> Iterator[FakeCuda]:
    with installed(FakeCuda()) as library:
        assert library is not None
        yield library


# --- reading ----------------------------------------------------------------------------------------------


def test_tensors_say_their_device(fake: FakeCuda) -> None:
    array = read(Tensor(X, 1), "x")
    assert (array.dtype, array.address, array.device) == ("fp32", X.ctypes.data, 1)
    assert read(Tensor(X, None), "x").device == HOST == read(X, "x").device
    assert read(tilewright.MockTensor(tl.float16), "x").device is None


def test_cuda_array_interface(fake: FakeCuda) -> None:
    array = read(CudaArray(X.view(np.int16)), "x")
    assert (array.dtype, array.address, array.device) == ("i16", X.ctypes.data, 1)  # the fake driver says 1
    assert "cuStreamQuery" not in fake.names()
    read(CudaArray(X, stream=7), "x")
    assert ("cuStreamQuery", (7,)) in fake.calls


def test_dlpack_is_told_the_stream(fake: FakeCuda) -> None:
    class OnGpu:
        asked: Any = None

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 1)

        def __dlpack__(self, **wishes: Any) -> Any:
            self.asked = wishes
            return X.__dlpack__()

    value = OnGpu()
    array = read(value, "x")
    assert (array.dtype, array.address, array.device) == ("fp32", X.ctypes.data, 1)
    assert value.asked == {"max_version": (1, 1), "stream": 1}


# --- places -----------------------------------------------------------------------------------------------


def place(**arguments: Any) -> Any:
    values = [read(value, name) for name, value in arguments.items()]
    found = place_of(list(arguments), values)
    return found.device, found.lasting


def test_a_launch_goes_to_its_arrays(fake: FakeCuda) -> None:
    assert place(x=X, n=5) == (HOST, True)
    assert place(x=Tensor(X, 1), y=(3, Tensor(Y, 1)), n=5) == (1, True)
    assert place(n=5, scale=2.0) == (None, True)
    assert place(x=tilewright.MockTensor(tl.float32)) == (None, True)
    assert place(x=tilewright.MockTensor(tl.float32), y=Tensor(Y, 0)) == (0, True)
    assert place(x=Tensor(X, None, pinned=True), y=Tensor(Y, 0)) == (0, False)


def test_mixed_devices_are_named(fake: FakeCuda) -> None:
    with pytest.raises(DeviceError, match="`y` is on CUDA device 1, but `x` is on CUDA device 0") as raised:
        place(x=Tensor(X, 0), y=Tensor(Y, 1))
    assert "y.to(x.device)" in str(raised.value)
    with pytest.raises(DeviceError, match="`x` is on the CPU, but `y` is on CUDA device 1"):
        place(x=X, y=Tensor(Y, 1))
    with pytest.raises(DeviceError, match=r"`pair\[1\]` is on the CPU, but `pair\[0\]` is on CUDA device 0"):
        place(pair=(Tensor(X, 0), Tensor(Y, None)))


# --- the generated launch -------------------------------------------------------------------------------------


class Recorder:
    """A kernel that writes down what was resolved, and what was launched where."""

    def __init__(self, fn: Any) -> None:
        self.calls: list[Call] = []
        self.launched: list[Any] = []
        self.binder = Binder(fn.__name__, parse_params(inspect.signature(fn)), self.resolve)

    def resolve(self, call: Call) -> Prepared:
        self.calls.append(call)
        device = call.place.device

        def launch(x: int, y: int, z: int, *values: Any) -> None:
            self.launched.append((device, *values))

        return Prepared("kernel", launch, lasting=call.place.lasting)

    def __call__(self, *args: Any) -> Any:
        return self.binder.launch((1,), *args)


def copy(x, y, n): ...


@pytest.fixture
def torch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is a module whose tensors are ours."""

    class Parameter(Tensor):
        pass

    nn = SimpleNamespace(Parameter=Parameter)
    fields = {"Tensor": Tensor, "nn": nn, "version": SimpleNamespace(cuda="13.0"), "_C": SimpleNamespace()}
    cuda = SimpleNamespace(current_device=lambda: 1)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**fields, cuda=cuda))


def test_devices_are_part_of_the_key(fake: FakeCuda, torch_is: None) -> None:
    kernel = Recorder(copy)
    addresses = X.ctypes.data, Y.ctypes.data, 5
    for _ in range(3):
        for device in (0, 1, None):
            kernel(Tensor(X, device), Tensor(Y, device), 5)
    assert len(kernel.calls) == 3
    assert kernel.launched == [(0, *addresses), (1, *addresses), (HOST, *addresses)] * 3
    for _ in range(2):
        with pytest.raises(DeviceError):
            kernel(Tensor(X, 0), Tensor(Y, 1), 5)


def test_alignment_is_part_of_the_key_on_gpus(fake: FakeCuda, torch_is: None) -> None:
    kernel = Recorder(copy)
    for _ in range(2):
        kernel(Tensor(X), Tensor(Y), 5)
        kernel(Tensor(X[1:]), Tensor(Y), 5)
    assert len(kernel.calls) == 2


def test_pinned_memory_is_looked_at_each_time(fake: FakeCuda, torch_is: None) -> None:
    kernel = Recorder(copy)
    for _ in range(2):
        kernel(Tensor(X, None, pinned=True), Tensor(Y, 0), 5)
    assert len(kernel.calls) == 2
    with pytest.raises(DeviceError, match="`x` is on the CPU"):
        kernel(Tensor(X, None), Tensor(Y, 0), 5)


def test_another_driver_is_another_place(fake: FakeCuda) -> None:
    kernel = Recorder(copy)
    kernel(1, 2, 3), kernel(1, 2, 3)
    assert len(kernel.calls) == 1
    driver.set_active_to_gpu()
    try:
        kernel(1, 2, 3)
    finally:
        driver.reset_active()
    assert len(kernel.calls) == 2


# --- drivers ----------------------------------------------------------------------------------------------


def test_a_gpu_answers_under_the_usual_names(fake: FakeCuda, torch_is: None) -> None:
    found = CudaDriver()
    assert found.is_active() and found.get_current_device() == 1
    assert found.get_current_target() == target_at(0) == GPUTarget("cuda", 90, 32)
    assert found.get_device_capability(0) == (9, 0) and found.get_current_stream(0) == 0
    properties = found.utils.get_device_properties(0)
    assert (properties["multiprocessor_count"], properties["warpSize"]) == (132, 32)
    assert (properties["max_shared_mem"], properties["max_num_regs"]) == (227 * 1024, 65536)


def test_which_driver_is_active_at_the_start(monkeypatch: pytest.MonkeyPatch, fake: FakeCuda, torch_is: None) -> None:
    def chosen() -> type:
        return type(DriverConfig().active)

    assert chosen() is CpuDriver  # the tests say so
    monkeypatch.setattr(knobs.runtime, "default_backend", "auto")
    assert chosen() is CudaDriver
    sys.modules["torch"].version.cuda = None  # torch for CPUs has no tensors for the GPU
    assert chosen() is CpuDriver
    monkeypatch.setattr(knobs.runtime, "default_backend", "cuda")
    assert chosen() is CudaDriver
    monkeypatch.setattr(knobs.runtime, "default_backend", "npu")
    with pytest.raises(UnsupportedError, match="no device 'npu'"):
        chosen()


def test_no_gpu_to_make_active() -> None:
    with installed(None):
        assert driver.get_active_gpus() == [] and not CudaDriver.is_active()
        with pytest.raises(DriverError, match="no NVIDIA driver"):
            driver.set_active_to_gpu()


def test_dot_precision_is_usual_for_the_target() -> None:
    assert options_for(Target("cuda", 90), {}).default_dot_input_precision == "tf32"
    assert options_for(Target("cpu", "generic"), {}).default_dot_input_precision == "ieee"
    given = {"default_dot_input_precision": "ieee", "num_warps": 8}
    assert options_for(Target("cuda", 90), given) == CudaOptions(default_dot_input_precision="ieee", num_warps=8)


def test_options_of_other_targets_are_taken_and_not_in_the_key() -> None:
    plain, given = (options_for(Target("cpu", "generic"), options) for options in ({}, {"num_warps": 8, "maxnreg": 32}))
    assert plain == given and plain.key() == given.key()
    with pytest.raises(UnknownOptionError, match="num_wraps"):
        options_for(Target("cpu", "generic"), {"num_wraps": 4})


def test_the_null_back_end_compiles_everything_and_runs_nothing() -> None:
    out = np.zeros(4, np.float32)
    compiled = fill_all.warmup(out, 7.0, 4, BLOCK=4, grid=(1,), target="null:any")
    assert compiled.target == parse_target("null:") and "tt.store" in compiled.asm["ttir"]
    assert compiled.binary == compiled.asm["ttir"].encode()
    compiled.launcher(Placement())(1, 1, 1, 0, 7.0)
    assert not out.any()


# --- interpretation -------------------------------------------------------------------------------------------


@tilewright.jit(interpret=True)
def shift(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n, other=-1.0) + 1)


def test_gpu_arrays_are_interpreted_on_the_host(fake: FakeCuda) -> None:
    from tilewright.backends.nvidia.device.driver import Memory

    memory = Memory(64 * 4)  # both arrays are parts of one allocation
    held = np.frombuffer(fake.memory[memory.address], np.float32)
    held[:] = np.arange(64)
    shift[(1,)](CudaArray(held[:16]), CudaArray(held[32:48]), 10, BLOCK=16)
    expected = np.arange(64, dtype=np.float32)
    expected[32:48] = [*range(1, 11), *[0.0] * 6]
    assert (held == expected).all()
    assert fake.names().count("cuMemcpyDtoH") == fake.names().count("cuMemcpyHtoD") == 1


def test_an_access_outside_of_a_gpu_array_is_found(fake: FakeCuda) -> None:
    from tilewright.backends.nvidia.device.driver import Memory

    memory = Memory(16 * 4)
    held = np.frombuffer(fake.memory[memory.address], np.float32)
    with pytest.raises(tilewright.InterpreterError, match="tl.store"):
        shift[(1,)](CudaArray(held), CudaArray(held), 16, BLOCK=32)
