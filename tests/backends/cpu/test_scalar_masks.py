"""Masks that are one condition of all elements: tested once, and the chunks where they hold have no masks."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES, in_pairs
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir


@tilewright.jit
def rows(x, out, sums, runs, count, wide, N: tl.constexpr, COLUMNS: tl.constexpr):
    """A program computes a row, if there is one; `wide` columns of it, where columns are masked, too."""
    row, j = tl.program_id(0), tl.arange(0, N)
    inside = row < count
    mask = inside & (j < wide) if COLUMNS else inside
    value = tl.load(x + row * N + j, mask, other=2.0)
    tl.store(out + row * N + j, value + 1.0, mask)
    tl.store(sums + row, tl.sum(value, 0))
    tl.store(runs + row * N + j, tl.cumsum(value, 0), mask)


def _compiled(family: str, columns: bool, width: int) -> Compiled:
    types = {**dict.fromkeys(("x", "out", "sums", "runs"), "*fp32"), "count": "i32", "wide": "i32"}
    built = built_ir(rows, types, N=width, COLUMNS=columns)
    return Compiled(built, isa=FAMILIES[family].isa)


@pytest.mark.parametrize(("family", "columns", "width"), in_pairs(FAMILIES, [False, True], [16, 96, 512]))
def test_where_it_does_not_hold_nothing_is_touched(family: str, columns: bool, width: int) -> None:
    kernel, count, wide = _compiled(family, columns, width), 3, width - 5 if columns else width
    x = np.random.default_rng(0).integers(-4, 5, (5, width)).astype(np.float32)
    out, runs, sums = np.full_like(x, 7), np.full_like(x, 7), np.zeros(5, np.float32)
    kernel((5,), x, out, sums, runs, count, wide)
    inside = (np.arange(5)[:, None] < count) & (np.arange(width) < wide)
    read = np.where(inside, x, 2)
    np.testing.assert_array_equal(out, np.where(inside, x + 1, 7))
    np.testing.assert_array_equal(sums, read.sum(1))
    np.testing.assert_array_equal(runs, np.where(inside, read.cumsum(1), 7))


@pytest.mark.parametrize("columns", [False, True])
def test_chunks_where_it_holds_are_plain(columns: bool) -> None:
    """Loads and stores of whole vectors, as without the condition."""
    text = _compiled("avx512", columns, 512).program.llvm
    assert " = load <64 x float>" in text
    assert "store <64 x float>" in text
