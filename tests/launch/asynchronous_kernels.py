"""Kernels that workers import by name."""

import tilewright
import tilewright.language as tl


@tilewright.jit
def scale(x_ptr, out_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) * FACTOR, mask)


@tilewright.jit
def wrong(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK > 64, "too small")
    tl.store(out_ptr + tl.arange(0, BLOCK), missing_name)  # noqa: F821


@tilewright.jit
def calls_wrong(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    wrong(x_ptr, out_ptr, n, BLOCK)
