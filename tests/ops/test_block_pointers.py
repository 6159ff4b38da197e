"""Block pointers: loads and stores at the edges, loops that advance them, functions that take them, and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.callable import BlockFunction
from tilewright.base.errors import CompilationError
from tilewright.ops.text import print_module
from tilewright.passes.pipeline import run_passes

pytestmark = pytest.mark.usefixtures("backend")


def block_of(x: Any, at: tuple[int, int], shape: tuple[int, int], fill: float) -> Any:
    """The block of `x` at `at`, with `fill` outside."""
    out = np.full(shape, fill, x.dtype)
    for i in range(shape[0]):
        for j in range(shape[1]):
            row, column = at[0] + i, at[1] + j
            if 0 <= row < x.shape[0] and 0 <= column < x.shape[1]:
                out[i, j] = x[row, column]
    return out


def edge_kernel(x, out, M, N, r, c, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    pointer = tl.make_block_ptr(x, (M, N), (N, 1), (r, c), (BM, BN), (1, 0))
    v = tl.load(pointer, boundary_check=(0, 1), padding_option=PAD)
    tl.static_assert(pointer.block_shape[1] == BN)
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], v)


@pytest.mark.parametrize("at", [(0, 0), (5, 3), (-2, -3), (8, 12), (100, 0), (0, -100)])
@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_what_lies_outside_is_padding(at: tuple[int, int], pad: str) -> None:
    x = np.random.default_rng(0).standard_normal((9, 13)).astype(np.float32)
    out = np.zeros((4, 8), np.float32)
    run(edge_kernel, x, out, 9, 13, *at, PAD=pad, BM=4, BN=8)
    np.testing.assert_array_equal(out, block_of(x, at, (4, 8), np.nan if pad == "nan" else 0))


def store_kernel(out, M, N, r, c, BM: tl.constexpr, BN: tl.constexpr):
    pointer = tl.make_block_ptr(
        base=out, shape=(M, N), strides=(1, M), offsets=(r, c), block_shape=(BM, BN), order=(0, 1)
    )
    tl.store(pointer, tl.arange(0, BM)[:, None] * 100 + tl.arange(0, BN)[None, :], boundary_check=(0, 1))


@pytest.mark.parametrize("at", [(0, 0), (6, 5), (-1, -2)])
def test_stores_outside_are_dropped_and_strides_may_be_of_columns(at: tuple[int, int]) -> None:
    out = np.full((7, 9), -1, np.int32)  # column-major 9 x 7
    run(store_kernel, out, 9, 7, *at, BM=4, BN=4)
    want = np.full((9, 7), -1, np.int32)
    for i in range(4):
        for j in range(4):
            if 0 <= at[0] + i < 9 and 0 <= at[1] + j < 7:
                want[at[0] + i, at[1] + j] = i * 100 + j
    np.testing.assert_array_equal(out.T, want)


@BlockFunction
def next_block(pointer, step):
    return tl.advance(pointer, (0, step)), tl.load(pointer, boundary_check=(1,), padding_option="zero")


def loop_kernel(x, out, N, n, flag, BM: tl.constexpr, BN: tl.constexpr):
    pointer = tl.make_block_ptr(x, (BM, N), (N, 1), (0, 0), (BM, BN), (1, 0))
    total = tl.zeros((BM, BN), tl.float32)
    if flag > 0:
        pointer = pointer.advance((0, BN))
    for _ in range(n):
        pointer, v = next_block(pointer, BN)
        total += v
    tl.store(out + tl.arange(0, BM), tl.sum(total, 1))


@pytest.mark.parametrize("flag", [0, 1])
def test_loops_branches_and_functions_hand_them_on(flag: int) -> None:
    x, out = np.random.default_rng(1).standard_normal((4, 50)).astype(np.float32), np.zeros(4, np.float32)
    run(loop_kernel, x, out, 50, 4, flag, BM=4, BN=16)
    np.testing.assert_allclose(out, x[:, 16 * flag :].sum(1), rtol=1e-4, atol=1e-5)


def unchecked_kernel(x, out, N: tl.constexpr):
    pointer = tl.make_block_ptr(x, (2,), (1,), (0,), (N,), (0,))
    tl.store(out + tl.arange(0, N), tl.load(pointer))


def test_dimensions_that_are_not_named_are_not_checked() -> None:
    x, out = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    run(unchecked_kernel, x, out, N=8)
    assert out.tolist() == x.tolist()


def masked(x):
    tl.load(tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,)), mask=True)


def integer_nan(x):
    tl.load(tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,)), boundary_check=(0,), padding_option="nan")


def bad_dimension(x):
    tl.load(tl.make_block_ptr(x, (4,), (1,), (0,), (4,), (0,)), boundary_check=(1,))


def bad_order(x):
    tl.make_block_ptr(x, (4, 4), (4, 1), (0, 0), (4, 4), (0, 0))


def bad_lengths(x):
    tl.make_block_ptr(x, (4, 4), (1,), (0, 0), (4, 4), (1, 0))


def run_time_block(x, n=3):
    tl.make_block_ptr(x, (4,), (1,), (0,), (tl.program_id(0),), (0,))


def tile_of_pointers(x):
    tl.make_block_ptr(x + tl.arange(0, 4), (4,), (1,), (0,), (4,), (0,))


def advance_a_pointer(x):
    tl.advance(x, (1,))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (masked, "`mask` and `other` arguments cannot be specified for a block pointer"),
        (integer_nan, "Padding option `nan` is not supported for elements of type int32"),
        (bad_dimension, "boundary_check must name different dimensions below 1, got (1,)"),
        (bad_order, "Expected a permutation of [0, 1] in order, got (0, 0)"),
        (bad_lengths, "got shape 2, strides 1, offsets 2, order 2"),
        (run_time_block, "a block shape must be compile-time integers"),
        (tile_of_pointers, "Expected `base` of tl.make_block_ptr to be a scalar pointer"),
        (advance_a_pointer, "tl.advance takes a block pointer"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    constants = {"n": 3} if kernel is run_time_block else {}
    with pytest.raises(CompilationError) as error:
        build(kernel, np.zeros(8, np.int32), **constants)
    assert message in str(error.value)


def bounded_kernel(x, out, M, N, n, BM: tl.constexpr, BN: tl.constexpr):
    total = tl.zeros((BM, BN), tl.float32)
    pointer = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for i in range(n):
        total += tl.load(pointer, boundary_check=(0, 1), padding_option="zero")
        direct = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, i * BN), (BM, BN), (1, 0))
        total += tl.load(direct, boundary_check=(0, 1), padding_option="zero")
        pointer = tl.advance(pointer, (0, BN))
    tl.store(tl.make_block_ptr(out, (BM, BN), (BN, 1), (0, 0), (BM, BN), (1, 0)), total)


def unbounded_kernel(x, out, M, N, n, BM: tl.constexpr, BN: tl.constexpr):
    total = tl.zeros((BM, BN), tl.float32)
    pointer = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (BM, BN), (1, 0))
    for _ in range(n):
        total += tl.load(pointer, boundary_check=(1,), padding_option="zero")
        pointer = tl.advance(pointer, (0, -3))
    tl.store(tl.make_block_ptr(out, (BM, BN), (BN, 1), (0, 0), (BM, BN), (1, 0)), total)


@pytest.mark.parametrize(("kernel", "checks"), [(bounded_kernel, 0), (unbounded_kernel, 1)])
def test_lower_bounds_are_checked_where_an_offset_may_be_negative(kernel: Any, checks: int) -> None:
    x = np.random.default_rng(5).standard_normal((4, 20)).astype(np.float32)
    out = np.zeros((4, 8), np.float32)
    arguments = (x, out, 4, 20, 3)
    text = print_module(run_passes(build(kernel, *arguments, BM=4, BN=8)), locations=False)
    assert text.count("cmpi sge") == checks
    run(kernel, *arguments, BM=4, BN=8)
    step, times = (8, 2) if kernel is bounded_kernel else (-3, 1)
    np.testing.assert_allclose(out, times * sum(block_of(x, (0, i * step), (4, 8), 0) for i in range(3)), rtol=1e-5)
