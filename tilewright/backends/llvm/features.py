"""What a CPU can do: the view of LLVM's CPU name and feature string on which every emitter decision rests.

`host()` asks LLVM once, or a cache of its answer; `describe()` makes the view of any other target, from the features
that the named CPU implies plus explicit `+x,-y` changes. An emitter must ask `has(...)` before it uses a target
intrinsic: one that the target lacks aborts the process. Feature names are LLVM's (`avx512f`, `f16c`, `amx-bf16`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilewright.backends.llvm.identity import HostRecord, recall_host, remember_host
from tilewright.backends.protocol import ByteCache
from tilewright.base import system

_V1 = "64bit cmov cx8 fxsr mmx sse sse2"
_V2 = f"{_V1} cx16 popcnt sahf sse3 ssse3 sse4.1 sse4.2 crc32"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_CLX = f"{_V4} avx512vnni"
_ICX = f"{_CLX} avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vpopcntdq gfni vaes vpclmulqdq"
_SPR = f"{_ICX} avx512bf16 avx512fp16 avxvnni amx-tile amx-bf16 amx-int8"
_ADL = f"{_V3} avxvnni gfni vaes vpclmulqdq"
_ARM = "neon fp-armv8"
_V82 = f"{_ARM} lse rdm crc fullfp16 dotprod"
_V84 = f"{_V82} fp16fml"
_V86 = f"{_V84} bf16 i8mm"
_SVE = f"{_V86} sve"

# Only features that some emitter asks for matter here. A CPU that is not listed has the baseline of its architecture.
_IMPLIED = {
    "x86-64": _V1, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4,
    "nehalem": _V2, "sandybridge": f"{_V2} avx xsave", "ivybridge": f"{_V2} avx f16c xsave",
    "haswell": _V3, "broadwell": _V3, "skylake": _V3, "alderlake": _ADL, "raptorlake": _ADL,
    "skylake-avx512": _V4, "cascadelake": _CLX, "cooperlake": f"{_CLX} avx512bf16",
    "icelake-client": _ICX, "icelake-server": _ICX,
    "sapphirerapids": _SPR, "emeraldrapids": _SPR, "graniterapids": f"{_SPR} amx-fp16",
    "znver1": _V3, "znver2": _V3, "znver3": f"{_V3} vaes vpclmulqdq",
    "znver4": f"{_ICX} avx512bf16", "znver5": f"{_ICX} avx512bf16 avxvnni",
    "generic": _ARM, "cortex-a72": f"{_ARM} crc", "cortex-a76": _V82, "cortex-a78": _V82, "neoverse-n1": _V82,
    "neoverse-n2": _SVE, "neoverse-n3": _SVE, "neoverse-v1": _SVE, "neoverse-v2": _SVE, "neoverse-v3": _SVE,
    "grace": _SVE, "apple-m1": _V84, "apple-m2": _V86, "apple-m3": _V86, "apple-m4": _V86,
}  # fmt: skip
_BASELINE = {"x86_64": _V1, "aarch64": _ARM}
FEATURES = frozenset(name for names in (*_IMPLIED.values(), *_BASELINE.values()) for name in names.split())
"""Every feature that some named CPU brings."""
_ZMM = ("avx512f", "avx512bw", "avx512dq", "avx512vl")


@dataclass(frozen=True, slots=True)
class CpuFeatures:
    """A compilation target as LLVM and the emitters see it.

    Args:
        triple: LLVM target triple.
        cpu: CPU name as LLVM spells it.
        flags: comma-separated `+x,-y` string handed to LLVM beside `cpu`.
        available: names of the features that are there.
    """

    triple: str
    cpu: str
    flags: str
    available: frozenset[str]

    @property
    def arch(self) -> str:
        """`"x86_64"`, `"aarch64"`, `"nvptx64"`, ..."""
        return arch_of(self.triple)

    @property
    def is_x86(self) -> bool:
        return self.arch == "x86_64"

    def has(self, *names: str) -> bool:
        """Whether all the named features are there."""
        return self.available.issuperset(names)

    @property
    def has_zmm(self) -> bool:
        """AVX-512 with byte/word, doubleword and short-vector forms: what the 512-bit emitters rely on."""
        return self.has(*_ZMM)

    @property
    def has_masks(self) -> bool:
        """Loads and stores under masks that cost what whole ones do: AVX-512, SVE."""
        return self.has_zmm or (not self.is_x86 and self.has("sve"))

    @property
    def has_fma(self) -> bool:
        """Fused multiply-add in hardware."""
        return not self.is_x86 or self.has("fma") or self.has_zmm

    @property
    def has_half_convert(self) -> bool:
        """Hardware conversion between half and float."""
        return not self.is_x86 or self.has("f16c") or self.has_zmm

    @property
    def vector_bytes(self) -> int:
        """Bytes of a native vector: 64 with AVX-512, 32 with AVX2, else 16 (SSE, NEON); 4 on NVPTX, which is scalar."""
        if self.arch == "nvptx64":
            return 4
        if self.is_x86:
            return 64 if self.has_zmm else 32 if self.has("avx2") else 16
        return 16

    @property
    def vector_registers(self) -> int:
        """Architectural vector registers."""
        return 16 if self.is_x86 and not self.has_zmm else 32

    def native_lanes(self, bits: int) -> int:
        """Lanes of a native vector of elements of `bits` (at least 8)."""
        return max(1, self.vector_bytes * 8 // max(bits, 8))

    @property
    def key(self) -> str:
        """Text that identifies the target in cache keys."""
        return f"{self.triple}:{self.cpu}:{self.flags}"


def arch_of(triple: str) -> str:
    """The architecture of a triple, under one name on all systems: `"aarch64"` where Apple says arm64."""
    arch = triple.partition("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(arch, arch)


def is_listed(isa: CpuFeatures, feature: str | None = None) -> bool:
    """Whether the table above has the CPU of a target, or a feature for its architecture; LLVM has all of those."""
    own = _BASELINE.get(isa.arch, "").split()[:1]  # the feature that tells architectures apart
    listed = {cpu: set(text.split()) for cpu, text in _IMPLIED.items() if own and own[0] in text.split()}
    return isa.cpu in listed if feature is None else any(feature in features for features in listed.values())


_host_caches: list[ByteCache] = []


def set_host_cache(cache: ByteCache | None) -> None:
    """Where `host()` looks for LLVM's answer of an earlier run before it loads LLVM; None for nowhere."""
    _host_caches[:] = [] if cache is None else [cache]


@functools.cache
def host() -> CpuFeatures:
    """The machine that this process runs on, as LLVM detects it (loads LLVM unless a cache remembers)."""
    found = None
    for cache in _host_caches:
        found = recall_host(cache)
    if found is None:
        found = _detect()
        for cache in _host_caches:
            remember_host(cache, found)
    available = frozenset(flag[1:] for flag in found.flags.split(",") if flag.startswith("+"))
    return CpuFeatures(found.triple, found.cpu, found.flags, available)


_told: list[str] = []


def tell_triple(triple: str) -> None:
    """Let `host_triple` know the triple of this machine, from somebody who has code for it."""
    _told[:] = [triple]


def host_triple() -> str:
    """Triple of this machine; LLVM is asked only if nobody has told it."""
    return _told[0] if _told else host().triple


def _detect() -> HostRecord:
    import llvmlite.binding as llvm

    triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    told = llvm.get_host_cpu_features().flatten()
    if arch_of(triple) == "aarch64":
        told = _arm_flags(cpu, told, system.this().arm_features())
    return HostRecord(triple, cpu, told)


def _arm_flags(cpu: str, told: str, known: frozenset[str] | None) -> str:
    """The features of an Arm processor as a feature string.

    LLVM reads few of them (products of int8 and bf16 are not among them), and leaves the others to the name of the CPU.

    Args:
        cpu: LLVM's name.
        told: what LLVM says of this machine.
        known: what the system says; None if it does not: then what the name implies.
    """
    listed = {name for text in _IMPLIED.values() if "neon" in text.split() for name in text.split()}
    there = known if known is not None else frozenset(_IMPLIED.get(cpu, _ARM).split())
    flags = {flag[1:]: flag[0] for flag in told.split(",") if flag} if told else {}
    if known is not None:
        flags.update((name, "-") for name in listed)
    flags.update((name, "+") for name in listed & there)
    return ",".join(f"{sign}{name}" for name, sign in sorted(flags.items()))


@functools.cache
def describe(triple: str = "", cpu: str = "", flags: str = "") -> CpuFeatures:
    """The view of a target.

    Args:
        triple: target triple; empty means the host's.
        cpu: CPU name; empty means the host's CPU with all its features, or the baseline of a foreign `triple`.
        flags: changes such as `"+avx2,+fma,-avx512f"`, applied last.
    """
    if not cpu and (not triple or triple == host().triple):
        base = host()
        triple, cpu, available, prefix = base.triple, base.cpu, set(base.available), base.flags
    else:
        triple = triple or host().triple
        arch = arch_of(triple)
        cpu = cpu or {"x86_64": "x86-64", "aarch64": "generic"}.get(arch, "")
        if cpu == "generic" and arch == "x86_64":
            cpu = "x86-64"
        available, prefix = set(_IMPLIED.get(cpu, _BASELINE.get(arch, "")).split()), ""
    for change in filter(None, (part.strip() for part in flags.split(","))):
        (available.discard if change[0] == "-" else available.add)(change.lstrip("+-"))
    joined = ",".join(filter(None, (prefix, flags.replace(" ", ""))))
    return CpuFeatures(triple, cpu, joined, frozenset(available))
