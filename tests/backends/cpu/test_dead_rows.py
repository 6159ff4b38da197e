"""Rows and columns of a product that no store looks at are left out; all others stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tilewright.backends.cpu.plan.subjects import DEAD_ROWS

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
def iteration_by_iteration(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
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
def bound_of_an_iteration(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    acc = tl.zeros((M, N), tl.float32)
    for most in range(1, 3):
        i, j, x, y = operands(a, b, rows // most, columns, tl.arange(0, K), M, N)
        acc = tl.dot(x, y)
        tl.store(out + i[:, None] * N + j[None, :], acc, (i[:, None] < rows // most) & (j[None, :] < columns))


@tilewright.jit
def stored_by_a_later_iteration(a, b, out, rows, columns, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Half of the rows are multiplied, and then all of them are stored."""
    i, j, acc = tl.arange(0, M), tl.arange(0, N), tl.zeros((M, N), tl.float32)
    for number in range(1, 3):
        most = rows * number // 2
        tl.store(out + i[:, None] * N + j[None, :], acc, (i[:, None] < most) & (j[None, :] < columns))
        i, j, x, y = operands(a, b, most, columns, tl.arange(0, K), M, N)
        acc = tl.dot(x, y)


_LEFT_OUT = [at_once, iteration_by_iteration, bound_of_an_iteration]
_KEPT = [rows_stored, one_row_more_stored, rows_summed, stored_by_a_later_iteration]
_CASES = [*((name, kernel) for name in FAMILIES for kernel in _LEFT_OUT), *(("avx512", kernel) for kernel in _KEPT)]


@pytest.mark.parametrize(("family", "kernel"), _CASES, ids=lambda case: getattr(case, "__name__", case))
def test_what_is_stored_is_right(family: str, kernel: tilewright.JITFunction) -> None:
    made = Compiled(built_ir(kernel, _TYPES, M=_M, N=_N, K=_K), isa=FAMILIES[family].isa)
    found = made.program.decisions
    taken = [d["taken"] for d in found if d["subject"] == DEAD_ROWS.name and "columns" not in d["text"]]
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
        if kernel is stored_by_a_later_iteration:
            wanted[rows // 2 : rows, :columns] = 0
        made((1,), a, b, out, rows, columns)
        np.testing.assert_array_equal(out, wanted, err_msg=f"{rows} rows, {columns} columns")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [16, 48])
def test_any_number_of_rows_may_be_left_of_a_block(family: str, n: int) -> None:
    """Whole blocks, then few rows at a time, or one block more of which not all rows are wanted."""
    made = Compiled(built_ir(at_once, _TYPES, M=_M, N=n, K=_K), isa=FAMILIES[family].isa)
    rng = np.random.default_rng(0)
    b = rng.integers(-4, 5, _K * 13).astype(np.float32)
    for rows in range(_M + 1):
        a = np.full((rows + 4, _K), np.nan, np.float32)
        a[:rows] = rng.integers(-4, 5, (rows, _K))
        out, wanted = np.full((_M, n), 7, np.float32), np.full((_M, n), 7, np.float32)
        wanted[:rows, :13] = a[:rows] @ b.reshape(_K, 13)
        made((1,), a, b, out, rows, 13)
        np.testing.assert_array_equal(out, wanted, err_msg=f"{rows} rows")


def test_few_rows_that_are_left_have_a_kernel() -> None:
    """Seventeen rows are not multiplied as two blocks of sixteen."""
    text = Compiled(built_ir(at_once, _TYPES, M=32, N=16, K=_K), isa=FAMILIES["avx512"].isa).program.llvm
    assert "dot.micro.fma.f32.f32.16x1x16" in text
    assert "dot.micro.fma.f32.f32.4x1x16" in text


def test_zero_times_infinity_is_stored() -> None:
    made = Compiled(built_ir(rows_stored, _TYPES, M=_M, N=_N, K=_K))
    a, b = np.ones((_M, _K), np.float32), np.full((_K, _N), np.inf, np.float32)
    out = np.zeros((_M, _N), np.float32)
    made((1,), a, b, out, 33, _N)
    assert np.isinf(out[:33]).all()
    assert np.isnan(out[33:]).all()


@tilewright.jit
def last_rows_first(a, b, out, m, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Programs of one column one after the other; the first has the rows that are left."""
    rows = (tl.num_programs(0) - 1 - tl.program_id(0)) * M + tl.arange(0, M)
    columns, acc = tl.program_id(1) * N + tl.arange(0, N), tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        p = start + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * k + p[None, :], (rows < m)[:, None] & (p < k)[None, :], 0.0)
        y = tl.load(b + p[:, None] * 64 + columns[None, :], (p < k)[:, None], 0.0)
        acc = tl.dot(x, y, acc)
    tl.store(out + rows[:, None] * 64 + columns[None, :], acc, (rows < m)[:, None])


@pytest.mark.parametrize("family", ["amx", "avx512", "avx2"])
@pytest.mark.parametrize("element", ["fp16", "fp32"])
def test_one_row_that_is_left(family: str, element: str) -> None:
    """Where it is multiplied alone, nothing is packed for the programs that follow but what the last iteration needs."""
    types = {"a": f"*{element}", "b": f"*{element}", "out": "*fp32", "m": "i32", "k": "i32"}
    made = Compiled(built_ir(last_rows_first, types, M=16, N=32, K=64), isa=FAMILIES[family].isa)
    rng, dtype = np.random.default_rng(0), np.float16 if element == "fp16" else np.float32
    for m, k in ((33, 1100), (33, 1024), (1, 64), (1, 70), (17, 1), (18, 600)):
        a, b = rng.integers(-4, 5, (m, k)).astype(dtype), rng.integers(-4, 5, (k, 64)).astype(dtype)
        out = np.full((m + 16, 64), 7, np.float32)
        made((-(-m // 16), 2), np.concatenate([a, np.full_like(a, np.nan)]), b, out, m, k)
        np.testing.assert_array_equal(out[:m], a.astype(np.float32) @ b.astype(np.float32), err_msg=f"{m} rows, K {k}")
        assert (out[m:] == 7).all()


@tilewright.jit
def packed_weights(a, b, out, m, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Two numbers in a byte of B, which is computed in each iteration."""
    rows, columns, acc = tl.arange(0, M), tl.arange(0, N), tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        p = start + tl.arange(0, K)
        x = tl.load(a + rows[:, None] * k + p[None, :], rows[:, None] < m, 0.0)
        y = tl.load(b + (p // 2)[:, None] * N + columns[None, :])
        acc = tl.dot(x, ((y >> ((p % 2) * 4)[:, None]) & 15).to(x.dtype), acc)
    tl.store(out + rows[:, None] * N + columns[None, :], acc, rows[:, None] < m)


@pytest.mark.parametrize("family", ["amx", "avx512", "avx2"])
@pytest.mark.parametrize("element", ["fp16", "fp32"])
def test_one_row_times_what_is_computed_in_each_iteration(family: str, element: str) -> None:
    types = {"a": f"*{element}", "b": "*u8", "out": "*fp32", "m": "i32", "k": "i32"}
    made = Compiled(built_ir(packed_weights, types, M=16, N=32, K=32), isa=FAMILIES[family].isa)
    rng, dtype = np.random.default_rng(0), np.float16 if element == "fp16" else np.float32
    for m, k in ((1, 32), (1, 96), (1, 640), (2, 96), (16, 96)):
        a, bits = rng.integers(-4, 5, (m, k)).astype(dtype), rng.integers(0, 16, (k, 32))
        b = (bits[::2] | bits[1::2] << 4).astype(np.uint8)
        out = np.full((16, 32), 7, np.float32)
        made((1,), np.concatenate([a, np.full((16, k), np.nan, dtype)]), b, out, m, k)
        np.testing.assert_array_equal(out[:m], a.astype(np.float32) @ bits, err_msg=f"{m} rows, K {k}")
        assert (out[m:] == 7).all()
