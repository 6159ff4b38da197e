"""Tiles whose width no power of two divides: chunks of several widths, each element once."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

_TYPES = {"x": "*fp32", "out": "*fp32", "rows": "i32", "columns": "i32"}


@tilewright.jit
def in_place(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (i < rows) & (j < columns)
    at = x + i * C + j
    value = tl.load(at, inside, 0.0)
    tl.store(at, value + 1.0, inside)
    tl.store(out + i * C + j, value * 2.0, inside)


@tilewright.jit
def turned(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    value = tl.load(x + i * C + j, (i < rows) & (j < columns), 0.0)
    tl.store(x + i * C + j, value + 1.0, (i < rows) & (j < columns))
    tl.store(out + tl.trans(i) * C + tl.trans(j), tl.trans(value) * 2.0, (tl.trans(i) < rows) & (tl.trans(j) < columns))


@tilewright.jit
def carried(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    i, j = tl.program_id(0) * R + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    inside = (i < rows) & (j < columns)
    total = tl.zeros((R, C), tl.float32)
    for _ in range(2):
        total += tl.load(x + i * C + j, inside, 0.0)
    tl.store(out + i * C + j, total, inside)
    tl.store(x + i * C + j, total * 0.5 + 1.0, inside)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", [in_place, turned, carried], ids=lambda kernel: kernel.fn.__name__)
def test_each_element_is_written_once(family: str, kernel: tilewright.JITFunction) -> None:
    for r, c in ((17, 13), (5, 31), (1, 203), (4, 28)):
        made = Compiled(built_ir(kernel, _TYPES, R=r, C=c), isa=FAMILIES[family].isa)
        for rows, columns in ((2 * r, c), (r + 1, c - 1), (1, 7), (r, 0)):
            rng = np.random.default_rng(r)
            x = rng.integers(-99, 99, (2 * r + 1, c)).astype(np.float32)
            out, want, more = np.full_like(x, 77), np.full_like(x, 77), x.copy()
            want[:rows, :columns] = 2 * x[:rows, :columns]
            more[:rows, :columns] += 1
            made((2,), x, out, rows, columns)
            assert np.array_equal(out, want) and np.array_equal(x, more)


def test_odd_rows_are_no_longer_scalar() -> None:
    """Thirteen elements of f32 are vectors of 8 and of 4, and one."""
    made = Compiled(built_ir(in_place, _TYPES, R=17, C=13), isa=FAMILIES["avx512"].isa)
    assert "<8 x float>" in made.program.llvm and "<4 x float>" in made.program.llvm
