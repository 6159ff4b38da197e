"""Kernels that workers import by name."""

import tilewright
import tilewright.language as tl


@tilewright.jit
def add_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 1, mask)


@tilewright.jit
def accumulate(x_ptr, out_ptr, n, BLOCK: tl.constexpr, HALF: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask) + tl.load(x_ptr + offsets, mask) + HALF, mask)


@tilewright.jit
def troubled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    if BLOCK == 32:
        missing_name()  # noqa: F821
    tl.static_assert(BLOCK != 64, "never 64")
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + (BLOCK == 128), mask)
