"""The driver library (libcuda): found, loaded, and called through ctypes; its errors become `DriverError`.

`cuda()` loads and initialises it once, on first use. `Cuda.call("cuMemFree", address, doing="freeing memory")` calls a
function by the name in NVIDIA's documentation ("CUDA Driver API"); the table below gives the symbol that has today's
signature, and the types of its arguments.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.base.errors import DriverError, LaunchError
from tilewright.base.knobs import knobs

_I, _U, _Z, _P, _S = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_A = ctypes.c_uint64  # an address in a GPU's memory

# name: (suffix of the symbol, types of the arguments). Handles and results are pointers.
_FUNCTIONS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "cuInit": ("", (_U,)),
    "cuDriverGetVersion": ("", (_P,)),
    "cuGetErrorName": ("", (_I, _P)),
    "cuGetErrorString": ("", (_I, _P)),
    "cuDeviceGetCount": ("", (_P,)),
    "cuDeviceGet": ("", (_P, _I)),
    "cuDeviceGetName": ("", (_S, _I, _I)),
    "cuDeviceGetAttribute": ("", (_P, _I, _I)),
    "cuDeviceTotalMem": ("_v2", (_P, _I)),
    "cuDevicePrimaryCtxRetain": ("", (_P, _I)),
    "cuCtxGetCurrent": ("", (_P,)),
    "cuCtxGetDevice": ("", (_P,)),
    "cuCtxPushCurrent": ("_v2", (_P,)),
    "cuCtxPopCurrent": ("_v2", (_P,)),
    "cuCtxSetCurrent": ("", (_P,)),
    "cuCtxSynchronize": ("", ()),
    "cuModuleLoadDataEx": ("", (_P, _S, _U, _P, _P)),
    "cuModuleUnload": ("", (_P,)),
    "cuModuleGetFunction": ("", (_P, _P, _S)),
    "cuFuncGetAttribute": ("", (_P, _I, _P)),
    "cuFuncGetParamInfo": ("", (_P, _Z, _P, _P)),
    "cuFuncSetAttribute": ("", (_P, _I, _I)),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": ("", (_P, _P, _I, _Z)),
    "cuLaunchKernelEx": ("", (_P, _P, _P, _P)),
    "cuStreamSynchronize": ("", (_P,)),
    "cuStreamQuery": ("", (_P,)),
    "cuStreamIsCapturing": ("", (_P, _P)),
    "cuThreadExchangeStreamCaptureMode": ("", (_P,)),
    "cuEventCreate": ("", (_P, _U)),
    "cuEventRecord": ("", (_P, _P)),
    "cuEventQuery": ("", (_P,)),
    "cuEventSynchronize": ("", (_P,)),
    "cuEventElapsedTime": ("", (_P, _P, _P)),
    "cuEventDestroy": ("_v2", (_P,)),
    "cuMemAlloc": ("_v2", (_P, _Z)),
    "cuMemFree": ("_v2", (_A,)),
    "cuMemHostAlloc": ("", (_P, _Z, _U)),
    "cuMemcpyHtoD": ("_v2", (_A, _P, _Z)),
    "cuMemcpyDtoH": ("_v2", (_P, _A, _Z)),
    "cuMemsetD8Async": ("", (_A, ctypes.c_ubyte, _Z, _P)),
    "cuMemGetAddressRange": ("_v2", (_P, _P, _A)),
    "cuPointerGetAttribute": ("", (_P, _I, _A)),
    "cuTensorMapReplaceAddress": ("", (_P, _P)),
    "cuTensorMapEncodeTiled": ("", (_P, _I, _U, _P, _P, _P, _P, _P, _I, _I, _I, _I)),
}  # fmt: skip

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_NO_DEVICE = 100
FAULTS = {700, 710, 714, 715, 716, 717, 718, 719}  # faults of running code; the context is lost
_NEWER_THAN_THE_DRIVER = {200, 209, 222}  # invalid image, no binary for this GPU, unsupported PTX version
_CPU_RUN = (
    "the same launch on CPU tensors with TILEWRIGHT_INTERPRET=1 checks every access and names the line; "
    "CUDA_LAUNCH_BLOCKING=1 makes sure which launch it was. This process has to be started again"
)
_HINTS = {
    2: "free tensors that are no longer needed, or take smaller ones",
    201: "another library destroyed the context of the device",
    701: "the kernel takes too many registers for this many threads: lower num_warps or the tile sizes, or set maxnreg",
    **dict.fromkeys(FAULTS, _CPU_RUN),
    **dict.fromkeys(
        _NEWER_THAN_THE_DRIVER, "the code is newer than the driver: update the driver, or install an older nvJitLink"
    ),
}


reasons: list[Callable[[], LaunchError | None]] = []
"""Asked after a fault of running code: an error that says more of it, or None."""


class Cuda:
    """The functions of a driver library.

    Args:
        library: the loaded library, or an object with the functions as attributes.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The ctypes function of this name.

        Raises:
            DriverError: the driver is too old to have it.
        """
        found = self._functions.get(name)
        if found is None:
            suffix, types = _FUNCTIONS[name]
            try:
                found = getattr(self._library, name + suffix)
            except AttributeError:
                raise DriverError(
                    f"the NVIDIA driver has no {name}", hint="update the driver: CUDA 12.0 or newer is needed"
                ) from None
            found.argtypes, found.restype = types, ctypes.c_int
            self._functions[name] = found
        return found

    def address(self, name: str) -> int:
        """Address of a function, for native code."""
        return ctypes.cast(self.function(name), ctypes.c_void_p).value or 0

    def call(self, name: str, *args: Any, doing: str) -> None:
        """Call a function.

        Args:
            name: as documented.
            args: for its parameters.
            doing: what is being done, for the error ("launching kernel `add`").

        Raises:
            DriverError: it fails.
        """
        code = self.function(name)(*args)
        if code:
            raise self.error(code, doing)

    def integer(self, name: str, *args: Any, doing: str, kind: Any = ctypes.c_int) -> int:
        """Call a function whose first parameter receives a number of type `kind`, and return that."""
        out = kind()
        self.call(name, ctypes.byref(out), *args, doing=doing)
        return out.value or 0

    def error(self, code: int, doing: str) -> LaunchError:
        """What went wrong, in the driver's words and ours."""
        for reason in reasons if code in FAULTS else ():
            known = reason()
            if known is not None:
                return known
        name, text = self._words("cuGetErrorName", code), self._words("cuGetErrorString", code)
        return DriverError(f"{doing}: {text} ({name}, {code})", code, name, hint=_HINTS.get(code))

    def _words(self, function: str, code: int) -> str:
        out = ctypes.c_char_p()
        if self.function(function)(code, ctypes.byref(out)) or out.value is None:
            return "unknown error"
        return out.value.decode(errors="replace")


open_library: Callable[[str], Any] = ctypes.CDLL


def _load() -> Any:
    wanted: list[str | Path] = [knobs.cuda.libcuda] if knobs.cuda.libcuda else [_LIBRARY, "libcuda.so"]
    reasons = []
    for name in wanted:
        try:
            return open_library(str(name))
        except OSError as error:
            reasons.append(str(error))
    raise DriverError(
        f"there is no NVIDIA driver: {reasons[0]}",
        hint="install the driver (it brings libcuda.so.1), or pass CPU tensors: the same kernel runs on the CPU",
    )


@functools.cache
def library() -> Cuda:
    """The driver, loaded but not initialised: it knows its version.

    Raises:
        DriverError: there is none.
    """
    return Cuda(_load())


@functools.cache
def cuda() -> Cuda:
    """The driver, loaded and initialised.

    Raises:
        DriverError: there is none, it does not work, or it sees no GPU.
    """
    loaded = library()
    code = loaded.function("cuInit")(0)
    if code == _NO_DEVICE:
        raise DriverError(
            "the NVIDIA driver sees no GPU", code, "CUDA_ERROR_NO_DEVICE",
            hint="CUDA_VISIBLE_DEVICES may hide it; on CPU tensors the same kernel runs on the CPU",
        )  # fmt: skip
    if code:
        raise loaded.error(code, "starting the NVIDIA driver")
    return loaded


@functools.cache
def problem() -> DriverError | None:
    """Why no GPU can be used, or None when one can."""
    try:
        cuda()
    except DriverError as error:
        return error
    return None
