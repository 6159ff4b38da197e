"""Loops over all iterations of many tiles, which become loops of loops, do what is written: also where iterations are left."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir
from tests.decisions.persistent import PERSISTENT

B = 16


def _run(kernel: Any, grid: tuple[int, ...], arrays: dict[str, Any], sizes: dict[str, int], **known: int) -> list[bool]:
    """Run a kernel on arrays of f32; whether its loops became loops of loops."""
    types = dict.fromkeys(arrays, "*fp32") | dict.fromkeys(sizes, "i32")
    compiled = Compiled(built_ir(kernel, types, **known))
    compiled(grid, *arrays.values(), *sizes.values())
    return [d["taken"] for d in compiled.program.decisions if d["subject"] == "delinearized loop"]


_WHOLE = ("with_moving_pointers", "fetched_if_there_is_more", "fetched_in_a_branch")
_NESTED = ("flat", "counted_through", "begun_anew_at_the_end", "with_moving_pointers")


@pytest.mark.parametrize("spelling", PERSISTENT, ids=lambda s: s.name)
@pytest.mark.parametrize(("m", "n", "k"), [(32, 48, 64), (37, 29, 41), (16, 16, 16), (64, 64, 5)])
def test_products(spelling: Any, m: int, n: int, k: int) -> None:
    if spelling.name in _WHOLE and (m % B or n % B or k % B):
        pytest.skip("for whole blocks")
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m + B, k + B), (k + B, n + B)))
    flat_a, flat_b = np.zeros(a.size, np.float32), np.zeros(b.size, np.float32)
    flat_a[: m * k], flat_b[: k * n] = a[:m, :k].ravel(), b[:k, :n].ravel()
    out = np.full((m, n), 7, np.float32)
    arrays, sizes = {"a": flat_a, "b": flat_b, "out": out}, {"m": m, "n": n, "k": k}
    taken = _run(spelling.fn, (3,), arrays, sizes, BM=B, BN=B, BK=B)
    np.testing.assert_array_equal(out, a[:m, :k] @ b[:k, :n])
    assert taken == [True] * (spelling.name in _NESTED)


# --- sums of runs of `period` rows, the last of them perhaps not ended ---


@tilewright.jit
def begun_before(x, out, n, period, B: tl.constexpr):
    i, run, step, acc = tl.arange(0, B), 0, -1, tl.zeros((B,), tl.float32)
    for t in range(n):
        step = tl.where(step == period - 1, 0, step + 1)
        if step == 0:
            acc = tl.load(out + run * B + i)
        acc += tl.load(x + t * B + i)
        if step == period - 1:
            tl.store(out + run * B + i, acc)
            run += 1
    tl.store(out + 40 * B + i, acc + step + 100 * run)


@tilewright.jit
def begun_behind(x, out, n, period, B: tl.constexpr):
    i, run, step, acc = tl.arange(0, B), 0, 0, tl.load(out + tl.arange(0, B))
    for t in range(n):
        acc += tl.load(x + t * B + i)
        step += 1
        if step == period:
            tl.store(out + run * B + i, acc)
            run += 1
            acc = tl.load(out + run * B + i)
            step = 0
    tl.store(out + 40 * B + i, acc + (step + period - 1) % period + 100 * run)


@tilewright.jit
def by_remainders(x, out, n, period, B: tl.constexpr):
    i, acc = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for t in range(n):
        acc = tl.load(x + t * B + i) + tl.where(t % period < 1, tl.load(out + t // period * B + i), acc)
        if t % period + 1 >= period:
            tl.store(out + t // period * B + i, acc)
    tl.store(out + 40 * B + i, acc + (n - 1) % period + 100 * (n // period))


@tilewright.jit
def written_in_each_iteration(x, out, n, period, B: tl.constexpr):
    """Nothing may be moved over the store behind the branch."""
    i, run, acc = tl.arange(0, B), 0, tl.zeros((B,), tl.float32)
    for t in range(n):
        step = t % period
        if step == 0:
            acc = tl.load(out + run * B + i)
        acc += tl.load(x + t * B + i)
        if step == period - 1:
            tl.store(out + run * B + i, acc)
            run += 1
        tl.store(out + 39 * B + i, acc)
    tl.store(out + 40 * B + i, tl.load(out + 39 * B + i) + (n - 1) % period + 100 * run)


@tilewright.jit
def old_sum_read(x, out, n, period, B: tl.constexpr):
    """The sum of the last run is read in the first iteration of the next one, and after the loop."""
    i, run, acc, old = tl.arange(0, B), 0, tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    for t in range(n):
        step = t % period
        old = tl.where(step == 0, acc, old)
        acc = tl.load(x + t * B + i) + tl.where(step == 0, tl.load(out + run * B + i), acc)
        if step == period - 1:
            tl.store(out + run * B + i, acc)
            run += 1
    tl.store(out + 38 * B + i, old)
    tl.store(out + 40 * B + i, acc + (n - 1) % period + 100 * run)


@pytest.mark.parametrize(
    ("kernel", "nested"),
    [(begun_before, 1), (begun_behind, 1), (by_remainders, 1), (written_in_each_iteration, 1), (old_sum_read, 1)],
    ids=lambda value: str(getattr(getattr(value, "fn", None), "__name__", "")),
)
@pytest.mark.parametrize("period", [1, 2, 5, 40, 0, -3])
@pytest.mark.parametrize("n", [1, 5, 6, 10, 33])
def test_sums_of_runs(kernel: Any, nested: int, n: int, period: int) -> None:
    if period < 1 and kernel is not begun_before:
        pytest.skip("a remainder by it means something else")
    rng = np.random.default_rng(n)
    x, out = rng.integers(0, 9, (n, B)).astype(np.float32), np.zeros((41, B), np.float32)
    out[:38] = np.arange(38)[:, None]
    want, acc, run, step, sums = out.copy(), np.zeros(B, np.float32), 0, -1, [np.zeros(B, np.float32)]
    for row in x:
        step = 0 if step == period - 1 else step + 1
        acc = row + (want[run] if step == 0 else acc)
        if step == period - 1:
            want[run] = acc
            sums.append(acc)
            run += 1
    begun = want[run] if kernel is begun_behind and step == period - 1 else acc
    want[40] = begun + step + 100 * run
    want[39] = acc if kernel is written_in_each_iteration else want[39]
    want[38] = want[38] if kernel is not old_sum_read else sums[-1 - (step == period - 1)]
    taken = _run(kernel, (1,), {"x": x, "out": out}, {"n": n, "period": period}, B=B)
    np.testing.assert_array_equal(out, want)
    assert len(taken) == nested
