"""Rows and columns of a product that no store looks at are left out; all others stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tilewright.backends.cpu.plan.subjects import UNSEEN

_TYPES = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "rows": "i32", "columns": "i32"}
_M, _N, _K = 40, 48, 12


@tilewright.jit
def operands(a, b, rows, columns, p, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(a + i[:, None] * 12 + p[None, :], i[:, None] < rows, 0.0)
    return i, j, x, tl.load(b + p[:, None] * columns + j[None, :], j[None, :] < columns, 0.0)


@tilewright.jit
def at_once(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, x, y = operands(a, b, rows, columns, tl.arange(0, K), M, N)
    tl.store(out + i[:, None] * N + j[None, :], tl.dot(x, y), (i[:, None] < rows) & (j[None, :] < columns))


@tilewright.jit
def trip_by_trip(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, 4):
        i, j, x, y = operands(a, b, rows, columns, start + tl.arange(0, 4), M, N)
        acc = tl.dot(x, y, acc)
    i, j = tl.arange(0, M), tl.arange(0, N)
    tl.store(out + i[:, None] * N + j[None, :], acc, (i[:, None] < rows) & (j[None, :] < columns))


@tilewright.jit
def rows_stored(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, x, y = operands(a, b, rows, columns, tl.arange(0, K), M, N)
    tl.store(out + i[:, None] * N + j[None, :], tl.dot(x, y), j[None, :] < columns)


@tilewright.jit
def one_row_more_stored(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, x, y = operands(a, b, rows, columns, tl.arange(0, K), M, N)
    tl.store(out + i[:, None] * N + j[None, :], tl.dot(x, y), (i[:, None] < rows + 1) & (j[None, :] < columns))


@tilewright.jit
def rows_summed(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, x, y = operands(a, b, rows, columns, tl.arange(0, K), M, N)
    acc = tl.dot(x, y)
    sums = acc + tl.sum(acc, 0)[None, :]
    tl.store(out + i[:, None] * N + j[None, :], sums, (i[:, None] < rows) & (j[None, :] < columns))


@tilewright.jit
def bound_of_a_trip(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    acc = tl.zeros((M, N), tl.float32)
    for most in range(1, 3):
        i, j, x, y = operands(a, b, rows // most, columns, tl.arange(0, K), M, N)
        acc = tl.dot(x, y)
        tl.store(out + i[:, None] * N + j[None, :], acc, (i[:, None] < rows // most) & (j[None, :] < columns))


_LEFT_OUT = [at_once, trip_by_trip]
_KEPT = [rows_stored, one_row_more_stored, rows_summed, bound_of_a_trip]
_CASES = [*((name, kernel) for name in FAMILIES for kernel in _LEFT_OUT), *(("avx512", kernel) for kernel in _KEPT)]


@pytest.mark.parametrize(("family", "kernel"), _CASES, ids=lambda case: getattr(case, "__name__", case))
def test_what_is_stored_is_right(family: str, kernel: tilewright.JITFunction) -> None:
    made = Compiled(built_ir(kernel, _TYPES, M=_M, N=_N, K=_K), isa=FAMILIES[family].isa)
    found = made.program.decisions
    taken = [d["taken"] for d in found if d["subject"] == UNSEEN.name and "columns" not in d["text"]]
    assert all(taken) == (kernel in _LEFT_OUT), taken
    rng = np.random.default_rng(0)
    for rows, columns in ((_M, _N), (33, 31), (17, 16), (1, 1), (0, 5), (5, 0)):
        a, b = np.full((rows + 4, _K), np.nan, np.float32), np.full((_K * columns + 64,), np.nan, np.float32)
        a[:rows] = rng.integers(-4, 5, (rows, _K))
        b[: _K * columns] = rng.integers(-4, 5, _K * columns)
        product = a[:rows] @ b[: _K * columns].reshape(_K, columns)
        if kernel is rows_summed:
            product = product + product.sum(0)
        out, wanted = np.full((_M, _N), 7, np.float32), np.full((_M, _N), 7, np.float32)
        if kernel in (rows_stored, one_row_more_stored):
            more = _M if kernel is rows_stored else min(_M, rows + 1)
            wanted[:more, :columns] = 0
        wanted[:rows, :columns] = product
        made((1,), a, b, out, rows, columns)
        np.testing.assert_array_equal(out, wanted, err_msg=f"{rows} rows, {columns} columns")


def test_zero_times_infinity_is_stored() -> None:
    made = Compiled(built_ir(rows_stored, _TYPES, M=_M, N=_N, K=_K))
    a, b = np.ones((_M, _K), np.float32), np.full((_K, _N), np.inf, np.float32)
    out = np.zeros((_M, _N), np.float32)
    made((1,), a, b, out, 33, _N)
    assert np.isinf(out[:33]).all()
    assert np.isnan(out[33:]).all()
