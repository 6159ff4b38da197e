"""Which dims of a tile get the lanes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of
from tilewright.backends.cpu.plan.lanes import make_chunking


@pytest.mark.parametrize(
    ("shape", "lanes"),
    [
        ((16, 64), {1: 6}),
        ((16, 56), {1: 3}),
        ((56, 28), {1: 2}),
        ((64, 13), {0: 6}),
        ((16, 2), {1: 1, 0: 4}),
        ((4, 8), {1: 3, 0: 2}),
        ((2, 2, 2, 2, 2), {4: 1, 3: 1, 2: 1, 1: 1}),
    ],
)
def test_a_row_that_goes_on_keeps_its_lanes_to_itself(shape, lanes):
    chunking = make_chunking(shape, sorted(range(len(shape)), reverse=True), 64, 16, -1)
    assert {dim: bits for dim, (_, bits) in chunking.lane_bits.items()} == lanes


@tilewright.jit
def count_positive(x_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    inside = (row < rows) & (j < 200)
    x = tl.load(x_ptr + 200 * row + j, inside, 0.0)
    tl.store(out_ptr + row, tl.sum(tl.where(inside, (x > 0).to(tl.int64), 0)), row < rows)


def test_integers_of_64_bits_have_as_many_lanes_as_floats_of_64_bits():
    """LLVM 22 never ends on 64 lanes of a mask that becomes int64, where the mask is a scalar and a constant one."""
    families = {"avx512": 32, "amx": 32, "avx2": 16}
    spelling = Spelling(count_positive, "*fp32, *i64, i32, 256", {})
    for family, lanes in families.items():
        found = [d.text for d in decisions_of(spelling, family) if d.subject == "vectors"]
        assert any(text.startswith(f"{lanes} elements") for text in found), (family, found)
    x = np.random.default_rng(0).standard_normal((3, 200)).astype(np.float32)
    out = np.zeros(3, np.int64)
    count_positive[(3,)](x, out, 3, 256)
    assert out.tolist() == (x > 0).sum(1).tolist()


@tilewright.jit
def doubled(x_ptr, out_ptr, n, apart: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * R * C + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    j = tl.program_id(0) * R * apart + tl.arange(0, R)[:, None] * apart + tl.arange(0, C)[None, :]
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + j, i < n), i < n)


@pytest.mark.parametrize(("columns", "apart", "lanes"), [(32, 32, "64 elements"), (32, 48, "32 elements")])
def test_rows_that_lie_one_behind_the_other_are_one(columns: int, apart: int, lanes: str) -> None:
    x, out = (
        np.random.default_rng(0).standard_normal(4 * 8 * 48).astype(np.float32),
        np.zeros((40, columns), np.float32),
    )
    spelling = Spelling(doubled, f"*fp32:16, *fp32:16, i32, {apart}, 8, {columns}", {})
    texts = [d.text for d in decisions_of(spelling, "avx512") if d.subject == "vectors"]
    assert any(text.startswith(lanes) for text in texts), texts
    doubled[(4,)](x, out, 900, apart, 8, columns)
    wanted = np.lib.stride_tricks.as_strided(x, (32, columns), (4 * apart, 4)) * 2
    np.testing.assert_array_equal(out.ravel()[:900], wanted.ravel()[:900])
    assert not out.ravel()[900:].any()
