"""Places that are held inside of a tensor: one vector where all of them are inside anyway, and the same elements."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.decisions.harness import Spelling, decisions_of

_SIGNATURE = "*fp32:16, *fp32:16, i32, 256"


@tilewright.jit
def by_minimum(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for d in tl.static_range(-2, 3):
        total += tl.load(x + tl.minimum(n - 1, tl.maximum(i + d, 0)))
    tl.store(out + i, total, i < n)


@tilewright.jit
def by_choice(x, out, n, BLOCK: tl.constexpr):
    """Both ends by `where`, in 64 bits."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for d in range(-2, 3):
        at = tl.where(i + d < 0, 0, i + d)
        total += tl.load(x + tl.where(at < n, at, n - 1))
    tl.store(out + i, total, i < n)


@tilewright.jit
def of_a_row(x, out, n, BLOCK: tl.constexpr):
    """As rows of a tile, of which one is stored as it is."""
    i, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :], tl.arange(0, 8)[:, None]
    at = tl.minimum(tl.maximum(i + d - 2, 0), n - 1)
    value = tl.load(x + at, d < 5, 0.0)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sum(value, 0), i < n)


CLAMPED = [by_minimum, by_choice, of_a_row]


@pytest.mark.parametrize("kernel", CLAMPED, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize(("n", "block"), [(1000, 256), (3, 64), (1, 16), (512, 64), (515, 56)])
def test_edges_are_repeated(kernel, n: int, block: int) -> None:
    memory = np.full(n + 256, np.nan, np.float32)
    x, out = memory[128:-128], np.full(n + 64, np.nan, np.float32)
    x[:] = np.random.default_rng(0).standard_normal(n)
    kernel[(-(-n // block),)](x, out[:n], n, block)
    padded = np.pad(x.astype(np.float64), 2, mode="edge")
    np.testing.assert_allclose(out[:n], sum(padded[d : d + n] for d in range(5)), rtol=1e-5, atol=1e-5)
    assert np.isnan(out[n:]).all()


@tilewright.jit
def wrapped_around(x, out, n, BLOCK: tl.constexpr):
    """The tensor is a ring."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + (i + 7) % n) - tl.load(x + i % n), i < n)


@tilewright.jit
def signed_remainder(x, out, n, BLOCK: tl.constexpr):
    """Below zero the remainder is the place itself, beginning at -n."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + n + (i - 5) % n), i < n)


@pytest.mark.parametrize("n", [1, 5, 64, 600])
def test_remainders(n: int) -> None:
    x, out = np.random.default_rng(0).standard_normal(2 * n).astype(np.float32), np.zeros(n, np.float32)
    wrapped_around[(-(-n // 64),)](x, out, n, 64)
    np.testing.assert_array_equal(out, np.roll(x[:n], -7) - x[:n])
    signed_remainder[(-(-n // 64),)](x, out, n, 64)
    np.testing.assert_array_equal(out, x[n + np.fmod(np.arange(n) - 5, n)])


@tilewright.jit
def by_table(x, out, n, BLOCK: tl.constexpr):
    """What is held is loaded; another place beside it is not."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    which = tl.load(out + i, i < n, 0.0).to(tl.int32)
    value = tl.load(x + tl.minimum(tl.maximum(which, 0), n - 1)) + tl.load(x + tl.minimum(i + 1, n - 1))
    tl.store(out + i, value, i < n)


def test_places_that_are_loaded() -> None:
    x, places = np.random.default_rng(0).standard_normal(300).astype(np.float32), np.arange(300) * 7 % 500 - 100
    out = places.astype(np.float32)
    by_table[(2,)](x, out, 300, 256)
    np.testing.assert_array_equal(out, x[places.clip(0, 299)] + x[np.minimum(np.arange(300) + 1, 299)])


def said(kernel) -> set[str]:
    decided = decisions_of(Spelling(kernel, _SIGNATURE, {}), "avx512")
    return {d.text for d in decided if d.subject == "chunks without masks"}


def test_what_is_tested_once() -> None:
    places = "places are looked at once for the chunks of a row"
    assert all(places in said(kernel) for kernel in (*CLAMPED, wrapped_around, signed_remainder, by_table))
