"""Products that few programs make tile after tile, in loops of many kinds; and products of 8-bit floats, with scales of
blocks.

All kernels of one list take the same arguments and leave the same result; `benchmarks/forms.py` times them.
"""

# mypy: ignore-errors

from __future__ import annotations

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, spelled

PERSISTENT: list[Spelling] = []
SCALED_BLOCKS: list[Spelling] = []

_FEW = "*bf16:16, *bf16:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64"


@tilewright.jit
def place(tile, n, BM: tl.constexpr, BN: tl.constexpr):
    """Rows and columns of a tile."""
    across = tl.cdiv(n, BN)
    return tile // across * BM + tl.arange(0, BM), tile % across * BN + tl.arange(0, BN)


@tilewright.jit
def written(out, acc, rows, columns, m, n):
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], acc, inside)


@spelled(PERSISTENT, _FEW)
def tile_by_tile(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(m, BM) * tl.cdiv(n, BN), tl.num_programs(0)):
        rows, columns = place(tile, n, BM, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(k, BK)):
            p = step * BK + tl.arange(0, BK)
            x = tl.load(a + (rows % m)[:, None] * k + p[None, :], p[None, :] < k, 0.0)
            y = tl.load(b + p[:, None] * n + (columns % n)[None, :], p[:, None] < k, 0.0)
            acc = tl.dot(x, y, acc)
        written(out, acc, rows, columns, m, n)


@spelled(PERSISTENT, _FEW)
def flat(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One loop over all iterations of all tiles; what a tile needs is made anew in its first iteration."""
    first, programs = tl.program_id(0), tl.num_programs(0)
    across, iterations = tl.cdiv(n, BN), tl.cdiv(k, BK)
    tiles = tl.cdiv(m, BM) * across
    own = tiles // programs
    if first < tiles % programs:
        own += 1
    tile, step, top, left = first - programs, -1, 0, 0
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, iterations * own):
        step = tl.where(step == iterations - 1, 0, step + 1)
        if step == 0:
            tile += programs
            top, left = tile // across * BM, tile % across * BN
            rows, columns = top + tl.arange(0, BM), left + tl.arange(0, BN)
            rows, columns = tl.where(rows < m, rows, 0), tl.where(columns < n, columns, 0)
        p = step * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + p[None, :], p[None, :] < k, 0.0)
        y = tl.load(b + p[:, None] * n + columns[None, :], p[:, None] < k, 0.0)
        acc = tl.dot(x, y, acc)
        if step == iterations - 1:
            written(out, acc, top + tl.arange(0, BM), left + tl.arange(0, BN), m, n)
            acc = tl.zeros((BM, BN), tl.float32)


@spelled(PERSISTENT, _FEW)
def counted_through(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    first, programs, iterations = tl.program_id(0), tl.num_programs(0), tl.cdiv(k, BK)
    own = tl.cdiv(tl.cdiv(m, BM) * tl.cdiv(n, BN) - first, programs)
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(own * iterations):
        rows, columns = place(first + t // iterations * programs, n, BM, BN)
        p = t % iterations * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + p[None, :], (rows < m)[:, None] & (p < k)[None, :], 0.0)
        y = tl.load(b + p[:, None] * n + columns[None, :], (p < k)[:, None] & (columns < n)[None, :], 0.0)
        acc = tl.dot(x, y, tl.where(t % iterations == 0, 0.0, acc))
        if t % iterations == iterations - 1:
            written(out, acc, rows, columns, m, n)


@spelled(PERSISTENT, _FEW)
def begun_anew_at_the_end(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    programs, iterations = tl.num_programs(0), tl.cdiv(k, BK)
    tile, step = tl.program_id(0), 0
    own = tl.cdiv(tl.cdiv(m, BM) * tl.cdiv(n, BN) - tile, programs)
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(own * iterations):
        rows, columns = place(tile, n, BM, BN)
        p = step * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + p[None, :], (rows < m)[:, None] & (p < k)[None, :], 0.0)
        y = tl.load(b + p[:, None] * n + columns[None, :], (p < k)[:, None] & (columns < n)[None, :], 0.0)
        acc = tl.dot(x, y, acc)
        step += 1
        if step >= iterations:
            written(out, acc, rows, columns, m, n)
            acc = tl.zeros((BM, BN), tl.float32)
            tile += programs
            step = 0


@spelled(PERSISTENT, _FEW)
def with_moving_pointers(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Whole blocks; a tile's end puts the pointers to where the next one begins."""
    programs, iterations = tl.num_programs(0), tl.cdiv(k, BK)
    tile, step, p = tl.program_id(0), 0, tl.arange(0, BK)
    own = tl.cdiv(tl.cdiv(m, BM) * tl.cdiv(n, BN) - tile, programs)
    rows, columns = place(tile, n, BM, BN)
    x, y = a + rows[:, None] * k + p[None, :], b + p[:, None] * n + columns[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(own * iterations):
        acc += tl.dot(tl.load(x), tl.load(y))
        x += BK
        y += BK * n
        if step < iterations - 1:
            step += 1
        else:
            rows, columns = place(tile, n, BM, BN)
            written(out, acc, rows, columns, m, n)
            tile += programs
            step = 0
            rows, columns = place(tile, n, BM, BN)
            x, y = a + rows[:, None] * k + p[None, :], b + p[:, None] * n + columns[None, :]
            acc = tl.zeros((BM, BN), tl.float32)


@spelled(PERSISTENT, _FEW)
def fetched_an_iteration_ahead(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(m, BM) * tl.cdiv(n, BN), tl.num_programs(0)):
        rows, columns = place(tile, n, BM, BN)
        p = tl.arange(0, BK)
        xs, ys = a + (rows % m)[:, None] * k + p[None, :], b + p[:, None] * n + (columns % n)[None, :]
        x, y = tl.load(xs, p[None, :] < k, 0.0), tl.load(ys, p[:, None] < k, 0.0)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(k, BK)):
            xs += BK
            ys += BK * n
            left = k - (step + 1) * BK
            next_x, next_y = tl.load(xs, p[None, :] < left, 0.0), tl.load(ys, p[:, None] < left, 0.0)
            acc = tl.dot(x, y, acc)
            x, y = next_x, next_y
        written(out, acc, rows, columns, m, n)


@spelled(PERSISTENT, _FEW)
def fetched_if_there_is_more(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(m, BM) * tl.cdiv(n, BN), tl.num_programs(0)):
        rows, columns = place(tile, n, BM, BN)
        p = tl.arange(0, BK)
        xs, ys = a + rows[:, None] * k + p[None, :], b + p[:, None] * n + columns[None, :]
        x, y = tl.load(xs), tl.load(ys)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(k, BK)):
            more = (step + 1) * BK < k
            xs += BK
            ys += BK * n
            next_x, next_y = tl.load(xs, more, 0.0), tl.load(ys, more, 0.0)
            acc = tl.dot(x, y, acc)
            x, y = next_x, next_y
        written(out, acc, rows, columns, m, n)


@spelled(PERSISTENT, _FEW)
def fetched_in_a_branch(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(m, BM) * tl.cdiv(n, BN), tl.num_programs(0)):
        rows, columns = place(tile, n, BM, BN)
        p = tl.arange(0, BK)
        xs, ys = a + rows[:, None] * k + p[None, :], b + p[:, None] * n + columns[None, :]
        x, y = tl.load(xs), tl.load(ys)
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            acc = tl.dot(x, y, acc)
            if start + BK < k:
                x, y = tl.load(xs + start + BK), tl.load(ys + (start + BK) * n)
        written(out, acc, rows, columns, m, n)


# --- out[m, n] = sum over blocks of 128 of k of u[m, block] v[block, n // 128] a[m, k] b[n, k], of 8-bit floats ---

_BLOCKS = "*fp8e4nv:16, *fp8e4nv:16, *fp32:16, *fp32:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 128"


@spelled(SCALED_BLOCKS, _BLOCKS)
def scaled_products(a, b, u, v, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(k, BK)):
        p = step * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + p[None, :], p[None, :] < k, 0.0)
        y = tl.load(b + columns[None, :] * k + p[:, None], p[:, None] < k, 0.0)
        s = tl.load(u + rows * tl.cdiv(k, BK) + step)
        t = tl.load(v + columns // 128 * tl.cdiv(k, BK) + step)
        acc += tl.dot(x, y) * s[:, None] * t[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@spelled(SCALED_BLOCKS, _BLOCKS)
def scaled_by_one_tile(a, b, u, v, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Pointers that move; one scale for all columns of the tile."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    p, blocks = tl.arange(0, BK), k // BK
    xs, ys = a + rows[:, None] * k + p[None, :], b + columns[None, :] * k + p[:, None]
    ss, ts = u + rows * blocks, v + tl.program_id(1) * BN // 128 * blocks
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(blocks):
        acc += tl.dot(tl.load(xs), tl.load(ys)) * (tl.load(ss) * tl.load(ts))[:, None]
        xs += BK
        ys += BK
        ss += 1
        ts += 1
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@spelled(SCALED_BLOCKS, _BLOCKS)
def scaled_products_of_wider(a, b, u, v, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p, block = start + tl.arange(0, BK), start // BK
        x = tl.load(a + rows[:, None] * k + p[None, :]).to(tl.float16)
        y = tl.trans(tl.load(b + columns[:, None] * k + p[None, :])).to(tl.float16)
        s, t = tl.load(u + rows * (k // BK) + block), tl.load(v + columns // 128 * (k // BK) + block)
        acc += tl.dot(x, y) * s[:, None] * t[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@spelled(SCALED_BLOCKS, _BLOCKS)
def scaled_operands(a, b, u, v, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p, block = start + tl.arange(0, BK), start // BK
        s, t = tl.load(u + rows * (k // BK) + block), tl.load(v + columns // 128 * (k // BK) + block)
        x = tl.load(a + rows[:, None] * k + p[None, :]).to(tl.float32) * s[:, None]
        y = tl.load(b + columns[None, :] * k + p[:, None]).to(tl.float32) * t[None, :]
        acc = tl.dot(x, y, acc)
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


@spelled(SCALED_BLOCKS, _BLOCKS)
def one_scaled_operand(a, b, u, v, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        p, block = start + tl.arange(0, BK), start // BK
        s, t = tl.load(u + rows * (k // BK) + block), tl.load(v + columns // 128 * (k // BK) + block)
        x = tl.load(a + rows[:, None] * k + p[None, :]).to(tl.float32) * s[:, None]
        y = tl.load(b + columns[None, :] * k + p[:, None]).to(tl.float32)
        acc += tl.dot(x, y) * t[None, :]
    tl.store(out + rows[:, None] * n + columns[None, :], acc)


# --- a loop in which a number begins anew, and that stays as it is ---

OTHER_LOOPS: list[Spelling] = []


@spelled(OTHER_LOOPS, _FEW)
def every_third_negated(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = place(tl.program_id(0), n, BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(k, BK)):
        p = step * BK + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * k + p[None, :], p[None, :] < k, 0.0)
        if step % 3 == 2:
            x = -x
        acc = tl.dot(x, tl.load(b + p[:, None] * n + columns[None, :], p[:, None] < k, 0.0), acc)
    written(out, acc, rows, columns, m, n)


@spelled(OTHER_LOOPS, "*bf16:16, *i8:16, *fp32:16, *fp32:16, i32:16, i32:16, 128, 64")
def one_row_of_scaled_bytes(x, w, scales, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    """The matrix is rounded, so that it stays one."""
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((1, BN), tl.float32)
    for start in range(0, k, BK):
        y = tl.load(w + (start + p)[:, None] * n + j[None, :]) * tl.load(scales + start // BK * n + j)[None, :]
        acc = tl.dot(tl.load(x + start + p)[None, :], y.to(tl.bfloat16), acc)
    tl.store(out + j[None, :], acc)
