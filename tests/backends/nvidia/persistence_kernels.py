"""Kernels of plain grids whose blocks run one program after the other, and kernels whose programs must be blocks."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def product(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def told(a, b, c, bias, sums, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """Each program says where it is in which grid; it loads by all threads, and sums over all warps."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    program = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    m = program * M_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        acc = tl.dot(a.load([m, k]), b.load([k, 0]), acc)
    acc += tl.load(bias + tl.arange(0, N_BLOCK))[None, :] * (100 * (x % 8) + 10 * (y % 8) + z % 8)
    tl.store(sums + program * N_BLOCK + tl.arange(0, N_BLOCK), tl.sum(acc, 0) + 1000 * tl.num_programs(2))
    c.store([m, 0], acc.to(c.dtype))


@tw.jit
def two_loops(a, b, c, K, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    """The first of them may have no iteration; K is a multiple of the block's, or less than it."""
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K - K_BLOCK, K_BLOCK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    for k in range(tl.maximum(K - K_BLOCK, 0), K, K_BLOCK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))


@tw.jit
def never_in_order(
    a, b, c, flag, K, HOW: tl.constexpr, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr
):
    """A program of which something says that it must be a block."""
    program = tl.program_id(0)
    m = program * M_BLOCK
    first, last = 0, K
    if HOW == "spins":
        while tl.atomic_add(flag, 0) < program:
            pass
    elif HOW == "polls":
        while tl.load(flag, volatile=True) < program:
            pass
    elif HOW == "waits":
        last += tl.load(flag, volatile=True)
    elif HOW == "counts":
        tl.atomic_add(flag, 1)
    elif HOW == "collatz":
        left = K
        while left > 1:
            left = left // 2
        m += left // 2
    elif HOW == "prints":
        tl.device_print("program", program)
    elif HOW == "splits":
        first, last = program % 2 * K_BLOCK, K
    elif HOW == "grows":
        last = (program + 1) * K_BLOCK
    elif HOW == "ragged":
        last = tl.load(flag + program) + K
    elif HOW == "gathers":
        m += tl.load(flag + program)
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(first, last, K_BLOCK):
        acc = tl.dot(a.load([m, k]), b.load([k, 0]), acc)
    c.store([m, 0], acc.to(c.dtype))
    if HOW == "spins":
        tl.atomic_add(flag, 1)


@tw.jit
def of_known_length(a, b, c, K: tl.constexpr, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    m, n = tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK
    acc = tl.zeros((M_BLOCK, N_BLOCK), tl.float32)
    for k in range(0, K, K_BLOCK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(c.dtype))
