"""A driver library without a GPU: C functions made of Python, which write down how they are called.

Device memory is host memory, kernels are Python functions, and every function can be told to fail. The native launcher
calls these functions by address, as it does the real ones.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tilewright.backends.nvidia.device import driver, libcuda

ATTRIBUTES = {1: 1024, 10: 32, 12: 65536, 16: 132, 75: 9, 76: 0, 81: 228 << 10, 82: 65536, 97: 227 << 10}
ERRORS = {
    1: (b"CUDA_ERROR_INVALID_VALUE", b"invalid argument"),
    100: (b"CUDA_ERROR_NO_DEVICE", b"no CUDA-capable device is detected"),
    209: (b"CUDA_ERROR_NO_BINARY_FOR_GPU", b"no kernel image is available for execution on the device"),
    900: (b"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", b"operation not permitted when stream is capturing"),
    700: (b"CUDA_ERROR_ILLEGAL_ADDRESS", b"an illegal memory access was encountered"),
    719: (b"CUDA_ERROR_LAUNCH_FAILED", b"unspecified launch failure"),
}

_ENDING = ("cuModule", "cuMemAlloc", "cuMemHostAlloc", "cuMemFree", "cuMemcpy", "cuEventDestroy")
"""Calls that end the capture of a graph, unless the thread says that they have nothing to do with it."""


_PINNED: list[Any] = []
"""Memory that stays for the life of the process, and does for those who took it of a fake that is gone."""


def _number(value: Any) -> int:
    return int(value or 0)


def _store(pointer: Any, kind: Any, value: Any) -> None:
    kind.from_address(pointer).value = value


class FakeMemory:
    """Memory of the GPUs: blocks of the host's.

    Attributes:
        memory: address -> block.
    """

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}

    def _cuMemAlloc(self, out: int, size: int) -> None:
        memory = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(memory)] = memory
        _store(out, ctypes.c_uint64, ctypes.addressof(memory))

    def _cuMemHostAlloc(self, out: int, size: int, flags: int) -> None:
        assert flags == 3  # for all GPUs, and mapped
        _PINNED.append(ctypes.create_string_buffer(b"\xff" * size, size))
        _store(out, ctypes.c_uint64, ctypes.addressof(_PINNED[-1]))

    def _cuMemFree(self, address: int) -> None:
        self.memory.pop(address, None)  # the collector may be late: memory of a fake that was there before

    def _cuMemcpyHtoD(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def _cuMemcpyDtoH(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def _cuMemGetAddressRange(self, base: int, size: int, address: int) -> int:
        for start, memory in self.memory.items():
            if start <= address < start + len(memory):
                _store(base, ctypes.c_uint64, start)
                _store(size, ctypes.c_size_t, len(memory))
                return 0
        return 1

    def _cuPointerGetAttribute(self, out: int, which: int, address: int) -> None:
        _store(out, ctypes.c_int, 2 if which == 2 else 1)  # memory of a GPU, of number 1


class FakeCapture:
    """Graphs that streams are captured into.

    Attributes:
        captures: whether one is.
        mode: what the thread may do meanwhile: 0 forbids what could belong to the graph, 2 nothing.
    """

    captures, mode = False, 0

    def ends_capture(self, name: str) -> bool:
        """Whether a call is forbidden now."""
        return self.captures and self.mode != 2 and name.startswith(_ENDING)

    def _cuStreamIsCapturing(self, stream: int, out: int) -> None:
        _store(out, ctypes.c_int, int(self.captures))

    def _cuThreadExchangeStreamCaptureMode(self, mode: int) -> None:
        place = ctypes.c_int.from_address(mode)
        self.mode, place.value = place.value, self.mode


class FakeCuda(FakeMemory, FakeCapture):
    """What `ctypes.CDLL("libcuda.so.1")` would give.

    Args:
        devices: number of GPUs.
        version: of CUDA, as the driver counts.

    Attributes:
        calls: (name, arguments) of every call, in order; pointers as integers.
        fails: name -> code that it returns from now on.
        acts: name -> what it does from now on.
        launches: what cuLaunchKernelEx was told, as dictionaries.
        kernel: called with the bytes of the parameters at every launch.
        current: stack of contexts; the last one is current.
        facts: CUfunction_attribute -> value.
        milliseconds: time between any two events.
    """

    def __init__(self, devices: int = 2, version: int = 13000) -> None:
        super().__init__()
        self.devices, self.version = devices, version
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fails: dict[str, int] = {}
        self.acts: dict[str, Callable[..., Any]] = {}
        self.launches: list[dict[str, Any]] = []
        self.kernel: Callable[[bytes], None] = lambda parameters: None
        self.current: list[int] = [0]
        self.facts = {0: 1024, 1: 0, 3: 0, 4: 32}
        self.jit_log = b""
        self.milliseconds = 0.0
        for name, (suffix, types) in libcuda._FUNCTIONS.items():
            function = ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._handler(name))
            setattr(self, name + suffix, function)

    def _handler(self, name: str) -> Callable[..., int]:
        usual = getattr(self, f"_{name}", None)

        def call(*args: Any) -> int:
            self.calls.append((name, args))
            if self.ends_capture(name):
                return 900
            code, act = self.fails.get(name, 0), self.acts.get(name, usual)
            if code or act is None:
                return code
            return act(*args) or 0

        return call

    def names(self) -> list[str]:
        """Names of the calls so far, without questions for the context."""
        return [name for name, _ in self.calls if name != "cuCtxGetCurrent"]

    # -- what the functions do -------------------------------------------------------------------------

    def _cuInit(self, flags: int) -> int:
        return 0 if self.devices else 100

    def _cuDriverGetVersion(self, out: int) -> None:
        _store(out, ctypes.c_int, self.version)

    def _cuTensorMapReplaceAddress(self, out: int, address: int) -> None:
        assert out % 64 == 0
        _store(out, ctypes.c_uint64, address)  # as the maps that tests make begin

    def _cuGetErrorName(self, code: int, out: int, which: int = 0) -> int:
        if code not in ERRORS:
            return 1
        _store(out, ctypes.c_char_p, ERRORS[code][which])
        return 0

    def _cuGetErrorString(self, code: int, out: int) -> int:
        return self._cuGetErrorName(code, out, 1)

    def _cuDeviceGetCount(self, out: int) -> None:
        _store(out, ctypes.c_int, self.devices)

    def _cuDeviceGet(self, out: int, ordinal: int) -> None:
        _store(out, ctypes.c_int, ordinal)

    def _cuDeviceGetName(self, out: Any, size: int, device: int) -> None:
        return None

    def _cuDeviceGetAttribute(self, out: int, number: int, device: int) -> None:
        _store(out, ctypes.c_int, ATTRIBUTES.get(number, 0))

    def _cuDeviceTotalMem(self, out: int, device: int) -> None:
        _store(out, ctypes.c_size_t, 80 << 30)

    def _cuDevicePrimaryCtxRetain(self, out: int, device: int) -> None:
        _store(out, ctypes.c_void_p, 0x1000 + device)

    def _cuCtxGetCurrent(self, out: int) -> None:
        _store(out, ctypes.c_void_p, self.current[-1])

    def _cuCtxGetDevice(self, out: int) -> None:
        _store(out, ctypes.c_int, self.current[-1] - 0x1000)

    def _cuCtxPushCurrent(self, context: int) -> None:
        self.current.append(_number(context))

    def _cuCtxPopCurrent(self, out: int) -> None:
        _store(out, ctypes.c_void_p, self.current.pop())

    def _cuCtxSetCurrent(self, context: int) -> None:
        self.current[-1] = _number(context)

    def _cuModuleLoadDataEx(self, out: int, image: bytes, count: int, options: int, values: int) -> int:
        keys = (ctypes.c_int * count).from_address(options)
        settings = dict(zip(keys, (ctypes.c_void_p * count).from_address(values), strict=True))
        if self.jit_log:
            ctypes.memmove(settings[5], self.jit_log + b"\0", len(self.jit_log) + 1)
            return 209
        _store(out, ctypes.c_void_p, 0x2000)
        return 0

    def _cuModuleGetFunction(self, out: int, module: int, symbol: bytes) -> None:
        _store(out, ctypes.c_void_p, 0x3000 + self.current[-1])

    def _cuFuncGetAttribute(self, out: int, number: int, function: int) -> None:
        _store(out, ctypes.c_int, self.facts[number])

    def _cuEventCreate(self, out: int, flags: int) -> None:
        _store(out, ctypes.c_void_p, 0x4000)

    def _cuEventElapsedTime(self, out: int, begin: int, end: int) -> None:
        _store(out, ctypes.c_float, self.milliseconds)

    def _cuLaunchKernelEx(self, config: int, function: int, params: Any, extra: int) -> None:
        grid_block = struct.unpack("=6I", ctypes.string_at(config, 24))
        shared, stream, attributes, count = struct.unpack("=I4xQQI", ctypes.string_at(config + 24, 28))
        parameters = b""
        if extra is not None:
            begin, buffer, sized, size, end = (ctypes.c_size_t * 5).from_address(extra)
            assert (begin, sized, end, params) == (1, 2, 0, None)
            parameters = ctypes.string_at(buffer, ctypes.c_size_t.from_address(size).value)
            assert parameters
        rows = [ctypes.string_at(attributes + 72 * row, 72) for row in range(count)]
        self.launches.append({
            "grid": grid_block[:3], "block": grid_block[3:], "shared": shared, "stream": stream,
            "function": _number(function), "context": self.current[-1], "parameters": parameters,
            "attributes": [(struct.unpack_from("=I", row)[0], struct.unpack_from("=3I", row, 8)) for row in rows],
        })  # fmt: skip
        self.kernel(parameters)


_CACHES = (libcuda.library, libcuda.cuda, libcuda.problem, driver.device, driver.context)


@contextmanager
def installed(fake: FakeCuda | None) -> Iterator[FakeCuda | None]:
    """Have `fake` be the driver library of this process inside of the block; None for a machine without one."""

    def load() -> Any:
        if fake is None:
            raise OSError("libcuda.so.1: cannot open shared object file: No such file or directory")
        return fake

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libcuda, "open_library", lambda name: load())
        if sys.modules.get("torch") is not None:  # one with CUDA tells the streams of the real GPUs
            patch.delattr("torch._C._cuda_getCurrentRawStream", raising=False)
        for cache in _CACHES:
            cache.cache_clear()
        try:
            yield fake
        finally:
            driver.recent.clear()
            for cache in _CACHES:
                cache.cache_clear()
