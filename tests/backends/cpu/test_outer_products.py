"""Outer products that a loop adds up are products of matrices, and leave what the iterations would."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import tile_ir

B = 16


@tilewright.jit
def columns_and_rows(a, b, out, first, end, stride, S: tl.constexpr, B: tl.constexpr):
    """From any iteration, by any step, onto what is there."""
    i, j = tl.arange(0, B), tl.arange(0, B)
    acc = tl.load(out + i[:, None] * B + j[None, :])
    for p in range(first, end, S):
        x, y = tl.load(a + i * stride + p, i < 13, 0.0)[:, None], tl.load(b + p * B + j).to(tl.float32)
        acc += x.to(tl.float32) * y[None, :]
    tl.store(out + i[:, None] * B + j[None, :], acc)


@tilewright.jit
def with_moving_pointers(a, b, out, first, end, stride, S: tl.constexpr, B: tl.constexpr):
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    acc = tl.load(out + i * B + j)
    x, y = a + i * stride + first, b + first * B + j
    for _ in range(first, end, S):
        acc += tl.load(y).to(tl.float32) * tl.load(x, i < 13, 0.0).to(tl.float32)
        x += S
        y += S * B
    tl.store(out + i * B + j, acc)


@tilewright.jit
def masked_by_the_iteration(a, b, out, first, end, stride, S: tl.constexpr, B: tl.constexpr):
    """The bound of rows changes from iteration to iteration."""
    i, j = tl.arange(0, B), tl.arange(0, B)
    acc = tl.load(out + i[:, None] * B + j[None, :])
    for p in range(first, end, S):
        x, y = tl.load(a + i * stride + p, (i < 13) & (i < 50 * end - p), 0.0), tl.load(b + p * B + j)
        acc += x.to(tl.float32)[:, None] * y.to(tl.float32)[None, :]
    tl.store(out + i[:, None] * B + j[None, :], acc)


@tilewright.jit
def in_a_circle(a, b, out, first, end, stride, S: tl.constexpr, B: tl.constexpr):
    """Addresses that do not grow evenly."""
    i, j = tl.arange(0, B), tl.arange(0, B)
    acc = tl.load(out + i[:, None] * B + j[None, :])
    for p in range(first, end, S):
        x, y = tl.load(a + i * stride + p % 200, i < 13, 0.0), tl.load(b + p * B + j)
        acc += x.to(tl.float32)[:, None] * y.to(tl.float32)[None, :]
    tl.store(out + i[:, None] * B + j[None, :], acc)


@tilewright.jit
def two_sums(a, b, out, first, end, stride, S: tl.constexpr, B: tl.constexpr):
    """Two accumulators in one loop, of which one is begun with zeros."""
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    acc, more = tl.load(out + i * B + j), tl.zeros((B, B), tl.float32)
    for p in range(first, end, S):
        x, y = tl.load(a + i * stride + p, i < 13, 0.0).to(tl.float32), tl.load(b + p * B + j).to(tl.float32)
        acc += 2 * x * y
        more += y * x
    tl.store(out + i * B + j, acc - more)


@pytest.mark.parametrize(
    "kernel",
    [columns_and_rows, with_moving_pointers, masked_by_the_iteration, in_a_circle, two_sums],
    ids=lambda kernel: kernel.fn.__name__,
)
@pytest.mark.parametrize(("first", "end"), [(0, 150), (3, 67), (5, 6), (0, 64), (9, 2)])
@pytest.mark.parametrize(("step", "element"), [(1, "fp32"), (3, "bf16")])
def test_of_a_loop(kernel: Any, first: int, end: int, step: int, element: str) -> None:
    rng = np.random.default_rng(end)
    a, b, out = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((B, 160), (160, B), (B, B)))
    picked = np.arange(first, end, step)
    want = out + np.pad(a[:13], ((0, B - 13), (0, 0)))[:, picked] @ b[picked]
    types = {"a": f"*{element}", "b": f"*{element}", "out": "*fp32", "first": "i32", "end": "i32", "stride": "i32"}
    compiled = Compiled(tile_ir(kernel, types, S=step, B=B))
    ends = np.where(np.arange(160)[:, None] < max(end, 0), 0, np.nan).astype(np.float32)  # nothing past it is read
    given = [(m + e).astype(np.float32) for m, e in ((a, ends.T), (b, ends))]
    if element == "bf16":
        given = [(m.view(np.uint32) >> 16).astype(np.uint16) for m in given]
    compiled((1,), *given, out, first, end, 160)
    np.testing.assert_array_equal(out, want)
    is_even = kernel not in (masked_by_the_iteration, in_a_circle)
    assert ("dot" in {d["subject"] for d in compiled.program.decisions}) == is_even
