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


@tilewright.jit
def promises(x, y, start, n, BLOCK: tl.constexpr):
    start = tl.multiple_of(start, 8)
    tl.assume(n < 100)
    at = start + tl.arange(0, BLOCK)
    at = tl.max_contiguous(tl.multiple_of(at % n, 8), 8)
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + at))


@tilewright.jit
def constant_rows(index, y, H: tl.constexpr, W: tl.constexpr):
    at = tl.arange(0, H)[:, None] * W + tl.arange(0, W)[None, :]
    rows = tl.load(index + at)
    rows = tl.max_constancy(rows, [1, W])
    tl.store(y + at, rows)


@tilewright.jit
def spin(flag, y, BACKWARD: tl.constexpr):
    me = tl.program_id(0)
    if BACKWARD:
        while tl.atomic_add(flag + me + 1, 0) == 0:
            pass
    else:
        while tl.load(flag + me, volatile=True) == 0:
            pass
    tl.store(y + me, 1)
    tl.atomic_xchg(flag + me + (0 if BACKWARD else 1), 1)


@tilewright.jit
def take_turns(counter, y, n):
    mine = tl.atomic_add(counter, 1)
    while mine < n:
        tl.atomic_add(y + mine, 1)
        mine = tl.atomic_add(counter, 1)


@tilewright.jit
def turn_around(x, y, n, BLOCK: tl.constexpr, BARRIER: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + at, tl.load(y + BLOCK - 1 - at))


@tilewright.jit
def there_and_back(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))
    tl.store(x + at, tl.load(y + at))


@tilewright.jit
def normalise(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    total = tl.sum(powers, 0)
    tl.store(y + at, tl.log(powers / total), at < n)


@tilewright.jit
def narrowed(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, (tl.load(x + at, at < n, other=0.0) * 2.0).to(tl.float16), at < n)


@tilewright.jit
def widened(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at).to(tl.float32))


@tilewright.jit
def squares(x, y, M: tl.constexpr):
    at = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    values = tl.load(x + at)
    tl.store(y + at, tl.dot(values, values))


@tilewright.jit
def wrapping_runs(y, start, n, NUMBER: tl.constexpr, RUN: tl.constexpr, BLOCK: tl.constexpr):
    at = (start + tl.arange(0, BLOCK)) % n
    at = tl.max_contiguous(tl.multiple_of(at, NUMBER), RUN)
    tl.store(y + tl.arange(0, BLOCK), at)


@tilewright.jit
def told(x, BLOCK: tl.constexpr):
    tl.device_print("sum", tl.sum(tl.load(x + tl.arange(0, BLOCK))))
