"""Blocks of one batch are matrices to every planner, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tilewright.ir.types import shape_of
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp

K = 16
TYPES = {"a": "*fp32", "b": "*fp32", "c": "*fp32", "n": "i32"}


@tilewright.jit
def products_of_one_batch(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[None, :, None] * K + tl.arange(0, K)[None, None, :]
    acc = tl.zeros([1, K, K], tl.float32)
    for k in range(0, n):
        acc = tl.dot(tl.load(a + i + k * K * K), tl.load(b + i + k * K * K), acc, input_precision="ieee")
    tl.store(c + i, acc)


@tilewright.jit
def reshaped_operands(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[None, :, None] * K + tl.arange(0, K)[None, None, :]
    acc = tl.zeros([1, K, K], tl.float32)
    for k in range(0, n):
        x = tl.reshape(tl.load(a + i + k * K * K, i < K * K, 1.0), [K, K])
        y = tl.reshape(tl.load(b + i + k * K * K), [K, K])
        acc = tl.reshape(tl.dot(x, y, tl.reshape(acc, [K, K]), input_precision="ieee"), [1, K, K])
    tl.store(c + i, acc)


@tilewright.jit
def read_in_both_shapes(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[None, :, None] * K + tl.arange(0, K)[None, None, :]
    acc = tl.zeros([1, K, K], tl.float32)
    for k in range(0, n):
        x, y = tl.load(a + i + k * K * K), tl.load(b + i + k * K * K)
        acc = tl.dot(x, y, acc * (1.0 + 0.0 * tl.sum(x)), input_precision="ieee")
    tl.store(c + i, acc)


@pytest.mark.parametrize("kernel", [products_of_one_batch, reshaped_operands, read_in_both_shapes])
def test_results(kernel):
    a, b = (np.random.default_rng(1).standard_normal((3, K, K)).astype(np.float32) for _ in range(2))
    c = np.zeros((K, K), np.float32)
    kernel[(1,)](a, b, c, 3, K=K)
    np.testing.assert_allclose(c, (a @ b).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [products_of_one_batch, reshaped_operands])
def test_loads_products_and_sums_are_matrices(kernel):
    module = tile_ir(kernel, TYPES, K=K)
    ops = list(module.walk())
    made = [value for op in ops if isinstance(op, (DotOp, LoadOp, ForOp)) for value in op.results]
    assert made and {shape_of(value.type) for value in made} == {(K, K)}


def test_what_is_read_in_both_shapes_stays():
    loads = [op for op in tile_ir(read_in_both_shapes, TYPES, K=K).walk() if isinstance(op, LoadOp)]
    assert {shape_of(op.result.type) for op in loads} == {(1, K, K), (K, K)}
