"""Tensor descriptors as kernel arguments, compiled and interpreted, and what cannot be described."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError, ReadOnlyError
from tilewright.tools.tensor_descriptor import TensorDescriptor


@tilewright.jit
def double(source, target, ROWS: tl.constexpr):
    tl.static_assert(isinstance(source, tl.tensor_descriptor))
    tl.static_assert(source.block_shape[0] == ROWS)
    for column in range(0, source.shape[1], source.block_shape[1]):
        at = [tl.program_id(0) * ROWS, column]
        target.store(at, source.load(at) * 2)


def doubled(kernel, x, block, **options):
    out = np.zeros(x.shape, x.dtype)
    source = TensorDescriptor.from_tensor(x, block, **options)
    kernel[(-(-x.shape[0] // block[0]),)](source, TensorDescriptor.from_tensor(out, block), ROWS=block[0])
    return out


@pytest.mark.parametrize("interpret", [False, True])
def test_a_descriptor_is_one_argument(interpret):
    kernel = tilewright.jit(double.fn, interpret=interpret)
    for shape in ((40, 100), (17, 36), (3, 4)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for block in ([16, 32], [8, 8]):
            np.testing.assert_array_equal(doubled(kernel, x, block), 2 * x)


def test_blocks_and_padding_are_parts_of_the_specialisation():
    x = np.ones((16, 16), np.float32)
    kernel = tilewright.jit(double.fn)
    before = len(kernel._kernels)
    for block in ([16, 16], [8, 16], [16, 16]):
        doubled(kernel, x, block)
    doubled(kernel, x, [16, 16], padding="nan")
    assert len(kernel._kernels) - before == 3


@tilewright.jit
def padded_row(source, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), source.load([-1, 0]).reshape(N))


@pytest.mark.parametrize("interpret", [False, True])
def test_padding_and_rounding_to_tf32(interpret):
    kernel = tilewright.jit(padded_row.fn, interpret=interpret)
    x, out = np.full((2, 8), 1 + 2.0**-11, np.float32), np.zeros(8, np.float32)
    kernel[(1,)](TensorDescriptor.from_tensor(x, [1, 8], padding="nan"), out, N=8)
    assert np.isnan(out).all()
    inside = TensorDescriptor(x, [2, 8], [8, 1], [2, 8], round_f32_to_tf32=True)
    both = tilewright.jit(whole.fn, interpret=interpret)
    out = np.zeros(16, np.float32)
    both[(1,)](inside, out, N=16)
    assert (out == np.float32(1 + 2.0**-10)).all()


@tilewright.jit
def whole(source, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), source.load([0, 0]).reshape(N))


@tilewright.jit
def in_a_tuple(pair, N: tl.constexpr):
    pair[1].store([0, 0], pair[0].load([0, 0]) + 1)


def test_descriptors_may_stand_in_tuples():
    x, out = np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    in_a_tuple[(1,)]((TensorDescriptor.from_tensor(x, [4, 8]), TensorDescriptor.from_tensor(out, [4, 8])), N=1)
    assert (out == 1).all()


def test_torch_tensors_can_be_described():
    torch = pytest.importorskip("torch")
    x = torch.randn(40, 64, dtype=torch.bfloat16)
    out = torch.zeros_like(x)
    block = [16, 32]
    double[(3,)](TensorDescriptor.from_tensor(x, block), TensorDescriptor.from_tensor(out, block), ROWS=16)
    assert torch.equal(out, x * 2)


def test_read_only_arrays_are_not_written():
    x, out = np.ones((16, 16), np.float32), np.ones((16, 16), np.float32)
    out.flags.writeable = False
    with pytest.raises(ReadOnlyError, match="target"):
        double[(1,)](TensorDescriptor.from_tensor(x, [16, 16]), TensorDescriptor.from_tensor(out, [16, 16]), ROWS=16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [4, 0]}, "shape must be positive"),
        ({"shape": [4]}, "rank mismatch"),
        ({"strides": [17, 1]}, "strides must be 16-byte aligned, got 17 elements"),
        ({"strides": [1, 16]}, "strides must be 16-byte aligned|Last dimension must be contiguous"),
        ({"block_shape": [4, 12]}, "block_shape must be powers of two"),
        ({"padding": "one"}, "padding is"),
        ({"base": np.zeros((4, 16), np.int32), "padding": "nan"}, "nan padding is for float elements, not int32"),
        ({"base": np.zeros(65, np.float32)[1:].reshape(4, 16)}, "base must be 16-byte aligned"),
        ({"base": np.zeros((4, 16)), "round_f32_to_tf32": True}, "round_f32_to_tf32 is for float32"),
    ],
)
def test_what_cannot_be_described(change, message):
    good = {"base": np.zeros((4, 16), np.float32), "shape": [4, 16], "strides": [16, 1], "block_shape": [4, 16]}
    with pytest.raises(ArgumentError, match=message):
        TensorDescriptor(**{**good, **change})
