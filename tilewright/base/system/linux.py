"""Linux, on x86-64 and 64-bit Arm."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tilewright.base.system.posix import Posix
from tilewright.base.system.protocol import FaultLayout

_NO_RESERVE = 0x4000  # MAP_NORESERVE: what nobody touches costs nothing

# Bits of the two words that the kernel gives each process, by LLVM's names (arch/arm64/include/uapi/asm/hwcap.h).
_HWCAP, _HWCAP2 = 16, 26  # keys of the auxiliary vector
_CAPABILITIES: Mapping[int, Mapping[int, str]] = {
    _HWCAP: {0: "fp-armv8", 1: "neon", 7: "crc", 8: "lse", 10: "fullfp16", 12: "rdm", 20: "dotprod", 22: "sve",
             23: "fp16fml"},
    _HWCAP2: {13: "i8mm", 14: "bf16"},
}  # fmt: skip

# Of glibc and musl: `ucontext_t` holds the registers themselves.
_REGISTERS = {"x86_64": (160, 168), "aarch64": (432, 440)}


class Linux(Posix):
    """Linux."""

    name = "Linux"
    loads_objects = True
    forks = True

    def processors(self) -> int:
        return len(os.sched_getaffinity(0))

    def identity(self) -> tuple[str, ...]:
        system = os.uname()
        return system.sysname, system.release, system.machine, *sorted(self.arm_features() or ())

    def arm_features(self) -> frozenset[str] | None:
        if os.uname().machine != "aarch64":
            return None
        try:
            ask = ctypes.CDLL(None).getauxval
        except (OSError, AttributeError):
            return None
        ask.restype, ask.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
        return features_of({key: int(ask(key)) for key in _CAPABILITIES})

    def map_private(self, size: int, sparse: bool = False) -> mmap.mmap:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_NO_RESERVE if sparse else 0)
        return mmap.mmap(-1, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)

    def fault_layout(self, arch: str) -> FaultLayout | None:
        registers = _REGISTERS.get(arch)
        if registers is None:
            return None
        return FaultLayout(
            None, *registers, address=16, code=8, unknown=0x80, action=160, flags=136, wanted=0x4 | 0x08000000, bus=7,
            segment=11,
        )  # fmt: skip

    def mappings(self) -> Iterator[tuple[int, int, str, str]]:
        try:
            lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            span, rights, _, _, _, *file = line.split(None, 5)
            low, high = (int(part, 16) for part in span.split("-"))
            yield low, high, rights, file[0] if file else ""


def features_of(words: Mapping[int, int]) -> frozenset[str]:
    """Features by LLVM's names.

    Args:
        words: values of the auxiliary vector by key: AT_HWCAP is 16, AT_HWCAP2 26.
    """
    return frozenset(
        name for key, bits in _CAPABILITIES.items() for bit, name in bits.items() if words.get(key, 0) >> bit & 1
    )
