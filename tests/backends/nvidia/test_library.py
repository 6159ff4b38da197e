"""Functions of the language that are made of reductions, scans, gathers and reshapes, whole, on the simulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.backends.nvidia.simt import Result
from tests.backends.nvidia.whole import whole
from tilewright.base.callable import BlockFunction

BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"
Array = np.ndarray[Any, Any]


@tw.jit
def sort_kernel(x, y, M: tl.constexpr, N: tl.constexpr, descending: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + places, tl.sort(tl.load(x + places), descending=descending))


@tw.jit
def sort_row_kernel(x, y, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(y + places, tl.sort(tl.load(x + places)))


@tw.jit
def topk_kernel(x, y, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    best = tl.topk(tl.load(x + places), K)
    tl.store(y + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :], best)


@tw.jit
def rows_kernel(x, y, z, M: tl.constexpr, N: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + places)
    tl.store(y + places, tl.softmax(value, 1))
    tl.store(z + tl.arange(0, M), tl.argmax(value, 1))
    tl.store(z + M + tl.arange(0, N), tl.argmin(value, 0))


@tw.jit
def scan_kernel(x, y, M: tl.constexpr, N: tl.constexpr, reverse: tl.constexpr):
    places = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + places)
    tl.store(y + places, tl.cumsum(value, 1, reverse=reverse) + tl.cumsum(value, 0, reverse=reverse))


@tw.jit
def scan_row_kernel(x, y, N: tl.constexpr):
    total = tl.cumsum(tl.load(x + tl.arange(0, N)))
    tl.store(y + tl.arange(0, N), tl.flip(total))


@tw.jit
def shuffle_kernel(x, y, M: tl.constexpr, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    flat = tl.reshape(tl.trans(value), (M * N,))
    pair = tl.join(flat, flat + 1000)
    left, right = tl.split(pair)
    tl.store(y + tl.arange(0, 2 * M * N), tl.cat(right, left, can_reorder=True))


@tw.jit
def count_kernel(x, y, N: tl.constexpr, BINS: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, BINS), tl.histogram(value, BINS, mask=value != 1))


@tw.jit
def total_kernel(x, y, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    best = tl.max(tl.load(x + tl.arange(0, BLOCK)))
    for start in range(0, n, BLOCK):
        value = tl.load(x + start + tl.arange(0, BLOCK))
        best = tl.maximum(best, tl.max(value))
        total += value - tl.sum(value) / BLOCK
    tl.store(y, tl.sum(total))
    tl.store(y + 1, best)


@tw.jit
def larger_and_divisor(a, i, b, j):
    divisor, rest = i, j
    while rest != 0:
        divisor, rest = rest, divisor % rest
    if a > b:
        return a, divisor
    elif a == b:
        return tl.maximum(a, b), divisor
    return b, divisor


@tw.jit
def combined_kernel(x, y, M: tl.constexpr, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    largest, divisor = tl.reduce((value, value), 1, larger_and_divisor)
    tl.store(y + tl.arange(0, M), largest)
    tl.store(y + M + tl.arange(0, M), divisor)


def launch(fn: BlockFunction, x: Array, *outputs: Array, num_warps: int = 4, **constants: Any) -> Result:
    kinds = {np.dtype(np.float32): "*fp32", np.dtype(np.int32): "*i32"}
    names = list(fn.signature.parameters)
    types = {name: kinds[array.dtype] for name, array in zip(names, (x, *outputs), strict=False)}
    return whole(fn, types, constants, 90, num_warps=num_warps).run((1,), x, *outputs)


@pytest.mark.parametrize("descending", (False, True))
@pytest.mark.parametrize(("shape", "num_warps"), (((8, 32), 4), ((3, 16), 2), ((1, 128), 1)), ids=str)
def test_sort(shape: tuple[int, int], num_warps: int, descending: bool) -> None:
    x = np.random.default_rng(1).integers(-50, 50, shape).astype(np.float32)
    y = np.zeros_like(x)
    ran = launch(sort_kernel, x, y, num_warps=num_warps, M=shape[0], N=shape[1], descending=descending)
    np.testing.assert_array_equal(y, np.sort(x, 1)[:, :: -1 if descending else 1])
    assert not ran.counts[BARRIER], "each row lies in one warp"


def test_a_sort_across_warps_waits_only_for_the_distant_partners() -> None:
    x = np.random.default_rng(1).permutation(256).astype(np.int32)
    y = np.zeros_like(x)
    ran = launch(sort_row_kernel, x, y, N=256)
    np.testing.assert_array_equal(y, np.sort(x))
    assert ran.counts[BARRIER] < 36, "of the 36 exchanges most are between neighbours"


@pytest.mark.parametrize(("shape", "k"), (((4, 32), 8), ((3, 64), 1)), ids=str)
def test_topk(shape: tuple[int, int], k: int) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    y = np.zeros((shape[0], k), np.float32)
    launch(topk_kernel, x, y, M=shape[0], N=shape[1], K=k)
    np.testing.assert_array_equal(y, -np.sort(-x, 1)[:, :k])


@pytest.mark.parametrize("shape", ((8, 64), (5, 7), (3, 96)), ids=str)
def test_softmax_and_argmax(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).integers(0, 5, shape).astype(np.float32)
    y, z = np.zeros_like(x), np.zeros(sum(shape), np.int32)
    launch(rows_kernel, x, y, z, M=shape[0], N=shape[1])
    weights = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, weights / weights.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(z, np.concatenate([x.argmax(1), x.argmin(0)]))


@pytest.mark.parametrize("shape", ((8, 64), (2, 200)), ids=str)
def test_functions_that_branch_and_loop(shape: tuple[int, int]) -> None:
    x = (
        np.random.default_rng(1).integers(1, 40, shape).astype(np.int32)
        * np.arange(2, 2 + shape[0], dtype=np.int32)[:, None]
    )
    y = np.zeros(2 * shape[0], np.int32)
    launch(combined_kernel, x, y, M=shape[0], N=shape[1])
    np.testing.assert_array_equal(y, np.concatenate([x.max(1), np.gcd.reduce(x, 1)]))


@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.parametrize("shape", ((8, 64), (5, 7)), ids=str)
def test_cumsum(shape: tuple[int, int], reverse: bool) -> None:
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.int32)
    y = np.zeros_like(x)
    launch(scan_kernel, x, y, M=shape[0], N=shape[1], reverse=reverse)
    turned = np.flip(x) if reverse else x
    want = turned.cumsum(1) + turned.cumsum(0)
    np.testing.assert_array_equal(y, np.flip(want) if reverse else want)


@pytest.mark.parametrize("size", (256, 96))
def test_a_row_summed_and_turned_around(size: int) -> None:
    x = np.random.default_rng(1).integers(-9, 9, size).astype(np.int32)
    y = np.zeros_like(x)
    launch(scan_row_kernel, x, y, N=size)
    np.testing.assert_array_equal(y, x.cumsum()[::-1])


@pytest.mark.parametrize("shape", ((8, 16), (5, 7)), ids=str)
def test_moves(shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)
    y = np.zeros(2 * x.size, np.int32)
    launch(shuffle_kernel, x, y, M=shape[0], N=shape[1])
    flat = x.T.ravel()
    np.testing.assert_array_equal(y, np.concatenate([flat + 1000, flat]))


def test_histogram() -> None:
    x = np.random.default_rng(1).integers(-2, 12, 200).astype(np.int32)
    y = np.zeros(10, np.int32)
    launch(count_kernel, x, y, N=200, BINS=10)
    np.testing.assert_array_equal(y, np.bincount(x[(x >= 0) & (x < 10) & (x != 1)], minlength=10))


def test_reductions_in_a_loop_share_scratch() -> None:
    x = np.random.default_rng(1).standard_normal(1024).astype(np.float32)
    y = np.zeros(2, np.float32)
    types = {"x": "*fp32", "y": "*fp32", "n": "i32"}
    whole(total_kernel, types, {"BLOCK": 256}, 90, num_warps=4).run((1,), x, y, 1024)
    assert abs(y[0]) < 1e-4
    assert y[1] == x.max()
