"""Iterations that take one side of a branch are a loop of their own, whatever the branch compares."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of

LEAST, MOST = -(2**31), 2**31 - 1
STARTS = [LEAST, -40, -1, 0, 1, 16, 17, 32, 100, 111, 112, 1000, MOST]
HOLDS = [
    lambda s, p: s != p,
    lambda s, p: s == p,
    lambda s, p: p > s + 3,
    lambda s, p: p <= s,
    lambda s, p: 20 <= s < p,
    lambda s, p: not 20 <= s < p,
    lambda s, p: 2 * s < p,
    lambda s, p: 2 * s != p,
]
LOOPS = [2, 1, 1, 1, 1, 2, 1, 2]


@tilewright.jit
def taken(s, p, HOW: tl.constexpr):
    if HOW == 0:
        return s != p
    elif HOW == 1:
        return s == p
    elif HOW == 2:
        return p > s + 3
    elif HOW == 3:
        return p <= s
    elif HOW == 4:
        return (s >= 20) & (s < p)
    elif HOW == 5:
        return (s < 20) | (s >= p)
    elif HOW == 6:
        return 2 * s < p
    return p != 2 * s


@tilewright.jit
def sums(x, out, p, END, HOW: tl.constexpr, STEP: tl.constexpr, N: tl.constexpr):
    """Rows are weighted by how many came before them, so that their order counts."""
    total, n = tl.zeros((N,), tl.float32), 0
    for s in range(3 * STEP - 48, END, STEP):
        if taken(s, p, HOW):
            n += 1
            total += n * tl.load(x + (s + 64) * N + tl.arange(0, N))
    tl.store(out + tl.arange(0, N), total)


@pytest.mark.parametrize("how", range(len(HOLDS)))
def test_what_is_taken(how):
    x = np.arange(512 * 4, dtype=np.float32).reshape(512, 4)
    out, step = np.empty(4, np.float32), 16
    for p in STARTS:
        for end in (112, 113, -50):
            made = sums[(1,)](x, out, p, end, how, step, 4)
            rows = [s for s in range(3 * step - 48, end, step) if HOLDS[how](s, p)]
            np.testing.assert_array_equal(out, sum(((i + 1) * x[s + 64] for i, s in enumerate(rows)), np.zeros(4)))
    text = made.asm["ttir"]
    assert (text.count("scf.for"), text.count("scf.if")) == (LOOPS[how], 0)


@tilewright.jit
def but_one(a, b, c, M, N, K, skip, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        if s == skip:
            continue
        k = s + tl.arange(0, BK)
        acc = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize("target, subject", [("avx512", "K strip-mining"), ("cuda90", "asynchronous dot")])
def test_a_product_that_leaves_one_block_out_is_two_products(target, subject):
    spelling = Spelling(but_one, "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, i32, 64, 128, 64", {})
    assert [d.taken for d in decisions_of(spelling, target) if d.subject == subject] == [True, True]


@tilewright.jit
def told(x, HOW: tl.constexpr):
    """What an iteration does besides the branch is done in all of them, in order."""
    for s in range(8):
        tl.atomic_add(x + s, 1)
        if s != 3:
            tl.atomic_add(x + 8, s)


def test_what_is_done_in_all_iterations_stays():
    x = np.zeros(9, np.int32)
    told[(1,)](x, 0)
    np.testing.assert_array_equal(x, [1] * 8 + [25])
