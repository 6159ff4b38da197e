"""Operands that are loaded ahead, under a branch or in nested loops get rings, and products stay what is written."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu import test_sink_prefetched_loads as prefetched
from tests.backends.nvidia.laying import tile_ir
from tests.backends.nvidia.whole import whole
from tests.decisions import matmul
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.ir.decisions import Decisions

TYPES = {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
B = 16
SUBJECTS = ("if-conversion", "sunk prefetch", "loop of dots")


def _taken(kernel: Any) -> list[bool]:
    decisions = Decisions()
    module = tile_ir(kernel, TYPES, BM=B, BN=B, BK=B)
    lay_out_module(module, CudaOptions(num_warps=1), target_of(90), decisions)
    return [decision.taken for decision in decisions if decision.subject in SUBJECTS]


def _product(kernel: Any, k: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((2 * B, max(k, 1)), (k + B, 20)))
    c, first = np.zeros((20, 20), np.float32), a.copy()
    whole(kernel, TYPES, {"BM": B, "BN": B, "BK": B}, 90, num_warps=1).run((2, 2), a, b, c, 20, 20, k)
    return first, b, c


@tilewright.jit
def two_an_iteration_and_their_rows(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products one after the other in a loop that sums up something else have its rings."""
    m, n = matmul.rows_and_columns(BM, BN)
    acc, rows = tl.zeros((BM, BN), tl.float32), tl.zeros((BM,), tl.float32)
    for o in range(0, K, 4 * BK):
        for i in tl.static_range(4):
            k = o + i * BK + tl.arange(0, BK)
            x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
            acc = tl.dot(x, y, acc)
            rows += tl.sum(x, 1)
    matmul.write(c_ptr, acc + rows[:, None], m, n, M, N)


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (matmul.loaded_ahead, (40,)),
        (matmul.loaded_ahead_and_after, (48,)),
        (matmul.masked_in_the_last_iteration, (40,)),
        (matmul.multiplied_on_either_side, (40,)),
        (matmul.in_two_loops, (96,)),
        (matmul.in_blocks_of_k, (0, 80)),
        (prefetched.two_an_iteration, (96,)),
    ],
    ids=lambda value: str(getattr(getattr(value, "fn", None), "__name__", "")),
)
def test_of_a_product(kernel: Any, sizes: tuple[int, ...]) -> None:
    taken = _taken(kernel)
    assert taken and all(taken)
    for k in sizes:
        a, b, c = _product(kernel, k)
        np.testing.assert_array_equal(c, a[:20, :k] @ b[:k])


@pytest.mark.parametrize(
    "kernel", [prefetched.stored_between, prefetched.begun_elsewhere], ids=lambda kernel: str(kernel.fn.__name__)
)
def test_what_may_not_be_loaded_later(kernel: Any) -> None:
    assert _taken(kernel) == [False]


def test_products_of_an_iteration_stay() -> None:
    assert _taken(two_an_iteration_and_their_rows) == []
