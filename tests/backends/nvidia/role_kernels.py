"""Kernels whose loops are divided between a warp group that copies and warps that multiply, or ask for it."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def product(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def staying(a, b, c, K, tiles, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """Programs that take one tile after another: what is loaded for the next runs under the stores of this one."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
        for k in range(0, K, K_BLOCK):
            acc = tl.dot(a.load([tile * M_BLOCK, k]), b.load([k, 0]), acc)
        c.store([tile * M_BLOCK, 0], acc.to(c.dtype))


@tw.jit
def scaled(a, b, c, scales, sums, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """The product is used in its iteration, beside a load of all threads; columns are summed behind, over all warps."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc += tl.dot(a.load([m, k]), b.load([k, n])) * tl.load(scales + k // K_BLOCK)
    tl.store(sums + m // M_BLOCK * N_BLOCK + tl.arange(0, N_BLOCK), tl.sum(acc, 0))
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def converted(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """An operand passes through registers on its way: all threads read what was copied."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]).to(tl.float16), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def walking(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """Places are carried by the loop, and go backwards."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    at = K - K_BLOCK
    for _ in tl.range(0, K // K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, at]), b.load([at, n]), acc)
        at -= K_BLOCK
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def three_sums(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """More results of products than threads have registers where all have as many."""
    m = tl.program_id(0) * M_BLOCK
    one = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    two, three = one, one
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        rows = a.load([m, k])
        one = tl.dot(rows, b.load([k, 0]), one)
        two = tl.dot(rows, b.load([k, N_BLOCK]), two)
        three = tl.dot(rows, b.load([k, 2 * N_BLOCK]), three)
    c.store([m, 0], (one * two + three).to(c.dtype))


@tw.jit
def two_loops(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """Loops one after the other, of which the first may have no iteration; the second loads B first."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K - K_BLOCK, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    for k in tl.range(K - K_BLOCK, K + K_BLOCK, K_BLOCK, warp_specialize=True):
        right = b.load([k, n])
        acc = tl.dot(a.load([m, k]), right, acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def staying_with_two_loops(a, b, c, K, tiles, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """The same, tile after tile; the sum is used between them."""
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
        for k in range(0, K - K_BLOCK, K_BLOCK):
            acc = tl.dot(a.load([tile * M_BLOCK, k]), b.load([k, 0]), acc)
        acc = tl.maximum(acc, acc - 1)
        for k in range(K - K_BLOCK, K, K_BLOCK):
            acc = tl.dot(a.load([tile * M_BLOCK, k]), b.load([k, 0]), acc)
        c.store([tile * M_BLOCK, 0], acc.to(c.dtype))


# --- what cannot be divided -----------------------------------------------------------------------------


@tw.jit
def by_pointers(a_ptr, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    rows, inner = m + tl.arange(0, M_BLOCK)[:, None], tl.arange(0, K_BLOCK)[None, :]
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc = tl.dot(tl.load(a_ptr + rows * K + k + inner), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def after_a_store(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """A block of A is written before the loop that reads it."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    a.store([m, 0], a.load([m, 0]) * 2)
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def behind_a_signal(a, b, c, flag, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """Others may tell by an atomic that what is read is there."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    tl.atomic_add(flag, 1)
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def under_a_condition(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    if K > K_BLOCK:
        for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
            acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def bounded_by_memory(a, b, c, length, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, tl.load(length), K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def unlike_loops(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """The second loop copies one tile for two."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    none = tl.zeros((K_BLOCK, N_BLOCK), tl.float16)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    for k in tl.range(0, K, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), none, acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def loops_at_two_places(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """One stands in another loop."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in tl.range(0, K - K_BLOCK, K_BLOCK, warp_specialize=True):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    for _ in tl.range(0, 1 + K // 4096):
        for k in tl.range(K - K_BLOCK, K + K_BLOCK, K_BLOCK, warp_specialize=True):
            acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))
