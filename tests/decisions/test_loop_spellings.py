"""A product is planned alike however its loop over K counts: from anywhere, up or down, by `for` or by `while`."""

# mypy: ignore-errors

from __future__ import annotations

import collections

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of, spelled
from tests.decisions.matmul import rows_and_columns, write
from tilewright.backends.cpu.plan.subjects import DOT_LOOPS, MATERIALIZED
from tilewright.backends.nvidia.plan.subjects import COPY_ENGINE, NO_BARRIER, RING

LOOPS: list[Spelling] = []
_USUAL = "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64"
_BLOCKS = {"BM": 64, "BN": 128, "BK": 64}


@tilewright.jit
def added(acc, a, b, m, n, k, M, N, K):
    """The product of the block of A and B at `k` and the sum so far."""
    x = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0)
    y = tl.load(b + k[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0.0)
    return tl.dot(x, y, acc)


@spelled(LOOPS, _USUAL)
def upwards(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = added(acc, a, b, m, n, k + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def downwards(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(K - BK, -1, -BK):
        acc = added(acc, a, b, m, n, k + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def downwards_from_the_end(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(K, 0, -BK):
        acc = added(acc, a, b, m, n, k - BK + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def by_numbers(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(tl.cdiv(K, BK)):
        acc = added(acc, a, b, m, n, t * BK + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def by_numbers_downwards(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(K // BK - 1, -1, -1):
        acc = added(acc, a, b, m, n, t * BK + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def by_ends(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for end in range(BK, K + BK, BK):
        acc = added(acc, a, b, m, n, end - BK + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def by_what_is_left(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for left in range(-K, 0, BK):
        acc = added(acc, a, b, m, n, left + K + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def from_one(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for t in range(1, K // BK + 1):
        acc = added(acc, a, b, m, n, (t - 1) * BK + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def until_the_end(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc, k = tl.zeros((BM, BN), tl.float32), 0
    while k < K:
        acc = added(acc, a, b, m, n, k + tl.arange(0, BK), M, N, K)
        k += BK
    write(c, acc, m, n, M, N)


@spelled(LOOPS, _USUAL)
def until_nothing_is_left(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc, k = tl.zeros((BM, BN), tl.float32), K
    while k > 0:
        k -= BK
        acc = added(acc, a, b, m, n, k + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


COMPUTED: list[Spelling] = []


@tilewright.jit
def computed(acc, a, b, m, n, k, M, N, K):
    """`added`, with a factor for each row of A; what is multiplied lies nowhere."""
    x = tl.load(a + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0)
    y = tl.load(b + k[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0.0)
    return tl.dot((x * (m + 1)[:, None]).to(x.dtype), y, acc)


@spelled(COMPUTED, _USUAL)
def computed_upwards(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = computed(acc, a, b, m, n, k + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


@spelled(COMPUTED, _USUAL)
def computed_downwards(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(K - BK, -1, -BK):
        acc = computed(acc, a, b, m, n, k + tl.arange(0, BK), M, N, K)
    write(c, acc, m, n, M, N)


# On a GPU their operands are no boxes, as places that count down may be negative: threads copy them to such buffers.
DOWNWARDS = {
    "downwards",
    "downwards_from_the_end",
    "by_numbers_downwards",
    "until_nothing_is_left",
    "computed_downwards",
}
_OF_COPIES = {COPY_ENGINE.name, NO_BARRIER.name, RING.name}
SHARED = (MATERIALIZED.name, False, "it is as cheap to compute again")


def _decided(spelling: Spelling, target: str) -> collections.Counter[tuple[str, bool, str]]:
    """The decisions, without where they stand, and without that a loop is made anew, which makes the others alike."""
    made = [(d.subject, d.taken, d.text) for d in decisions_of(spelling, target)]
    return collections.Counter(d for d in made if d[0] != DOT_LOOPS.name)


def assert_alike(spelling: Spelling, other: Spelling, target: str) -> None:
    """Their decisions are equal, but that the masks of a loop made anew are its own, which shares no cheap tile."""
    found, usual = _decided(spelling, target), _decided(other, target)
    if target == "cuda90" and spelling.name in DOWNWARDS:
        rings = [
            sorted(text.partition(", by")[0] for subject, _, text in made if subject == RING.name)
            for made in (found, usual)
        ]
        assert rings[0] == rings[1]
        found, usual = (
            collections.Counter({d: n for d, n in made.items() if d[0] not in _OF_COPIES}) for made in (found, usual)
        )
    assert found.pop(SHARED, 0) <= usual.pop(SHARED, 0)
    assert found == usual


@pytest.mark.parametrize("target", ["avx512", "amx", "cuda90"])
@pytest.mark.parametrize("spelling", LOOPS[1:], ids=[s.name for s in LOOPS[1:]])
def test_the_decisions_are_those_of_the_loop_that_counts_up_from_zero(spelling, target):
    assert_alike(spelling, LOOPS[0], target)


@pytest.mark.parametrize("target", ["avx512", "amx", "cuda90"])
def test_so_they_are_where_an_operand_is_computed(target):
    upwards, downwards = COMPUTED
    assert_alike(downwards, upwards, target)


@pytest.mark.parametrize("spelling", LOOPS, ids=[s.name for s in LOOPS])
@pytest.mark.parametrize("depth", [0, 64, 320])
def test_the_product_is_right(spelling, depth):
    rng = np.random.default_rng(depth)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, depth), (depth, 130)))
    out = np.empty((70, 130), np.float32)
    spelling.fn[(2, 2)](a, b, out, 70, 130, depth, **_BLOCKS)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
