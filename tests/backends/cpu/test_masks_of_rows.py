"""Masks with a number of each row, read from memory: lengths, places where rows begin, extents that places are held to.

Rows end anywhere in a chunk of lanes, are empty, begin before the tensor or behind it, as far as a number can.
"""

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

ROWS, WIDE, SIZE, GAP = 8, 192, 700, 300


@tilewright.jit
def parts(values, begins, ends, sums, tops, copies, runs, size, BACK: tl.constexpr, LENGTHS: tl.constexpr):
    """What is inside of a tensor, of rows that begin and end anywhere: sums, maxima, copies, running sums."""
    r, c = tl.arange(0, 8), tl.arange(0, 192)
    begin = tl.load(begins + r)[:, None]
    end = tl.load(ends + r)[:, None]
    if BACK:
        at = begin - c[None, :].to(begin.dtype)
    else:
        at = begin + c[None, :].to(begin.dtype)
    inside = (at >= 0) & (at < size)
    if LENGTHS:
        inside &= c[None, :] < end - begin
    x = tl.load(values + at, mask=inside, other=0.0)
    tl.store(sums + r, tl.sum(x, 1))
    tl.store(tops + r, tl.max(x, 1))
    tl.store(copies + r[:, None] * 192 + c[None, :], x, mask=c[None, :] < end)
    tl.store(runs + r[:, None] * 192 + c[None, :], tl.cumsum(x, 1))


def _numbers(kind: type[np.signedinteger[Any]], back: bool) -> tuple[Any, Any]:
    """Where rows begin and end: inside, across the ends of the tensor, behind them, and as far as numbers go."""
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    far = [(least, 100), (most, 5)] if kind is np.int64 else [(-(2**30), 100), (2**30, 5)]
    pairs = [(0, 192), (3, 70), (SIZE - 40, SIZE + 200), (-50, 100), (640, 640), (SIZE + 3, SIZE + 99), *far]
    begins, ends = (np.array(part, kind) for part in zip(*pairs, strict=True))
    return (begins[::-1].copy(), ends) if back else (begins, ends)


@pytest.mark.parametrize(
    ("family", "kind", "back", "lengths"),
    in_pairs(FAMILIES, [np.int64, np.int32], [False, True], [False, True]),
)
def test_rows_begin_and_end_anywhere(family: str, kind: Any, back: bool, lengths: bool) -> None:
    number = "*i64" if kind is np.int64 else "*i32"
    types = dict.fromkeys(("values", "sums", "tops", "copies", "runs"), "*fp32")
    types |= {"begins": number, "ends": number, "size": "i32"}
    compiled = Compiled(built_ir(parts, types, BACK=back, LENGTHS=lengths), isa=FAMILIES[family].isa)
    rng = np.random.default_rng(7)
    around = np.full(SIZE + 2 * GAP, np.nan, np.float32)
    values = around[GAP : GAP + SIZE]
    values[:] = rng.integers(1, 9, SIZE)
    begins, ends = _numbers(kind, back)
    columns, bits = np.arange(WIDE), np.iinfo(kind).bits
    wanted = np.zeros((ROWS, WIDE), np.float32)
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        length = (end - begin + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
        for column in columns.tolist():
            at = begin - column if back else begin + column
            if 0 <= at < SIZE and (not lengths or column < length):
                wanted[row, column] = values[at]
    sums, tops = np.full(ROWS, 7, np.float32), np.full(ROWS, 7, np.float32)
    copies, runs = np.full((ROWS, WIDE), 7, np.float32), np.full((ROWS, WIDE), 7, np.float32)
    compiled((1,), values, begins, ends, sums, tops, copies, runs, SIZE)
    np.testing.assert_array_equal(sums, wanted.sum(1))
    np.testing.assert_array_equal(tops, wanted.max(1))
    np.testing.assert_array_equal(copies, np.where(columns < ends[:, None], wanted, 7))
    np.testing.assert_array_equal(runs, wanted.cumsum(1))


def test_rows_are_loaded_without_masks_up_to_their_end() -> None:
    types = dict.fromkeys(("values", "sums", "tops", "copies", "runs"), "*fp32")
    types |= {"begins": "*i64", "ends": "*i64", "size": "i32"}
    decisions = Compiled(built_ir(parts, types, BACK=False, LENGTHS=True)).program.decisions
    answers = [each for each in decisions if each["subject"] == "chunks without masks"]
    assert answers
    assert all(each["taken"] for each in answers)


@tilewright.jit
def gathered(values, out, begin, length, size):
    k, n = tl.arange(0, 16)[:, None], tl.arange(0, 64)[None, :]
    at = begin + k
    x = tl.load(values + at * 64 + n, mask=(k < length) & (at >= 0) & (at < size), other=0.0)
    tl.store(out + tl.arange(0, 64), tl.sum(x, 0))


def test_masks_of_several_bounds_are_not_kept() -> None:
    """Rows of a gathered tile: what is held to an extent takes the same loop without masks as what is not."""
    types = {"values": "*fp32", "out": "*fp32", "begin": "i64", "length": "i32", "size": "i32"}
    compiled = Compiled(built_ir(gathered, types))
    taken = {each["subject"] for each in compiled.program.decisions if each["taken"]}
    assert "chunks without masks" in taken
    assert "materialized tile" not in taken
    around = np.full((60, 64), np.nan, np.float32)
    values = around[20:40]
    values[:] = np.random.default_rng(8).integers(0, 9, values.shape)
    for begin, length in ((0, 16), (3, 9), (12, 16), (-5, 16), (20, 16), (-16, 4), (2, 0)):
        out = np.full(64, 7, np.float32)
        compiled((1,), values, out, begin, length, 20)
        np.testing.assert_array_equal(out, values[max(0, begin) : max(0, begin + length)].sum(0))
