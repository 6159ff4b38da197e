"""`tl.reduce` and `tl.associative_scan` with combine functions of a user: several tiles, order, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.errors import CompilationError
from tilewright.language.library import library

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(10)
M, N = 4, 16


@library
def welford(mean1, m1, n1, mean2, m2, n2):
    n = n1 + n2
    d = mean2 - mean1
    return mean1 + d * n2 / n, m1 + m2 + d * d * n1 * n2 / n, n


def variance_kernel(x, mean, variance, M: tl.constexpr, N: tl.constexpr):
    r = tl.arange(0, M)
    t = tl.load(x + r[:, None] * N + tl.arange(0, N)[None, :])
    m, s, n = tl.reduce((t, tl.zeros_like(t), tl.full(t.shape, 1.0, tl.float32)), 1, welford)
    tl.store(mean + r, m)
    tl.store(variance + r, s / n)


def test_three_tiles_at_once() -> None:
    x = RNG.standard_normal((M, N)).astype(np.float32)
    mean, variance = np.zeros(M, np.float32), np.zeros(M, np.float32)
    run(variance_kernel, x, mean, variance, M=M, N=N)
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, x.var(1), rtol=1e-5)


@library
def last(a, b):
    return b


@library
def first(a, b):
    return a


def order_kernel(x, out, N: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(out, tl.reduce(v, 0, last))
    tl.store(out + 1, v.reduce(-1, first))
    tl.store(out + 2 + i, tl.associative_scan(v, 0, first, reverse=REVERSE))
    tl.store(out + 2 + N + i, tl.associative_scan(v, 0, last, reverse=REVERSE))


@pytest.mark.parametrize("reverse", [False, True])
def test_operands_stay_in_order(reverse: bool) -> None:
    x, out = np.arange(N, dtype=np.int32) + 5, np.zeros(2 + 2 * N, np.int32)
    run(order_kernel, x, out, N=N, REVERSE=reverse)
    assert out[:2].tolist() == [x[-1], x[0]]
    assert out[2 : 2 + N].tolist() == [x[-1] if reverse else x[0]] * N
    assert out[2 + N :].tolist() == x.tolist()


@library
def linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


def linear_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    _, q = tl.associative_scan((tl.load(a + i), tl.load(b + i)), AXIS, linear, REVERSE)
    tl.store(out + i, q)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_a_function_that_does_not_commute(axis: int, reverse: bool) -> None:
    a, b = RNG.uniform(0.5, 1.0, (2, M, N)).astype(np.float32)
    out = np.zeros((M, N), np.float32)
    run(linear_kernel, a, b, out, M=M, N=N, AXIS=axis, REVERSE=reverse)
    order = slice(None, None, -1 if reverse else 1)
    p, q = np.moveaxis(a, axis, 0)[order], np.moveaxis(b, axis, 0)[order]
    wanted = [q[0]]
    for k in range(1, len(p)):
        wanted.append(wanted[-1] * p[k] + q[k])
    np.testing.assert_allclose(out, np.moveaxis(np.array(wanted)[order], 0, axis), rtol=1e-5)


def lambda_kernel(x, out, N: tl.constexpr):
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, N)), 0, lambda a, b: a * b))


def test_a_lambda_combines_too() -> None:
    x, out = np.array([1, 2, 3, 4], np.int32), np.zeros(1, np.int32)
    run(lambda_kernel, x, out, N=4)
    assert out[0] == 24


def keep_kernel(x, out, N: tl.constexpr):
    t = tl.load(x + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    tl.static_assert(tl.sum(t, keep_dims=True).shape == (1, 1))
    tl.static_assert(tl.sum(t, 0, keep_dims=True).shape == (1, N))
    tl.static_assert(tl.sum(t, 1).shape == (N,))
    tl.static_assert(len(tl.sum(t).shape) == 0)
    tl.store(out, tl.sum(t))


def test_shapes_of_results() -> None:
    x, out = np.ones((4, 4), np.float32), np.zeros(1, np.float32)
    run(keep_kernel, x, out, N=4)
    assert out[0] == 16


@library
def too_few(a1, b1, a2, b2):
    return a1


@library
def other_type(a, b):
    return (a + b).to(tl.float16)


def axis_out_of_range(x):
    tl.reduce(tl.zeros((4, 4), tl.float32), 2, last)


def axis_of_a_scan(x):
    tl.associative_scan(tl.zeros((4, 4), tl.float32), -3, last)


def of_a_scalar(x):
    tl.sum(tl.load(x), 0)


def returns_too_few(x):
    t = tl.zeros((4,), tl.float32)
    tl.reduce((t, t), 0, too_few)


def returns_another_type(x):
    tl.reduce(tl.zeros((4,), tl.float32), 0, other_type)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (axis_out_of_range, "axis must be in [-2, 2), got 2"),
        (axis_of_a_scan, "axis must be in [-2, 2), got -3"),
        (of_a_scalar, "needs tiles, but got a scalar of type fp32"),
        (returns_too_few, "returned 1 values for 2 tiles"),
        (returns_another_type, "returned fp16 where the tile has elements of type fp32"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError) as error:
        build(kernel, np.zeros(4, np.float32))
    assert message in str(error.value)


def extrema_kernel(x, out, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(out + rows, tl.max(v, 1))
    tl.store(out + M + rows, tl.min(v, 1))
    tl.store(out + 2 * M + columns, tl.max(v, 0))
    tl.store(out + 2 * M + N, tl.max(v))


@pytest.mark.parametrize("columns", [4, 32, 256, 2048])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_extrema_of_nothing_but_nan_are_nan_and_other_nans_are_skipped(columns: int, kind: Any) -> None:
    x = np.random.default_rng(0).standard_normal((4, columns)).astype(kind)
    x[0], x[1, ::2], x[2], x[:, 3] = np.nan, np.nan, -np.inf, np.nan
    out = np.zeros(8 + columns + 1, kind)
    run(extrema_kernel, x, out, M=4, N=columns)
    want = [np.fmax.reduce(x, 1), np.fmin.reduce(x, 1), np.fmax.reduce(x, 0), [np.fmax.reduce(x, None)]]
    np.testing.assert_array_equal(out, np.concatenate(want))
