"""Sorting networks against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.errors import CompilationError

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(6)


def sort_kernel(x, out, M: tl.constexpr, N: tl.constexpr, DESCENDING: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + i, tl.sort(tl.load(x + i), descending=DESCENDING))


@pytest.mark.parametrize("n", [1, 2, 8, 64])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["float32", "int32", "uint8", "float16", "int16", "float64"])
def test_sort(n: int, descending: bool, kind: str) -> None:
    x = RNG.integers(0, 100, (4, n)).astype(kind)
    out = np.zeros_like(x)
    run(sort_kernel, x, out, M=4, N=n, DESCENDING=descending)
    wanted = np.sort(x, axis=1)
    np.testing.assert_array_equal(out, wanted[:, ::-1] if descending else wanted)


@pytest.mark.parametrize("kind", ["float16", "int16", "uint16", "int8"])
def test_narrow_types_are_sorted_over_their_whole_range(kind: str) -> None:
    x = RNG.integers(0, 1 << 16, (4, 64)).astype(np.uint16).astype(f"u{np.dtype(kind).itemsize}").view(kind)
    x = np.where(np.isnan(x), x.dtype.type(0), x)
    x[0, :2] = np.array([np.inf, -np.inf]) if kind == "float16" else [np.iinfo(kind).max, np.iinfo(kind).min]
    out = np.zeros_like(x)
    run(sort_kernel, x, out, M=4, N=64, DESCENDING=False)
    np.testing.assert_array_equal(out, np.sort(x, axis=1))


def test_sort_only_permutes_even_with_nan() -> None:
    x = RNG.standard_normal((4, 32)).astype(np.float32)
    x[0, 5] = x[1, 0] = x[1, 31] = np.nan
    out = np.zeros_like(x)
    run(sort_kernel, x, out, M=4, N=32, DESCENDING=False)
    np.testing.assert_array_equal(np.sort(out, axis=1), np.sort(x, axis=1))


def topk_kernel(x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DESCENDING: tl.constexpr):
    r = tl.arange(0, M)[:, None]
    x_tile = tl.load(x + r * N + tl.arange(0, N)[None, :])
    tl.store(out + r * K + tl.arange(0, K)[None, :], tl.topk(x_tile, K, descending=DESCENDING))


@pytest.mark.parametrize(("n", "k"), [(64, 8), (64, 64), (32, 1), (16, 8), (128, 2)])
@pytest.mark.parametrize("descending", [True, False])
def test_topk(n: int, k: int, descending: bool) -> None:
    x = RNG.standard_normal((4, n)).astype(np.float32)
    out = np.zeros((4, k), np.float32)
    run(topk_kernel, x, out, M=4, N=n, K=k, DESCENDING=descending)
    wanted = np.sort(x, axis=1)
    np.testing.assert_array_equal(out, wanted[:, ::-1][:, :k] if descending else wanted[:, :k])


def one_dimension_kernel(x, out, N: tl.constexpr, K: tl.constexpr):
    tile = tl.load(x + tl.arange(0, N))
    tl.store(out + tl.arange(0, N), tl.sort(tile, 0))
    tl.store(out + N + tl.arange(0, K), tl.topk(tile, K))


def test_one_dimension() -> None:
    x, out = RNG.standard_normal(32).astype(np.float32), np.zeros(40, np.float32)
    run(one_dimension_kernel, x, out, N=32, K=8)
    np.testing.assert_array_equal(out, [*np.sort(x), *np.sort(x)[::-1][:8]])


def merge_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.bitonic_merge(tl.load(x + i)))


def test_bitonic_merge_orders_a_rise_and_a_fall() -> None:
    values = np.sort(RNG.standard_normal(16).astype(np.float32))
    x, out = np.concatenate([values[::2], values[1::2][::-1]]), np.zeros(16, np.float32)
    run(merge_kernel, x, out, N=16)
    np.testing.assert_array_equal(out, values)


def axis_kernel(x, M: tl.constexpr, AXIS: tl.constexpr, F: tl.constexpr):
    i = tl.arange(0, M)
    F(tl.load(x + i[:, None] * M + i[None, :]), dim=AXIS)


@pytest.mark.parametrize("axis", [0, 2, 3, -2, -3])
@pytest.mark.parametrize("function", [tl.sort, tl.bitonic_merge])
def test_only_the_last_dimension(function: object, axis: int) -> None:
    with pytest.raises(CompilationError, match="only minor dimension"):
        build(axis_kernel, np.zeros((4, 4), np.float32), M=4, AXIS=axis, F=function)


@pytest.mark.parametrize("axis", [None, -1, 1])
def test_the_last_dimension_has_three_names(axis: int | None) -> None:
    build(axis_kernel, np.zeros((4, 4), np.float32), M=4, AXIS=axis, F=tl.sort)
