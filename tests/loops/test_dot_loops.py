"""Dots that add to one another, in any loops, become one loop through K, which computes what they compute."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.loops.subjects import DOT_LOOPS

BM, BN, BK = 16, 32, 16


@tilewright.jit
def block(acc, a, b, m, n, k, M, N, K):
    """The product of the block of A and B at `k` and the sum so far."""
    x = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0)
    y = tl.load(b + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0)
    return tl.dot(x, y, acc, out_dtype=acc.dtype)


@tilewright.jit
def downwards(a, b, acc, m, n, k, M, N, K, BK: tl.constexpr):
    for start in range((tl.cdiv(K, BK) - 1) * BK, -1, -BK):
        acc = block(acc, a, b, m, n, start + k, M, N, K)
    return acc


@tilewright.jit
def in_blocks(a, b, acc, m, n, k, M, N, K, BK: tl.constexpr):
    for start in range(0, K, 4 * BK):
        for at in range(start, min(start + 4 * BK, K), BK):
            acc = block(acc, a, b, m, n, at + k, M, N, K)
    return acc


@tilewright.jit
def in_three_loops(a, b, acc, m, n, k, M, N, K, BK: tl.constexpr):
    for start in range(0, K, 4 * BK):
        for half in range(2):
            for piece in range(2):
                acc = block(acc, a, b, m, n, start + (2 * half + piece) * BK + k, M, N, K)
    return acc


@tilewright.jit
def two_an_iteration(a, b, acc, m, n, k, M, N, K, BK: tl.constexpr):
    for start in range(0, K, 2 * BK):
        acc = block(acc, a, b, m, n, start + k, M, N, K)
        acc = block(acc, a, b, m, n, start + BK + k, M, N, K)
    return acc


@tilewright.jit
def two_an_iteration_downwards(a, b, acc, m, n, k, M, N, K, BK: tl.constexpr):
    for t in range(tl.cdiv(K, 2 * BK)):
        start = (tl.cdiv(K, 2 * BK) - 1 - t) * 2 * BK
        acc = block(acc, a, b, m, n, start + BK + k, M, N, K)
        acc = block(acc, a, b, m, n, start + k, M, N, K)
    return acc


@tilewright.jit
def in_parts(a, b, acc, m, n, k, M, N, K, BK: tl.constexpr):
    for start in range(0, K, 4 * BK):
        part = tl.zeros_like(acc)
        for at in range(start, min(start + 4 * BK, K), BK):
            part = block(part, a, b, m, n, at + k, M, N, K)
        acc += part
    return acc


@tilewright.jit
def two_sums(a, b, acc, m, n, k, M, N, K, BK: tl.constexpr):
    half, low = K // (2 * BK) * BK, tl.zeros_like(acc)
    for start in range(half, K, BK):
        acc = block(acc, a, b, m, n, start + k, M, N, K)
    for start in range(0, half, BK):
        low = block(low, a, b, m, n, start + k, M, N, K)
    return low + acc


SPELLINGS = [downwards, in_blocks, in_three_loops, two_an_iteration, two_an_iteration_downwards, in_parts]


@tilewright.jit
def product(
    a, b, c, M, N, K, WAY: tl.constexpr, SUM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = WAY(a, b, tl.full((BM, BN), 1, SUM), m, n, tl.arange(0, BK), M, N, K, BK)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


def _run(way, kind, depth, sums=np.float32):
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(-3, 4, shape).astype(kind) for shape in ((19, depth), (depth, 45)))
    out = np.empty((19, 45), sums)
    sum_type = tl.int32 if sums is np.int32 else tl.float32
    made = product[(2, 2)](a, b, out, 19, 45, depth, way, sum_type, BM, BN, BK)
    np.testing.assert_array_equal(out, 1 + a.astype(sums) @ b.astype(sums))
    return [d for d in made.decisions if d.subject == DOT_LOOPS.name]


@pytest.mark.parametrize("way", SPELLINGS, ids=[s.__name__ for s in SPELLINGS])
@pytest.mark.parametrize("depth", [0, 7, 64, 150])
def test_what_it_computes(way, depth):
    made = _run(way, np.float32, depth)
    assert {d.taken for d in made} == {True}


@pytest.mark.parametrize("depth", [0, 7, 64, 150])
def test_two_sums_that_may_not_go_on(depth):
    """One begins with zero, the other does not; where the first one ends is not known to be inside."""
    assert {d.taken for d in _run(two_sums, np.float32, depth)} == {False}


@pytest.mark.parametrize("kind, sums", [(np.float16, np.float32), (np.int8, np.int32)])
def test_of_other_types(kind, sums):
    for way in (downwards, in_blocks):
        assert {d.taken for d in _run(way, kind, 70, sums)} == {True}


@tilewright.jit
def scaled(acc, a, b, m, n, k, M, N, K):
    """A is scaled by rows and along K, B is made of bytes."""
    x = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0)
    y = tl.load(b + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0)
    along = (tl.load(a + k, mask=k < K, other=0) * 2.0 - 1)[None, :] + tl.load(a + k, mask=k < K, other=0)[None, :]
    return tl.dot(x * (1.0 + m)[:, None] * along, y.to(tl.float32), acc)


@tilewright.jit
def divided(acc, a, b, m, n, k, M, N, K):
    """What is made of the zeros behind the end of K is infinite, and not looked at."""
    x = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0)
    y = tl.load(b + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0)
    x = tl.where((k < K)[None, :], 1.0 / (x + 0.5), 0.0)
    return tl.dot(x, tl.trans(tl.trans(y) - 1.0) + 1.0, acc)


@tilewright.jit
def product_of(
    a, b, c, M, N, K, HOW: tl.constexpr, WAY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k, acc = tl.arange(0, BK), tl.zeros((BM, BN), tl.float32)
    if WAY == 0:
        for start in range((tl.cdiv(K, BK) - 1) * BK, -1, -BK):
            acc = HOW(acc, a, b, m, n, start + k, M, N, K)
    elif WAY == 1:
        for start in range(0, K, 4 * BK):
            for at in range(start, min(start + 4 * BK, K), BK):
                acc = HOW(acc, a, b, m, n, at + k, M, N, K)
    else:
        for start in range(0, K, 2 * BK):
            acc = HOW(acc, a, b, m, n, start + k, M, N, K)
            acc = HOW(acc, a, b, m, n, start + BK + k, M, N, K)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


@pytest.mark.parametrize("depth", [7, 64, 150])
@pytest.mark.parametrize("way", [0, 1, 2])
def test_of_computed_operands(way, depth):
    rng = np.random.default_rng(depth)
    a, b = rng.integers(-3, 4, (19, depth)).astype(np.float32), rng.integers(-3, 4, (depth, 45)).astype(np.int8)
    out = np.empty((19, 45), np.float32)
    made = product_of[(2, 2)](a, b, out, 19, 45, depth, scaled, way, BM, BN, BK)
    of_rows = a * (1.0 + np.arange(19))[:, None] * (3 * a[0] - 1)
    np.testing.assert_array_equal(out, of_rows @ b.astype(np.float32))
    assert {d.taken for d in made.decisions if d.subject == DOT_LOOPS.name} == {True}
    made = product_of[(2, 2)](a, b.astype(np.float32), out, 19, 45, depth, divided, way, BM, BN, BK)
    np.testing.assert_allclose(out, (1.0 / (a + 0.5)) @ b.astype(np.float32), rtol=1e-5, atol=1e-4)


@tilewright.jit
def over_and_over(a, b, c, n, N: tl.constexpr):
    """A product of all of K, `n` times: nothing of it goes on where the iteration before ended."""
    i = tl.arange(0, N)
    acc = tl.zeros((N, N), tl.float32)
    for _ in range(n):
        for k in range(0, 2 * N, N):
            acc = tl.dot(tl.load(a + i[:, None] * 2 * N + k + i[None, :]), tl.load(b + (k + i)[:, None] * N + i), acc)
    tl.store(c + i[:, None] * N + i, acc)


@tilewright.jit
def stored_between(a, b, c, N: tl.constexpr):
    """The second dot reads what was stored behind the first one."""
    i, acc = tl.arange(0, N), tl.zeros((N, N), tl.float32)
    y = tl.load(b + i[:, None] * N + i)
    acc = tl.dot(tl.load(a + i[:, None] * 2 * N + i), y, acc)
    tl.store(a + i[:, None] * 2 * N + N + i, acc)
    acc = tl.dot(tl.load(a + i[:, None] * 2 * N + N + i), tl.load(b + (N + i)[:, None] * N + i), acc)
    tl.store(c + i[:, None] * N + i, acc)


@tilewright.jit
def stored_between_parts(a, b, c, K, N: tl.constexpr):
    """The second loop reads what was stored behind the first one."""
    n, first, second = tl.arange(0, N), tl.zeros((N, N), tl.float32), tl.zeros((N, N), tl.float32)
    for k in range(0, K, N):
        first += tl.dot(tl.load(a + n[:, None] * 2 * K + k + n), tl.load(b + (k + n)[:, None] * N + n))
    tl.store(a + n[:, None] * 2 * K + K + n, first)
    for k in range(K, 2 * K, N):
        second += tl.dot(tl.load(a + n[:, None] * 2 * K + k + n), tl.load(b + (k + n)[:, None] * N + n))
    tl.store(c + n[:, None] * N + n, first + second)


def test_parts_are_apart_where_memory_changes_between_them():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((16, 96), (96, 16)))
    out, first = np.empty((16, 16), np.float32), a[:, :48] @ b[:48]
    changed = a.copy()
    changed[:, 48:64] = first
    stored_between_parts[(1,)](a, b, out, 48, 16)
    np.testing.assert_array_equal(out, changed @ b)


def test_where_loops_do_not_go_on():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((16, 32), (32, 16)))
    out, first = np.empty((16, 16), np.float32), a[:, :16] @ b[:16]
    made = over_and_over[(1,)](a, b, out, 3, 16)
    np.testing.assert_array_equal(out, 3 * (a @ b))
    assert not any(d.taken for d in made.decisions if d.subject == DOT_LOOPS.name)
    made = stored_between[(1,)](a, b, out, 16)
    np.testing.assert_array_equal(out, first + first @ b[16:])
    assert not any(d.taken for d in made.decisions if d.subject == DOT_LOOPS.name)


@tilewright.jit
def one_row(a, b, c, M, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr, TURNED: tl.constexpr):
    """A row of A, which may lie beyond them, times B; or B's transpose times a column."""
    row, n = tl.program_id(0) + tl.arange(0, 1), tl.arange(0, N)
    acc = tl.zeros((N, 1) if TURNED else (1, N), tl.float32)
    for start in tl.static_range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + row[:, None] * K + k[None, :], mask=(row < M)[:, None] & (k < K)[None, :], other=0)
        y = tl.load(b + k[:, None] * N + n[None, :])
        acc = tl.dot(tl.trans(y), tl.trans(x), acc) if TURNED else tl.dot(x, y, acc)
    tl.store(c + row[:, None] * N + n[None, :], tl.trans(acc) if TURNED else acc)


@pytest.mark.parametrize("turned", [False, True])
def test_a_condition_on_neither_dim_does_not_move_with_the_tiles(turned):
    """`program < 4` is no bound of K: for the last programs it would end there with their number."""
    a, b, c = (np.random.default_rng(0).random(shape, np.float32) for shape in ((4, 24), (24, 8), (6, 8)))
    one_row[(6,)](a, b, c, 4, 8, 24, 8, turned)
    assert np.allclose(c, np.concatenate([a @ b, np.zeros((2, 8), np.float32)]), atol=1e-5)
