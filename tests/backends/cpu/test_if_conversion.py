"""Branches whose sides load the same are left out, and others are not; both give what is written."""

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
from tests.decisions import matmul

B = 16
_TYPES = {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32", "M": "i32", "N": "i32", "K": "i32"}


@tilewright.jit
def cast_on_either_side(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """What is loaded is cast and transposed in the branch, by rows whose place it computes."""
    m, n = matmul.rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        if K - i >= BK:
            x = tl.trans(tl.load(a_ptr + (m * K)[None, :] + k[:, None])).to(tl.bfloat16)
        else:
            x = tl.trans(tl.load(a_ptr + (m * K)[None, :] + k[:, None], mask=k[:, None] < K, other=0.0)).to(tl.bfloat16)
        y = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x, y.to(tl.bfloat16), acc)
    matmul.write(c_ptr, acc, m, n, M, N)


@tilewright.jit
def fewer_in_the_first_iteration(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The condition does not imply the bound of the other side."""
    m, n = matmul.rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        if i >= 1:
            x = tl.load(a_ptr + m[:, None] * K + k[None, :])
        else:
            x = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=k[None, :] < 5, other=0.0)
        acc = tl.dot(x, tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    matmul.write(c_ptr, acc, m, n, M, N)


@tilewright.jit
def in_other_types(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The sides do other things to what they load."""
    m, n = matmul.rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        if i < 1:
            x = -tl.load(a_ptr + m[:, None] * K + k[None, :])
        else:
            x = tl.abs(tl.load(a_ptr + m[:, None] * K + k[None, :]))
        acc = tl.dot(x, tl.load(b_ptr + k[:, None] * N + n[None, :]), acc)
    matmul.write(c_ptr, acc, m, n, M, N)


def _compiled(kernel: Any, family: str) -> tuple[Compiled, list[bool]]:
    """A kernel, and what was decided about its branches."""
    made = Compiled(built_ir(kernel, _TYPES, BM=B, BN=B, BK=B), isa=FAMILIES[family].isa)
    return made, [d["taken"] for d in made.program.decisions if d["subject"] == "if-conversion"]


def _run(compiled: Compiled, k: int) -> tuple[Any, Any, Any]:
    """Both matrices, and the result for 20 rows and 37 columns."""
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((20 + B, max(k, 1)), (k + B, 37)))
    c = np.zeros((20, 37), np.float32)
    compiled((2, 3), a, b, c, 20, 37, k)
    return a[:20, :k], b[:k], c


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "kernel",
    [matmul.masked_in_the_last_iteration, matmul.multiplied_on_either_side, cast_on_either_side],
    ids=lambda kernel: str(kernel.fn.__name__),
)
def test_of_products(kernel: Any, family: str) -> None:
    compiled, answers = _compiled(kernel, family)
    assert answers == [True]
    for k in (0, 1, 16, 41, 64):
        a, b, c = _run(compiled, k)
        np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize(
    "kernel",
    [fewer_in_the_first_iteration, in_other_types, matmul.of_other_rows],
    ids=lambda kernel: kernel.fn.__name__,
)
def test_of_branches_that_stay(kernel: Any) -> None:
    compiled, answers = _compiled(kernel, "avx512")
    a, b, c = _run(compiled, 32)
    if kernel is fewer_in_the_first_iteration:
        a[:, 5:16] = 0
    elif kernel is in_other_types:
        a[:, :16] *= -1
        a[:, 16:] = np.abs(a[:, 16:])
    np.testing.assert_array_equal(c, a @ b)
    assert answers == [False]
