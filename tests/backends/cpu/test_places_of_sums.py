"""Places of atomic sums as numbers of 32 and 64 bits: negative ones, large ones, masks that end in the middle."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.cpu.plan.subjects import UNMASKED


@tilewright.jit
def counted(ids, out, at, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + at + tl.load(ids + i, i < n, 0), 1, i < n)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("n", [256, 1000, 1024, 3])
@pytest.mark.parametrize("at", [0, 100])
def test_numbers_of_any_width(dtype: type, n: int, at: int) -> None:
    low = -at if np.issubdtype(dtype, np.signedinteger) else 0
    ids = np.random.default_rng(n).integers(low, 100, n).astype(dtype)
    out = np.zeros(200 + at, np.int32)
    made = counted[(-(-n // 256),)](ids, out, at, n, 256)
    assert out.tolist() == np.bincount(ids.astype(np.int64) + at, minlength=out.size).tolist()
    assert True in [d.taken for d in made.decisions if d.subject == UNMASKED.name]


@tilewright.jit
def behind(ids, x, out, n, B: tl.constexpr):
    """Places on both sides of a window of the first addresses of a tile, whose old value somebody else reads."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = (i < n) & (tl.load(x + i, i < n, 0.0) > 0)
    tl.atomic_add(out + tl.load(ids + i, i < n, 0), tl.load(x + i, i < n, 0.0), inside)
    tl.store(x + i, tl.load(out), i < n)


def test_windows_of_a_tile() -> None:
    rng, n = np.random.default_rng(0), 900
    ids, x, out = rng.integers(0, 5000, n).astype(np.int32), rng.integers(-9, 9, n).astype(np.float32), np.zeros(5000)
    want, out = np.zeros(5000, np.float32), out.astype(np.float32)
    np.add.at(want, ids[x > 0], x[x > 0])
    behind[(1,)](ids, x, out, n, 1024)
    assert out.tolist() == want.tolist()


@tilewright.jit
def of_the_library(x, out, n, BINS: tl.constexpr, B: tl.constexpr):
    i, b = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, BINS)
    tl.atomic_add(out + b, tl.histogram(tl.load(x + i, i < n, 0), BINS, mask=i < n))


@pytest.mark.parametrize("n", [512, 700, 5])
def test_counts_of_the_library(n: int) -> None:
    x, out = np.random.default_rng(n).integers(-3, 40, n).astype(np.int32), np.zeros(32, np.int32)
    of_the_library[(-(-n // 512),)](x, out, n, 32, 512)
    kept = x[(x >= 0) & (x < 32)]
    assert out.tolist() == np.bincount(kept, minlength=32).tolist()
