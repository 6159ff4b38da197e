"""`tl.map_elementwise`: branches and loops on single elements, several results, packs, and mistakes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import build, run
from tilewright.base.callable import BlockFunction
from tilewright.base.errors import CompilationError

pytestmark = pytest.mark.usefixtures("backend")


@BlockFunction
def greatest_common_divisor(a, b):
    while b != 0:
        a, b = b, a % b
    return a


def gcd_kernel(x, y, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    row = tl.load(y + tl.arange(0, N))
    tl.store(out + at, tl.map_elementwise(greatest_common_divisor, tl.load(x + at), row))


def test_a_loop_on_each_element() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 500, (4, 8)).astype(np.int32), rng.integers(1, 500, 8).astype(np.int32)
    out = np.zeros((4, 8), np.int32)
    run(gcd_kernel, x, y, out, M=4, N=8)
    np.testing.assert_array_equal(out, np.gcd(x, y))


@BlockFunction
def parts(x):
    whole = 0
    rest = x
    if x >= 1.0:
        whole = x.to(tl.int32)
        rest = x - whole
    return whole, rest


def parts_kernel(x, whole, rest, N: tl.constexpr):
    i = tl.arange(0, N)
    w, r = tl.map_elementwise(parts, tl.load(x + i))
    tl.store(whole + i, w)
    tl.store(rest + i, r)


def test_several_results_of_different_types() -> None:
    x = np.array([0.5, 1.25, 7.0, -3.5, math.inf, 0.0, 2.5, 99.75], np.float32)[[0, 1, 2, 3, 5, 5, 6, 7]]
    whole, rest = np.zeros(8, np.int32), np.zeros(8, np.float32)
    run(parts_kernel, x, whole, rest, N=8)
    want = [(math.floor(v), v % 1) if v >= 1 else (0, v) for v in x.tolist()]
    assert list(zip(whole.tolist(), rest.tolist(), strict=True)) == want


@BlockFunction
def quotients_and_rests(a0, a1, b0, b1):
    return a0 // b0, a1 // b1, a0 % b0, a1 % b1


def pack_kernel(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    q, r = tl.map_elementwise(quotients_and_rests, tl.load(x + i), tl.load(y + i), pack=2)
    tl.store(out + i, q)
    tl.store(out + N + i, r)


def test_packs_of_neighbours() -> None:
    x, y = np.arange(100, 108, dtype=np.int32), np.arange(3, 11, dtype=np.int32)
    out = np.zeros(16, np.int32)
    run(pack_kernel, x, y, out, N=8)
    assert out.tolist() == [*(x // y).tolist(), *(x % y).tolist()]


@BlockFunction
def widened(x):
    return tl.full((4,), 1, tl.int32) + x


def returns_a_tile(x):
    tl.map_elementwise(widened, tl.load(x + tl.arange(0, 4)))


def of_scalars(x):
    tl.map_elementwise(greatest_common_divisor, tl.load(x), 2)


def bad_pack(x):
    tl.map_elementwise(greatest_common_divisor, tl.load(x + tl.arange(0, 4)), pack=3)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (returns_a_tile, "must return scalars, 1 for each result, got int32[4]"),
        (of_scalars, "tl.map_elementwise needs at least one tile"),
        (bad_pack, "pack must divide the number of elements, 4, got 3"),
    ],
)
def test_mistakes(kernel, message) -> None:
    with pytest.raises(CompilationError) as error:
        build(kernel, np.ones(4, np.int32))
    assert message in str(error.value) + str(error.value.__cause__)
