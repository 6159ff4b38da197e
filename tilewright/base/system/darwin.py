"""macOS on Apple silicon. Written, and tested as far as Linux can; it has not run on a Mac yet."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from tilewright.base.system.posix import Posix
from tilewright.base.system.protocol import FaultLayout

# What `sysctl hw.optional` calls features, by LLVM's names.
_FEATURES = {
    "crc": "armv8_crc32", "lse": "arm.FEAT_LSE", "rdm": "arm.FEAT_RDM", "dotprod": "arm.FEAT_DotProd",
    "fullfp16": "arm.FEAT_FP16", "fp16fml": "arm.FEAT_FHM", "bf16": "arm.FEAT_BF16", "i8mm": "arm.FEAT_I8MM",
}  # fmt: skip
_ALWAYS = ("neon", "fp-armv8")


class Darwin(Posix):
    """macOS. Children are not forked off: Apple's libraries do not survive it. Objects are loaded by llvmlite: code of
    ours would need pages that are made for it (MAP_JIT) and a switch for each thread that writes there."""

    name = "macOS"

    def identity(self) -> tuple[str, ...]:
        system = os.uname()
        return system.sysname, system.release, system.machine, *sorted(self.arm_features() or ())

    def arm_features(self) -> frozenset[str] | None:
        if os.uname().machine != "arm64":
            return None
        return features_of(_sysctl)

    def fault_layout(self, arch: str) -> FaultLayout | None:
        """`ucontext_t` points to the registers: first the fault's own 16 bytes, then x0 to x28, fp, lr, sp, pc."""
        if arch != "aarch64":
            return None
        return FaultLayout(
            48, 264, 272, address=24, code=8, unknown=-1, action=16, flags=12, wanted=0x40 | 0x1, bus=10, segment=11
        )


def features_of(ask: Callable[[str], bool]) -> frozenset[str]:
    """Features by LLVM's names.

    Args:
        ask: whether the number below hw.optional that has this name is there and not zero.
    """
    return frozenset((*_ALWAYS, *(name for name, theirs in _FEATURES.items() if ask(theirs))))


def _sysctl(name: str) -> bool:
    value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
    key = f"hw.optional.{name}".encode()
    failed = ctypes.CDLL(None).sysctlbyname(key, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return not failed and bool(value.value)
