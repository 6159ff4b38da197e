"""Reductions over a dim of a few elements, which combine its slices: windows, maxima, dims in any order."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.plan.subjects import UNROLLED_REDUCTION


@tilewright.jit
def windows(x, w, out, n, TAPS: tl.constexpr, E: tl.constexpr, B: tl.constexpr, WAY: tl.constexpr):
    i, d = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, E)
    if WAY == "first":
        at = i[None, :] + d[:, None] - 2
        inside = (at >= 0) & (at < n) & (d < TAPS)[:, None]
        total = tl.sum(tl.load(x + at, inside, 0) * tl.load(w + d, d < TAPS, 0)[:, None], 0)
    else:
        at = i[:, None] + d[None, :] - 2
        inside = (at >= 0) & (at < n) & (d < TAPS)[None, :]
        if WAY == "last":
            total = tl.sum(tl.load(x + at, inside, 0) * tl.load(w + d, d < TAPS, 0)[None, :], 1)
        else:
            total = tl.max(tl.load(x + at, inside, -100), 1)
    tl.store(out + i, total, i < n)


@pytest.mark.parametrize("way", ["first", "last", "largest"])
@pytest.mark.parametrize(("taps", "extent"), [(1, 2), (3, 4), (5, 8), (8, 8)])
@pytest.mark.parametrize("element", [np.float32, np.int32, np.float64])
def test_windows(way: str, taps: int, extent: int, element: type) -> None:
    rng, n = np.random.default_rng(taps), 1000
    x, w, out = rng.integers(-9, 9, n).astype(element), rng.integers(-9, 9, taps).astype(element), np.zeros(n, element)
    made = windows[(-(-n // 256),)](x, w, out, n, taps, extent, 256, way)
    nothing = -100 if way == "largest" else 0
    around = np.pad(x, (2, taps), constant_values=nothing)
    shifted = [around[d : d + n] for d in range(taps)]
    want = np.max(shifted, 0) if way == "largest" else sum(s * f for s, f in zip(shifted, w, strict=True))
    assert out.tolist() == want.tolist()
    assert [d.taken for d in made.decisions if d.subject == UNROLLED_REDUCTION.name] == [True]


@tilewright.jit
def planes(x, out, C: tl.constexpr, R: tl.constexpr, N: tl.constexpr):
    """A dim in the middle, and one in front, of which the reduction is reduced again."""
    c, r, n = tl.arange(0, C)[:, None, None], tl.arange(0, R)[None, :, None], tl.arange(0, N)[None, None, :]
    value = tl.sum(tl.load(x + c * R * N + r * N + n) + r, 1)
    tl.store(out + tl.arange(0, N), tl.sum(value, 0))


def test_dims_in_front() -> None:
    x, out = np.random.default_rng(0).integers(-9, 9, (8, 4, 128)).astype(np.int32), np.zeros(128, np.int32)
    planes[(1,)](x, out, 8, 4, 128)
    assert out.tolist() == (x + np.arange(4)[:, None]).sum((0, 1)).tolist()


@tilewright.jit
def rows(x, out, N: tl.constexpr):
    """What is read lies along the dim that is reduced."""
    i, d = tl.arange(0, N)[:, None], tl.arange(0, 8)[None, :]
    tl.store(out + tl.arange(0, N), tl.sum(tl.load(x + i * 8 + d), 1))


def test_short_rows_are_reduced_as_they_lie() -> None:
    x, out = np.random.default_rng(0).integers(-9, 9, (128, 8)).astype(np.float32), np.zeros(128, np.float32)
    made = rows[(1,)](x, out, 128)
    assert out.tolist() == x.sum(1).tolist()
    assert [d.taken for d in made.decisions if d.subject == UNROLLED_REDUCTION.name] == [False]


@tilewright.jit
def shares(x, out, C: tl.constexpr, N: tl.constexpr, COSTLY: tl.constexpr):
    """Each row wants the sums of all columns."""
    at = tl.arange(0, C)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + at)
    total = tl.sum(tl.exp(value - 1.0), 0) if COSTLY else tl.sum(value * value, 0)
    tl.store(out + at, value / total[None, :])


@pytest.mark.parametrize("costly", [False, True])
def test_what_costs_much_is_not_computed_for_each_row(costly: bool) -> None:
    x, out = np.random.default_rng(0).random((4, 256), np.float32), np.zeros((4, 256), np.float32)
    made = shares[(1,)](x, out, 4, 256, costly)
    np.testing.assert_allclose(out, x / (np.exp(x - 1) if costly else x * x).sum(0), rtol=1e-5)
    assert [d.taken for d in made.decisions if d.subject == UNROLLED_REDUCTION.name] == [not costly]


@tilewright.jit
def of_sides(x, out, K: tl.constexpr, N: tl.constexpr, WAY: tl.constexpr):
    """Sums, and maxima, over a dim of which a bit tells the sides of a join or of a cat apart."""
    k, n = tl.arange(0, K)[:, None], tl.arange(0, N)[None, :]
    value = tl.load(x + k * N + n)
    low, high = value & 15, value >> 4
    if WAY == "pairs":
        both = tl.reshape(tl.permute(tl.join(low, high), (0, 2, 1)), (2 * K, N))
    elif WAY == "halves":
        both = tl.reshape(tl.permute(tl.join(low, high), (2, 0, 1)), (2 * K, N))
    else:  # two bits, one of them of a join of joins
        quarters = tl.join(tl.join(low, high), tl.join(low + 1, high + 1))
        both = tl.reshape(tl.permute(quarters, (0, 2, 3, 1)), (4 * K, N))
    places = tl.arange(0, both.shape[0])[:, None]
    tl.store(out + tl.arange(0, N), tl.sum(both * (places % 7), 0))
    tl.store(out + N + tl.arange(0, N), tl.max(both + places, 0))


@pytest.mark.parametrize("way", ["pairs", "halves", "quarters"])
@pytest.mark.parametrize("n", [4, 64])
def test_sides_of_joins(way: str, n: int) -> None:
    x, out = np.random.default_rng(n).integers(0, 256, (16, n)).astype(np.int32), np.zeros((2, n), np.int32)
    of_sides[(1,)](x, out, 16, n, way)
    low, high = x & 15, x >> 4
    if way == "pairs":
        both = np.stack([low, high], 1).reshape(-1, n)
    elif way == "halves":
        both = np.concatenate([low, high])
    else:
        both = np.stack([low, low + 1, high, high + 1], 1).reshape(-1, n)
    places = np.arange(len(both))[:, None]
    np.testing.assert_array_equal(out, [(both * (places % 7)).sum(0), (both + places).max(0)])
    if way == "pairs":
        lines = of_sides.warmup(x, out, 16, n, way, grid=(1,)).asm["loops"]
        assert f"16x{n}]: reduce" in lines and f"32x{n}]" not in lines
