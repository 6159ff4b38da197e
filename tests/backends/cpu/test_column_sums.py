"""Sums that loops carry in tiles lie in scratch as what is added lies in memory, whichever way a kernel is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tests.decisions.others import COLUMN_SUMS

_TYPES = {"x": "*fp32", "out": "*fp32", "rows": "i32", "columns": "i32"}


@tilewright.jit
def in_two_loops(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[:, None], tl.arange(0, 8)[None, :]
    total = tl.zeros((COLUMNS, 8), tl.float32)
    for start in range(0, rows, 16):
        for part in range(2):
            inside = (start + part * 8 + i < rows) & (j < columns)
            total += tl.load(x + j + columns * (start + part * 8 + i), inside, 0.0)
    tl.store(out + j, tl.sum(total, 1)[:, None], j < columns)


@tilewright.jit
def turned_and_reshaped(x, out, rows, columns, COLUMNS: tl.constexpr):
    j, i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[:, None], tl.arange(0, 8)[None, :]
    total = tl.zeros((COLUMNS, 8), tl.float32)
    for start in range(0, rows, 8):
        total += tl.load(x + j + columns * (start + i), (start + i < rows) & (j < columns), 0.0)
    halves = tl.reshape(tl.trans(total), (2, 4, COLUMNS))
    tl.store(out + tl.ravel(j), tl.sum(tl.sum(halves, 1), 0), tl.ravel(j) < columns)


KERNELS = [*(spelling.fn for spelling in COLUMN_SUMS), in_two_loops, turned_and_reshaped]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
def test_sums_of_columns(family: str, kernel: Any) -> None:
    rows, columns, block = 37, 45, 32
    rng = np.random.default_rng(0)
    area = np.full(rows * columns + 4096, np.nan, np.float32)
    x, out = area[64:], np.full(128, np.nan, np.float32)
    x[: rows * columns] = rng.integers(-8, 8, rows * columns)
    made = Compiled(built_ir(kernel, _TYPES, COLUMNS=block), isa=FAMILIES[family].isa)
    made((-(-columns // block),), x, out, rows, columns)
    assert np.array_equal(out[:columns], x[: rows * columns].reshape(rows, columns).sum(0))
    assert np.isnan(out[columns:]).all()


@pytest.mark.parametrize("kernel", KERNELS[:-1], ids=lambda kernel: kernel.fn.__name__)
def test_columns_are_loaded_and_kept_as_vectors(kernel: Any) -> None:
    made = Compiled(built_ir(kernel, _TYPES, COLUMNS=32), isa=FAMILIES["avx512"].isa)
    assert "@llvm.masked.gather" not in made.program.llvm and "@llvm.masked.scatter" not in made.program.llvm
