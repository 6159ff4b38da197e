"""Networks that sort: most pairs lie in one thread, and what is sorted is converted there and back."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tests.backends.nvidia.laying import conversions, lay, tile_ir
from tests.frontend.helpers import jit
from tests.fuzz.emitted import emitted
from tests.language.kernel_runner import run, running_on
from tilewright.base.options import Options


@jit
def ends(x, SHAPE: tl.constexpr, PAIRS: tl.constexpr):
    """Both ends of each pair, where both of them are."""
    upper = tl.arange(0, 2)[None, :, None]
    pairs = tl.reshape(x, PAIRS)
    low = tl.broadcast_to(tl.sum(pairs * (1 - upper), 1)[:, None, :], PAIRS)
    high = tl.broadcast_to(tl.sum(pairs * upper, 1)[:, None, :], PAIRS)
    return tl.reshape(low, SHAPE), tl.reshape(high, SHAPE)


@jit
def ordered(x, at, falls, SHAPE: tl.constexpr, PAIRS: tl.constexpr):
    low, high = ends(x, SHAPE, PAIRS)
    first, second = ends(at, SHAPE, PAIRS)
    swapped = ((low > high) | ((low == high) & (first > second))) ^ falls
    return x ^ tl.where(swapped, low ^ high, 0), at ^ tl.where(swapped, first ^ second, 0)


@jit
def sorted_rows(x, values, places, ROWS: tl.constexpr, BITS: tl.constexpr, STAGES: tl.constexpr):
    """Rows of 2 ** BITS numbers by the first stages of a bitonic network, equal ones in their order."""
    N: tl.constexpr = 2**BITS
    SHAPE: tl.constexpr = [ROWS, N]
    at = tl.arange(0, ROWS)[:, None] * N + tl.arange(0, N)[None, :]
    x, number = tl.load(x + at), tl.broadcast_to(tl.arange(0, N)[None, :], SHAPE)
    for stage in tl.static_range(1, STAGES + 1):
        falls = (tl.arange(0, N)[None, :] >> stage) & 1 == 1
        for step in tl.static_range(stage):
            HALF: tl.constexpr = 2 ** (stage - 1 - step)
            x, number = ordered(x, number, falls, SHAPE, [ROWS * N // (2 * HALF), 2, HALF])
    tl.store(values + at, x)
    tl.store(places + at, number)


TYPES = {"x": "*i32!", "values": "*i32!", "places": "*i32!"}


@pytest.mark.parametrize("where", ["cpu", "simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("rows", "bits"), [(16, 5), (32, 6), (1, 5)])
def test_rows_are_sorted(where: str, rows: int, bits: int) -> None:
    x = np.random.default_rng(bits).integers(-9, 9, (rows, 1 << bits)).astype(np.int32)
    values, places = np.zeros_like(x), np.zeros_like(x)
    with running_on(where):
        run(sorted_rows, x, values, places, ROWS=rows, BITS=bits, STAGES=bits)
    assert np.array_equal(values, np.sort(x))
    assert np.array_equal(places, np.argsort(x, kind="stable"))


def _shuffles(rows: int, bits: int) -> int:
    text = emitted(tile_ir(sorted_rows, TYPES, ROWS=rows, BITS=bits, STAGES=bits), Options(), "cuda90")
    return text.count("@llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32")


@pytest.mark.parametrize(("rows", "bits", "held", "steps"), [(32, 7, 5, 3), (32, 6, 4, 3)])
def test_most_pairs_lie_in_one_thread(rows: int, bits: int, held: int, steps: int) -> None:
    """Bits in registers are those with most steps: `steps` of the network are between lanes, for both tiles."""
    assert (rows << bits) // 128 == 1 << held
    assert steps == sum(bits - bit for bit in range(held, bits))
    assert _shuffles(rows, bits) == 2 * steps << held


def test_what_is_sorted_is_converted_there_and_back() -> None:
    assert len(conversions(lay(tile_ir(sorted_rows, TYPES, ROWS=32, BITS=7, STAGES=7)))) == 3


def test_a_few_steps_stay_where_the_tile_is() -> None:
    assert not conversions(lay(tile_ir(sorted_rows, TYPES, ROWS=32, BITS=7, STAGES=1)))
