"""Spellings of bilinear sampling: an element of the result is made of four of a picture around a place of its own."""

from __future__ import annotations

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

SAMPLED: list[Spelling] = []
_SAMPLED = "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16, i32, 8, 512"


@tilewright.jit
def corners(x, y, width, height):
    """Left and upper neighbours, those beyond them, held inside, and how far on the place lies."""
    x, y = (x + 1) * 0.5 * (width - 1), (y + 1) * 0.5 * (height - 1)
    x, y = tl.minimum(tl.maximum(x, 0.0), width - 1.0), tl.minimum(tl.maximum(y, 0.0), height - 1.0)
    left, top = tl.floor(x), tl.floor(y)
    i, j = left.to(tl.int32), top.to(tl.int32)
    return i, tl.minimum(i + 1, width - 1), j, tl.minimum(j + 1, height - 1), x - left, y - top


@tilewright.jit
def between(a, b, c, d, right, down):
    upper, lower = a + (b - a) * right, c + (d - c) * right
    return upper + (lower - upper) * down


@spelled(SAMPLED, _SAMPLED)
def channels_in_a_loop(picture, places, out, height, width, n, C: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(places + 2 * p, p < n, 0.0), tl.load(places + 2 * p + 1, p < n, 0.0)
    i, k, j, m, right, down = corners(x, y, width, height)
    for c in range(C):
        at = picture + c * height * width
        a, b = tl.load(at + j * width + i, p < n), tl.load(at + j * width + k, p < n)
        d, e = tl.load(at + m * width + i, p < n), tl.load(at + m * width + k, p < n)
        tl.store(out + c * n + p, between(a, b, d, e, right, down), p < n)


@spelled(SAMPLED, _SAMPLED)
def places_kept(picture, places, out, height, width, n, C: tl.constexpr, BLOCK: tl.constexpr):
    """The four places are computed before the loop."""
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(places + 2 * p, p < n, 0.0), tl.load(places + 2 * p + 1, p < n, 0.0)
    i, k, j, m, right, down = corners(x, y, width, height)
    ji, jk, mi, mk = j * width + i, j * width + k, m * width + i, m * width + k
    for c in range(C):
        a, b = tl.load(picture + ji, p < n), tl.load(picture + jk, p < n)
        d, e = tl.load(picture + mi, p < n), tl.load(picture + mk, p < n)
        tl.store(out + p, between(a, b, d, e, right, down), p < n)
        picture += height * width
        out += n


@spelled(SAMPLED, _SAMPLED)
def tile_of_channels(picture, places, out, height, width, n, C: tl.constexpr, BLOCK: tl.constexpr):
    p, c = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :], tl.arange(0, C)[:, None]
    x, y = tl.load(places + 2 * p, p < n, 0.0), tl.load(places + 2 * p + 1, p < n, 0.0)
    i, k, j, m, right, down = corners(x, y, width, height)
    at = picture + c * height * width
    a, b = tl.load(at + j * width + i, p < n), tl.load(at + j * width + k, p < n)
    d, e = tl.load(at + m * width + i, p < n), tl.load(at + m * width + k, p < n)
    tl.store(out + c * n + p, between(a, b, d, e, right, down), p < n)
