"""Loops that are cut where a quotient changes: right elements wherever that is, below zero too, and vectors in between."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.flat_rows import cropped, flipped, padded, planes
from tests.backends.cpu.harness import Compiled
from tests.backends.cpu.test_wrapped_places import check_rows
from tests.backends.nvidia.laying import built_ir

_TYPES = {"x": "*fp32", "out": "*fp32", "w": "i32", "wide": "i32", "n": "i32"}
_WIDTHS = [(1, 1), (7, 9), (16, 64), (63, 64), (64, 64), (65, 70), (100, 101), (250, 250), (1000, 1001), (3000, 3000)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("w", "wide"), _WIDTHS)
@pytest.mark.parametrize("kernel", [cropped, flipped, padded, planes], ids=lambda kernel: kernel.fn.__name__)
def test_rows_of_any_width(kernel: Any, w: int, wide: int, dtype: type) -> None:
    check_rows(kernel, w, wide, dtype, 1024)


@tilewright.jit
def beside_edges(x, out, w, wide, n, BLOCK: tl.constexpr):
    """Neighbours in a row, by remainders in masks alone."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x + i - 1, (i % w != 0) & (i < n), 0.0)
    right = tl.load(x + i + 1, (i % w != w - 1) & (i < n), 0.0)
    tl.store(out + i, left + 2 * tl.load(x + i, i < n, 0.0) + right, i < n)


@tilewright.jit
def around(x, out, w, wide, n, BLOCK: tl.constexpr):
    """Neighbours in rows that are rings: three remainders, as far from one another everywhere."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    start = x + i // w * w
    total = tl.load(start + (i + w - 1) % w, i < n) + tl.load(start + (i + 1) % w, i < n)
    tl.store(out + i, total + 2 * tl.load(start + i % w, i < n), i < n)


def neighbours(rows: np.ndarray, mode: str) -> np.ndarray:
    padded_rows = np.pad(rows.astype(np.float64), ((0, 0), (1, 1)), mode=mode)  # type: ignore[call-overload]
    return padded_rows[:, :-2] + 2 * padded_rows[:, 1:-1] + padded_rows[:, 2:]  # type: ignore[no-any-return]


@pytest.mark.parametrize("w", [2, 3, 63, 64, 65, 128, 200, 999, 1000, 1024, 5000])
@pytest.mark.parametrize(("kernel", "mode"), [(beside_edges, "constant"), (around, "wrap")], ids=["edges", "around"])
def test_neighbours(kernel: Any, mode: str, w: int) -> None:
    rows = np.random.default_rng(0).standard_normal((7, w)).astype(np.float32)
    memory = np.full(rows.size + 2, np.nan, np.float32)
    x, out = memory[1:-1], np.full(rows.size + 1, np.nan, np.float32)
    x[:] = rows.ravel()
    kernel[(-(-x.size // 512),)](x, out, w, w, x.size, 512)
    np.testing.assert_allclose(out[:-1], neighbours(rows, mode).ravel(), rtol=1e-5, atol=1e-5)
    assert np.isnan(out[-1])


@tilewright.jit
def from_below_zero(x, out, w, wide, n, BLOCK: tl.constexpr):
    """Quotients and remainders go towards zero: places from -n on."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = i - n // 2
    tl.store(out + i, tl.load(x + n + place // w * wide + place % w, i < n), i < n)


@tilewright.jit
def downwards(x, out, w, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = n - 1 - i
    tl.store(out + i, tl.load(x + n + place // w * wide + place % w, i < n), i < n)


@pytest.mark.parametrize("w", [1, 5, 64, 100, 333, 2000])
@pytest.mark.parametrize("kernel", [from_below_zero, downwards], ids=lambda kernel: kernel.fn.__name__)
def test_below_zero(kernel: Any, w: int) -> None:
    n = 2100
    places = np.arange(n) - n // 2 if kernel is from_below_zero else n - 1 - np.arange(n)
    x, out = np.random.default_rng(0).standard_normal(3 * n).astype(np.float32), np.zeros(n, np.float32)
    wide = w if w == 1 else w - 1
    kernel[(-(-n // 512),)](x, out, w, wide, n, 512)
    quotients = np.trunc(places / w).astype(int)
    np.testing.assert_array_equal(out, x[n + quotients * wide + places - quotients * w])


@tilewright.jit
def sums_of_groups(x, out, w, wide, n, BLOCK: tl.constexpr):
    """A reduction of what is read by a quotient, in tiles of several rows."""
    row = tl.program_id(0) * 4 + tl.arange(0, 4)[:, None]
    i = row * wide + tl.arange(0, BLOCK)[None, :]
    value = tl.load(x + i // w, (tl.arange(0, BLOCK)[None, :] < wide) & (row < n), 0.0)
    tl.store(out + tl.program_id(0) * 4 + tl.arange(0, 4), tl.sum(value, 1), tl.program_id(0) * 4 + tl.arange(0, 4) < n)


@pytest.mark.parametrize("w", [1, 3, 50, 64, 700])
def test_a_reduction(w: int) -> None:
    rows, wide = 7, 900
    x, out = np.random.default_rng(0).standard_normal(rows * wide).astype(np.float32), np.zeros(rows, np.float32)
    sums_of_groups[(2,)](x, out, w, wide, rows, 1024)
    want = x[np.arange(rows * wide) // w].reshape(rows, wide).astype(np.float64).sum(1)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@tilewright.jit
def row_of_a_table(x, out, w, wide, n, BLOCK: tl.constexpr):
    """What is loaded at a quotient is a number of the run."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(x + i // w, i < n, 0.0).to(tl.int32)
    tl.store(out + i, tl.load(x + wide + row * w + i % w, i < n), i < n)


@pytest.mark.parametrize("w", [1, 40, 64, 130, 600])
def test_rows_of_a_table(w: int) -> None:
    rows = np.array([3, 0, 2, 2, 1], np.float32)
    x = np.concatenate([rows, np.random.default_rng(0).standard_normal(4 * w)]).astype(np.float32)
    out = np.zeros(5 * w, np.float32)
    row_of_a_table[(-(-out.size // 512),)](x, out, w, 5, out.size, 512)
    np.testing.assert_array_equal(out, x[5:].reshape(4, w)[rows.astype(int)].ravel())


@pytest.mark.parametrize("family", ["avx512", "avx2", "sse2", "neon", "sve"])
@pytest.mark.parametrize("kernel", [cropped, beside_edges], ids=lambda kernel: kernel.fn.__name__)
def test_on_other_processors(kernel: Any, family: str) -> None:
    made = Compiled(built_ir(kernel, _TYPES, BLOCK=512), isa=FAMILIES[family].isa)
    for w in (21, 64, 300):
        rows = np.arange(7 * w, dtype=np.float32).reshape(7, w)
        memory, out = np.full(rows.size + 2, np.nan, np.float32), np.zeros(rows.size, np.float32)
        memory[1:-1] = rows.ravel()
        made((-(-out.size // 512),), memory[1:-1], out, w, w, out.size)
        want = rows if kernel is cropped else neighbours(rows, "constant")
        np.testing.assert_array_equal(out, want.ravel())


@pytest.mark.parametrize("kernel", [cropped, beside_edges, around], ids=lambda kernel: kernel.fn.__name__)
def test_between_cuts_there_are_vectors_without_masks(kernel: Any) -> None:
    text = Compiled(built_ir(kernel, _TYPES, BLOCK=1024), isa=FAMILIES["avx512"].isa).program.llvm
    plain = [block for block in re.split(r"\n\S+:\n", text) if "store <" in block and "llvm.masked" not in block]
    assert any(re.search(r"= load <\d+ x float>", block) and "gather" not in block for block in plain)
