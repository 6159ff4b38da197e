"""Where kernels write which of their assertions failed: memory of the host that every GPU sees.

A log is sixteen words of 32 bits: the number of the assertion that failed (0: none did), program x, y and z, and
whether the kernel is to end with a trap. The knob `cuda.assertions` says which:

    wait    the launch waits for its kernel, looks, and raises; the context lives on
    trap    nobody waits; a trap ends the context, the next call of the driver fails, and the logs say why

A log is never given back: a kernel that was launched may still write to it.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
from collections.abc import Sequence

from tilewright.backends.nvidia.device import driver, libcuda
from tilewright.base.errors import DeviceAssertionError
from tilewright.base.knobs import knobs

_LOG_BYTES, _PAGE_BYTES = 64, 4096
_NUMBER, _PROGRAM, _TRAPS = 0, slice(1, 4), 4  # words

_lock = threading.Lock()
_free: list[int] = []
_trapping: list[Log] = []


class Log:
    """Where a kernel reports.

    Args:
        ordinal: the GPU on which memory is taken, if there is none left.
        kernel: its name.
        asserts: texts of its assertions.

    Attributes:
        address: for the host and for every GPU.
        traps: whether a failed assertion ends the context.
    """

    def __init__(self, ordinal: int, kernel: str, asserts: Sequence[str]) -> None:
        self._kernel, self._asserts = kernel, tuple(asserts)
        self.traps = knobs.cuda.assertions == "trap"
        with _lock:
            if not _free:
                page = driver.pinned(_PAGE_BYTES, ordinal)
                _free.extend(range(page, page + _PAGE_BYTES, _LOG_BYTES))
            self.address = _free.pop()
            self._words = (ctypes.c_int32 * (_LOG_BYTES // 4)).from_address(self.address)
            self._words[_TRAPS] = self.traps
            if self.traps:
                if not _trapping:
                    libcuda.reasons.append(failed)
                    atexit.register(_tell)
                _trapping.append(self)

    def failed(self) -> DeviceAssertionError | None:
        """The assertion that has failed, as an error, if one has. Of a kernel that is waited for it is told once."""
        number = self._words[_NUMBER]
        if not number:
            return None
        text = f"device-side assert in {self._kernel}: {self._asserts[number - 1]}"
        if not self.traps:
            self._words[_NUMBER] = 0
            return DeviceAssertionError(text)
        return DeviceAssertionError(
            f"{text} (program {tuple(self._words[_PROGRAM])})",
            hint="its GPU takes no more work from this process; with TILEWRIGHT_ASSERTIONS=wait the launch raises, and "
            "the process goes on",
        )


def failed() -> DeviceAssertionError | None:
    """The assertion that has ended a context, if one has."""
    return next((found for log in _trapping if (found := log.failed()) is not None), None)


def _tell() -> None:
    """Say at the end of the process what PyTorch could not know of its error."""
    found = failed()
    if found is not None:
        print(f"{type(found).__name__}: {found}", file=sys.stderr)
