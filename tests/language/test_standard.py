"""Library functions against numpy: reductions and their data types, indices, ties and NaN, scans, softmax, flip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import Held, build, run
from tilewright.base.errors import CompilationError, CompileTimeAssertionFailure

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(5)
M, N = 8, 16


def one_kernel(x, out, F: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + tl.arange(0, K), F(tl.load(x + i)))


def apply(function: Any, x: np.ndarray, out: np.ndarray) -> np.ndarray:
    """`function` of the tile `x` of two dimensions, as a flat result."""
    run(one_kernel, x, out, F=function, M=x.shape[0], N=x.shape[1], K=out.size)
    return out


@tl.standard.library
def sum_rows(x):
    return tl.sum(x, axis=1)


@tl.standard.library
def sum_columns(x):
    return tl.ravel(x.sum(axis=0, keep_dims=True))


@tl.standard.library
def sum_all(x):
    return tl.expand_dims(tl.sum(x), 0)


@tl.standard.library
def max_columns(x):
    return tl.max(x, 0)


@tl.standard.library
def min_rows(x):
    return tl.min(x, axis=-1)


@pytest.mark.parametrize(
    ("function", "wanted", "size"),
    [
        (sum_rows, lambda x: x.sum(1), M),
        (sum_columns, lambda x: x.sum(0), N),
        (sum_all, lambda x: x.sum(), 1),
        (max_columns, lambda x: x.max(0), N),
        (min_rows, lambda x: x.min(1), M),
    ],
)
@pytest.mark.parametrize("kind", ["float32", "int32", "int64", "float64"])
def test_reductions_agree_with_numpy(function: Any, wanted: Any, size: int, kind: str) -> None:
    x = (RNG.standard_normal((M, N)) * 100).astype(kind)
    got = apply(function, x, np.zeros(size, kind))
    rounding = 1e-6 * np.abs(x).sum() if kind.startswith("float") else 0  # of sums in which numbers cancel
    np.testing.assert_allclose(got, np.asarray(wanted(x), kind).reshape(size), rtol=1e-5, atol=rounding)


WANTED_SUM = tl.constexpr(
    {
        "int8": tl.int32, "int16": tl.int32, "uint8": tl.uint32, "uint16": tl.uint32, "int1": tl.uint32,
        "int32": tl.int32, "uint32": tl.uint32, "int64": tl.int64, "fp16": tl.float16, "bf16": tl.bfloat16,
        "fp32": tl.float32, "fp64": tl.float64,
    }
)  # fmt: skip
WANTED_MAX = tl.constexpr(
    {
        "int8": tl.int32, "int16": tl.int32, "uint8": tl.int32, "uint16": tl.int32, "int1": tl.int32,
        "int32": tl.int32, "uint32": tl.uint32, "int64": tl.int64, "fp16": tl.float32, "bf16": tl.float32,
        "fp32": tl.float32, "fp64": tl.float64,
    }
)  # fmt: skip


def dtype_kernel(DTYPE: tl.constexpr, SUM: tl.constexpr, MAX: tl.constexpr):
    x = tl.zeros((4, 4), DTYPE)
    tl.static_assert(tl.sum(x, 1).dtype == SUM)
    tl.static_assert(tl.sum(x).dtype == SUM)
    tl.static_assert(tl.cumsum(x, 1).dtype == SUM)
    tl.static_assert(tl.cumprod(x, 1).dtype == SUM)
    tl.static_assert(tl.sum(x, 1, dtype=tl.int8).dtype == tl.int8)
    tl.static_assert(tl.max(x, 1).dtype == MAX)
    tl.static_assert(tl.min(x).dtype == MAX)
    v, i = tl.max(x, 1, return_indices=True)
    tl.static_assert(v.dtype == DTYPE)
    tl.static_assert(i.dtype == tl.int32)
    tl.static_assert(tl.argmin(x, 0).dtype == tl.int32)


@pytest.mark.parametrize("name", list(WANTED_SUM.value))
def test_data_types_of_reductions(name: str) -> None:
    build(dtype_kernel, DTYPE=tl.dtype(name), SUM=WANTED_SUM.value[name], MAX=WANTED_MAX.value[name])


def index_kernel(x, values, indices, first, M: tl.constexpr, N: tl.constexpr, LARGEST: tl.constexpr):
    r = tl.arange(0, M)
    tile = tl.load(x + r[:, None] * N + tl.arange(0, N)[None, :])
    if LARGEST:
        v, i = tl.max(tile, axis=1, return_indices=True)
        j = tl.argmax(tile, axis=1, tie_break_left=False)
    else:
        v, i = tl.min(tile, axis=1, return_indices=True)
        j = tl.argmin(tile, axis=1, tie_break_left=False)
    tl.store(values + r, v)
    tl.store(indices + r, i)
    tl.store(first + r, j)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", ["float32", "int32", "float16", "uint8"])
def test_indices_take_the_lowest_of_equal_values(largest: bool, kind: str) -> None:
    x = RNG.integers(0, 4, (M, N)).astype(kind)  # few values, so that ties abound
    values, indices, any_index = np.zeros(M, kind), np.zeros(M, np.int32), np.zeros(M, np.int32)
    run(index_kernel, x, values, indices, any_index, M=M, N=N, LARGEST=largest)
    wanted = x.argmax(1) if largest else x.argmin(1)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(values, x[np.arange(M), wanted])
    np.testing.assert_array_equal(x[np.arange(M), any_index], values)


@pytest.mark.parametrize("largest", [True, False])
def test_indices_skip_nan(largest: bool) -> None:
    x = RNG.standard_normal((M, N)).astype(np.float32)
    x[RNG.random((M, N)) < 0.4] = np.nan
    x[:, 3] = 0.5
    values, indices, any_index = np.zeros(M, np.float32), np.zeros(M, np.int32), np.zeros(M, np.int32)
    run(index_kernel, x, values, indices, any_index, M=M, N=N, LARGEST=largest)
    wanted = np.nanargmax(x, 1) if largest else np.nanargmin(x, 1)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(any_index, wanted)


@tl.standard.library
def nan_max(x):
    return tl.max(x, 1)


def test_max_ignores_nan() -> None:
    x = RNG.standard_normal((M, N)).astype(np.float32)
    x[RNG.random((M, N)) < 0.4] = np.nan
    x[:, 3] = RNG.standard_normal(M)
    got = apply(nan_max, x, np.zeros(M, np.float32))
    wanted = np.array([np.fmax.reduce(row) for row in x])
    np.testing.assert_array_equal(got, wanted)


@tl.standard.library
def xor_rows(x):
    return tl.xor_sum(x, axis=1)


@tl.standard.library
def or_rows(x):
    return tl.reduce_or(x, 1)


def test_bitwise_reductions() -> None:
    x = RNG.integers(-(2**31), 2**31, (M, N)).astype(np.int32)
    np.testing.assert_array_equal(apply(xor_rows, x, np.zeros(M, np.int32)), np.bitwise_xor.reduce(x, 1))
    np.testing.assert_array_equal(apply(or_rows, x, np.zeros(M, np.int32)), np.bitwise_or.reduce(x, 1))
    with pytest.raises(CompilationError) as error:
        apply(xor_rows, x.astype(np.float32), np.zeros(M, np.float32))
    assert "only supported for integers" in str(error.value)


@tl.standard.library
def running_sum(x):
    return tl.ravel(tl.cumsum(x, 1))


@tl.standard.library
def running_sum_reverse(x):
    return tl.ravel(x.cumsum(0, reverse=True))


@tl.standard.library
def running_product(x):
    return tl.ravel(tl.cumprod(x, axis=1))


@tl.standard.library
def flipped(x):
    return tl.ravel(tl.flip(x))


@tl.standard.library
def flipped_rows(x):
    return tl.ravel(tl.flip(x, 0))


@tl.standard.library
def softmaxed(x):
    return tl.ravel(tl.softmax(x, 1))


@tl.standard.library
def softmaxed_columns(x):
    return tl.ravel(x.softmax())


@tl.standard.library
def sigmoids(x):
    return tl.ravel(tl.sigmoid(x))


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (running_sum, lambda x: np.cumsum(x, 1)),
        (running_sum_reverse, lambda x: np.cumsum(x[::-1], 0)[::-1]),
        (running_product, lambda x: np.cumprod(x, 1)),
        (flipped, lambda x: x[:, ::-1]),
        (flipped_rows, lambda x: x[::-1]),
        (softmaxed, lambda x: _softmax(x, 1)),
        (softmaxed_columns, lambda x: _softmax(x, 0)),
        (sigmoids, lambda x: 1 / (1 + np.exp(-x))),
    ],
)
def test_functions_of_a_tile_agree_with_numpy(function: Any, wanted: Any) -> None:
    x = RNG.standard_normal((M, N)).astype(np.float32)
    got = apply(function, x, np.zeros(M * N, np.float32))
    np.testing.assert_allclose(got.reshape(M, N), wanted(x.astype(np.float64)), rtol=2e-5, atol=1e-6)


def cdiv_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.cdiv(tl.load(x + i), 7))
    tl.store(out + N, tl.load(x + 3).cdiv(5))
    tl.static_assert(tl.cdiv(10, 3) == 4)


def test_cdiv_rounds_up_and_works_on_constants() -> None:
    x, out = np.arange(1, 17, dtype=np.int32), np.zeros(17, np.int32)
    run(cdiv_kernel, x, out, N=16)
    np.testing.assert_array_equal(out, [*[-(-v // 7) for v in x.tolist()], -(-4 // 5)])


def swizzle_kernel(rows, columns, SI: tl.constexpr, SJ: tl.constexpr, G: tl.constexpr):
    i = tl.arange(0, SI)[:, None]
    j = tl.arange(0, SJ)[None, :]
    a, b = tl.swizzle2d(i, j, SI, SJ, G)
    tl.store(rows + i * SJ + j, a)
    tl.store(columns + i * SJ + j, b)


def test_swizzle2d_walks_groups_of_rows_column_by_column() -> None:
    rows, columns = np.zeros((4, 4), np.int32), np.zeros((4, 4), np.int32)
    run(swizzle_kernel, rows, columns, SI=4, SJ=4, G=2)
    order = list(zip(rows.ravel().tolist(), columns.ravel().tolist(), strict=True))
    assert order == [(g * 2 + k % 2, k // 2) for g in range(2) for k in range(8)]


def bf16_kernel(x, out, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tile = tl.load(x + i)
    tl.store(out + tl.arange(0, M), tl.max(tile, 1))
    tl.store(out + M + tl.arange(0, M), tl.sum(tile, 1))


def test_bfloat16_rows() -> None:
    x = Held(RNG.integers(-8, 8, (M, N)).astype(np.float32), tl.bfloat16)
    out = Held(np.zeros(2 * M, np.float32), tl.bfloat16)
    run(bf16_kernel, x, out, M=M, N=N)
    np.testing.assert_array_equal(out.values, [*x.values.max(1), *x.values.sum(1)])


def no_axis_kernel(out):
    tl.store(out + tl.arange(0, 4), tl.max(tl.zeros((4,), tl.float32), return_indices=True)[0])


def test_indices_need_an_axis() -> None:
    with pytest.raises(CompilationError) as error:
        build(no_axis_kernel, np.zeros(4, np.float32))
    chain, found = error.value, False
    while chain is not None:
        found = found or isinstance(chain, CompileTimeAssertionFailure)
        chain = chain.__cause__
    assert found and "axis must be given" in str(error.value)


def test_constexpr_functions_run_on_the_host() -> None:
    @tl.constexpr_function
    def half(n: int) -> int:
        return n // 2

    assert half(8) == 4
    assert half(tl.constexpr(8)).value == 4
