"""Rows of the next program: who asks for them, who has nothing to ask for, and that nothing else changes."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tests.decisions.harness import Spelling, decisions_of

_ROW = "*fp32:16, *fp32:16, i32, i32, 1024"
_TILE = "*fp32:16, *fp32:16, i32, i32, 64"


@tilewright.jit
def whole(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * stride + i, i < n, 0.0)
    tl.store(out + tl.program_id(0) * stride + i, row - tl.sum(row, 0) / n, i < n)


@tilewright.jit
def in_loops(x, out, stride, n, BLOCK: tl.constexpr):
    i, total = tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32)
    x += tl.program_id(0) * stride
    for start in range(0, n, BLOCK):
        total += tl.load(x + start + i, start + i < n, 0.0)
    mean = tl.sum(total, 0) / n
    for start in range(0, n, BLOCK):
        row = tl.load(x + start + i, start + i < n, 0.0)
        tl.store(out + tl.program_id(0) * stride + start + i, row - mean, start + i < n)


@tilewright.jit
def rows_of_a_tile(x, out, stride, n, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * 16 + tl.arange(0, 16))[:, None] * stride + tl.arange(0, BLOCK)[None, :]
    rows = tl.load(x + at, tl.arange(0, BLOCK)[None, :] < n, 0.0)
    tl.store(out + at, rows - (tl.sum(rows, 1) / n)[:, None], tl.arange(0, BLOCK)[None, :] < n)


@tilewright.jit
def from_the_last_row(x, out, stride, n, BLOCK: tl.constexpr):
    i, row = tl.arange(0, BLOCK), tl.num_programs(0) - 1 - tl.program_id(0)
    loaded = tl.load(x + row * stride + i, i < n, 0.0)
    tl.store(out + row * stride + i, loaded - tl.sum(loaded, 0) / n, i < n)


@tilewright.jit
def read_once(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)


@tilewright.jit
def chosen_by_a_table(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.load(out + tl.program_id(0)).to(tl.int32) * stride
    loaded = tl.load(x + row + i, i < n, 0.0)
    tl.store(out + tl.program_id(0) * stride + i, loaded - tl.sum(loaded, 0) / n, i < n)


@tilewright.jit
def every_other_way(x, out, stride, n, BLOCK: tl.constexpr):
    i, p = tl.arange(0, BLOCK), tl.program_id(0)
    loaded = tl.load(x + p * p * stride + i, i < n, 0.0)
    tl.store(out + p * stride + i, loaded - tl.sum(loaded, 0) / n, i < n)


@tilewright.jit
def the_same_for_all(x, out, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    loaded = tl.load(x + i, i < n, 0.0)
    tl.store(out + tl.program_id(0) * stride + i, loaded - tl.sum(loaded, 0) / n, i < n)


def _answers(kernel, signature, target="avx512"):
    found = decisions_of(Spelling(kernel, signature, {}), target)
    return [(decision.taken, decision.text) for decision in found if decision.subject == "prefetched rows"]


_YES = [(True, "the last pass asks for the next program's")]


@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize(
    ("kernel", "signature"), [(whole, _ROW), (in_loops, _ROW), (rows_of_a_tile, _TILE), (from_the_last_row, _ROW)]
)
def test_several_passes_over_a_row_ask_for_the_next_one(kernel, signature, target):
    assert _answers(kernel, signature, target) == _YES


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (chosen_by_a_table, "how far away the next program's lies is not known before the program runs"),
        (every_other_way, "how far away the next program's lies is not known before the program runs"),
        (the_same_for_all, "all programs of a row of the grid read the same elements"),
    ],
)
def test_a_row_that_nobody_can_foretell(kernel, reason):
    assert _answers(kernel, _ROW) == [(False, reason)]


@pytest.mark.parametrize("kernel", [whole, from_the_last_row])
def test_what_is_asked_for_lies_at_the_distance(kernel):
    """Every prefetch leads back to the pointer that the distance was added to, which is frozen."""
    types = {"x": "*fp32", "out": "*fp32", "stride": "i32", "n": "i32"}
    text = Compiled(built_ir(kernel, types, BLOCK=1024), isa=FAMILIES["avx512"].isa).program.llvm
    made_of = dict(re.findall(r"(%\S+) = (?:getelementptr i8, |freeze )ptr (%[^\s,]+)", text))
    frozen = set(re.findall(r"(%\S+) = freeze ptr", text))
    asked = re.findall(r"@llvm.prefetch.p0\(ptr (%[^\s,]+)", text)
    assert asked and frozen
    for place in asked:
        while place in made_of and place not in frozen:
            place = made_of[place]
        assert place in frozen


def test_what_is_read_once_has_nothing_to_ask_for():
    assert _answers(read_once, _ROW) == []


@pytest.mark.parametrize("kernel", [whole, in_loops, from_the_last_row])
@pytest.mark.parametrize("stride", [1000, -1000, 40000, 0])
def test_rows_in_any_direction_and_behind_the_last_one(kernel, stride):
    rows, n = 7, 1000
    x = np.random.default_rng(0).standard_normal(max(1, abs(stride)) * rows + n).astype(np.float32)
    begin = (rows - 1) * -stride if stride < 0 else 0
    out = np.zeros_like(x)
    kernel[(rows,)](x[begin:], out[begin:], stride, n, BLOCK=1024)
    places = [begin + row * stride for row in range(rows)]
    for place in places:
        row = x[place : place + n]
        assert np.allclose(out[place : place + n], row - row.mean(), atol=1e-5)
