"""Loads across the lanes of what is stored: squares of vectors, turned in registers by the group that stores them."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES, in_pairs
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

_TYPES = {np.int8: "i8", np.int16: "i16", np.float32: "fp32", np.float64: "fp64"}


@tilewright.jit
def turned_and_added(x, y, out, rows, columns, M: tl.constexpr, N: tl.constexpr, HEAVY: tl.constexpr):
    """`out[i, j] = x[j, i] + y[i, j]`, where there is such an element."""
    i = (tl.program_id(0) * M + tl.arange(0, M))[:, None]
    j = (tl.program_id(1) * N + tl.arange(0, N))[None, :]
    inside = (i < rows) & (j < columns)
    across = tl.load(x + j * rows + i, inside, other=1)
    if HEAVY:
        across = tl.exp(tl.exp(across))
    tl.store(out + i * columns + j, across + tl.load(y + i * columns + j, inside), inside)


def _compiled(family: str, dtype: Any, tile: tuple[int, int], heavy: bool = False) -> Compiled:
    types = {**dict.fromkeys(("x", "y", "out"), f"*{_TYPES[dtype]}"), "rows": "i32", "columns": "i32"}
    built = built_ir(turned_and_added, types, M=tile[0], N=tile[1], HEAVY=heavy)
    return Compiled(built, isa=FAMILIES[family].isa)


@pytest.mark.parametrize(
    ("family", "dtype", "tile"), in_pairs(FAMILIES, list(_TYPES), [(16, 16), (32, 64), (8, 32), (64, 4), (16, 2)])
)
def test_any_type_and_shape(family: str, dtype: Any, tile: tuple[int, int]) -> None:
    kernel, rng = _compiled(family, dtype, tile), np.random.default_rng(0)
    for m, n in (tile, (2 * tile[0], tile[1]), (tile[0] + 3, 2 * tile[1] - 1), (1, 1)):
        x, y = rng.integers(-9, 9, (n, m)).astype(dtype), rng.integers(-9, 9, (m, n)).astype(dtype)
        out = np.zeros((m, n), dtype)
        kernel((-(-m // tile[0]), -(-n // tile[1])), x, y, out, m, n)
        np.testing.assert_array_equal(out, x.T + y)


@pytest.mark.parametrize(("family", "size"), [("avx512", 16), ("avx2", 8)])
def test_they_pass_through_registers_alone(family: str, size: int) -> None:
    program = _compiled(family, np.float32, (32, 32)).program
    assert not program.scratch_bytes
    assert f" = load <{size} x float>" in program.llvm


def test_what_costs_more_than_registers_hold_goes_through_scratch() -> None:
    assert _compiled("avx512", np.float32, (32, 32), heavy=True).program.scratch_bytes >= 32 * 32 * 4
