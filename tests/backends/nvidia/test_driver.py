"""Devices, contexts, modules and memory: what the driver is asked for, and what its failures become."""

from __future__ import annotations

import gc

import pytest

from tests.backends.nvidia.fake_cuda import FakeCuda, installed
from tilewright.backends.nvidia.device import driver, libcuda
from tilewright.base.errors import DriverError, LaunchError


def test_devices_and_their_properties(fake: FakeCuda) -> None:
    assert (driver.device_count(), driver.driver_version()) == (2, (13, 0))
    found = driver.device(1)
    assert (found.capability, found.memory_bytes, found.attributes["multiprocessors"]) == (90, 80 << 30, 132)
    assert found.attributes["shared_limit"] == 227 * 1024
    with pytest.raises(DriverError, match="no GPU 2") as raised:
        driver.device(2)
    assert "sees 2" in str(raised.value)


def test_no_library() -> None:
    with installed(None):
        assert (driver.device_count(), driver.driver_version()) == (0, None)
        with pytest.raises(DriverError, match="no NVIDIA driver: libcuda.so.1: cannot open") as raised:
            libcuda.cuda()
        assert isinstance(raised.value, LaunchError) and "CPU tensors" in str(raised.value)


def test_no_gpu() -> None:
    with installed(FakeCuda(devices=0)):
        assert driver.device_count() == 0
        with pytest.raises(DriverError, match="sees no GPU") as raised:
            driver.device(0)
        assert (raised.value.code, raised.value.name) == (100, "CUDA_ERROR_NO_DEVICE")


def test_a_driver_without_a_function() -> None:
    library = FakeCuda()
    del library.cuLaunchKernelEx
    with installed(library), pytest.raises(DriverError, match="no cuLaunchKernelEx") as raised:
        libcuda.cuda().address("cuLaunchKernelEx")
    assert "CUDA 12" in str(raised.value)


def test_the_context_is_put_back(fake: FakeCuda) -> None:
    with driver.current(1):
        assert fake.current == [0, 0x1001]
        with driver.current(1):  # nothing to do
            assert fake.current == [0, 0x1001]
        with pytest.raises(ZeroDivisionError), driver.current(0):
            assert fake.current == [0, 0x1001, 0x1000]
            raise ZeroDivisionError
    assert fake.current == [0]
    assert driver.current_device() == 0  # of no context
    driver.set_current_device(1)
    assert driver.current_device() == 1


def test_errors_have_the_words_of_the_driver(fake: FakeCuda) -> None:
    fake.fails["cuCtxSynchronize"] = 700
    driver.recent[0] = "softmax"
    with pytest.raises(DriverError) as raised:
        driver.synchronize(0)
    text = str(raised.value)
    assert "launched last: kernel `softmax`" in text
    assert "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)" in text
    assert "TILEWRIGHT_INTERPRET=1" in text and fake.current == [0]
    fake.fails["cuCtxSynchronize"] = 12345
    with pytest.raises(DriverError, match=r"unknown error \(unknown error, 12345\)"):
        driver.synchronize(0)


def test_a_function_is_loaded_with_what_it_needs(fake: FakeCuda) -> None:
    function = driver.Function(b"\x7fELF", "add", 1, "add", shared_bytes=100_000)
    assert (function.handle, function.registers, function.max_threads) == (0x3000 + 0x1001, 32, 1024)
    settings = [args[1:] for name, args in fake.calls if name == "cuFuncSetAttribute"]
    assert settings == [(8, 100_000), (9, 100)]
    small = driver.Function(b"\x7fELF", "add", 1, "add", shared_bytes=48 * 1024)
    assert fake.names().count("cuFuncSetAttribute") == 2 and fake.current == [0]
    del function
    gc.collect()
    assert fake.names().count("cuModuleUnload") == 1
    del small
    gc.collect()
    assert fake.names().count("cuModuleUnload") == 2 and fake.current == [0]


def test_a_refused_image_shows_the_log(fake: FakeCuda) -> None:
    fake.jit_log = b"ptxas fatal: Unsupported .version 9.9"
    with pytest.raises(DriverError, match="loading kernel `add`: no kernel image") as raised:
        driver.Function(b".version 9.9", "add", 0, "add")
    text = str(raised.value)
    assert "Unsupported .version 9.9" in text and "newer than the driver" in text and fake.current == [0]


def test_memory_goes_there_and_back(fake: FakeCuda) -> None:
    memory = driver.Memory(8, 1)
    memory.write(b"12345678")
    assert memory.read() == b"12345678"
    assert driver.read_bytes(memory.address + 2, 3, 1) == b"345"
    driver.write_bytes(memory.address, b"ab", 1)
    assert memory.read() == b"ab345678"
    assert driver.allocation(memory.address + 5, 1) == (memory.address, 8)
    assert driver.device_of(memory.address) == 1
    del memory
    gc.collect()
    assert not fake.memory and fake.current == [0]


def test_too_much_memory(fake: FakeCuda) -> None:
    fake.fails["cuMemAlloc"] = 2
    with pytest.raises(DriverError, match="allocating 1000 bytes on GPU 0") as raised:
        driver.Memory(1000)
    assert "smaller" in str(raised.value)
