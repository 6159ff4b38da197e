"""A row times a matrix that is computed for it is a sum, and gives what the product gives; other products stay."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

N, K = 48, 80


@tilewright.jit
def of_bytes(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((1, BN), tl.float32) + 1
    for start in range(0, k, BK):
        y = tl.load(w + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0)
        acc = tl.dot(tl.load(x + start + p, start + p < k, 0.0)[None, :], y.to(x.dtype.element_ty), acc)
    tl.store(out + j[None, :], acc, (j < n)[None, :])


@tilewright.jit
def of_bytes_across(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    """A product of its own in each iteration, of a matrix that lies across."""
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((1, BN), tl.float32) + 1
    for start in range(0, k, BK):
        inside = (start + p < k)[None, :] & (j < n)[:, None]
        y = tl.load(w + (start + p)[None, :] * n + j[:, None], inside, 0)
        acc += tl.dot(tl.load(x + start + p, start + p < k, 0.0)[None, :], y.to(x.dtype.element_ty).T)
    tl.store(out + j[None, :], acc, (j < n)[None, :])


@tilewright.jit
def used_twice(x, w, out, n, k, BN: tl.constexpr, BK: tl.constexpr):
    j, p = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((1, BN), tl.float32) + 1
    for start in range(0, k, BK):
        y = tl.load(w + (start + p)[:, None] * n + j[None, :], (start + p < k)[:, None] & (j < n)[None, :], 0)
        y = y.to(x.dtype.element_ty)
        row = tl.load(x + start + p, start + p < k, 0.0)[None, :]
        acc = tl.dot(row, y, acc) + tl.dot(row, -y)
        acc = tl.dot(row, y, acc)
    tl.store(out + j[None, :], acc, (j < n)[None, :])


@pytest.mark.parametrize(
    ("kernel", "taken"),
    [(of_bytes, [True]), (of_bytes_across, [True]), (used_twice, [False, True, False])],
    ids=lambda value: str(getattr(getattr(value, "fn", None), "__name__", "")),
)
@pytest.mark.parametrize("weights", ["i8", "u8", "i16"])
@pytest.mark.parametrize("element", ["fp16", "bf16", "fp32"])
def test_of_a_loop(kernel: Any, taken: list[bool], weights: str, element: str) -> None:
    rng = np.random.default_rng(3)
    kind = {"i8": np.int8, "u8": np.uint8, "i16": np.int16}[weights]
    w, x = rng.integers(-100 if kind is not np.uint8 else 0, 120, (K, N)).astype(kind), rng.integers(-4, 5, K)
    given = x.astype(np.float16 if element == "fp16" else np.float32)
    if element == "bf16":
        given = (given.view(np.uint32) >> 16).astype(np.uint16)
    out = np.zeros(N, np.float32)
    types = {"x": f"*{element}", "w": f"*{weights}", "out": "*fp32", "n": "i32", "k": "i32"}
    compiled = Compiled(built_ir(kernel, types, BN=32, BK=32))
    compiled((2,), given, w, out, N, K)
    np.testing.assert_array_equal(out, 1 + x @ w.astype(np.int64))
    answers = [d["taken"] for d in compiled.program.decisions if d["subject"] == "dot as a sum"]
    if weights != "i16":
        assert answers == taken
