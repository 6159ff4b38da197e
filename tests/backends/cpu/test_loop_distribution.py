"""Sums side by side in a loop of products: in loops of their own or together, they are what is written."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

B, ROWS, COLUMNS = 16, 20, 37
_TYPES = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "M": "i32", "N": "i32", "K": "i32"}


@tilewright.jit
def sums_of_four_kinds(a, b, out, M, N, K, B: tl.constexpr):
    """Products of a tile and of what it is clipped to, the sum of its rows, and how many iterations there were."""
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    first, second = tl.zeros((B, B), tl.float32), tl.zeros((B, B), tl.float32)
    third, iterations, at = tl.zeros((B,), tl.float32), 0, 0
    for i in range(0, K, B):
        k = at + tl.arange(0, B)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        first = tl.dot(x, y, first)
        second = tl.dot(tl.maximum(x, 0.0), y, second)
        third += tl.sum(x, 1)
        iterations += 1
        at += B
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(out + m[:, None] * N + n[None, :], first + 100 * second + third[:, None] + iterations, inside)


@tilewright.jit
def sums_of_each_other(a, b, out, M, N, K, B: tl.constexpr):
    """The product is of the other sum."""
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    first, second = tl.zeros((B, B), tl.float32), tl.zeros((B, B), tl.float32)
    for i in range(0, K, B):
        k = i + tl.arange(0, B)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        second += x
        first = tl.dot(second, y, first)
    tl.store(out + m[:, None] * N + n[None, :], first, (m[:, None] < M) & (n[None, :] < N))


@tilewright.jit
def sums_of_one_exponential(a, b, out, M, N, K, B: tl.constexpr):
    m, n = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1) * B + tl.arange(0, B)
    first, second = tl.zeros((B, B), tl.float32), tl.zeros((B,), tl.float32)
    for i in range(0, K, B):
        k = i + tl.arange(0, B)
        x = tl.exp2(tl.load(a + m[:, None] * K + k[None, :], mask=k[None, :] < K, other=-float("inf")))
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        first = tl.dot(x, y, first)
        second += tl.sum(x, 1)
    tl.store(out + m[:, None] * N + n[None, :], first + second[:, None], (m[:, None] < M) & (n[None, :] < N))


def _of_four_kinds(a, b, iterations):
    return a @ b + 100 * (np.maximum(a, 0) @ b) + a.sum(1, keepdims=True) + iterations


def _of_each_other(a, b, iterations):
    total, wide = np.zeros((ROWS, COLUMNS), np.float32), np.zeros((ROWS, B * iterations), np.float32)
    wide[:, : a.shape[1]] = a
    for t in range(iterations):
        y = b[B * t : B * (t + 1)]
        total += wide[:, : B * (t + 1)].reshape(ROWS, -1, B).sum(1)[:, : len(y)] @ y
    return total


def _of_one_exponential(a, b, iterations):
    return np.exp2(a) @ b + np.exp2(a).sum(1, keepdims=True)


_CASES = [(sums_of_four_kinds, _of_four_kinds, family, [True, True]) for family in FAMILIES]
_CASES += [(sums_of_each_other, _of_each_other, "avx512", [False])]
_CASES += [(sums_of_one_exponential, _of_one_exponential, "avx512", [False])]


@pytest.mark.parametrize(("kernel", "wanted", "family", "answers"), _CASES, ids=lambda v: getattr(v, "__name__", None))
def test_sums(kernel: Any, wanted: Any, family: str, answers: list[bool]) -> None:
    made = Compiled(built_ir(kernel, _TYPES, B=B), isa=FAMILIES[family].isa)
    assert [d["taken"] for d in made.program.decisions if d["subject"] == "loop distribution"] == answers
    for k in (0, 1, 48, 70):
        rng = np.random.default_rng(k)
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((ROWS + B, max(k, 1)), (k + B, COLUMNS)))
        out = np.zeros((ROWS, COLUMNS), np.float32)
        made((2, 3), a, b, out, ROWS, COLUMNS, k)
        np.testing.assert_array_equal(out, wanted(a[:ROWS, :k], b[:k], -(-k // B)))
