"""Computations as people of different schools write them: products over nested pieces of K, added by atomics, with sums
in a tuple; convolutions as products; gradients of weights; rotations; numbers of 4 bits.

All kernels of one list take the same arguments and leave the same result; `benchmarks/forms.py` times them.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

ADDED_PRODUCTS: list[Spelling] = []
CONVOLUTIONS: list[Spelling] = []
WEIGHT_GRADIENTS: list[Spelling] = []
ROTATIONS: list[Spelling] = []
NIBBLES: list[Spelling] = []


# --- out[m, n] += sum over k of a[m, k] b[k, n]; `out` is zero before ---

_ADDED = "*bf16:16, *bf16:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64"


@tilewright.jit
def loaded(base, rows, columns, most_rows, most_columns):
    inside = (rows < most_rows)[:, None] & (columns < most_columns)[None, :]
    return tl.load(base + rows[:, None] * most_columns + columns[None, :], mask=inside, other=0.0)


@spelled(ADDED_PRODUCTS, _ADDED)
def stored_by_helpers(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        p = step * BK + tl.arange(0, BK)
        acc = tl.dot(loaded(a, rows, p, m, k), loaded(b, p, columns, k, n), acc)
    tl.store(out + rows[:, None] * n + columns[None, :], acc, (rows < m)[:, None] & (columns < n)[None, :])


@spelled(ADDED_PRODUCTS, _ADDED)
def pieces_of_pieces(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    x = a + rows[:, None] * k + tl.arange(0, BK)[None, :]
    y = b + tl.arange(0, BK)[:, None] * n + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for outer in range(0, k, 4 * BK):
        own_x, own_y = x + outer, y + outer * n
        for _ in range(4):
            acc = tl.dot(tl.load(own_x), tl.load(own_y), acc)
            own_x += BK
            own_y += BK * n
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@spelled(ADDED_PRODUCTS, _ADDED)
def halves_of_k_by_atomics(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    for half in range(2):
        p = half * BK + tl.arange(0, BK)
        x = a + (rows % m)[:, None] * k + p[None, :]
        y = b + p[:, None] * n + (columns % n)[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(k, 2 * BK)):
            left = k - step * 2 * BK
            acc += tl.dot(tl.load(x, p[None, :] < left, 0.0), tl.load(y, p[:, None] < left, 0.0))
            x += 2 * BK
            y += 2 * BK * n
        inside = (rows < m)[:, None] & (columns < n)[None, :]
        tl.atomic_add(out + rows[:, None] * n + columns[None, :], acc, inside)


@spelled(ADDED_PRODUCTS, _ADDED)
def sums_in_a_tuple(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, first = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN // 2)
    sides = (first, first + BN // 2)
    sums = (tl.zeros((BM, BN // 2), tl.float32), tl.zeros((BM, BN // 2), tl.float32))
    for start in range(0, k, BK):
        p = start + tl.arange(0, BK)
        x = loaded(a, rows, p, m, k)
        sums = (
            tl.dot(x, loaded(b, p, sides[0], k, n), sums[0]),
            tl.dot(x, loaded(b, p, sides[1], k, n), sums[1]),
        )
    for side in tl.static_range(2):
        inside = (rows < m)[:, None] & (sides[side] < n)[None, :]
        tl.store(out + rows[:, None] * n + sides[side][None, :], sums[side], inside)


@spelled(ADDED_PRODUCTS, _ADDED)
def clamped_places(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p = start + tl.arange(0, BK)
        q = tl.minimum(p, k - 1)
        x = tl.load(a + tl.minimum(rows, m - 1)[:, None] * k + q[None, :])
        y = tl.load(b + q[:, None] * n + tl.minimum(columns, n - 1)[None, :])
        acc = tl.dot(tl.where(p[None, :] < k, x, 0.0), y, acc)
    tl.store(out + rows[:, None] * n + columns[None, :], acc, (rows < m)[:, None] & (columns < n)[None, :])


# --- 3 by 3 convolution of an image [h, w, c] with weights [3, 3, c, o]; zeros around ---

_CONVOLUTION = "*bf16:16, *bf16:16, *fp32:16, i32, i32, i32:16, i32:16, 64, 64, 32"


@tilewright.jit
def corner(h, w, BM: tl.constexpr):
    """Places of a block of pixels, and the upper left of what each looks at."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    return place, place // w - 1, place % w - 1


@spelled(CONVOLUTIONS, _CONVOLUTION)
def taps_around_channels(x, weights, out, h, w, c, o, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr):
    place, top, left = corner(h, w, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for ky in range(3):
        for kx in range(3):
            y, z = top + ky, left + kx
            inside = (place < h * w) & (y >= 0) & (y < h) & (z >= 0) & (z < w)
            for start in range(0, c, BC):
                p = start + tl.arange(0, BC)
                pixels = tl.load(x + (y * w + z)[:, None] * c + p[None, :], inside[:, None] & (p < c)[None, :], 0.0)
                taps = loaded(weights + (ky * 3 + kx) * c * o, p, n, c, o)
                acc = tl.dot(pixels, taps, acc)
    tl.store(out + place[:, None] * o + n[None, :], acc, (place < h * w)[:, None] & (n < o)[None, :])


@spelled(CONVOLUTIONS, _CONVOLUTION)
def taps_written_out(x, weights, out, h, w, c, o, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr):
    place, top, left = corner(h, w, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for tap in tl.static_range(9):
        y, z = top + tap // 3, left + tap % 3
        inside = (place < h * w) & (y >= 0) & (y < h) & (z >= 0) & (z < w)
        for start in range(0, c, BC):
            p = start + tl.arange(0, BC)
            pixels = tl.load(x + (y * w + z)[:, None] * c + p[None, :], inside[:, None] & (p < c)[None, :], 0.0)
            acc += tl.dot(pixels, loaded(weights + tap * c * o, p, n, c, o))
    tl.store(out + place[:, None] * o + n[None, :], acc, (place < h * w)[:, None] & (n < o)[None, :])


@spelled(CONVOLUTIONS, _CONVOLUTION)
def one_loop_of_taps_and_channels(x, weights, out, h, w, c, o, BM: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr):
    """Blocks of channels of all taps, counted through; channels are whole blocks."""
    place, top, left = corner(h, w, BM)
    n, blocks = tl.program_id(1) * BN + tl.arange(0, BN), c // BC
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(9 * blocks):
        tap, p = step // blocks, step % blocks * BC + tl.arange(0, BC)
        y, z = top + tap // 3, left + tap % 3
        inside = (place < h * w) & (y >= 0) & (y < h) & (z >= 0) & (z < w)
        pixels = tl.load(x + (y * w + z)[:, None] * c + p[None, :], inside[:, None], 0.0)
        taps = tl.load(weights + (tap * c + p)[:, None] * o + n[None, :], (n < o)[None, :], 0.0)
        acc = tl.dot(pixels, taps, acc)
    tl.store(out + place[:, None] * o + n[None, :], acc, (place < h * w)[:, None] & (n < o)[None, :])


# --- out[c] += sum over rows of x[r, c] y[r, c]; `out` is zero before ---

_GRADIENT = "*fp32:16, *fp32:16, *fp32:16, i32:16, i32, 1024"


@spelled(WEIGHT_GRADIENTS, _GRADIENT)
def rows_by_atomics(x, y, out, rows, columns, B: tl.constexpr):
    j = tl.arange(0, B)
    for r in range(tl.program_id(0) * 16, tl.minimum(tl.program_id(0) * 16 + 16, rows)):
        part = tl.load(x + r * columns + j, j < columns, 0.0) * tl.load(y + r * columns + j, j < columns, 0.0)
        tl.atomic_add(out + j, part, j < columns)


@spelled(WEIGHT_GRADIENTS, _GRADIENT)
def sums_of_a_program_by_atomics(x, y, out, rows, columns, B: tl.constexpr):
    j, acc = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for r in range(tl.program_id(0) * 16, tl.minimum(tl.program_id(0) * 16 + 16, rows)):
        acc += tl.load(x + r * columns + j, j < columns, 0.0) * tl.load(y + r * columns + j, j < columns, 0.0)
    tl.atomic_add(out + j, acc, j < columns, sem="relaxed")


@spelled(WEIGHT_GRADIENTS, _GRADIENT)
def tile_of_rows_by_atomics(x, y, out, rows, columns, B: tl.constexpr):
    r, j = tl.program_id(0) * 16 + tl.arange(0, 16), tl.arange(0, B)
    inside = (r < rows)[:, None] & (j < columns)[None, :]
    at = r[:, None] * columns + j[None, :]
    part = tl.sum(tl.load(x + at, inside, 0.0) * tl.load(y + at, inside, 0.0), 0)
    tl.atomic_add(out + j, part, j < columns)


# --- pairs of a row turned by an angle of the row's own; out[2 i], out[2 i + 1] from x[2 i], x[2 i + 1] ---

_ROTATION = "*bf16:16, *fp32:16, *fp32:16, *bf16:16, i32:16, 8, 64"


@spelled(ROTATIONS, _ROTATION)
def every_second(x, cosines, sines, out, rows, H: tl.constexpr, D: tl.constexpr):
    t, h, i = tl.program_id(0), tl.arange(0, H)[:, None], tl.arange(0, D // 2)[None, :]
    c, s, at = tl.load(cosines + t * (D // 2) + i), tl.load(sines + t * (D // 2) + i), (t * H + h) * D + 2 * i
    even, odd = tl.load(x + at).to(tl.float32), tl.load(x + at + 1).to(tl.float32)
    tl.store(out + at, (even * c - odd * s).to(out.dtype.element_ty))
    tl.store(out + at + 1, (even * s + odd * c).to(out.dtype.element_ty))


@spelled(ROTATIONS, _ROTATION)
def split_and_joined(x, cosines, sines, out, rows, H: tl.constexpr, D: tl.constexpr):
    t, i = tl.program_id(0), tl.arange(0, D // 2)[None, :]
    at = t * H * D + tl.arange(0, H)[:, None] * D + tl.arange(0, D)[None, :]
    c, s = tl.load(cosines + t * (D // 2) + i), tl.load(sines + t * (D // 2) + i)
    even, odd = tl.split(tl.load(x + at).to(tl.float32).reshape(H, D // 2, 2))
    turned = tl.join(even * c - odd * s, even * s + odd * c).reshape(H, D)
    tl.store(out + at, turned.to(out.dtype.element_ty))


@spelled(ROTATIONS, _ROTATION)
def with_the_partner(x, cosines, sines, out, rows, H: tl.constexpr, D: tl.constexpr):
    t, d = tl.program_id(0), tl.arange(0, D)[None, :]
    at = t * H * D + tl.arange(0, H)[:, None] * D
    c, s = tl.load(cosines + t * (D // 2) + d // 2), tl.load(sines + t * (D // 2) + d // 2)
    own, other = tl.load(x + at + d).to(tl.float32), tl.load(x + at + (d ^ 1)).to(tl.float32)
    turned = own * c + tl.where(d % 2 == 0, -other, other) * s
    tl.store(out + at + d, turned.to(out.dtype.element_ty))


@spelled(ROTATIONS, _ROTATION)
def flat_elements(x, cosines, sines, out, rows, H: tl.constexpr, D: tl.constexpr):
    i = tl.program_id(0) * H * D + tl.arange(0, H * D)
    inside, t, d = i < rows * H * D, i // (H * D), i % D
    c = tl.load(cosines + t * (D // 2) + d // 2, inside, 0.0)
    s = tl.load(sines + t * (D // 2) + d // 2, inside, 0.0)
    own = tl.load(x + i, inside, 0.0).to(tl.float32)
    other = tl.load(x + (i ^ 1), inside, 0.0).to(tl.float32)
    tl.store(out + i, (own * c + tl.where(i % 2 == 0, -other, other) * s).to(out.dtype.element_ty), inside)


# --- pairs of rows whose stride only the launch knows; they are in no table of forms --------------------------------

ROWS_OF_PAIRS: list[Spelling] = []


@spelled(ROWS_OF_PAIRS, "*fp32:16, *fp32:16, i32")
def pairs_of_rows(x, out, stride):
    """An even element of one row may be an odd one of another."""
    at = tl.arange(0, 8)[:, None] * stride + 2 * tl.arange(0, 32)[None, :]
    even, odd = tl.load(x + at), tl.load(x + at + 1)
    tl.store(out + at, -odd)
    tl.store(out + at + 1, even)


# --- out[r, j]: numbers of 4 bits, two in a byte, with an offset and a scale for 64 of them ---

_NIBBLES = "*u8:16, *fp32:16, *u8:16, *fp32:16, i32:16, i32:16, 1024"


@spelled(NIBBLES, _NIBBLES)
def interleaved(w, scales, offsets, out, rows, columns, B: tl.constexpr):
    r, start = tl.program_id(0), tl.program_id(1) * B
    packed = tl.load(w + (r * columns + start) // 2 + tl.arange(0, B // 2))
    j = start + tl.arange(0, B)
    group = r * (columns // 64) + j // 64
    number = tl.interleave(packed & 15, packed >> 4).to(tl.float32)
    tl.store(out + r * columns + j, (number - tl.load(offsets + group).to(tl.float32)) * tl.load(scales + group))


@spelled(NIBBLES, _NIBBLES)
def chosen_for_each_element(w, scales, offsets, out, rows, columns, B: tl.constexpr):
    r, j = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    packed = tl.load(w + r * (columns // 2) + j // 2)
    group = r * (columns // 64) + j // 64
    number = tl.where(j % 2 == 0, packed & 15, packed >> 4).to(tl.float32)
    tl.store(out + r * columns + j, (number - tl.load(offsets + group).to(tl.float32)) * tl.load(scales + group))


@spelled(NIBBLES, _NIBBLES)
def shifted_for_each_element(w, scales, offsets, out, rows, columns, B: tl.constexpr):
    r, j = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    packed = tl.load(w + r * (columns // 2) + j // 2).to(tl.int32)
    group = r * (columns // 64) + j // 64
    number = ((packed >> (j % 2 * 4)) & 15).to(tl.float32)
    tl.store(out + r * columns + j, (number - tl.load(offsets + group).to(tl.float32)) * tl.load(scales + group))


@spelled(NIBBLES, _NIBBLES)
def group_by_group(w, scales, offsets, out, rows, columns, B: tl.constexpr):
    r, g = tl.program_id(0), tl.program_id(1) * (B // 64) + tl.arange(0, B // 64)
    scale = tl.load(scales + r * (columns // 64) + g)[:, None]
    offset = tl.load(offsets + r * (columns // 64) + g)[:, None].to(tl.float32)
    packed = tl.load(w + r * (columns // 2) + g[:, None] * 32 + tl.arange(0, 32)[None, :])
    low, high = (packed & 15).to(tl.float32), (packed >> 4).to(tl.float32)
    number = tl.join((low - offset) * scale, (high - offset) * scale).reshape(B // 64, 64)
    tl.store(out + r * columns + g[:, None] * 64 + tl.arange(0, 64)[None, :], number)


STRANGERS = ADDED_PRODUCTS + CONVOLUTIONS + WEIGHT_GRADIENTS + ROTATIONS + ROWS_OF_PAIRS + NIBBLES
