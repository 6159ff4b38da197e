"""GPUs, their contexts, loaded modules, and memory, on top of `libcuda.py`.

Every device is used through its primary context, the one that torch and the CUDA runtime use, so pointers and streams
are shared with them. `current(device)` makes a device's context the thread's for a `with` block and puts back what was
there. Modules are unloaded when the object that stands for them is collected.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.backends.nvidia.device.libcuda import Cuda, cuda, library, problem
from tilewright.backends.nvidia.device.streams import Recent, torch_streams
from tilewright.base.errors import DriverError, LaunchError

# CUdevice_attribute
_ATTRIBUTES = {
    "max_threads": 1, "warp_size": 10, "registers_per_block": 12, "clock_khz": 13, "multiprocessors": 16,
    "memory_clock_khz": 36, "memory_bus_bits": 37, "l2_bytes": 38, "threads_per_multiprocessor": 39, "major": 75,
    "minor": 76, "shared_per_multiprocessor": 81, "registers_per_multiprocessor": 82, "shared_limit": 97,
}  # fmt: skip
# CUfunction_attribute
_MAX_THREADS, _SHARED_BYTES, _LOCAL_BYTES, _REGISTERS, _DYNAMIC_SHARED, _CARVEOUT = 0, 1, 3, 4, 8, 9
_FREE_SHARED = 48 * 1024  # bytes of dynamic shared memory that need no permission
_MAX_CARVEOUT = 100  # percent of the memory that L1 and shared memory have together
# CUjit_option
_ERROR_LOG, _ERROR_LOG_BYTES, _LINE_INFO = 5, 6, 13
_LOG_BYTES = 1 << 14
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_SHORTEST_NAP, _LONGEST_NAP = 1e-5, 1e-3  # seconds between two questions whether the GPU is done
_PORTABLE, _MAPPED = 1, 2  # CU_MEMHOSTALLOC_*
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_POINTER_DEVICE = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_POINTER_MEMORY, _MEMORY_OF_DEVICE = 2, 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE

recent = Recent()
"""Name of the kernel that was launched last on each GPU, for errors: a fault shows at some later call."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU.

    Args:
        ordinal: its number, as torch counts (CUDA_VISIBLE_DEVICES applies).
        name: product name.
        capability: compute capability, 10 * major + minor.
        memory_bytes: of its memory.
        attributes: see `_ATTRIBUTES`; clocks in kHz.
    """

    ordinal: int
    name: str
    capability: int
    memory_bytes: int
    attributes: dict[str, int]


def device_count() -> int:
    """GPUs that the driver sees; 0 where there is no driver."""
    return 0 if problem() else cuda().integer("cuDeviceGetCount", doing="counting GPUs")


def driver_version() -> tuple[int, int] | None:
    """Version of CUDA that the driver has, such as (13, 0); None where there is no driver."""
    try:
        number = library().integer("cuDriverGetVersion", doing="asking the driver for its version")
    except DriverError:
        return None
    return number // 1000, number % 1000 // 10


def driver_major() -> int | None:
    """Major version of CUDA that the driver has; None where there is no driver. Does not initialise the driver."""
    version = driver_version()
    return None if version is None else version[0]


@functools.cache
def device(ordinal: int) -> Device:
    """A GPU by its number.

    Raises:
        DriverError: there is no driver, or no such GPU.
    """
    api, doing = cuda(), f"asking about GPU {ordinal}"
    if not 0 <= ordinal < device_count():
        raise DriverError(f"there is no GPU {ordinal}", hint=f"the driver sees {device_count()}, numbered from 0")
    handle = api.integer("cuDeviceGet", ordinal, doing=doing)
    label = ctypes.create_string_buffer(256)
    api.call("cuDeviceGetName", label, len(label), handle, doing=doing)
    attributes = {
        name: api.integer("cuDeviceGetAttribute", number, handle, doing=doing) for name, number in _ATTRIBUTES.items()
    }
    memory = api.integer("cuDeviceTotalMem", handle, doing=doing, kind=ctypes.c_size_t)
    capability = 10 * attributes.pop("major") + attributes.pop("minor")
    return Device(ordinal, label.value.decode(errors="replace"), capability, memory, attributes)


@functools.cache
def context(ordinal: int) -> int:
    """Handle of a GPU's primary context, kept for the life of the process."""
    doing = f"opening GPU {device(ordinal).ordinal}"
    handle = cuda().integer("cuDeviceGet", ordinal, doing=doing)
    return cuda().integer("cuDevicePrimaryCtxRetain", handle, doing=doing, kind=ctypes.c_void_p)


@contextlib.contextmanager
def current(ordinal: int) -> Iterator[None]:
    """Have a GPU's context be the calling thread's inside of the block."""
    api, wanted = cuda(), context(ordinal)
    if api.integer("cuCtxGetCurrent", doing="asking for the context", kind=ctypes.c_void_p) == wanted:
        yield
        return
    api.call("cuCtxPushCurrent", wanted, doing=f"switching to GPU {ordinal}")
    try:
        yield
    finally:
        api.integer("cuCtxPopCurrent", doing="switching back", kind=ctypes.c_void_p)


@contextlib.contextmanager
def uncaptured() -> Iterator[None]:
    """Let this thread load code, take memory and give it back inside of the block, also while it captures a graph.

    The driver ends a capture at such calls, as they might belong to the graph; ours belong to the process. The
    collector too may make them at any time.
    """
    api, mode, doing = cuda(), ctypes.c_int(_RELAXED), "asking for calls beside a graph"
    api.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode), doing=doing)  # `mode` receives the one before
    try:
        yield
    finally:
        api.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode), doing=doing)


def current_device() -> int:
    """The GPU that the calling thread uses: that of its context, else 0."""
    api = cuda()
    if not api.integer("cuCtxGetCurrent", doing="asking for the context", kind=ctypes.c_void_p):
        return 0
    return api.integer("cuCtxGetDevice", doing="asking for the device")


def current_gpu() -> int:
    """Number of the GPU in use: torch's current one, if torch is loaded, else the calling thread's."""
    torch = torch_with_cuda()
    return current_device() if torch is None else int(torch.cuda.current_device())


def torch_with_cuda() -> Any:
    """torch, if it is loaded and was built for GPUs."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and getattr(torch.version, "cuda", None) else None


def torch_without_cuda() -> bool:
    """Whether torch is loaded and was built without GPUs, so that its tensors are never there."""
    return sys.modules.get("torch") is not None and torch_with_cuda() is None


def set_current_device(ordinal: int) -> None:
    """Make a GPU's context the calling thread's."""
    cuda().call("cuCtxSetCurrent", context(ordinal), doing=f"switching to GPU {ordinal}")


def device_of(address: int) -> int:
    """The GPU whose memory an address is in.

    Raises:
        DriverError: it is no address that the driver knows.
    """
    doing = f"looking up address {address:#x}"
    return cuda().integer("cuPointerGetAttribute", _POINTER_DEVICE, address, doing=doing)


def owner_of(address: int, host: int) -> int:
    """The GPU whose memory an address is in, or `host` for memory of the host and what the driver does not know."""
    doing = f"looking up address {address:#x}"
    try:
        kind = cuda().integer("cuPointerGetAttribute", _POINTER_MEMORY, address, doing=doing)
        return device_of(address) if kind == _MEMORY_OF_DEVICE else host
    except DriverError:
        return host


def synchronize(ordinal: int) -> None:
    """Wait for everything that was launched on a GPU; Ctrl-C ends the wait for its current stream.

    Raises:
        DriverError: some of it failed.
    """
    last = f" (launched last: kernel `{recent[ordinal]}`)" if ordinal in recent else ""
    doing = f"waiting for GPU {ordinal}{last}"
    with current(ordinal):
        wait_for_stream(current_stream(ordinal), doing)
        cuda().call("cuCtxSynchronize", doing=doing)


def stream_reader() -> Callable[[int], int]:
    """A function from a GPU's number to its current stream; it may be kept, also if torch is imported later."""
    return torch_streams() or current_stream


def current_stream(ordinal: int) -> int:
    """Handle of the stream that a launch on a GPU goes to: torch's, if torch is loaded and can use GPUs, else 0."""
    found = torch_streams()
    return 0 if found is None else found(ordinal)


def wait_for_stream(stream: int, doing: str = "waiting for a stream") -> None:
    """Wait for everything that was put into a stream of the current context; Ctrl-C ends the wait.

    Raises:
        DriverError: some of it failed; `doing` says what was waited for.
    """
    _wait("cuStream", stream, doing)


def _wait(kind: str, handle: int, doing: str) -> None:
    """Wait for a stream or an event. On the main thread handlers of signals run meanwhile, and may end the wait by what
    they raise; what was launched goes on. The GPU is asked all the time at first, then at intervals of a sixteenth of
    the time so far."""
    if threading.current_thread() is not threading.main_thread():
        cuda().call(f"{kind}Synchronize", handle, doing=doing)
        return
    query, begin = cuda().function(f"{kind}Query"), time.perf_counter()
    while (code := query(handle)) == _NOT_READY:
        nap = min(_LONGEST_NAP, (time.perf_counter() - begin) / 16)
        if nap > _SHORTEST_NAP:
            time.sleep(nap)
    if code:
        raise cuda().error(code, doing)


def is_capturing(stream: int) -> bool:
    """Whether what is launched on a stream of the current context goes into a graph instead of running."""
    status = ctypes.c_int()
    cuda().call("cuStreamIsCapturing", stream, ctypes.byref(status), doing="asking about a stream")
    return status.value != 0


# --- modules ----------------------------------------------------------------------------------------------


class Function:
    """A kernel in the memory of a GPU.

    Args:
        image: cubin, or PTX text for the driver's compiler.
        symbol: of the kernel.
        ordinal: the GPU.
        kernel: what people call it.
        shared_bytes: dynamic shared memory of a launch.

    Attributes:
        handle: CUfunction.
        registers: per thread.
        local_bytes: per thread, spills and arrays.
        static_shared_bytes: per block.
        max_threads: most threads of a block.

    Raises:
        DriverError: the driver refuses the image; the message has its log.
    """

    def __init__(self, image: bytes, symbol: str, ordinal: int, kernel: str, shared_bytes: int = 0) -> None:
        api = cuda()
        self.ordinal, self.kernel = ordinal, kernel
        with current(ordinal), uncaptured():
            module = _load_module(api, image, kernel)
            weakref.finalize(self, _unload, api, ordinal, module).atexit = False
            doing = f"finding `{symbol}` in the module of kernel `{kernel}`"
            found = ctypes.c_void_p()
            api.call("cuModuleGetFunction", ctypes.byref(found), module, symbol.encode(), doing=doing)
            self.handle = found.value or 0
            self.registers = self._attribute(_REGISTERS)
            self.local_bytes = self._attribute(_LOCAL_BYTES)
            self.static_shared_bytes = self._attribute(_SHARED_BYTES)
            self.max_threads = self._attribute(_MAX_THREADS)
            if shared_bytes > _FREE_SHARED:
                doing = f"reserving {shared_bytes} bytes of shared memory for kernel `{kernel}`"
                api.call("cuFuncSetAttribute", self.handle, _DYNAMIC_SHARED, shared_bytes, doing=doing)
                api.call("cuFuncSetAttribute", self.handle, _CARVEOUT, _MAX_CARVEOUT, doing=doing)

    def _attribute(self, number: int) -> int:
        return cuda().integer("cuFuncGetAttribute", number, self.handle, doing=f"asking about `{self.kernel}`")

    def parameter_offsets(self, count: int) -> list[int]:
        """Byte offsets of the first `count` parameters: the assembler alone knows where it puts tensor maps."""
        offset, size, doing = ctypes.c_size_t(), ctypes.c_size_t(), f"asking about the parameters of `{self.kernel}`"
        found = []
        for number in range(count):
            places = ctypes.byref(offset), ctypes.byref(size)
            cuda().call("cuFuncGetParamInfo", self.handle, number, *places, doing=doing)
            found.append(offset.value)
        return found

    def blocks_per_multiprocessor(self, threads: int, shared_bytes: int) -> int:
        """How many blocks run on a multiprocessor at a time, as the driver counts."""
        with current(self.ordinal):
            return cuda().integer(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", self.handle, threads, shared_bytes,
                doing=f"asking about `{self.kernel}`",
            )  # fmt: skip


def _load_module(api: Cuda, image: bytes, kernel: str) -> int:
    log = ctypes.create_string_buffer(_LOG_BYTES)
    options = (ctypes.c_int * 3)(_ERROR_LOG, _ERROR_LOG_BYTES, _LINE_INFO)
    values = (ctypes.c_void_p * 3)(ctypes.addressof(log), _LOG_BYTES, 1)
    module = ctypes.c_void_p()
    code = api.function("cuModuleLoadDataEx")(ctypes.byref(module), image, len(options), options, values)
    if code:
        error = api.error(code, f"loading kernel `{kernel}`")
        error.message += f"\n{log.value.decode(errors='replace')}" if log.value else ""
        raise error
    return module.value or 0


def _unload(api: Cuda, ordinal: int, module: int) -> None:
    """Errors are not raised: the context may be gone, and the module with it."""
    with contextlib.suppress(LaunchError), current(ordinal), uncaptured():
        api.function("cuModuleUnload")(module)


# --- memory, for programs without another library ---------------------------------------------------------


class Memory:
    """Bytes in the memory of a GPU, freed with the object. Copies wait until the GPU is done.

    Args:
        size: in bytes.
        ordinal: the GPU.

    Attributes:
        address: of the first byte.
    """

    def __init__(self, size: int, ordinal: int = 0) -> None:
        self.size, self.ordinal = size, ordinal
        with current(ordinal), uncaptured():
            doing = f"allocating {size} bytes on GPU {ordinal}"
            self.address = cuda().integer("cuMemAlloc", max(size, 1), doing=doing, kind=ctypes.c_uint64)
        weakref.finalize(self, _free, ordinal, self.address).atexit = False

    def write(self, data: bytes) -> None:
        """Copy from the host to the start of the memory."""
        with current(self.ordinal), uncaptured():
            cuda().call("cuMemcpyHtoD", self.address, data, len(data), doing="copying to the GPU")

    def read(self) -> bytes:
        """All bytes, copied to the host."""
        return read_bytes(self.address, self.size, self.ordinal)

    def clear(self) -> None:
        """Queue in the current stream that every byte becomes zero."""
        stream = current_stream(self.ordinal)
        with current(self.ordinal):
            cuda().call("cuMemsetD8Async", self.address, 0, self.size, stream, doing="clearing memory")


def _free(ordinal: int, address: int) -> None:
    with contextlib.suppress(LaunchError), current(ordinal), uncaptured():
        cuda().function("cuMemFree")(address)


def pinned(size: int, ordinal: int) -> int:
    """Address of `size` zero bytes of the host's memory that host and GPUs know by that address; they stay for the life
    of the process.

    Args:
        size: in bytes.
        ordinal: a GPU, by whose context they are asked for.
    """
    with current(ordinal), uncaptured():
        out, doing = ctypes.c_void_p(), f"allocating {size} bytes that GPUs and the host share"
        cuda().call("cuMemHostAlloc", ctypes.byref(out), size, _PORTABLE | _MAPPED, doing=doing)
    address = out.value or 0
    ctypes.memset(address, 0, size)
    return address


def read_bytes(address: int, size: int, ordinal: int) -> bytes:
    """Copy from a GPU's memory, after everything launched on its default stream."""
    out = ctypes.create_string_buffer(max(size, 1))
    with current(ordinal):
        wait_for_stream(0, "copying from the GPU")
        cuda().call("cuMemcpyDtoH", out, address, size, doing="copying from the GPU")
    return out.raw[:size]


def write_bytes(address: int, data: bytes, ordinal: int) -> None:
    """Copy to a GPU's memory."""
    with current(ordinal):
        cuda().call("cuMemcpyHtoD", address, data, len(data), doing="copying to the GPU")


def allocation(address: int, ordinal: int) -> tuple[int, int]:
    """First address and size of the allocation that an address is in."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    with current(ordinal):
        cuda().call(
            "cuMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), address,
            doing=f"looking up address {address:#x}",
        )  # fmt: skip
    return base.value, size.value


# --- time -------------------------------------------------------------------------------------------------


class Event:
    """A point in the work of a GPU's stream.

    Args:
        ordinal: the GPU.
    """

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        with current(ordinal):
            self._handle = cuda().integer("cuEventCreate", 0, doing="making an event", kind=ctypes.c_void_p)
        weakref.finalize(self, _destroy_event, ordinal, self._handle).atexit = False

    def record(self, stream: int | None = None) -> None:
        """Put the point behind what the stream has now; default is the current stream."""
        where = current_stream(self.ordinal) if stream is None else stream
        with current(self.ordinal):
            cuda().call("cuEventRecord", self._handle, where, doing="recording an event")

    def milliseconds_since(self, earlier: Event) -> float:
        """Time between two points; waits for the later one."""
        out = ctypes.c_float()
        with current(self.ordinal):
            _wait("cuEvent", self._handle, "waiting for an event")
            cuda().call(
                "cuEventElapsedTime", ctypes.byref(out), earlier._handle, self._handle, doing="reading the time"
            )
        return out.value


def _destroy_event(ordinal: int, handle: int) -> None:
    with contextlib.suppress(DriverError), current(ordinal), uncaptured():
        cuda().function("cuEventDestroy")(handle)
