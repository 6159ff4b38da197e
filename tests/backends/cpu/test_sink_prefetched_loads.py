"""Loops of products that are rewritten (loads ahead, transposed sums, loops in loops) give what is written."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tests.decisions import matmul
from tilewright.base.decision import Decision

B = 16


@tilewright.jit
def stored_between(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """What is loaded for the next iteration is changed before that iteration."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x = tl.load(a_ptr + m[:, None] * K + k[None, :])
    for i in range(0, K, BK):
        u = tl.load(a_ptr + m[:, None] * K + (i + BK + k)[None, :], mask=(i + BK + k)[None, :] < K, other=0.0)
        tl.store(a_ptr + m[:, None] * K + (i + BK + k)[None, :], u + 1, mask=(i + BK + k)[None, :] < K)
        acc = tl.dot(x, tl.load(b_ptr + (i + k)[:, None] * N + n[None, :]), acc)
        x = u
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@tilewright.jit
def begun_elsewhere(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The first iteration has not what the loop would have loaded before it; the last tile is used after the loop."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x = tl.load(a_ptr + m[:, None] * K + k[None, :] + 1)
    for i in range(0, K - BK, BK):
        y = tl.load(b_ptr + (i + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
        x = tl.load(a_ptr + m[:, None] * K + (i + BK + k)[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc + x)


@tilewright.jit
def kept_for_later(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The last tile is used after the loop, by something else than a product."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x = tl.load(a_ptr + m[:, None] * K + k[None, :])
    for i in range(0, K - BK, BK):
        y = tl.load(b_ptr + (i + k)[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
        x = tl.load(a_ptr + m[:, None] * K + (i + BK + k)[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc + x)


def _run(kernel: Any, m: int, n: int, k: int, *, tiles: int = 1) -> tuple[Any, Any, Any, list[Decision]]:
    """Both matrices as they were, the result, and what was decided about loads ahead and turned products."""
    types = {"a_ptr": "*fp32", "b_ptr": "*fp32", "c_ptr": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    compiled = Compiled(built_ir(kernel, types, BM=B, BN=B, BK=B))
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m + B, max(k, 1)), (k + B, n)))
    first, c = a.copy(), np.zeros((m, n), np.float32)
    compiled((-(-m // B), -(-n // B)), a, b, c, m, n, k)
    subjects = ("sunk prefetch", "swapped operands", "loop of dots")
    return first, b, c, [d["taken"] for d in compiled.program.decisions if d["subject"] in subjects]


@pytest.mark.parametrize(
    "kernel",
    [matmul.loaded_ahead, matmul.loaded_ahead_and_after, matmul.turned_over, matmul.loaded_across],
    ids=lambda kernel: str(kernel.fn.__name__),
)
@pytest.mark.parametrize("k", [0, 1, 16, 48])
def test_of_a_product(kernel: Any, k: int) -> None:
    if k % B and kernel is not matmul.loaded_ahead:
        pytest.skip("only this kernel masks K")
    if not k and kernel is matmul.loaded_ahead_and_after:
        pytest.skip("it multiplies at least once")
    a, b, c, taken = _run(kernel, 20, 37, k)
    np.testing.assert_array_equal(c, a[:20, :k] @ b[:k])
    assert taken and all(taken)


@tilewright.jit
def two_an_iteration(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = matmul.rows_and_columns(BM, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for o in range(0, K, 2 * BK):
        for i in tl.static_range(2):
            k = o + i * BK + tl.arange(0, BK)
            x, y = tl.load(a_ptr + m[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + n[None, :])
            acc = tl.dot(x, y, acc)
    matmul.write(c_ptr, acc, m, n, M, N)


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (two_an_iteration, (0, 96)),
        (matmul.in_two_loops, (0, 32, 96)),
        (matmul.in_blocks_of_k, (0, 16, 80)),
        (matmul.unrolled, (512,)),
    ],
    ids=lambda value: str(getattr(getattr(value, "fn", None), "__name__", "")),
)
def test_of_one_loop(kernel: Any, sizes: tuple[int, ...]) -> None:
    for k in sizes:
        a, b, c, taken = _run(kernel, 20, 37, k)
        np.testing.assert_array_equal(c, a[:20, :k] @ b[:k])
        assert taken and all(taken)


@tilewright.jit
def uneven(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The third product has not the columns that follow."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.static_range(3):
        at = k + (i * BK if i < 2 else 3)
        acc = tl.dot(tl.load(a_ptr + m[:, None] * K + at[None, :]), tl.load(b_ptr + at[:, None] * N + n[None, :]), acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@tilewright.jit
def changed_between(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.static_range(3):
        at = k + i * BK
        x, y = tl.load(a_ptr + m[:, None] * K + at[None, :]), tl.load(b_ptr + at[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc)
        tl.store(b_ptr + (at + BK)[:, None] * N + n[None, :], y)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@pytest.mark.parametrize("kernel", [uneven, changed_between], ids=lambda kernel: str(kernel.fn.__name__))
def test_of_products_that_stay(kernel: Any) -> None:
    a, b, c, taken = _run(kernel, B, B, 64)
    places = [slice(0, 16), slice(16, 32), slice(3, 19) if kernel is uneven else slice(32, 48)]
    right = [b[place] for place in places] if kernel is uneven else [b[:16]] * 3
    np.testing.assert_array_equal(c, sum(a[:B, place] @ y for place, y in zip(places, right, strict=True)))
    assert taken == [False]


def test_what_may_not_be_loaded_later() -> None:
    a, b, c, taken = _run(stored_between, B, B, 48)
    assert taken == [False]
    np.testing.assert_array_equal(c, a[:B] @ b[:48])
    a, b, c, taken = _run(begun_elsewhere, B, B, 48)
    assert taken == [False]
    shifted = a.reshape(-1)[1:][: B * 48 - 1]
    first = np.lib.stride_tricks.as_strided(shifted, (B, B), (4 * 48, 4))
    np.testing.assert_array_equal(c, first @ b[:16] + a[:B, 16:32] @ b[16:32] + a[:B, 32:])


def test_the_last_tile_behind_the_loop() -> None:
    for k in (16, 48):
        a, b, c, taken = _run(kept_for_later, B, B, k)
        assert set(taken) == {True}
        np.testing.assert_array_equal(c, a[:B, : k - B] @ b[: k - B] + a[:B, k - B : k])


@tilewright.jit
def more_in_some_iterations(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Half of the next tiles are zeros: another iteration follows, and still nothing is loaded."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x = tl.load(a_ptr + m[:, None] * K + k[None, :])
    for i in range(0, K, BK):
        more = (i + BK < K) & (i % (2 * BK) == 0)
        u = tl.load(a_ptr + m[:, None] * K + (i + BK + k)[None, :], more, 0.0)
        acc = tl.dot(x, tl.load(b_ptr + (i + k)[:, None] * N + n[None, :]), acc)
        x = u
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@tilewright.jit
def fewer_by_one(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The last tile is not loaded, though its iteration follows: the one before is multiplied again."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x = tl.load(a_ptr + m[:, None] * K + k[None, :])
    for i in range(0, K, BK):
        acc = tl.dot(x, tl.load(b_ptr + (i + k)[:, None] * N + n[None, :]), acc)
        if i + 2 * BK < K:
            x = tl.load(a_ptr + m[:, None] * K + (i + BK + k)[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


@tilewright.jit
def last_not_loaded(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Behind the loop the tile of zeros is read that the last iteration got for what it did not load."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    x = tl.load(a_ptr + m[:, None] * K + k[None, :])
    for i in range(0, K, BK):
        u = tl.load(a_ptr + m[:, None] * K + (i + BK + k)[None, :], i + BK < K, 0.0)
        acc = tl.dot(x, tl.load(b_ptr + (i + k)[:, None] * N + n[None, :]), acc)
        x = u
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc + x)


def test_conditions_under_which_the_next_tile_is_loaded() -> None:
    for kernel, third in ((more_in_some_iterations, 0), (fewer_by_one, 16), (last_not_loaded, 32)):
        a, b, c, taken = _run(kernel, B, B, 48)
        last = a[:B, third : third + B] * (kernel is not more_in_some_iterations)
        np.testing.assert_array_equal(c, a[:B, :32] @ b[:32] + last @ b[32:48])
        assert taken == [False]
    a, _, c, _ = _run(last_not_loaded, B, B, 0)  # no iteration: what was loaded before the loop
    np.testing.assert_array_equal(c, np.broadcast_to(a.reshape(-1)[:B], (B, B)))
