"""Sums over a row times a matrix, which a loop adds up, are products of one row; others stay sums."""

from __future__ import annotations

import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of

torch = pytest.importorskip("torch")


@tilewright.jit
def along(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    """A row of weights for each column of the result; the sum begins with what is there."""
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.load(out + j, j < n, 0.0)
    for start in range(0, k, BK):
        row = tl.load(x + start + p, start + p < k, 0.0).to(tl.float32)
        inside = (j < n)[:, None] & (start + p < k)[None, :]
        acc += tl.sum(tl.load(w + j[:, None] * k + (start + p)[None, :], inside, 0.0).to(tl.float32) * row[None, :], 1)
    tl.store(out + j, acc, j < n)


@tilewright.jit
def across(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.load(out + j, j < n, 0.0)
    for start in range(0, k, BK):
        row = tl.load(x + start + p, start + p < k, 0.0).to(tl.float32)
        inside = (j < n)[None, :] & (start + p < k)[:, None]
        acc += tl.sum(row[:, None] * tl.load(w + j[None, :] + (start + p)[:, None] * n, inside, 0.0).to(tl.float32), 0)
    tl.store(out + j, acc, j < n)


@tilewright.jit
def at_the_end(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN, BK), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p, start + p < k, 0.0).to(tl.float32)
        inside = (j < n)[:, None] & (start + p < k)[None, :]
        acc += row[None, :] * tl.load(w + j[:, None] * k + (start + p)[None, :], inside, 0.0).to(tl.float32)
    tl.store(out + j, tl.load(out + j, j < n, 0.0) + tl.sum(acc, 1), j < n)


@tilewright.jit
def stored(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    for start in range(0, k, BK):
        row, inside = tl.load(x + start + p), (j < n)[:, None] & (p < BK)[None, :]
        tl.store(
            out + j, tl.sum(tl.load(w + j[:, None] * k + (start + p)[None, :], inside, 0.0) * row[None, :], 1), j < n
        )


def test_a_sum_that_a_loop_stores():
    x, w, out = torch.randn(128), torch.randn(40, 128), torch.zeros(40)
    stored[(2,)](x, w, out, 40, 128, 32, 64)
    torch.testing.assert_close(out, w[:, 64:] @ x[64:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [along, across, at_the_end], ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("n", "k"), [(50, 1100), (33, 7)])
def test_sums_are_those_of_the_product(kernel, dtype, n, k):
    torch.manual_seed(0)
    x, w, first = torch.randn(k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n)
    want = first.double() + w.double() @ x.double()
    memory, given = torch.full((n + 64,), torch.nan), w.t().contiguous() if kernel is across else w
    memory[:n] = first
    kernel[(-(-n // 32),)](x, given, memory, n, k, 32, 64)
    torch.testing.assert_close(memory[:n].double(), want, rtol=1e-4, atol=1e-3)
    assert memory[n:].isnan().all()


@tilewright.jit
def running(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    """Every iteration's sum is stored."""
    j, p = tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(0, k, BK):
        acc += tl.sum(tl.load(x + start + p)[None, :] * tl.load(w + j[:, None] * k + (start + p)[None, :]), 1)
        tl.store(out + start // BK * BN + j, acc)


@tilewright.jit
def of_squares(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    """The row is computed."""
    j, p = tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p)
        acc += tl.sum((row * row)[None, :] * tl.load(w + j[:, None] * k + (start + p)[None, :]), 1)
    tl.store(out + j, acc)


def decided(kernel: tilewright.JITFunction, element: str = "fp32") -> set[bool]:
    signature = f"*{element}:16, *{element}:16, *fp32:16, i32:16, i32:16, 32, 64"
    found = decisions_of(Spelling(kernel, signature, {}), "avx512")
    return {d.taken for d in found if d.subject == "dot"}


@pytest.mark.parametrize("element", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kernel", [along, across, at_the_end], ids=lambda kernel: kernel.fn.__name__)
def test_they_are_products(kernel, element):
    assert decided(kernel, element) == {True}


def test_sums_that_are_read_and_computed_rows_are_none():
    assert True not in decided(running) | decided(of_squares)
    x, w = torch.randn(128), torch.randn(32, 128)
    parts, squares = torch.zeros(2, 32), torch.zeros(32)
    running[(1,)](x, w, parts, 32, 128, 32, 64)
    of_squares[(1,)](x, w, squares, 32, 128, 32, 64)
    torch.testing.assert_close(parts, torch.stack([w[:, :64] @ x[:64], w @ x]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(squares, w @ (x * x), rtol=1e-4, atol=1e-4)


# --- loads an iteration ahead, which stay there as the loop stores --------------------------------------------------


@tilewright.jit
def row_ahead(w, x, out, done, cols, B: tl.constexpr):
    i, c, acc = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B), tl.zeros((B,), tl.float32)
    row = tl.load(x + c)
    for k in range(0, cols, B):
        acc += tl.sum(row[None, :] * tl.load(w + i[:, None] * cols + (k + c)[None, :]), 1)
        tl.store(done + k, 1.0)
        row = tl.load(x + k + B + c)
    tl.store(out + i, acc)


@tilewright.jit
def matrix_ahead(w, x, out, done, cols, B: tl.constexpr):
    """The second loop takes what the first one has loaded last."""
    i, c, acc = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, B), tl.zeros((B,), tl.float32)
    matrix = tl.load(w + i[:, None] * cols + c[None, :])
    for k in range(0, cols - B, B):
        acc += tl.sum(matrix * tl.load(x + k + c)[None, :], 1)
        tl.store(done + k, 1.0)
        matrix = tl.load(w + i[:, None] * cols + (k + B + c)[None, :])
    for k in range(0, B, B):
        acc += tl.sum(matrix * tl.load(x + cols - B + k + c)[None, :], 1)
    tl.store(out + i, acc)


@pytest.mark.parametrize("kernel", [row_ahead, matrix_ahead], ids=lambda kernel: kernel.fn.__name__)
def test_of_loads_an_iteration_ahead(kernel) -> None:
    w, x, out = torch.randn(64, 96), torch.randn(128), torch.zeros(64)
    kernel[(2,)](w, x, out, torch.zeros(96), 96, 32)
    torch.testing.assert_close(out, w @ x[:96], rtol=1e-4, atol=1e-4)


# --- what one factor alone is masked by -------------------------------------------------------------------------------


@tilewright.jit
def masked_row(x, w, out, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN,), tl.float32)
    for start in range(0, k, BK):
        row = tl.load(x + start + p, start + p < k, 0.0)
        acc += tl.sum(tl.load(w + j[:, None] * 256 + (start + p)[None, :]) * row[None, :], 1)
    tl.store(out + j, acc)


@tilewright.jit
def masked_rows(x, w, out, k, BN: tl.constexpr, BK: tl.constexpr):
    """Two loops of dots, which are one."""
    j, p = tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN, BN), tl.float32)
    for start in range(0, k, 2 * BK):
        for half in range(0, 2):
            q = start + half * BK + p
            rows = tl.load(x + j[:, None] * 0 + q[None, :], (q < k)[None, :], 0.0)
            acc = tl.dot(rows, tl.trans(tl.load(w + j[:, None] * 256 + q[None, :])), acc)
    tl.store(out + j[:, None] * BN + j[None, :], acc)


@pytest.mark.parametrize("kernel", [masked_row, masked_rows], ids=lambda kernel: kernel.fn.__name__)
def test_zero_times_an_infinity_of_the_other_factor_is_no_zero(kernel) -> None:
    x, w, out = torch.randn(256), torch.randn(32, 256), torch.zeros(32, 32)
    w[::2, 215] = torch.inf
    kernel[(1,)](x, w, out, 200, 32, 32)
    assert out[0].isnan().tolist() == [True, False] * 16
