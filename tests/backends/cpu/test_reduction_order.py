"""Reductions over several dims reduce the dim along memory last, whatever the order in which they are written."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.plan.subjects import REDUCTION_ORDER

B, P, Q = 8, 13, 33


@tilewright.jit
def block(x, first, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    b = tl.program_id(0) * BB + tl.arange(0, BB)[:, None, None]
    p, q = first + tl.arange(0, BP)[None, :, None], tl.arange(0, BQ)[None, None, :]
    return tl.load(x + b * (P * Q) + p * Q + q, mask=(p < P) & (q < Q), other=0.0)


@tilewright.jit
def rows_first(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    v = block(x, 0, P, Q, BB, BP, BQ)
    tl.store(out + tl.program_id(0) * BB + tl.arange(0, BB), tl.sum(tl.sum(v, 2), 1))


@tilewright.jit
def flat(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    v = block(x, 0, P, Q, BB, BP, BQ)
    tl.store(out + tl.program_id(0) * BB + tl.arange(0, BB), tl.sum(tl.reshape(v, (BB, BP * BQ)), 1))


@tilewright.jit
def all_at_once(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    tl.store(out + tl.program_id(0), tl.sum(block(x, 0, P, Q, 1, BP, BQ)))


@tilewright.jit
def behind_a_loop(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    acc = tl.zeros((BB, 4, BQ), tl.float32)
    for first in range(0, P, 4):
        acc += block(x, first, P, Q, BB, 4, BQ)
    tl.store(out + tl.program_id(0) * BB + tl.arange(0, BB), tl.sum(tl.sum(acc, 1), 1))


@tilewright.jit
def largest(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    v = block(x, 0, P, Q, BB, BP, BQ)
    tl.store(out + tl.program_id(0) * BB + tl.arange(0, BB), tl.max(tl.max(v, 2), 1))


@tilewright.jit
def planes_as_rows(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr, CARRIED: tl.constexpr):
    """Two dims of the result are one in the view that is reduced, as are two that are reduced."""
    b, p = tl.arange(0, 2)[:, None, None, None], tl.arange(0, BB // 2)[None, :, None, None]
    q, r = tl.arange(0, BP)[None, None, :, None], tl.arange(0, BQ)[None, None, None, :]
    v = tl.load(x + (b * (BB // 2) + p) * (P * Q) + q * Q + r, mask=(q < P) & (r < Q), other=0.0)
    if CARRIED:
        acc = tl.zeros_like(v)
        for first in range(0, P, BP):
            at = x + (b * (BB // 2) + p) * (P * Q) + (first + q) * Q + r
            acc += tl.load(at, mask=(first + q < P) & (r < Q), other=0.0)
        v = acc
    tl.store(out + tl.arange(0, BB), tl.sum(tl.reshape(v, (BB, BP * BQ)), 1))


@tilewright.jit
def wanted_between(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    """Sums of rows that are stored, too: they stay as they are."""
    rows, b = tl.sum(block(x, 0, P, Q, BB, BP, BQ), 2), tl.program_id(0) * BB + tl.arange(0, BB)
    tl.store(x + b[:, None] * (P * Q) + tl.arange(0, BP)[None, :] * Q, rows, mask=tl.arange(0, BP)[None, :] < P)
    tl.store(out + b, tl.sum(rows, 1))


@tilewright.jit
def one_run(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    """Planes without gaps are rows: one reduction."""
    at = tl.arange(0, BP)[:, None] * BQ + tl.arange(0, BQ)[None, :]
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * (BP * BQ) + at)))


@tilewright.jit
def along_the_dim_that_stays(x, out, P, Q, BB: tl.constexpr, BP: tl.constexpr, BQ: tl.constexpr):
    """Memory lies along the dim of the result, of which a loop carries a tile for each of its rows."""
    b, p = tl.arange(0, 4)[:, None, None], tl.arange(0, BP)[None, :, None]
    q, acc = tl.arange(0, BQ)[None, None, :], tl.zeros((4, BP, BQ), tl.float32)
    for first in range(0, P, 4):
        acc += tl.load(x + (first + b) * (BP * Q) + p * Q + q, mask=(first + b < P) & (p < BB) & (q < Q), other=0.0)
    tl.store(out + tl.arange(0, BQ), tl.sum(tl.sum(acc, 1), 0), mask=tl.arange(0, BQ) < Q)


def launched(kernel, x, planes=4):
    out = np.full(B, 7, np.float32)
    compiled = kernel[(B // planes,)](x, out, x.shape[1], x.shape[2], planes, 16, 64)
    return out, [d.taken for d in compiled.decisions if d.subject == REDUCTION_ORDER.name]


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "kernel, planes", [(rows_first, 1), (rows_first, 4), (flat, 1), (flat, 4), (all_at_once, 1), (behind_a_loop, 4)]
)
def test_the_dim_along_memory_is_last(kernel, planes):
    x = numbers(B, P, Q)
    out, taken = launched(kernel, x, planes)
    np.testing.assert_allclose(out, x.sum((1, 2)), rtol=1e-4, atol=1e-4)
    assert taken == [True]


def test_extremes_and_what_is_not_finite():
    x = numbers(B, P, Q) + 9
    x[1, 12, 32], x[2, 0, 0] = np.inf, np.nan
    out, taken = launched(largest, x)
    np.testing.assert_array_equal(out[[0, 1, 3]], x.max((1, 2))[[0, 1, 3]])
    assert taken == [True]
    out, _ = launched(behind_a_loop, x)
    np.testing.assert_allclose(out, x.sum((1, 2)), rtol=1e-4)


@pytest.mark.parametrize("kernel, shape, planes", [(wanted_between, (B, P, Q), 4), (one_run, (B, 16, 64), 1)])
def test_others_stay_as_they_are(kernel, shape, planes):
    x = numbers(*shape)
    out, taken = launched(kernel, x.copy(), planes)
    np.testing.assert_allclose(out, x.sum((1, 2)), rtol=1e-4, atol=1e-4)
    assert not any(taken)


@pytest.mark.parametrize("rows, carried", [(16, False), (4, True)])
def test_dims_of_the_result_may_be_one(rows, carried):
    x, out = numbers(B, P, Q), np.zeros(B, np.float32)
    compiled = planes_as_rows[(1,)](x, out, P, Q, B, rows, 64, carried)
    np.testing.assert_allclose(out, x.sum((1, 2)), rtol=1e-4, atol=1e-4)
    assert [d.taken for d in compiled.decisions if d.subject == REDUCTION_ORDER.name] == [True]


def test_memory_along_the_dim_that_stays():
    x, out = numbers(P, 16, Q), np.zeros(Q, np.float32)
    compiled = along_the_dim_that_stays[(1,)](x, out, P, Q, B, 16, 64)
    np.testing.assert_allclose(out, x[:, :B].sum((0, 1)), rtol=1e-4, atol=1e-4)
    assert [d.text for d in compiled.decisions if d.subject == REDUCTION_ORDER.name] == ["in each iteration"]
