"""Products and sums of rows that a stranger may write are planned as the plain ones, and compute what those compute."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of, spelled
from tests.decisions.matmul import rows_and_columns, write
from tests.decisions.matvec import MATVEC
from tilewright.backends.cpu.plan.subjects import DOT_LOOPS

PRODUCTS: list[Spelling] = []
ROWS: list[Spelling] = [MATVEC[0]]  # row_sums, the plain form
_OF_MATRICES = "*{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32:16, 64, 128, 64"
_OF_ROWS = "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16, 16, 128"


@spelled(PRODUCTS, _OF_MATRICES)
def plain(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
    write(c, acc, m, n, M, N)


@spelled(PRODUCTS, _OF_MATRICES)
def taken_away(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        acc -= tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    write(c, -acc, m, n, M, N)


@spelled(PRODUCTS, _OF_MATRICES)
def each_doubled(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        acc += tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])) * 2.0
    write(c, acc * 0.5, m, n, M, N)


@spelled(PRODUCTS, _OF_MATRICES)
def halved_and_turned(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The right operand is written as the transpose of a transpose."""
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        right = tl.trans(tl.trans(tl.load(b + k[:, None] * N + n[None, :])))
        acc += 0.5 * tl.dot(tl.load(a + m[:, None] * K + k[None, :]), right)
    write(c, acc * 2.0, m, n, M, N)


@spelled(PRODUCTS, _OF_MATRICES)
def pointers_and_signs(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    k = tl.arange(0, BK)
    left, right = a + m[:, None] * K + k[None, :], b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        acc = -tl.dot(tl.load(left), tl.load(right)) + acc
        left += BK
        right += BK * N
    write(c, -acc, m, n, M, N)


@spelled(PRODUCTS, _OF_MATRICES)
def downwards_and_away(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(K - BK, -1, -BK):
        k = start + tl.arange(0, BK)
        acc = acc - tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :]))
    write(c, -acc, m, n, M, N)


@spelled(ROWS, _OF_ROWS)
def thirds(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total += tl.sum((tl.load(vec + c) * 3.0)[None, :] * tl.load(mat + r[:, None] * cols + c[None, :]), 1)
    tl.store(out + r, total / 3.0)


@spelled(ROWS, _OF_ROWS)
def negative(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total = total - tl.sum(-tl.load(vec + c)[None, :] * tl.load(mat + r[:, None] * cols + c[None, :]), 1)
    tl.store(out + r, total)


@spelled(ROWS, _OF_ROWS)
def row_of_a_matrix(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    """The vector is loaded as a matrix of one row, through a pointer that moves."""
    r, c = (tl.program_id(0) * R + tl.arange(0, R))[:, None], tl.arange(0, C)[None, :]
    here, there = vec + c, mat + r * cols + c
    total = tl.zeros((R,), tl.float32)
    for _ in range(tl.cdiv(cols, C)):
        total += tl.sum(tl.load(there) * tl.load(here), 1)
        here += C
        there += C
    tl.store(out + tl.program_id(0) * R + tl.arange(0, R), total)


@spelled(ROWS, _OF_ROWS)
def repeated_and_halved(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    """The vector is loaded once for each row."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R,), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        every = tl.load(vec + c[None, :] + r[:, None] * 0)
        total += 0.5 * tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * every, 1)
    tl.store(out + r, total * 2.0)


@spelled(ROWS, _OF_ROWS)
def lanes_of_doubles(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    """A tile of sums, folded behind the loop."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    lanes = tl.zeros((R, C), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        lanes += tl.load(mat + r[:, None] * cols + c[None, :]) * (tl.load(vec + c) * 2.0)[None, :]
    tl.store(out + r, tl.sum(lanes, 1) * 0.5)


@spelled(ROWS, _OF_ROWS)
def lanes_taken_away(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    lanes = tl.zeros((R, C), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        lanes -= tl.load(vec + c)[None, :] * tl.load(mat + r[:, None] * cols + c[None, :])
    tl.store(out + r, -tl.sum(lanes, 1))


@spelled(ROWS, _OF_ROWS)
def begun_with_one(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.full((R,), 1.0, tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total -= tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :], 1)
    tl.store(out + r, 1.0 - total)


@spelled(ROWS, _OF_ROWS)
def column_of_a_dot(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R, 1), tl.float32)
    for start in range(0, cols, C):
        c = start + tl.arange(0, C)
        total += tl.dot(tl.load(mat + r[:, None] * cols + c[None, :]), tl.load(vec + c)[:, None])
    tl.store(out + r[:, None], total)


@spelled(ROWS, _OF_ROWS)
def last_columns_first(out, vec, mat, rows, cols, R: tl.constexpr, C: tl.constexpr):
    r, blocks = tl.program_id(0) * R + tl.arange(0, R), tl.cdiv(cols, C)
    total = tl.zeros((R,), tl.float32)
    for block in range(blocks):
        c = (blocks - 1 - block) * C + tl.arange(0, C)
        total -= tl.sum(tl.load(mat + r[:, None] * cols + c[None, :]) * tl.load(vec + c)[None, :] * -1.0, 1)
    tl.store(out + r, total)


# How a dot is made; where its result goes differs with what is done to it behind the loop.
_OF_DOTS = (
    "operand in memory",
    "accumulator in place",
    "dot",
    "K strip-mining",
    "kept panels",
    "right operand in place",
)


def _dots(spelling: Spelling, target: str) -> set[tuple[str, bool, str]]:
    made = [(d.subject, d.taken, d.text) for d in decisions_of(spelling, target)]
    return {decision for decision in made if decision[0] in _OF_DOTS and decision[0] != DOT_LOOPS.name}


@pytest.mark.parametrize("target", ["avx2", "avx512", "amx"])
@pytest.mark.parametrize("spelling", [*PRODUCTS[1:], *ROWS[1:]], ids=lambda s: s.name)
def test_the_dot_is_that_of_the_plain_spelling(spelling, target):
    best = PRODUCTS[0] if spelling in PRODUCTS else ROWS[0]
    wanted = _dots(best, target)
    assert any(subject == "K strip-mining" and taken for subject, taken, _ in wanted)
    assert _dots(spelling, target) == wanted


@pytest.mark.parametrize("spelling", PRODUCTS, ids=lambda s: s.name)
def test_products_are_right(spelling):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((128, 192), (192, 256)))
    out = np.empty((128, 256), np.float32)
    spelling.fn[(2, 2)](a, b, out, 128, 256, 192, 64, 128, 64)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spelling", ROWS, ids=lambda s: s.name)
@pytest.mark.parametrize("columns", [128, 640])
def test_sums_are_right(spelling, columns):
    rng = np.random.default_rng(columns)
    vector, matrix = (rng.standard_normal(shape).astype(np.float32) for shape in ((columns,), (48, columns)))
    out = np.empty(48, np.float32)
    spelling.fn[(3,)](out, vector, matrix, 48, columns, 16, 128)
    np.testing.assert_allclose(out, matrix @ vector, rtol=1e-4, atol=1e-4)
