"""Networks that pick the ends of a pair by sums over a mask: the element itself, with one exchange for both ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.backends.nvidia.laying import conversions, lay, tile_ir
from tests.frontend.helpers import jit
from tests.fuzz.emitted import emitted
from tests.language.kernel_runner import run, running_on
from tilewright.base.options import Options


@jit
def ends(x, low, high, A: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, A * 2 * B)
    pairs = tl.reshape(tl.load(x + at), [A, 2, B])
    upper = tl.arange(0, 2)[None, :, None].to(pairs.dtype)
    lower = (1 - upper).to(pairs.dtype)
    a = tl.broadcast_to(tl.sum(pairs * lower, 1)[:, None, :], [A, 2, B])
    b = tl.broadcast_to(tl.sum(pairs * upper, 1)[:, None, :], [A, 2, B])
    tl.store(low + at, tl.reshape(a, [A * 2 * B]))
    tl.store(high + at, tl.reshape(b, [A * 2 * B]))


@jit
def weighed(x, low, high, A: tl.constexpr, B: tl.constexpr):
    """Masks that pick no element."""
    at = tl.arange(0, A * 2 * B)
    pairs = tl.reshape(tl.load(x + at), [A, 2, B])
    weight = tl.arange(0, 2)[None, :, None] + 1
    a = tl.broadcast_to(tl.sum(pairs * weight, 1)[:, None, :], [A, 2, B])
    tl.store(low + at, tl.reshape(a, [A * 2 * B]))
    tl.store(high + at, tl.reshape(a * 2, [A * 2 * B]))


SHAPES = [(256, 1), (128, 2), (64, 4), (16, 16), (8, 32), (4, 64), (2, 128), (1, 256), (1, 4), (2, 1)]


@pytest.mark.parametrize("where", ["cpu", "simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kernel", [ends, weighed])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_the_ends_of_pairs(where: str, kernel: Any, kind: Any) -> None:
    for a, b in SHAPES:
        x = np.random.default_rng(a).integers(-(2**31), 2**31 - 1, a * 2 * b).astype(kind)
        low, high = np.zeros_like(x), np.zeros_like(x)
        with running_on(where):
            run(kernel, x, low, high, A=a, B=b)
        pairs = x.reshape(a, 2, b)
        wide = pairs[:, :1] + 2 * pairs[:, 1:]
        want = (pairs[:, :1], pairs[:, 1:]) if kernel is ends else (wide, 2 * wide)
        for got, expected in zip((low, high), want, strict=True):
            assert np.array_equal(got, np.broadcast_to(expected, pairs.shape).ravel()), (a, b)


def test_both_ends_take_one_exchange() -> None:
    types = {"x": "*i32", "low": "*i32", "high": "*i32"}
    text = emitted(tile_ir(ends, types, A=16, B=8), Options(), "cuda90")
    assert text.count("@llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32") == 2  # two registers of each thread


@jit
def smaller_first(x, values, places, A: tl.constexpr, B: tl.constexpr):
    """One step of a network that sorts: values of pairs, and where they were, a tile that is made of ranges alone."""
    at = tl.arange(0, A * 2 * B)
    pairs = tl.reshape(tl.load(x + at), [A, 2, B])
    numbers = tl.reshape(at, [A, 2, B])
    upper = tl.arange(0, 2)[None, :, None]
    low = tl.broadcast_to(tl.sum(pairs * (1 - upper), 1)[:, None, :], [A, 2, B])
    high = tl.broadcast_to(tl.sum(pairs * upper, 1)[:, None, :], [A, 2, B])
    first = tl.broadcast_to(tl.sum(numbers * (1 - upper), 1)[:, None, :], [A, 2, B])
    second = tl.broadcast_to(tl.sum(numbers * upper, 1)[:, None, :], [A, 2, B])
    swapped = low > high
    tl.store(values + at, tl.reshape(pairs ^ tl.where(swapped, low ^ high, 0), [A * 2 * B]))
    tl.store(places + at, tl.reshape(numbers ^ tl.where(swapped, first ^ second, 0), [A * 2 * B]))


@pytest.mark.parametrize("where", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("a", "b"), [(256, 1), (32, 8), (4, 64), (1, 256)])
def test_places_follow_values(where: str, a: int, b: int) -> None:
    x = np.random.default_rng(b).integers(0, 50, a * 2 * b).astype(np.int32)
    values, places = np.zeros_like(x), np.zeros_like(x)
    with running_on(where):
        run(smaller_first, x, values, places, A=a, B=b)
    pairs, numbers = x.reshape(a, 2, b), np.arange(x.size).reshape(a, 2, b)
    swapped = pairs[:, :1] > pairs[:, 1:]
    assert np.array_equal(values, np.where(swapped, pairs[:, ::-1], pairs).ravel())
    assert np.array_equal(places, np.where(swapped, numbers[:, ::-1], numbers).ravel())


@pytest.mark.parametrize(("a", "b"), [(256, 1), (32, 8), (4, 64), (1, 256)])
def test_places_have_the_layout_of_values(a: int, b: int) -> None:
    """They are made of ranges, which have any layout; another one would have both tiles converted at each step."""
    types = {"x": "*i32!", "values": "*i32!", "places": "*i32!"}
    assert not conversions(lay(tile_ir(smaller_first, types, A=a, B=b)))
