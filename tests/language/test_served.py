"""Programs as libraries that serve models write them, compiled, interpreted and under checks, against PyTorch.

Launches that may overlap on a GPU, block pointers made anew with other strides, the best of tiles merged in a loop.
"""

from __future__ import annotations

import pytest
import torch

import tilewright as triton
import tilewright.language as tl

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@triton.jit
def dependent(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.extra.cuda.gdc_wait()
    v = tl.load(x + i)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(o + i, v + 1)


def test_launches_that_may_overlap_on_a_gpu():
    """A library that asks for overlapping launches runs where they follow one another."""
    x, o = torch.rand(16), torch.empty(16)
    dependent[(1,)](x, o, 16)
    dependent[(1,)](o, o, 16, launch_pdl=True)
    torch.testing.assert_close(o, x + 2)


@triton.jit
def rows_of(x, step, N: tl.constexpr):
    """A block of rows that are `N` apart, its elements `step` apart."""
    return tl.make_block_ptr(x, (N, N), (N, step), (0, 0), (N, N), (1, 0))


@triton.jit
def remade(x, o, step, n, N: tl.constexpr):
    p = rows_of(x, 1, N)
    total = tl.load(p)
    for _ in range(n):
        p = rows_of(x, step, N)
        total += tl.load(p)
    if n > 1:
        q = rows_of(x, 1, N)
    else:
        q = rows_of(x, step, N)
    r = rows_of(x, step, N) if n > 1 else rows_of(x, 1, N)
    tl.store(rows_of(o, 1, N), total + 10 * tl.load(q) + 100 * tl.load(r) + tl.load(p) * 1000)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_block_pointers_made_anew(n):
    """A stride that is the number 1 on one way and computed on another."""
    x, o = torch.arange(16.0 * 18), torch.empty(16, 16)
    remade[(1,)](x, o, 2, n, 16)
    near, far = (x.as_strided((16, 16), (16, step)) for step in (1, 2))
    q, r = (near, far) if n > 1 else (far, near)
    torch.testing.assert_close(o, near + n * far + 10 * q + 100 * r + 1000 * (far if n else near))


@triton.jit
def ordered(score, place):
    """A score and its place as one number that sorts as the score, the earlier place first."""
    bits = score.to(tl.uint32, bitcast=True)
    bits = tl.where(bits >> 31 != 0, ~bits, bits | 0x80000000)
    return bits.to(tl.uint64) << 16 | (65535 - place).to(tl.uint64)


@triton.jit
def best_of_tiles(scores, places, n, K: tl.constexpr, TILE: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, TILE)
    best = tl.zeros((K,), tl.uint64)
    for start in range(0, n, TILE):
        i = start + lane
        score = tl.load(scores + row * n + i, i < n, -float("inf"))
        tile = tl.where((i < n) & (score == score), ordered(score, i), 0)
        best = tl.topk(tl.cat(best, tl.topk(tile, K), can_reorder=True), K)
    found = 65535 - (best & 65535).to(tl.int32)
    tl.store(places + row * K + tl.arange(0, K), tl.where(best != 0, found, -1))


@pytest.mark.parametrize("n", [5, 64, 150])
def test_best_of_tiles(n):
    """The best of a tile are merged with those so far; numbers that are none are left out."""
    scores, places = torch.randn(3, n), torch.empty(3, 8, dtype=torch.int32)
    scores[1, 2], scores[2, 4] = float("nan"), -float("inf")
    best_of_tiles[(3,)](scores, places, n, 8, 32)
    for row, found in zip(scores, places):
        count = min(8, int((row == row).sum()))
        wanted = row.nan_to_num(-1e38, neginf=-1e37).topk(count).indices
        assert found.tolist() == wanted.tolist() + [-1] * (8 - count)
