"""Kernels for launches with `num_ctas`: what a program sees of itself, and every way to read and write."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def rows(x, out, sums, n, BLOCK: tl.constexpr):
    """A program for each row: its softmax, and how many programs wrote what."""
    pid = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    value = tl.load(x + pid * n + places, mask=places < n, other=-float("inf"))
    numerator = tl.exp(value - tl.max(value))
    tl.store(out + pid * n + places, numerator / tl.sum(numerator), mask=places < n)
    tl.atomic_add(sums, 1)
    tl.atomic_max(sums + 1, pid)
    tl.atomic_add(sums + 2 + places % 2, pid + tl.zeros((BLOCK,), tl.int32), mask=places < n)
    tl.store(sums + 4, tl.num_programs(0))
    old = tl.atomic_xchg(sums + 5 + pid, pid + 7)
    tl.store(sums + 16 + pid, old)


@tw.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    """One tile of a product, its operands loaded ahead."""
    m, n, k = tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, STEP)
    width = tl.num_programs(0) * N
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, STEP):
        left = tl.load(a + m[:, None] * K + start + k[None, :])
        right = tl.load(b + (start + k)[:, None] * width + n[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + m[:, None] * width + n[None, :], acc)


@tw.jit
def library(x, out, total, BLOCK: tl.constexpr):
    """Scans, sorts, gathers and a transposed store; the threads that a user asked for."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + places)
    ordered = tl.sort(value)
    tl.store(out + places, tl.cumsum(ordered))
    square = tl.reshape(value, (BLOCK // 8, 8))
    tl.store(out + tl.num_programs(0) * BLOCK + places, tl.reshape(tl.trans(square), (BLOCK,)))
    tl.store(total + tl.program_id(0), tl.extra.cuda.num_warps())


@tw.jit
def guarded(lock, count, BLOCK: tl.constexpr):
    """A counter under a lock: each program is one holder."""
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    places = count + tl.arange(0, BLOCK)
    tl.store(places, tl.load(places) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
