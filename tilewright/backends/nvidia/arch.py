"""What each NVIDIA architecture has: the table on which every decision about a GPU rests.

`arch_of` gives the row of a target, `features_of` the view of it that the shared LLVM emitters take. An emitter asks
here before it uses an instruction: LLVM ends the process over an intrinsic that the architecture lacks. Figures are
from the CUDA C++ Programming Guide ("Compute Capabilities") and the PTX ISA ("Target ISA notes" of each instruction).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilewright.backends.llvm.features import CpuFeatures
from tilewright.base.errors import UnsupportedError
from tilewright.base.target import Target

TRIPLE = "nvptx64-nvidia-cuda"
WARP = 32
MAX_THREADS = 1024  # of a block
REGISTERS = 65536  # of a multiprocessor
MOST_REGISTERS = 255  # of a thread
_REGISTER_UNIT = 256  # registers are given to a warp in multiples of this
_SHARED_UNIT = 128  # bytes
_SHARED_RESERVED = 1024  # bytes of every block that the driver keeps


def registers_of_a_thread(threads: int) -> int:
    """Registers that each thread of a block of so many can have."""
    return min(MOST_REGISTERS, REGISTERS // threads // 8 * 8)


@dataclass(frozen=True, slots=True)
class Arch:
    """An architecture.

    Args:
        capability: compute capability, 10 * major + minor.
        cpu: name for LLVM and the assembler (`"sm_90a"`).
        ptx: version of the PTX that is written, 10 * major + minor.
        shared_limit: bytes of shared memory that one block may have.
        shared_per_multiprocessor: bytes of shared memory of a multiprocessor.
        max_warps: warps resident on a multiprocessor.
        max_blocks: blocks resident on a multiprocessor.
    """

    capability: int
    cpu: str
    ptx: int
    shared_limit: int
    shared_per_multiprocessor: int
    max_warps: int
    max_blocks: int

    @property
    def has_cp_async(self) -> bool:
        """`cp.async`: copies from global to shared memory that pass no register."""
        return self.capability >= 80

    @property
    def has_bf16_atomics(self) -> bool:
        """`atom.add.noftz.bf16` (and bf16x2)."""
        return self.capability >= 90

    @property
    def has_vector_atomics(self) -> bool:
        """`red.global.add.v4.f32` and its relatives."""
        return self.capability >= 90

    @property
    def has_tf32_conversion(self) -> bool:
        """`cvt.rn.tf32.f32`: one instruction, where `rna` is a comparison and an addition."""
        return self.capability >= 90

    @property
    def has_fp8_conversions(self) -> bool:
        """`cvt.rn.satfinite.e4m3x2.f32` and its relatives."""
        return self.capability >= 89

    @property
    def has_fp8_mma(self) -> bool:
        """`mma.sync.m16n8k32` of e4m3 and e5m2 (emulated by the assembler on 90 and 100)."""
        return self.capability >= 89

    @property
    def has_ldmatrix(self) -> bool:
        """`ldmatrix`."""
        return self.capability >= 75

    @property
    def has_stmatrix(self) -> bool:
        """`stmatrix`."""
        return self.capability >= 90

    @property
    def has_tma(self) -> bool:
        """`cp.async.bulk.tensor` and the `mbarrier` forms that count its bytes."""
        return self.capability >= 90

    @property
    def has_clusters(self) -> bool:
        """Clusters of blocks that reach each other's shared memory."""
        return self.capability >= 90

    @property
    def has_wgmma(self) -> bool:
        """`wgmma` and `setmaxnreg`: Hopper only."""
        return self.capability == 90

    @property
    def has_redux(self) -> bool:
        """`redux.sync` of 32-bit integers."""
        return self.capability >= 80

    def blocks_per_multiprocessor(self, warps: int, registers: int, shared_bytes: int) -> int:
        """How many blocks of a kernel a multiprocessor runs at a time.

        Args:
            warps: of a block.
            registers: of a thread.
            shared_bytes: of a block, static and dynamic.

        Returns:
            0 if not even one fits.
        """
        per_warp = round_up(max(registers, 1) * WARP, _REGISTER_UNIT)
        by_registers = (
            REGISTERS // per_warp // 4 * 4 // warps
        )  # each quarter of the warps has a quarter of the registers
        by_shared = self.shared_per_multiprocessor // round_up(shared_bytes + _SHARED_RESERVED, _SHARED_UNIT)
        if shared_bytes > self.shared_limit:
            return 0
        return min(self.max_warps // warps, self.max_blocks, by_registers, by_shared)

    def occupancy(self, warps: int, registers: int, shared_bytes: int) -> float:
        """Share of the warps of a multiprocessor that a kernel keeps busy; arguments as above."""
        return self.blocks_per_multiprocessor(warps, registers, shared_bytes) * warps / self.max_warps


def round_up(value: int, unit: int) -> int:
    """The next multiple of a unit."""
    return -(-value // unit) * unit


_KB = 1024
# The PTX version is the oldest that has every instruction that we write: the older, the more drivers take it.
_ARCHS = {
    arch.capability: arch
    for arch in (
        Arch(80, "sm_80", 78, 163 * _KB, 164 * _KB, 64, 32),
        Arch(86, "sm_86", 78, 99 * _KB, 100 * _KB, 48, 16),
        Arch(87, "sm_87", 78, 163 * _KB, 164 * _KB, 48, 16),
        Arch(89, "sm_89", 84, 99 * _KB, 100 * _KB, 48, 24),
        Arch(90, "sm_90a", 86, 227 * _KB, 228 * _KB, 64, 32),
        Arch(100, "sm_100a", 88, 227 * _KB, 228 * _KB, 64, 32),
        Arch(103, "sm_103a", 88, 227 * _KB, 228 * _KB, 64, 32),
        Arch(120, "sm_120a", 88, 99 * _KB, 100 * _KB, 48, 24),
        Arch(121, "sm_121a", 88, 99 * _KB, 100 * _KB, 48, 24),
    )
}
CAPABILITIES = tuple(_ARCHS)


def arch_of(target: Target | int) -> Arch:
    """The row of a target.

    Args:
        target: a CUDA target, or a compute capability such as 90.

    Raises:
        UnsupportedError: no code is made for it.
    """
    capability = target.arch if isinstance(target, Target) else target
    arch = _ARCHS.get(capability) if isinstance(capability, int) else None
    if arch is None:
        known = ", ".join(map(str, _ARCHS))
        raise UnsupportedError(
            f"no code is made for NVIDIA GPUs of compute capability {capability!r}",
            hint=f"the capabilities known are {known}, written as in Target('cuda', 90)",
        )
    return arch


def target_of(capability: int) -> Target:
    """The target of a compute capability; errors as `arch_of`."""
    return Target("cuda", arch_of(capability).capability, warp_size=WARP)


@functools.cache
def features_of(target: Target | int) -> CpuFeatures:
    """A target as the shared LLVM emitters see it.

    Features are named `sm_80`, `sm_86`, ...: a target has those of every capability up to its own, and the
    architecture-specific name (`sm_90a`) of its own only.
    """
    arch = arch_of(target)
    names = {f"sm_{known}" for known in _ARCHS if known <= arch.capability} | {arch.cpu}
    return CpuFeatures(TRIPLE, arch.cpu, f"+ptx{arch.ptx}", frozenset(names))
