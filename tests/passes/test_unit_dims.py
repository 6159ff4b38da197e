"""Blocks of one batch are matrices to every planner, blocks of one row are rows, and both compute what they did."""

from __future__ import annotations

import collections
import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tests.backends.nvidia.whole import whole
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


# --- the code of one batch is that of matrices ------------------------------------------------------------------


@tilewright.jit
def attended(q_ptr, k_ptr, v_ptr, o_ptr, n, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    b, m, d = tl.program_id(1), tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    q = tl.load(q_ptr + (b * n * D + m[:, None] * D + d[None, :]), (m < n)[:, None], 0.0)
    largest, total = tl.full([M], float("-inf"), tl.float32), tl.full([M], 1.0, tl.float32)
    acc = tl.full([M, D], 0.0, tl.float32)
    for start in tl.range(0, n, N):
        c = start + tl.arange(0, N)
        k = tl.load(k_ptr + (b * n * D + c[None, :] * D + d[:, None]), (c < n)[None, :], 0.0)
        scores = tl.where((c < n)[None, :], tl.dot(q, k), float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - new[:, None])
        kept = tl.exp2(largest - new)
        total = total * kept + tl.sum(weights, 1)
        v = tl.load(v_ptr + (b * n * D + c[:, None] * D + d[None, :]), (c < n)[:, None], 0.0)
        acc = tl.dot(weights.to(tl.float16), v, acc * kept[:, None])
        largest = new
    tl.store(o_ptr + (b * n * D + m[:, None] * D + d[None, :]), (acc / total[:, None]).to(tl.float16), (m < n)[:, None])


@tilewright.jit
def attended_batch(q_ptr, k_ptr, v_ptr, o_ptr, n, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """As languages of tensors write it: every tile has the dim of the batch, products are reshaped to matrices."""
    b = (tl.program_id(1) + tl.arange(0, 1))[:, None, None]
    m, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    q = tl.load(q_ptr + (b * n * D + m[None, :, None] * D + d[None, None, :]), (m < n)[None, :, None], 0.0)
    largest, total = tl.full([1, M], float("-inf"), tl.float32), tl.full([1, M], 1.0, tl.float32)
    acc = tl.full([1, M, D], 0.0, tl.float32)
    for start in tl.range(0, n, N):
        c = start + tl.arange(0, N)
        k = tl.load(k_ptr + (b * n * D + c[None, None, :] * D + d[None, :, None]), (c < n)[None, None, :], 0.0)
        scores = tl.reshape(tl.dot(tl.reshape(q, [M, D]), tl.reshape(k, [D, N])), [1, M, N])
        scores = tl.where((c < n)[None, None, :], scores, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 2) * scale)
        weights = tl.exp2(scores * scale - new[:, :, None])
        kept = tl.exp2(largest - new)
        total = total * kept + tl.sum(weights, 2)
        v = tl.load(v_ptr + (b * n * D + c[None, :, None] * D + d[None, None, :]), (c < n)[None, :, None], 0.0)
        acc = tl.dot(weights.to(tl.float16), v, acc * kept[:, :, None])
        largest = new
    out = (acc / total[:, :, None]).to(tl.float16)
    tl.store(o_ptr + (b * n * D + m[None, :, None] * D + d[None, None, :]), out, (m < n)[None, :, None])


@tilewright.jit
def multiplied(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z = tl.program_id(2)
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.full([M, N], 0.0, tl.float32)
    for start in tl.range(0, k, K):
        depth = start + tl.arange(0, K)
        x = tl.load(a_ptr + (z * (m * k) + rows[:, None] * k + depth[None, :]))
        acc = tl.dot(x, tl.load(b_ptr + (z * (k * n) + depth[:, None] * n + columns[None, :])), acc)
    tl.store(c_ptr + (z * (m * n) + rows[:, None] * n + columns[None, :]), acc.to(tl.float16))


@tilewright.jit
def multiplied_batch(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z = (tl.program_id(2) + tl.arange(0, 1))[:, None, None]
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.full([1, M, N], 0.0, tl.float32)
    for start in tl.range(0, k, K):
        depth = start + tl.arange(0, K)
        x = tl.load(a_ptr + (z * (m * k) + rows[None, :, None] * k + depth[None, None, :]))
        acc = tl.dot(x, tl.load(b_ptr + (z * (k * n) + depth[None, :, None] * n + columns[None, None, :])), acc)
    tl.store(c_ptr + (z * (m * n) + rows[None, :, None] * n + columns[None, None, :]), acc.to(tl.float16))


@pytest.mark.parametrize(
    ("plain", "batched", "types", "sizes"),
    [
        (attended, attended_batch, "*fp16! *fp16! *fp16! *fp16! i32! fp32", {"D": 64, "M": 128, "N": 64}),
        (multiplied, multiplied_batch, "*fp16! *fp16! *fp16! i32! i32! i32!", {"M": 128, "N": 128, "K": 64}),
    ],
    ids=["attention", "product"],
)
def test_a_batch_of_one_has_the_code_of_matrices(plain, batched, types, sizes):
    """The same instructions with the same immediates as often, wgmma and its rings among them."""
    codes = []
    for fn in (plain, batched):
        names = dict(zip(fn.signature.parameters, types.split()))
        ptx, _ = whole(fn, names, sizes, 90, num_warps=8, num_stages=3).assembled()
        assert ptx.count("wgmma.mma_async") and "cp.async.cg" in ptx
        lines = [re.sub(r"%\w+|\$L__\w+|\w*(multiplied|attended)\w*", "_", line) for line in ptx.splitlines()]
        codes.append(collections.Counter(line for line in lines if line.endswith(";") and ".loc" not in line))
    assert codes[0] == codes[1]
