"""Operands of dots that are widened without loss: widened where they are packed, with the same result."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import described
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

M, N, K = 16, 32, 64


@tilewright.jit
def widened(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, DTYPE: tl.constexpr, ACROSS: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :]).to(DTYPE)
    if ACROSS:
        y = tl.trans(tl.load(b + k[None, :] * N + n[:, None]).to(DTYPE))
    else:
        y = tl.load(b + k[:, None] * N + n[None, :]).to(DTYPE)
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(x, y, input_precision="ieee"))


def _multiplied(a: Any, b: Any, types: tuple[str, str], wide: Any, cpu: str, *, across: bool = False) -> Any:
    """The product, and the answers of the planner, whether it narrowed a dot."""
    m = len(a)
    out = np.zeros((m, N), np.float64 if wide == tl.float64 else np.float32)
    signature = {"a": f"*{types[0]}", "b": f"*{types[1]}", "out": "*fp64" if wide == tl.float64 else "*fp32"}
    module = built_ir(widened, signature, M=m, N=N, K=K, DTYPE=wide, ACROSS=across)
    compiled = Compiled(module, isa=described(cpu))
    compiled((1,), a, b, out)
    return out, [d["taken"] for d in compiled.program.decisions if d["subject"] == "narrowed operands"]


def _bf16(x: Any) -> Any:
    """Bits of numbers that bf16 holds."""
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512", "sapphirerapids"])
def test_halves_are_widened_where_they_are_packed(cpu: str, across: bool) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-9, 9, (M, K)).astype(np.float16), rng.integers(-9, 9, (K, N)).astype(np.float16)
    a[2, 3] = np.float16(2) ** -24  # subnormal
    b[3, 1] = 1024
    out, told = _multiplied(a, b, ("fp16", "fp16"), tl.float32, cpu, across=across)
    assert told == [True]
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize(("cpu", "narrowed"), [("haswell", True), ("znver5", False), ("sapphirerapids", False)])
def test_subnormal_numbers_of_bf16_are_multiplied(cpu: str, narrowed: bool) -> None:
    """An instruction for bf16 would take them for zero."""
    a, b = np.zeros((M, K), np.float32), np.zeros((K, N), np.float32)
    a[0, 0], b[0, 0] = 2.0**-130, 2.0**100
    out, told = _multiplied(_bf16(a), _bf16(b), ("bf16", "bf16"), tl.float32, cpu)
    assert told == [narrowed]
    assert out[0, 0] == 2.0**-30


@pytest.mark.parametrize("types", [("fp16", "fp32"), ("fp32", "fp32")])
def test_sums_of_another_type_and_operands_of_two_stay(types: tuple[str, str]) -> None:
    """Products of f32 are rounded to f32, those of f64 are not; no dot has an operand of f16 and one of f32."""
    wide = tl.float64 if types[0] == "fp32" else tl.float32
    kinds = {"fp16": np.float16, "fp32": np.float32}
    rng = np.random.default_rng(4)
    a, b = rng.random((M, K)).astype(kinds[types[0]]), rng.random((K, N)).astype(kinds[types[1]])
    out, told = _multiplied(a, b, types, wide, "skylake-avx512")
    assert told == [False]
    tolerance = 1e-15 if wide == tl.float64 else 1e-6
    np.testing.assert_allclose(out, a.astype(out.dtype) @ b.astype(out.dtype), rtol=tolerance)


@pytest.mark.parametrize(
    ("cpu", "rows", "narrowed"), [("haswell", 1, True), ("haswell", 4, False), ("znver5", 4, True)]
)
def test_few_rows_read_what_lies_side_by_side_at_once(cpu: str, rows: int, narrowed: bool) -> None:
    """Less than two lines of a row of the other operand are read slower than a pass widens them."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-9, 9, (rows, K)).astype(np.float16), rng.integers(-9, 9, (K, N)).astype(np.float16)
    out, told = _multiplied(a, b, ("fp16", "fp16"), tl.float32, cpu)
    assert told == [narrowed]
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
