"""Addresses that follow from numbers of rows: one scalar for a run of elements, in whatever way it is written.

Each kernel copies rows of a table by number. Numbers behind the last one would reach memory that is not there, and what
is stored behind the last row is seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES, in_pairs
from tests.backends.cpu.harness import Compiled
from tilewright.base.dtypes import PointerType, dtype
from tilewright.base.options import Options
from tilewright.base.target import Target
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ops.values import constexpr

FAR = 1 << 50  # a row at which there is no memory


@tilewright.jit
def divided(table, ids, out, rows, C: tl.constexpr, B: tl.constexpr):
    e = tl.program_id(0) * B + tl.arange(0, B)
    inside = e < rows * C
    row = tl.load(ids + e // C, inside, 0)
    tl.store(out + e, tl.load(table + (row * C + e % C), inside), inside)


@tilewright.jit
def whole_blocks(table, ids, out, rows, C: tl.constexpr, B: tl.constexpr):
    e = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(ids + e // C)
    row = tl.where(row < 0, row + 7, row)
    tl.store(out + e, tl.load(table + (e % C + C * row)))


@tilewright.jit
def by_bits(table, ids, out, rows, C: tl.constexpr, B: tl.constexpr):
    SHIFT: tl.constexpr = 5 if C == 32 else 6
    e = tl.program_id(0) * B + tl.arange(0, B)
    inside = e < rows * C
    row = tl.load(ids + (e >> SHIFT), inside, 0)
    tl.store(out + e, tl.load(table + (row << SHIFT) + (e & (C - 1)), inside), inside)


@tilewright.jit
def by_unsigned(table, ids, out, rows, C: tl.constexpr, B: tl.constexpr):
    e = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.uint32)
    inside = e < rows * C
    row = tl.load(ids + e // C, inside, 0)
    tl.store(out + e, tl.load(table + (row * C + e % C), inside), inside)


@tilewright.jit
def by_remainder(table, ids, out, rows, C: tl.constexpr, B: tl.constexpr):
    e = tl.program_id(0) * B + tl.arange(0, B)
    j = e % C
    inside = e < rows * C
    row = tl.load(ids + (e - j) // C, inside, 0)
    tl.store(out + e, tl.load(table + row * C + j, inside), inside)


@tilewright.jit
def of_a_tile(table, ids, out, rows, C: tl.constexpr, B: tl.constexpr):
    i, j = tl.program_id(0) * (B // C) + tl.arange(0, B // C), tl.arange(0, C)
    row = tl.load(ids + i, i < rows, 0)
    at = row[:, None] * C + j[None, :]
    tl.store(out + i[:, None] * C + j[None, :], tl.load(table + at, (i < rows)[:, None]), (i < rows)[:, None])


@tilewright.jit
def of_a_flat_tile(table, ids, out, rows, C: tl.constexpr, B: tl.constexpr):
    e = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    inside = e < rows * C
    row = tl.load(ids + e // C, inside, 0)
    tl.store(out + e, tl.load(table + (row * C + e % C), inside), inside)


KERNELS = [divided, whole_blocks, by_bits, by_unsigned, by_remainder, of_a_tile, of_a_flat_tile]


def compiled(kernel: Any, family: str, element: str, columns: int, block: int) -> Compiled:
    kinds = {"table": element, "ids": "int64", "out": element}
    specs = [ParamSpec(name, PointerType(dtype(kind))) for name, kind in kinds.items()]
    specs += [ParamSpec("rows", dtype("int32"))]
    specs += [ParamSpec(name, constexpr(value)) for name, value in (("C", columns), ("B", block))]
    module = build_module(kernel, specs, Options(), Target("cpu", "generic")).module
    return Compiled(module, isa=FAMILIES[family].isa)


@pytest.mark.parametrize(
    ("family", "kernel", "sizes"), in_pairs(FAMILIES, KERNELS, [(32, 128), (64, 32), (48, 256), (5, 64), (256, 1024)])
)
def test_rows_by_number(family: str, kernel: Any, sizes: tuple[int, int]) -> None:
    columns, block = sizes
    possible = {by_bits: columns in (32, 64), of_a_tile: block % columns == 0}
    if not possible.get(kernel, True):
        pytest.skip("the spelling is for other sizes")
    rng = np.random.default_rng(columns)
    rows = block if kernel is whole_blocks else 11
    table = rng.integers(-100, 100, (7, columns)).astype(np.float32)
    ids = np.full(rows + block, FAR)
    ids[:rows] = rng.integers(-7 if kernel is whole_blocks else 0, 7, rows)
    out = np.full(rows * columns + 2 * block, 77, np.float32)
    programs = -(-rows * columns // block)
    compiled(kernel, family, "fp32", columns, block)((programs,), table, ids, out, rows)
    assert np.array_equal(out[: rows * columns], table[ids[:rows]].ravel())
    assert (out[rows * columns :] == 77).all()


def gathers(made: Compiled) -> bool:
    """Whether elements are gathered; a last chunk that is masked element by element may do that too."""
    return "@llvm.masked.gather" in made.program.llvm


@pytest.mark.parametrize(
    "kernel", [divided, whole_blocks, by_bits, by_unsigned, by_remainder, of_a_tile, of_a_flat_tile]
)
def test_runs_are_loaded_as_vectors(kernel: Any) -> None:
    assert not gathers(compiled(kernel, "avx512", "fp32", 64, 512))


def test_runs_of_rows_that_no_power_of_two_divides_far_are_vectors() -> None:
    assert not gathers(compiled(whole_blocks, "avx512", "fp32", 48, 256))
    assert gathers(compiled(whole_blocks, "avx512", "fp32", 5, 64))


@pytest.mark.parametrize(("kernel", "columns", "loads"), [(whole_blocks, 256, 8), (whole_blocks, 64, 2)])
def test_chunks_of_a_row_are_written_out(kernel: Any, columns: int, loads: int) -> None:
    """All that lie in one; what asks memory ahead follows an instruction, which would go on behind the row."""
    text = compiled(kernel, "avx512", "fp32", columns, 1024).program.llvm
    assert max(block.count("load <32 x float>") for block in text.split("br label")) == loads
