"""Kernels with room for mistakes."""

from __future__ import annotations

import tilewright
import tilewright.language as tl


@tilewright.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n), at < n)


@tilewright.jit
def shift(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at + 1, tl.load(x + at, at < n - 1), at < n - 1)


@tilewright.jit
def scatter(index, x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + tl.load(index + at, at < n, other=0), tl.load(x + at, at < n), at < n)


@tilewright.jit
def count(x, counts, n, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, at < n, other=0), 0)
    if ATOMIC:
        tl.atomic_add(counts, total)
    else:
        tl.store(counts, tl.load(counts) + total)


@tilewright.jit
def rows(x, y, height, width, stride, H: tl.constexpr, W: tl.constexpr):
    r = tl.program_id(0) * H + tl.arange(0, H)[:, None]
    c = tl.program_id(1) * W + tl.arange(0, W)[None, :]
    inside = (r < height) & (c < width)
    tl.store(y + r * stride + c, tl.load(x + r * stride + c, inside), inside)


@tilewright.jit
def locked(lock, total):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + 1)
    tl.atomic_xchg(lock, 0)


@tilewright.jit
def far(x, y, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + (at * stride) % BLOCK))


@tilewright.jit
def chosen(x, y, out, which, n, BLOCK: tl.constexpr):
    source = x
    if which > 0:
        source = y
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(source + at, at < n), at < n)


@tilewright.jit
def wait_and_store(flag, x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    while tl.atomic_add(flag, 0) == 0:
        pass
    tl.store(y + at, tl.load(x + at))
