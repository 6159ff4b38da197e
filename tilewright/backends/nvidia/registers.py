"""How many registers the threads of a kernel get: as many as the assembler takes, or as few as one more block needs.

nvJitLink assembles for linking and does not weigh registers against the blocks that fit a multiprocessor, as ptxas does
for a whole program. While the threads of a block wait for each other, and for memory, other blocks work. Where nothing
is loaded in a loop, as many loads are under way whatever the registers, so few blocks of rows get one more. In loops
registers hold the loads of several iterations: there only a block that is alone, or one of few large ones, is made
smaller. Products that are waited for where they are started leave the tensor cores to other blocks meanwhile, so one
more of these is worth a few registers.
"""

from __future__ import annotations

import re

from tilewright.backends.nvidia import cubin, tuning
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.cubin import Cubin
from tilewright.base.errors import OutOfResources

_SIZED_BY_RINGS = re.compile(r"\b(?:wgmma|mma|cp\.async)\.")  # products, which hide what they wait for themselves
_BARRIER = re.compile(r"\b(?:bar|barrier)\.(?:cta\.)?sync")
_LABELS_AND_BRANCHES = re.compile(r"^(\$\w+):|\bbra(?:\.uni)?\s+(\$\w+)", re.MULTILINE)
_WAITED_FOR = re.compile(r"\bwgmma\.wait_group\.sync\.aligned 0;")
_IN_FLIGHT = re.compile(r"\bwgmma\.wait_group\.sync\.aligned [1-9]|\bsetmaxnreg\.")


def assemble(
    ptx: str,
    arch: Arch,
    *,
    kernel: str,
    warps: int,
    shared_bytes: int,
    max_registers: int | None,
    driver_major: int | None,
) -> Cubin | None:
    """Machine code for PTX, with fewer registers where that costs no spill and lets more blocks run.

    Args:
        ptx, arch, kernel, driver_major: as for `cubin.assemble`, which says what is returned and raised.
        warps: of a block.
        shared_bytes: of a block, beside what the PTX declares.
        max_registers: limit that the user gave, which is taken as it is.
    """
    made = cubin.assemble(ptx, arch, kernel=kernel, max_registers=max_registers, driver_major=driver_major)
    if made is None or max_registers is not None or made.spill_bytes:
        return made
    taken = shared_bytes + made.shared_bytes
    if _WAITED_FOR.search(ptx) and not _IN_FLIGHT.search(ptx):
        limit = _for_one_more(arch, warps, made.registers, taken, tuning.FEWER_OF_PRODUCTS)
    elif _SIZED_BY_RINGS.search(ptx):
        return made
    else:
        limit = fewer_registers(arch, warps, made.registers, taken, straight=waits_without_loops(ptx))
    if limit is None:
        return made
    try:
        smaller = cubin.assemble(ptx, arch, kernel=kernel, max_registers=limit, driver_major=driver_major)
    except OutOfResources:  # wgmma has registers that cannot be elsewhere
        return made
    return made if smaller is None or smaller.spill_bytes else smaller


def fewer_registers(arch: Arch, warps: int, registers: int, shared_bytes: int, *, straight: bool) -> int | None:
    """The limit with which one more block fits a multiprocessor, if it is worth trying.

    Args:
        arch: the GPU.
        warps, registers, shared_bytes: of a block, its threads, a block.
        straight: what `waits_without_loops` says of it.
    """
    blocks = arch.blocks_per_multiprocessor(warps, registers, shared_bytes)
    if blocks > (tuning.FEW_BLOCKS if straight else 1) and warps < tuning.LARGE_BLOCK_WARPS:
        return None
    most = tuning.FEWER_WITHOUT_LOOPS if straight else tuning.FEWER_REGISTERS
    return _for_one_more(arch, warps, registers, shared_bytes, most)


def waits_without_loops(ptx: str) -> bool:
    """Whether the threads of a block wait for each other, and no instruction of theirs runs twice."""
    behind: set[str] = set()
    for label, target in _LABELS_AND_BRANCHES.findall(ptx):
        if label:
            behind.add(label)
        elif target in behind:
            return False
    return _BARRIER.search(ptx) is not None


def _for_one_more(arch: Arch, warps: int, registers: int, shared_bytes: int, most: float) -> int | None:
    """The limit with which one more block fits, if it takes no more than a part of the registers."""
    blocks = arch.blocks_per_multiprocessor(warps, registers, shared_bytes)
    for limit in range((registers - 1) // 8 * 8, int(registers / most), -8):
        if arch.blocks_per_multiprocessor(warps, limit, shared_bytes) > blocks:
            return limit
    return None
