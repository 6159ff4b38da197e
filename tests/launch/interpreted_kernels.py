"""Kernels that must do the same compiled and interpreted; `test_interpret.py` runs each both ways.

Every kernel takes `x`, an array of 64 elements, `out`, and an integer `n`; a row of `CASES` gives their types.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

import tilewright.language as tl
from tilewright.language.library import constexpr_function, library

SCALE = tl.constexpr(3)
NOTHING = tl.constexpr(None)


class Mode(enum.Enum):
    PLAIN = 1
    DOUBLE = 2


class Pair(NamedTuple):
    first: Any
    second: Any


def assigned_numbers_are_typed(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    c = 100
    f = 0.5
    wide = v + c  # int8 with an int32 tensor
    half = v.to(tl.float16) * f  # float16 with a float32 tensor
    narrow = v + 100  # int8 wraps
    tl.static_assert(wide.dtype == tl.int32)
    tl.static_assert(half.dtype == tl.float32)
    tl.static_assert(narrow.dtype == tl.int8)
    tl.store(out + i, wide + half + narrow)


def integer_division_is_that_of_c(x, out, n):
    i = tl.arange(0, 64)
    a = -7
    b = 2
    tl.store(out + i, tl.load(x + i) // -4 + tl.load(x + i) % 5 + a // b + a % b)
    tl.store(out, -7 // 2 + -7 % 2)  # of constants it is that of Python


def wrapping(x, out, n):
    i = tl.arange(0, 64)
    big = 2000000000
    tl.store(out + i, big + big + n * 1000000007 + i * 123456789)


def logic_on_tiles(x, out, n):
    i = tl.arange(0, 64)
    inside = (i > 3 and i < n) or i == 60
    other = not inside
    tl.store(out + i, tl.where(inside, 1, 0) + tl.where(other and 10 <= i < 20, 2, 0))


def logic_on_constants(x, out, n, FLAG: tl.constexpr = None):
    extra = FLAG is not None and FLAG.no_such_attribute
    if FLAG is None or n > 100:
        extra = 7
    if NOTHING is None and not FLAG:
        extra += 1
    tl.store(out, extra)


def logic_that_mixes(x, out, n, ON: tl.constexpr = True):
    i = tl.arange(0, 64)
    mask = (ON and i < n) and (not ON or i > 0)
    tl.store(out + i, 5, mask=mask)


def conditional_expressions(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    scale = 2 if n > 5 else 3
    h = v.to(tl.float16) * (1.5 if n > 5 else 0.5)  # both sides become float32 tensors
    tl.static_assert(h.dtype == tl.float32)
    tl.store(out + i, h * scale)


def pythons_min_and_max(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    tl.store(out + i, min(max(v, -3), n) + abs(v) + min(3, 4) + max(n, 2))


def counted_loops(x, out, n):
    total = 0
    for k in range(n):
        total += k * tl.load(x + k)
    for k in range(n, 0, -2):
        total = total * 3 + k
    for k in tl.range(1, n, 3, num_stages=2):
        total -= k
    for _ in range(0):
        total = total * 0
    tl.store(out, total)


def the_counter_has_a_type(x, out, n):
    big = n.to(tl.int64) + 5000000000
    total = big - big
    for k in range(big - 2, big):
        tl.static_assert(k.dtype == tl.int64)
        total += k
    for k in range(3):
        total += (k / 2).to(tl.int64) + k // 2
    tl.store(out, total)


def unrolled_loops(x, out, n):
    total = 0
    for k in tl.static_range(4):
        SIZE: tl.constexpr = 2**k
        total += tl.sum(tl.load(x + tl.arange(0, SIZE)))
    for weight, at in ((2, 5), (3, 7)):
        total += weight * tl.load(x + at)
    values = [tl.load(x + k) * k for k in (1, 2, 3) if k != 2]
    tl.store(out, total + values[0] - values[1])


def while_loops(x, out, n):
    steps = 0
    m = n
    while m > 1 and steps < 40:
        m = m // 2 if m % 2 == 0 else 3 * m + 1
        steps += 1
    left = steps
    while tl.condition((left := steps) < 50, disable_licm=True):
        steps = left + 7
    tl.store(out, steps)


@library
def early(n, v):
    if n > 50:
        return v
    if n == 3:
        if tl.sum(v) > 10:
            return v * 2
        return v * 3
    return v * 5


def early_returns(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    tl.store(out + i, early(n, v) + early(3, v) + early(100, v))
    if n > 1:
        return
    tl.store(out, 0)


@library
def power(v, N: tl.constexpr):
    if N == 0:
        return v * 0 + 1
    else:
        return v * power(v, N - 1)


@library
def defaults(v, *more, scale=2, shift: tl.constexpr = 1):
    total = v * scale + shift
    for value in more:
        total += value
    return total


def calls(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    pair = (v, n)
    tl.store(out + i, power(v, 3) + defaults(v) + defaults(*pair, 4, scale=5, shift=n) + SCALE * v)


def tuples(x, out, n):
    i = tl.arange(0, 64)
    pair = Pair(tl.load(x + i), n)
    first, (second, third) = pair.first, (pair.second, 4)
    both = (first, second) + (third,)
    swapped = both[::-1]
    tl.store(out + i, swapped[2] * swapped[1] + swapped[0] + len(both))


def constants(x, out, n, MODE: tl.constexpr = Mode.DOUBLE, TEXT: tl.constexpr = "relu", B: tl.constexpr = 16):
    i = tl.arange(0, B * 4)
    LATER: tl.constexpr
    LATER = i.shape[0] // 2
    v = tl.load(x + i)
    tl.static_assert(LATER == 32, f"wanted 32, found {LATER}")
    tl.static_assert(B.value == 16 and isinstance(B, tl.constexpr) and isinstance(B, int))
    if MODE == Mode.DOUBLE:
        v = v * 2
    if TEXT == "relu":
        v = tl.maximum(v, 0)
    if TEXT + "!" in ("relu!", "x"):
        v += LATER
    half = tl.reshape(v, (2, LATER)).sum(axis=0)
    tl.store(out + tl.arange(0, LATER), half)


def indexing(x, out, n):
    i = tl.arange(0, 8)
    v = tl.load(x + i[:, None] * 8 + i[None, :])
    tl.store(out + i[:, None] * 8 + i, v.T + v[None, :, :].reshape(8, 8) + tl.trans(v))


def parts_of_tiles(x, out, n):
    i = tl.arange(0, 8)
    v = tl.load(x + i[:, None] * 8 + i[None, :])
    w = v
    w[0] = 7
    w[:, 1:5:2] += 100
    w[2, n] *= 2
    row = v[1]
    row[-1], (row[0], z) = 5, (n, 3)
    w[-1, ...] = row
    tl.store(out + i[:, None] * 8 + i[None, :], w + v[3:4, :] + v[n, 2] + z)


def casts(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    f = tl.float32(v) / 3
    tl.store(out + i, f.to(tl.int8) + (f.to(tl.bfloat16) * 2).to(tl.int32) + f.to(tl.float8e5).to(tl.int32))
    tl.store(out, tl.cast(n, tl.uint8).to(tl.int32) + (v.to(tl.uint8) > 200).to(tl.int32).sum(0))


@library
def larger_first(a, ai, b, bi):
    keep = a >= b
    return tl.where(keep, a, b), tl.where(keep, ai, bi)


def reductions(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    best, where = tl.reduce((v, i), 0, larger_first)
    tl.store(out, tl.sum(v) + tl.max(v) * 3 + tl.min(v) + tl.argmax(v, 0) + where + best)
    tl.store(out + 1, tl.reduce(v, 0, lambda a, b: a + b + n - n))
    tile = tl.reshape(v, (4, 16))
    tl.store(out + 2 + tl.arange(0, 4), tl.max(tile, axis=1) + tl.sum(tile, axis=1, keep_dims=True).reshape(4))


@library
def nearer_to_ten(a, b):
    if a > 10:
        if b > 10:
            return min(a, b)
    elif b <= 10:
        return max(a, b)
    return b if b > 10 else a


def reductions_that_decide(x, out, n):
    tile = tl.load(x + tl.arange(0, 64)).reshape(4, 16)
    tl.store(out + tl.arange(0, 4), tl.reduce(tile, 1, nearer_to_ten))
    tl.store(out + 4 + tl.arange(0, 16), tl.reduce(tile, 0, nearer_to_ten))
    tl.store(out + 32 + tl.arange(0, 8), tl.associative_scan(tl.load(x + tl.arange(0, 8)), 0, nearer_to_ten))


def scans(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    tl.store(out + i, tl.cumsum(v, 0) + tl.associative_scan(v, 0, lambda a, b: max(a, b), reverse=True))


def library_functions(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    s = tl.sort(v) + tl.flip(v) + tl.cdiv(v, 3)
    tl.store(out + i, s + (tl.rand(n, i) * 1000).to(tl.int32) + tl.randint(n, i).to(tl.int32))


def shapes(x, out, n):
    i = tl.arange(0, 32)
    low, high = tl.split(tl.reshape(tl.load(x + tl.arange(0, 64)), (32, 2)))
    both = tl.interleave(high, low) + tl.cat(low, high) + tl.join(low, high).reshape(64)
    tl.store(out + tl.arange(0, 64), both + tl.broadcast_to(i[None, :], (2, 32)).reshape(64))


def dots(x, out, n):
    i = tl.arange(0, 8)
    a = tl.load(x + i[:, None] * 8 + i[None, :])
    acc = tl.zeros((8, 8), tl.float32)
    for _ in range(2):
        acc = tl.dot(a.to(tl.float16), a.to(tl.float16), acc)
    tl.store(out + i[:, None] * 8 + i[None, :], acc + tl.dot(a, a))


def atomics(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    old = tl.atomic_add(out + i % 4, v)
    tl.atomic_max(out + 5, v.max(0))
    tl.store(out + i, old, mask=i >= 8)


def masked_memory(x, out, n):
    i = tl.arange(0, 128)
    v = tl.load(x + i, mask=i < 64, other=-1)
    tl.store(out + (i - 64), v, mask=(i >= 64) & (i < 64 + n))
    tl.store(out + 63 - i % 64, tl.load(x + i % 64), mask=i < n)


def scalars(x, out, n):
    value = tl.load(x + n)
    if value > 0:
        value = value * 2
    elif value == 0:
        value += 9
    else:
        value = +-value
    p = out + n
    p += 1
    tl.store(p, value)
    tl.store(p - 2, value.to(tl.uint8) >> 1)


def programs(x, out, n):
    at = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    tl.store(out + at, at * 10 + n)


def comparisons(x, out, n):
    i = tl.arange(0, 64)
    u = tl.load(x + i).to(tl.uint8)
    s = (u > 100).to(tl.int32) + (tl.load(x + i) > 100).to(tl.int32) * 2 + (u >= 128) * 4
    tl.store(out + i, s + (-1 < n < 100) + (u == 255).to(tl.int8))


@constexpr_function
def half(n):
    return n // 2


def constexpr_functions(x, out, n, B: tl.constexpr = 64):
    i = tl.arange(0, half(B))
    HALF: tl.constexpr = half(i.shape[0])
    tl.store(out + tl.arange(0, HALF), tl.load(x + tl.arange(0, HALF)) + half(7))


def negative_zero(x, out, n):
    i = tl.arange(0, 64)
    v = tl.load(x + i)
    z = v * 0.0 - 0.0
    tl.store(out + i, 1.0 / (z * -1.0 + tl.where(i > 3, 0.0, -0.0)))


INT, FLOAT, BYTE, LONG = np.int32, np.float32, np.int8, np.int64
CASES: list[tuple[Any, Any, Any]] = [
    (assigned_numbers_are_typed, BYTE, FLOAT), (integer_division_is_that_of_c, INT, INT), (wrapping, INT, INT),
    (logic_on_tiles, INT, INT), (logic_on_constants, INT, INT), (logic_that_mixes, INT, INT),
    (conditional_expressions, INT, FLOAT), (pythons_min_and_max, INT, INT), (counted_loops, INT, INT),
    (the_counter_has_a_type, INT, LONG), (unrolled_loops, INT, INT), (while_loops, INT, INT), (early_returns, INT, INT),
    (calls, INT, INT), (tuples, INT, INT), (constants, INT, INT), (indexing, FLOAT, FLOAT), (parts_of_tiles, INT, INT),
    (casts, BYTE, INT),
    (reductions, INT, INT), (reductions_that_decide, INT, INT),
    (scans, INT, INT), (library_functions, INT, INT), (shapes, FLOAT, FLOAT),
    (dots, FLOAT, FLOAT), (atomics, INT, INT), (masked_memory, INT, INT), (scalars, INT, INT), (programs, INT, INT),
    (comparisons, BYTE, INT), (constexpr_functions, INT, INT), (negative_zero, FLOAT, FLOAT),
]  # fmt: skip
