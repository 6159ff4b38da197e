"""Sums that go into products, and those that must not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, AddIOp

K = 16


@tilewright.jit
def added(a, b, c, n, LEFT: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    acc = tl.zeros([K, K], tl.float32)
    for k in range(0, n):
        product = tl.dot(tl.load(a + i + k * K * K), tl.load(b + i + k * K * K), input_precision="ieee")
        acc = product + acc if LEFT else acc + product
    tl.store(c + i, acc)


@tilewright.jit
def integers(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    acc = tl.zeros([K, K], tl.int32)
    for _ in range(0, n):
        acc += tl.dot(tl.load(a + i), tl.load(b + i))
    tl.store(c + i, acc)


@tilewright.jit
def two_products(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    x, y = tl.load(a + i), tl.load(b + i)
    tl.store(c + i, tl.dot(x, y) + tl.dot(y, x))


@tilewright.jit
def used_twice(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    x = tl.load(a + i)
    product = tl.dot(x, x)
    tl.store(c + i, product + x)
    tl.store(b + i, product)


@tilewright.jit
def onto_something(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    x = tl.load(a + i)
    tl.store(c + i, tl.dot(x, x, tl.load(b + i)) + x)


@tilewright.jit
def limited(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    acc = tl.load(c + i)
    acc += tl.dot(tl.load(a + i), tl.load(b + i), max_num_imprecise_acc=8)
    tl.store(c + i, acc)


def counts(kernel: Any, element: str = "fp32", out: str = "fp32", **constants: Any) -> tuple[int, int]:
    """Products, and sums of tiles."""
    module = tile_ir(kernel, {"a": f"*{element}", "b": f"*{element}", "c": f"*{out}", "n": "i32"}, K=K, **constants)
    ops = list(module.walk())
    sums = [op for op in ops if isinstance(op, (AddFOp, AddIOp)) and op.results[0].type == _result(ops)]
    return sum(isinstance(op, DotOp) for op in ops), len(sums)


def _result(ops: list[Any]) -> Any:
    return next(op for op in ops if isinstance(op, DotOp)).d.type


@pytest.mark.parametrize("left", [False, True])
def test_a_sum_goes_into_the_product(left: bool) -> None:
    assert counts(added, LEFT=left) == (1, 0)
    a, b = np.random.default_rng(1).random((2, 3, K, K), np.float32)
    out = np.empty((K, K), np.float32)
    added[(1,)](a, b, out, 3, left, K)
    np.testing.assert_allclose(out, (a.astype(np.float64) @ b).sum(0), rtol=1e-5)


@tilewright.jit
def scaled(a, b, c, n, K: tl.constexpr):
    i = tl.arange(0, K)[:, None] * K + tl.arange(0, K)[None, :]
    acc = tl.load(c + i)
    for _ in range(0, n):
        acc = acc * 0.5 + tl.dot(tl.load(a + i), tl.load(b + i), input_precision="ieee")
    tl.store(c + i, acc)


def test_a_scaled_accumulator_goes_into_the_product() -> None:
    assert counts(scaled) == (1, 0)
    a, b, c = np.random.default_rng(1).random((3, K, K), np.float32)
    out = c.copy()
    scaled[(1,)](a, b, out, 1, K)
    np.testing.assert_allclose(out, c * 0.5 + a.astype(np.float64) @ b, rtol=1e-5)


def test_integers_and_chains() -> None:
    assert counts(integers, "i8", "i32") == (1, 1)  # the sum of the indices
    assert counts(two_products) == (2, 0)


def test_sums_that_stay() -> None:
    assert counts(used_twice) == (1, 1)
    assert counts(onto_something) == (1, 1)
    assert counts(limited, "fp8e5") == (1, 1)
