"""Right operands that are read where they lie, or packed after all: rows and columns that do not exist are poison."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

_TYPES = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "live": "i32", "width": "i32"}
_STRIDE = 70  # elements from row to row of b, as the kernels have it


@tilewright.jit
def at_once(a, b, out, live, width, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, p = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    y = tl.load(b + p[:, None] * 70 + j, (p < live)[:, None] & (j < width), 0.0)
    tl.store(out + i * N + j, tl.dot(tl.load(a + i * K + p[None, :]), y))


@tilewright.jit
def iteration_by_iteration(a, b, out, live, width, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, acc = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.zeros((M, N), tl.float32)
    for start in range(0, K, 8):
        p = start + tl.arange(0, 8)
        y = tl.load(b + p[:, None] * 70 + j, (p < live)[:, None] & (j < width), 0.0)
        acc = tl.dot(tl.load(a + i * K + p[None, :]), y, acc)
    tl.store(out + i * N + j, acc)


@tilewright.jit
def under_a_condition(a, b, out, live, width, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, p = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    y = tl.load(b + p[:, None] * 70 + j, (live == K) & (j < width), 0.0)
    tl.store(out + i * N + j, tl.dot(tl.load(a + i * K + p[None, :]), y))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "kernel", [at_once, iteration_by_iteration, under_a_condition], ids=lambda kernel: kernel.fn.__name__
)
def test_only_what_exists_is_read(family: str, kernel: tilewright.JITFunction) -> None:
    m, n, k = 12, 40, 32
    made = Compiled(built_ir(kernel, _TYPES, M=m, N=n, K=k), isa=FAMILIES[family].isa)
    rng = np.random.default_rng(0)
    a, whole = rng.integers(-4, 5, (m, k)).astype(np.float32), rng.integers(-4, 5, (k, n)).astype(np.float32)
    for live, width in ((k, n), (k, 33), (19, n), (19, 5), (0, n), (k, 0)):
        rows = 0 if kernel is under_a_condition and live != k else live
        b = np.full((k + 2, _STRIDE), np.nan, np.float32)
        b[:rows, :width] = whole[:rows, :width]
        out, wanted = np.full((m, n), np.nan, np.float32), np.zeros((m, n), np.float32)
        wanted[:, :width] = a[:, :rows] @ whole[:rows, :width]
        made((1,), a, b, out, live, width)
        np.testing.assert_array_equal(out, wanted, err_msg=f"{live} rows, {width} columns")
