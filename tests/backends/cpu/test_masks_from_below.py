"""Masks with a bound from below: chunks in which it holds look at no mask, and nothing outside is read or written."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of
from tests.decisions.others import STENCILS
from tests.decisions.rows import WINDOWS


def surrounded(x: np.ndarray) -> np.ndarray:
    """A vector with NaN on both sides."""
    memory = np.full(x.size + 256, np.nan, np.float32)
    memory[128:-128] = x
    return memory[128:-128]


@pytest.mark.parametrize("spelling", WINDOWS, ids=lambda s: s.name)
@pytest.mark.parametrize(("n", "block"), [(1000, 256), (3, 64), (515, 56)])
def test_windows_over_both_ends(spelling: Spelling, n: int, block: int) -> None:
    generator = np.random.default_rng(0)
    x, w = generator.standard_normal(n + 5).astype(np.float32)[:n], generator.standard_normal(5).astype(np.float32)
    memory = np.full(n + 64, np.nan, np.float32)
    out = memory[:n]
    spelling.fn[(-(-n // block),)](surrounded(x), w, out, n, block)
    padded = np.pad(x.astype(np.float64), 2)
    want = sum(padded[d : d + n] * w[d] for d in range(5))
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    assert np.isnan(memory[n:]).all()


@tilewright.jit
def neighbours(x, out, n, first, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + first
    inside = (i >= 1) & (i < n - 1)
    tl.store(out + i, tl.load(x + i - 1, inside) + tl.load(x + i + 1, inside), inside)


@tilewright.jit
def turned_over(x, out, n, first, BLOCK: tl.constexpr):
    """What the mask compares falls along the block."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + first
    left = n - 1 - i
    tl.store(out + i, tl.load(x + left, (left >= 0) & (left < n)), (left >= 0) & (i >= 0))


@pytest.mark.parametrize("block", [13, 56, 256])
@pytest.mark.parametrize("first", [0, -7])
@pytest.mark.parametrize("n", [2, 643])
def test_places_before_the_first_and_behind_the_last(block: int, first: int, n: int) -> None:
    x, grid = np.arange(n, dtype=np.float32), (-(-(n - first) // block),)
    out = surrounded(np.full(n, -1, np.float32))
    neighbours[grid](surrounded(x), out, n, first, block)
    want = np.full(n, -1, np.float32)
    want[1:-1] = x[:-2] + x[2:]
    assert out.tolist() == want.tolist() and np.isnan(out.base[:128]).all() and np.isnan(out.base[-128:]).all()
    out = surrounded(np.full(n, -1, np.float32))
    turned_over[grid](surrounded(x), out, n, first, block)
    assert out.tolist() == x[::-1].tolist() and np.isnan(out.base[:128]).all() and np.isnan(out.base[-128:]).all()


def unmasked(spelling: Spelling) -> set[tuple[bool, str]]:
    return {(d.taken, d.text) for d in decisions_of(spelling, "avx512") if d.subject == "chunks without masks"}


def test_all_masks_of_windows_and_stencils_are_bounds() -> None:
    kernels = [s for s in (*WINDOWS, *STENCILS) if s.name != "window_of_clamped_places"]
    assert {s.name: unmasked(s) for s in kernels} == {
        s.name: {(True, "tested once for the chunks of a row")} for s in kernels
    }


@tilewright.jit
def from_a_start(x, starts, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    inside = (i >= tl.load(starts + row)) & (i < n)
    tl.store(out + row * BLOCK + i, tl.load(x + i, inside) * 2.0, inside)
    tl.store(out + tl.num_programs(0) * BLOCK + row, tl.sum(tl.load(x + i, inside, 0.0)))


@tilewright.jit
def from_starts_of_rows(x, starts, out, n, BLOCK: tl.constexpr):
    row, i = tl.arange(0, 16)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (i >= tl.load(starts + row)) & (i < n)
    value = tl.load(x + i + row * 0, inside, 0.0)
    tl.store(out + row * BLOCK + i, value * 2.0, inside)
    tl.store(out + 16 * BLOCK + row, tl.sum(value, 1)[:, None])


@pytest.mark.parametrize("block", [512, 2048, 448])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bounds_from_below_hold_from_some_chunk_on(block: int, dtype: type) -> None:
    far = int(np.iinfo(dtype).max) if dtype is np.int32 else 1 << 62  # index arithmetic is taken not to wrap around
    near = [block - 65, block - 1, block, block + 1]
    starts = [0, 1, 63, 64, 65, 300, *near, -1, -64, far, far - 1, -far, 7]
    n, given = block - 70, np.array(starts, dtype)
    x = np.arange(1, n + 1, dtype=np.float32)
    for kernel, grid in ((from_a_start, 16), (from_starts_of_rows, 1)):
        out = surrounded(np.full(16 * (block + 1), -1, np.float32))
        kernel[(grid,)](surrounded(x), given, out, n, block)
        want = np.full((16, block), -1, np.float32)
        for row, start in enumerate(starts):
            want[row, max(start, 0) : n] = x[max(start, 0) :] * 2
        assert (out[: 16 * block].reshape(16, block) == want).all()
        sums = [x[max(start, 0) :].sum(dtype=np.float64) for start in starts]
        np.testing.assert_allclose(out[16 * block :], sums, rtol=1e-5)


@tilewright.jit
def held_neighbours(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + tl.maximum(i - 1, 0), i < n) + tl.load(x + tl.minimum(i + 1, n - 1)), i < n)


def test_places_held_from_below_are_gathered_in_the_first_chunk_alone() -> None:
    x, out = np.arange(900, dtype=np.float32), np.zeros(1024, np.float32)
    kernel = held_neighbours.warmup(x, out, 900, 1024, grid=(1,))
    gathers = [line for line in kernel.asm["llir"].splitlines() if "call" in line and "masked.gather" in line]
    assert len(gathers) in (0, 4), "two before and two behind the chunks in which all places are inside"
    held_neighbours[(1,)](surrounded(x), out, 900, 1024)
    assert out[:900].tolist() == (np.r_[0, x[:-1]] + np.r_[x[1:], 899]).tolist()


@tilewright.jit
def but_the_first(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside = (i != 0) & (i < n)
    tl.store(out + i, tl.load(x + i - 1, inside) + tl.load(x + i, inside), inside)


@tilewright.jit
def but_one(x, out, n, BLOCK: tl.constexpr):
    """What is left out lies anywhere, or nowhere."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i), (i != n) & (n != i - 3))


def test_all_but_the_first_is_a_bound_from_below() -> None:
    x, out = np.arange(900, dtype=np.float32), np.full(1024, -1, np.float32)
    compiled = but_the_first.warmup(x, out, 900, 1024, grid=(1,))
    said = {(d.taken, d.text) for d in compiled.decisions if d.subject == "chunks without masks"}
    assert said == {(True, "tested once for the chunks of a row")}
    but_the_first[(1,)](surrounded(x), out, 900, 1024)
    assert out[:900].tolist() == [-1, *(x[:-1] + x[1:])] and (out[900:] == -1).all()


@pytest.mark.parametrize("n", [-7, -3, 0, 1, 100, 1023, 2000])
def test_all_but_any_other_is_none(n: int) -> None:
    x, out = np.arange(1024, dtype=np.float32), np.full(1024, -1, np.float32)
    but_one[(1,)](x, out, n, 1024)
    want = x.copy()
    want[[i for i in (n, n + 3) if 0 <= i < 1024]] = -1
    assert out.tolist() == want.tolist()
