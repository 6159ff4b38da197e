"""Products of few rows that end within a vector of K: what exists is multiplied where it lies, all else is poison."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

_WIDTH = 70  # elements from row to row, as the kernels have it


@tilewright.jit
def few_rows(a, b, out, ends, other, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DEEP: tl.constexpr):
    i, j, acc = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.zeros((M, N), tl.float32)
    for start in range(0, 64, K):
        p = start + tl.arange(0, K)
        x = tl.load(a + i * 70 + p[None, :], p[None, :] < ends, 0.0)
        places = p[:, None] + j * 70 if DEEP else p[:, None] * 70 + j
        acc = tl.dot(x, tl.load(b + places, p[:, None] < other, 0.0), acc)
    tl.store(out + i * N + j, acc)


def _compiled(order: str, rows: int, elem: str = "fp32", family: str = "") -> Compiled:
    """A product with 20 columns of B, along which ("mn") or across which ("k") it lies in memory."""
    types = {"a": f"*{elem}", "b": f"*{elem}", "out": "*fp32", "ends": "i32", "other": "i32"}
    module = built_ir(few_rows, types, M=rows, N=20, K=32, DEEP=order == "k")
    return Compiled(module, isa=FAMILIES[family].isa) if family else Compiled(module)


def _poisoned(whole: np.ndarray, live: int, axis: int) -> np.ndarray:
    """A tensor in which only what is live along an axis is a number."""
    room = np.full((_WIDTH, _WIDTH), np.nan, whole.dtype)
    kept = np.take(whole, range(live), axis)
    room[: kept.shape[0], : kept.shape[1]] = kept
    return room


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("elem", ["fp32", "fp16"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("order", ["k", "mn"])
def test_only_what_exists_is_multiplied(family: str, elem: str, rows: int, order: str) -> None:
    made = _compiled(order, rows, elem, family)
    rng, dtype = np.random.default_rng(0), {"fp32": np.float32, "fp16": np.float16}[elem]
    a, b = rng.integers(-4, 5, (rows, 64)).astype(dtype), rng.integers(-4, 5, (64, 20)).astype(dtype)
    for ends, other in ((64, 64), (50, 50), (33, 33), (7, 7), (0, 0), (41, 64), (64, 41), (9, 3)):
        y = _poisoned(b, other, 0)
        out, live = np.full((rows, 20), np.nan, np.float32), min(ends, other)
        made((1,), _poisoned(a, ends, 1), np.ascontiguousarray(y.T) if order == "k" else y, out, ends, other)
        np.testing.assert_array_equal(out, a[:, :live].astype(np.float32) @ b[:live], err_msg=f"{ends} and {other}")


@pytest.mark.parametrize("order", ["k", "mn"])
def test_an_infinity_of_one_operand_meets_zeros_of_the_other(order: str) -> None:
    made = _compiled(order, 1)
    a, b, out = np.ones((1, _WIDTH), np.float32), np.ones((_WIDTH, _WIDTH), np.float32), np.zeros((1, 20), np.float32)
    b[(3, 45) if order == "k" else (45, 3)] = np.inf
    made((1,), a, b, out, 40, 50)
    assert np.isnan(out[0, 3]) and (np.delete(out[0], 3) == 40).all()


@pytest.mark.parametrize("order", ["k", "mn"])
def test_what_ends_is_multiplied_where_it_lies(order: str) -> None:
    text = _compiled(order, 1).program.llvm
    assert f"@dot.thin.{order}." in text and ".cut(" in text
