"""Tensor descriptors made in kernels: padding, dropped stores, every rank, gather, scatter, atomics, and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import Held, build, run
from tests.ops.test_block_pointers import block_of
from tilewright.base.callable import BlockFunction
from tilewright.base.errors import CompilationError

pytestmark = pytest.mark.usefixtures("backend")


def copy_kernel(x, out, M, N, r, c, PAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN], padding_option=PAD)
    target = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    tl.static_assert(source.dtype == x.dtype.element_ty and source.block_type == target.block_type)
    tl.static_assert(isinstance(source, tl.tensor_descriptor))
    v = source.load([r, c])
    target.store([r - 4, c - 4], tl.where(v == v, v, -9.0))


@pytest.mark.parametrize("at", [(0, 0), (5, 4), (-2, -3), (8, 12), (100, 3)])
@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_loads_are_padded_and_stores_dropped(at: tuple[int, int], pad: str) -> None:
    x = np.random.default_rng(0).standard_normal((10, 16)).astype(np.float32)
    out = np.zeros((10, 16), np.float32)
    run(copy_kernel, x, out, 10, 16, *at, PAD=pad, BM=8, BN=8)
    block = block_of(x, at, (8, 8), -9 if pad == "nan" else 0)
    want = np.zeros_like(out)
    for i in range(8):
        for j in range(8):
            row, column = at[0] - 4 + i, at[1] - 4 + j
            if 0 <= row < 10 and 0 <= column < 16:
                want[row, column] = block[i, j]
    np.testing.assert_array_equal(out, want)


def rank_one_kernel(x, out, n, N: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [n], [1], [N])
    tl.store(out + tl.arange(0, N), tl.load_tensor_descriptor(d, [tl.program_id(0)]))


def rank_three_kernel(x, out, A, B, C, S: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [A, B, C], [B * C, C, 1], [2, 2, S])
    target = tl.make_tensor_descriptor(out, [A, B, C], [B * C, C, 1], [2, 2, S])
    for a in range(0, A, 2):
        for c in range(0, C, S):
            tl.store_tensor_descriptor(target, [a, 1, c], source.load([a, 1, c]) + 1)


def test_other_ranks() -> None:
    x, out = np.arange(10, dtype=np.float32), np.full(16, -1, np.float32)
    run(rank_one_kernel, x, out, 10, N=16)
    assert out.tolist() == [*range(10), *[0.0] * 6]
    x = np.random.default_rng(1).standard_normal((3, 4, 12)).astype(np.float32)
    out = np.zeros_like(x)
    run(rank_three_kernel, x, out, 3, 4, 12, S=8)
    want = np.zeros_like(x)
    want[:, 1:3] = x[:, 1:3] + 1
    np.testing.assert_array_equal(out, want)


@BlockFunction
def row_sum(d, row):
    return tl.sum(d.load([row, 0]), 1)


def handed_on_kernel(x, y, out, n, flag, N: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [n, N], [N, 1], [1, N])
    if flag > 0:
        d = tl.make_tensor_descriptor(y, [n, N], [N, 1], [1, N])
    total = tl.zeros((1,), tl.float32)
    for i in range(n):
        total += row_sum(d, i)
        d = tl.make_tensor_descriptor(y, [n, N], [N, 1], [1, N])
    tl.store(out + tl.arange(0, 1), total)


@pytest.mark.parametrize("flag", [0, 1])
def test_branches_loops_and_functions_hand_them_on(flag: int) -> None:
    x, y = np.random.default_rng(2).standard_normal((2, 5, 8)).astype(np.float32)
    out = np.zeros(1, np.float32)
    run(handed_on_kernel, x, y, out, 5, flag, N=8)
    np.testing.assert_allclose(out, (y if flag else x)[0].sum() + y[1:].sum(), rtol=1e-4)


def gather_kernel(x, rows, out, M, N, c, R: tl.constexpr, C: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [1, C])
    index = tl.load(rows + tl.arange(0, R))
    v = d.gather(index, c)
    tl.store(out + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :], v)
    d.scatter(v + 1, index + 2, c)


def test_gather_and_scatter_rows() -> None:
    x = np.random.default_rng(3).standard_normal((12, 12)).astype(np.float32)
    rows = np.array([3, 0, 7, 11, 40, -1, 5, 9], np.int32)
    before, out = x.copy(), np.zeros((8, 8), np.float32)
    run(gather_kernel, x, rows, out, 12, 12, 6, R=8, C=8)
    want = np.concatenate([block_of(before, (r, 6), (1, 8), 0) for r in rows])
    np.testing.assert_array_equal(out, want)
    for row, values in zip(rows + 2, want, strict=True):
        if 0 <= row < 12:
            before[row, 6:] = values[:6] + 1
    np.testing.assert_array_equal(x, before)


def atomic_kernel(x, M, N, KIND: tl.constexpr, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    value = tl.arange(0, B)[:, None] * 3 + tl.arange(0, B)[None, :]
    getattr(d, KIND)([2, 4], value)


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
def test_atomics(kind: str) -> None:
    x = np.random.default_rng(4).integers(0, 20, (5, 8)).astype(np.int32)
    want = x.copy()
    value = (np.arange(4)[:, None] * 3 + np.arange(4)[None, :])[:3]
    combine = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
    want[2:, 4:] = combine.get(kind, np.bitwise_xor)(want[2:, 4:], value)
    run(atomic_kernel, x, 5, 8, KIND=f"atomic_{kind}", B=4)
    np.testing.assert_array_equal(x, want)


def half_atomic_kernel(x, M, N, KIND: tl.constexpr, B: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [M, N], [N, 1], [B, B])
    value = tl.arange(0, B)[:, None] * 3.5 - tl.arange(0, B)[None, :]
    getattr(d, KIND)([2, 8], value.to(d.dtype))


@pytest.mark.parametrize("type_", [tl.float16, tl.bfloat16])
@pytest.mark.parametrize("kind", ["add", "min", "max"])
def test_atomics_of_halves(kind: str, type_: Any) -> None:
    want = np.random.default_rng(4).integers(-20, 20, (5, 16)).astype(np.float32)
    x = Held(want, type_)
    value = (np.arange(8)[:, None] * 3.5 - np.arange(8)[None, :])[:3]
    combine = {"add": np.add, "min": np.minimum, "max": np.maximum}
    want[2:, 8:] = combine[kind](want[2:, 8:], value)
    run(half_atomic_kernel, x, 5, 16, KIND=f"atomic_{kind}", B=8)
    np.testing.assert_array_equal(x.values, want)


def short_row(x):
    tl.make_tensor_descriptor(x, [4], [1], [2])


def last_stride(x):
    tl.make_tensor_descriptor(x, [4, 4], [1, 4], [4, 4])


def odd_stride(x):
    tl.make_tensor_descriptor(x, [4, 5], [5, 1], [4, 4])


def integer_nan(x):
    tl.make_tensor_descriptor(x.to(tl.pointer_type(tl.int32)), [8], [1], [4], padding_option="nan")


def six_dimensions(x):
    tl.make_tensor_descriptor(x, [1, 1, 1, 1, 1, 4], [4, 4, 4, 4, 4, 1], [1, 1, 1, 1, 1, 4])


def wide_offset(x):
    tl.make_tensor_descriptor(x, [8], [1], [4]).load([tl.program_id(0).to(tl.int64)])


def missing_offset(x):
    tl.make_tensor_descriptor(x, [8, 4], [4, 1], [4, 4]).load([0])


def other_shape(x):
    tl.make_tensor_descriptor(x, [8], [1], [4]).store([0], tl.zeros((8,), tl.float32))


def float_minimum(x):
    tl.make_tensor_descriptor(x, [8], [1], [4]).atomic_min([0], tl.zeros((4,), tl.float32))


def not_one(x):
    tl.load_tensor_descriptor(x, [0])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (short_row, "must have at least 16 bytes in the last dimension, but got 2 * 4 = 8 bytes"),
        (last_stride, "Tensor descriptor last dim must be 1 but got 4"),
        (odd_stride, "strides must be multiples of 16 bytes, got 5 elements of fp32"),
        (integer_nan, "Padding option `nan` is not supported for elements of type int32"),
        (six_dimensions, "Expected 1 <= ndim <= 5 but got 6 dimensions"),
        (wide_offset, "Expected a 32-bit integer; add a `.to(tl.int32)`"),
        (missing_offset, "expects 2 offsets, but got 1"),
        (other_shape, "a value of shape [8] is stored to a block of shape [4]"),
        (float_minimum, "descriptor atomic_min does not support fp32"),
        (not_one, "tl.load_tensor_descriptor takes a tensor descriptor"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError) as error:
        build(kernel, np.zeros(8, np.float32))
    assert message in str(error.value)
