"""Blocks of one batch are matrices to every planner, blocks of one row are rows, and both compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tilewright.ir.types import shape_of
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp
from tilewright.ops.dot import DotOp
from tilewright.ops.memory import LoadOp, StoreOp
from tilewright.ops.reduce import ReduceOp

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


@pytest.mark.parametrize("kernel", [products_of_one_batch, reshaped_operands, read_in_both_shapes])
def test_loads_products_and_sums_are_matrices(kernel):
    module = tile_ir(kernel, TYPES, K=K)
    made = [value for op in walk(module) if isinstance(op, (DotOp, LoadOp, ForOp)) for value in op.results]
    assert {shape_of(value.type) for value in made} == {(K, K)}


@tilewright.jit
def every_operation(a, b, c, n, K: tl.constexpr):
    row = tl.program_id(0) + tl.arange(0, 1)
    at = row[None, :, None] * K + tl.arange(0, K)[None, None, :]
    x = tl.load(a + at, at < n * K, 0.0)
    largest = tl.max(x, axis=2, keep_dims=True)
    total = tl.zeros([1, 1], tl.float32)
    for _ in range(0, n):
        if total.sum() < 8.0:
            total += tl.sum(x, axis=2)
        else:
            total += tl.max(tl.sum(x, axis=0), axis=1)[None, :]
    left = n
    while left > 0:
        x = tl.cumsum(tl.permute(x, [2, 0, 1]), axis=1).permute(1, 2, 0)  # along a dim of one: nothing
        left -= 1
    weight = tl.load(b + row)  # of one element
    tl.atomic_add(c + K * K + row, weight)
    y = tl.reshape(x - largest + total[:, :, None], [K]) * tl.reshape(weight, [])
    tl.store(c + at, tl.cumsum(tl.reshape(y, [1, 1, K]), axis=2), at < n * K)


def test_every_operation():
    a, b = (np.random.default_rng(seed).standard_normal((K, K)).astype(np.float32) for seed in (1, 2))
    c = np.zeros((K + 1, K), np.float32)
    every_operation[(3,)](a, b.reshape(-1), c, 3, K=K)
    total = np.zeros(3, np.float32)
    for _ in range(3):
        total += a[:3].sum(1)
    y = (a[:3] - a[:3].max(1, keepdims=True) + total[:, None]) * b[0, :3, None]
    np.testing.assert_allclose(c[:3], y.cumsum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(c[K, :3], b[0, :3])


def test_a_row_has_one_dim():
    ops = list(walk(tile_ir(every_operation, TYPES, K=K)))
    kept = [op for op in ops if isinstance(op, (LoadOp, StoreOp, ReduceOp, ForOp))]
    shapes = {shape_of(value.type) for op in kept for value in (*op.operands, *op.results)}
    assert kept and shapes == {(K,), ()}


@tilewright.jit
def a_column(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)
    mean = tl.sum(tl.load(a + i[:, None] * K + i[None, :]), axis=1, keep_dims=True) / n
    row = tl.load(b + tl.arange(0, 1)[:, None] * K + i[None, :])  # read by all rows
    tl.store(c + i[:, None] * K + i[None, :], mean * row)


def test_what_is_broadcast_keeps_its_dim():
    a, b = (np.random.default_rng(seed).standard_normal((K, K)).astype(np.float32) for seed in (1, 2))
    c = np.zeros((K, K), np.float32)
    a_column[(1,)](a, b, c, K, K=K)
    np.testing.assert_allclose(c, a.mean(1)[:, None] * b[0], rtol=1e-4, atol=1e-5)
    loads = [op for op in walk(tile_ir(a_column, TYPES, K=K)) if isinstance(op, LoadOp)]
    assert [shape_of(op.result.type) for op in loads] == [(K, K), (1, K)]


@tilewright.jit
def a_row_less_its_mean(a, b, c, n, K: tl.constexpr):
    at = tl.program_id(0) * K + tl.arange(0, K)[None, :]
    x = tl.load(a + at)
    tl.store(c + at, x - tl.sum(x, axis=1, keep_dims=True) / n)


def test_one_element_that_is_broadcast_is_a_scalar():
    a, c = np.random.default_rng(1).standard_normal((K, K)).astype(np.float32), np.zeros((K, K), np.float32)
    a_row_less_its_mean[(K,)](a, a, c, K, K=K)
    np.testing.assert_allclose(c, a - a.mean(1, keepdims=True), rtol=1e-4, atol=1e-5)
    ops = walk(tile_ir(a_row_less_its_mean, TYPES, K=K))
    assert {shape_of(value.type) for op in ops for value in op.results} == {(K,), ()}


@tilewright.jit
def an_element_that_is_shown(a, b, c, n, K: tl.constexpr):
    at = tl.program_id(0) * K + tl.arange(0, K)[None, :]
    mean = tl.sum(tl.load(a + at), axis=1, keep_dims=True) / n
    tl.device_print("mean", mean)
    tl.store(c + at, tl.load(a + at) - mean)


def test_what_is_shown_keeps_its_dims(capfd):
    a, c = np.ones((K, K), np.float32), np.ones((K, K), np.float32)
    an_element_that_is_shown[(1,)](a, a, c, K, K=K)
    assert not c[0].any() and c[1:].all() and "(0, 0)" in capfd.readouterr().out
