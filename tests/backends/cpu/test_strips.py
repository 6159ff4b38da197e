"""Tiles that a loop carries in registers, strip by strip, and rows at places that are loaded, for all families."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES, in_pairs
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tilewright.backends.cpu.plan.subjects import STRIPS
from tilewright.loops.subjects import REDUCTION_LOOPS


@tilewright.jit
def one_by_one(table, ids, weights, offsets, out, seen, D, BD: tl.constexpr, BL: tl.constexpr):
    """A weighted sum, and a maximum without what no place has; a number goes on, too."""
    bag, cols = tl.program_id(0), tl.arange(0, BD)
    total, most, count = tl.zeros([BD], tl.float32), tl.full([BD], -9.0, tl.float32), 0
    for j in range(tl.load(offsets + bag), tl.load(offsets + bag + 1)):
        i = tl.load(ids + j)
        row = tl.load(table + i * D + cols, mask=(cols < D) & (i >= 0), other=-9.0)
        total += row * tl.load(weights + j)
        most = tl.maximum(most, row)
        count += 1
    tl.store(out + bag * D + cols, total + most, mask=cols < D)
    tl.store(seen + bag, count)


@tilewright.jit
def in_tiles(table, ids, weights, offsets, out, seen, D, BD: tl.constexpr, BL: tl.constexpr):
    bag, cols = tl.program_id(0), tl.arange(0, BD)
    total, start, end = tl.zeros([BD], tl.float32), tl.load(offsets + bag), tl.load(offsets + bag + 1)
    for base in range(start, end, BL):
        k = base + tl.arange(0, BL)
        i = tl.load(ids + k, mask=k < end, other=0)
        mask = (k < end)[:, None] & (i >= 0)[:, None] & (cols < D)[None, :]
        rows = tl.load(table + i[:, None] * D + cols[None, :], mask=mask, other=0.0)
        total += tl.sum(rows * tl.load(weights + k, mask=k < end, other=0.0)[:, None], 0)
    tl.store(out + bag * D + cols, total, mask=cols < D)
    tl.store(seen + bag, end - start)


@tilewright.jit
def several_bags(table, ids, weights, offsets, out, seen, D, BD: tl.constexpr, BL: tl.constexpr):
    """Two bags a program, in one tile."""
    bag, cols = tl.program_id(0) * 2 + tl.arange(0, 2), tl.arange(0, BD)
    start, count = tl.load(offsets + bag), tl.load(offsets + bag + 1) - tl.load(offsets + bag)
    total = tl.zeros([2, BD], tl.float32)
    for j in range(tl.max(count, 0)):
        i = tl.load(ids + start + j, mask=j < count, other=-1)
        g = tl.load(weights + start + j, mask=j < count, other=0.0)
        mask = (i >= 0)[:, None] & (cols < D)[None, :]
        total += tl.load(table + i[:, None] * D + cols[None, :], mask=mask, other=0.0) * g[:, None]
    tl.store(out + bag[:, None] * D + cols[None, :], total, mask=(cols < D)[None, :])
    tl.store(seen + bag, count)


_KERNELS = {kernel.fn.__name__: kernel for kernel in (one_by_one, in_tiles, several_bags)}
_TYPES = {
    **dict.fromkeys(("table", "weights", "out"), "*fp32"), "ids": "*i64", "offsets": "*i32", "seen": "*i32", "D": "i32"
}  # fmt: skip


def _compiled(kernel: str, family: str, width: int) -> Compiled:
    return Compiled(built_ir(_KERNELS[kernel], _TYPES, BD=width, BL=4), isa=FAMILIES[family].isa)


@pytest.mark.parametrize(
    ("family", "kernel", "width", "short"), in_pairs(FAMILIES, _KERNELS, [16, 64, 256, 1024], [0, 3, 9])
)
def test_rows_are_combined(family: str, kernel: str, width: int, short: int) -> None:
    numbers, columns = np.random.default_rng(0), width - short
    offsets = np.array([0, 3, 3, 12, 13], np.int32)  # one bag is empty
    ids = numbers.integers(-1, 7, 13)
    table = numbers.integers(-4, 5, (7, columns)).astype(np.float32)
    weights = numbers.integers(-2, 3, 13).astype(np.float32)
    out, seen = np.full((4, columns), 7, np.float32), np.zeros(4, np.int32)
    programs = 2 if kernel == "several_bags" else 4
    _compiled(kernel, family, width)((programs,), table, ids, weights, offsets, out, seen, columns)
    for bag in range(4):
        own = slice(offsets[bag], offsets[bag + 1])
        rows = np.where((ids[own] >= 0)[:, None], table[ids[own]], -9 if kernel == "one_by_one" else 0)
        expected = weights[own] @ rows + (rows.max(0, initial=-9) if kernel == "one_by_one" else 0)
        np.testing.assert_array_equal(out[bag], expected)
    np.testing.assert_array_equal(seen, np.diff(offsets))


def _taken(compiled: Compiled, subject: str) -> list[bool]:
    return [record["taken"] for record in compiled.program.decisions if record["subject"] == subject]


@pytest.mark.parametrize("kernel", _KERNELS)
def test_what_is_carried_stays_in_registers(kernel: str) -> None:
    compiled = _compiled(kernel, "avx512", 256)
    assert _taken(compiled, STRIPS.name) == [True]
    assert (kernel == "in_tiles") == any(_taken(compiled, REDUCTION_LOOPS.name))


def test_without_masks_iterations_test_their_own() -> None:
    assert _taken(_compiled("one_by_one", "avx2", 256), STRIPS.name) == [False]


@pytest.mark.parametrize("width", [1000, 208])
def test_strips_of_few_elements_are_none(width: int) -> None:
    assert _taken(_compiled("one_by_one", "avx512", width), STRIPS.name) == [False]


@tilewright.jit
def outer(x, y, out, n, BM: tl.constexpr, BN: tl.constexpr):
    """Rows of a tile share what is loaded for columns."""
    rows, cols = tl.arange(0, BM), tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(n):
        acc += tl.abs(tl.load(x + k * BM + rows)[:, None] - tl.load(y + k * BN + cols)[None, :])
    tl.store(out + rows[:, None] * BN + cols[None, :], acc)


@tilewright.jit
def stored(x, y, out, n, BM: tl.constexpr, BN: tl.constexpr):
    """Each iteration stores what the next ones may load."""
    cols = tl.arange(0, BN)
    acc = tl.zeros([BN], tl.float32)
    for k in range(n):
        acc = acc * 0.5 + tl.load(x + k * BN + cols)
        tl.store(x + (k + 1) * BN + cols, acc)
    tl.store(out + cols, acc)


@pytest.mark.parametrize("kernel", [outer, stored])
def test_other_loops_stay(kernel) -> None:
    types = {**dict.fromkeys(("x", "y", "out"), "*fp32"), "n": "i32"}
    compiled = Compiled(built_ir(kernel, types, BM=16, BN=128), isa=FAMILIES["avx512"].isa)
    assert _taken(compiled, STRIPS.name) == [False]
