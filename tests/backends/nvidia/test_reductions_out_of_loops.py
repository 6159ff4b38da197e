"""Reductions that a loop gathers are made once behind it, and give what they gave."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.whole import whole

B = 16


@tilewright.jit
def sums_and_extremes(x, out, n, B: tl.constexpr):
    i, j = tl.arange(0, B)[:, None], tl.arange(0, B)
    total, largest, ones = tl.full((B,), 3.0, tl.float32), -5.0, tl.zeros((B,), tl.int32)
    for start in range(0, n, B):
        tile = tl.load(x + (start + i) * B + j[None, :], start + i < n, 0.0)
        total += tl.sum(tile, 0)
        largest = tl.maximum(largest, tl.max(tl.max(tile, 0), 0))
        ones += tl.sum((tile > 0).to(tl.int32), 1)
    tl.store(out + j, total)
    tl.store(out + B + j, largest)
    tl.store(out + 2 * B + j, ones)


@tilewright.jit
def sums_that_are_read(x, out, n, B: tl.constexpr):
    j, total = tl.arange(0, B), 0.0
    for start in range(0, n):
        total += tl.sum(tl.load(x + start * B + j))
        tl.store(out + start * B + j, total)


TYPES = {"x": "*fp32", "out": "*fp32", "n": "i32"}


def _run(kernel: Any, n: int) -> tuple[Any, Any, str]:
    x = np.random.default_rng(n).integers(-9, 10, (n + B) * B).astype(np.float32)
    out = np.zeros((max(n, 3) + 1) * B, np.float32)
    made = whole(kernel, TYPES, {"B": B}, 90, num_warps=1)
    made.run((1,), x, out, n)
    text = str(made.module)
    return x.reshape(-1, B), out.reshape(-1, B), text[text.index("scf.for") :]


@pytest.mark.parametrize("n", [0, 1, 16, 37])
def test_results_are_what_they_were(n):
    x, out, text = _run(sums_and_extremes, n)
    x = x[: -(-n // B) * B].copy()
    x[n:] = 0
    np.testing.assert_array_equal(out[0], 3 + x.sum(0))
    np.testing.assert_array_equal(out[1], max(-5, x.max(initial=-5)))
    np.testing.assert_array_equal(out[2], (x.reshape(-1, B, B) > 0).sum((0, 2)))
    body, _, behind = text.partition("scf.yield")
    assert "tt.reduce" not in body
    assert behind.count('"tt.reduce"') == 4


def test_what_the_loop_reads_is_reduced_there():
    x, out, text = _run(sums_that_are_read, 5)
    np.testing.assert_array_equal(out[:5], np.repeat(np.cumsum(x[:5].sum(1))[:, None], B, 1))
    assert "tt.reduce" in text.partition("scf.yield")[0]


@tilewright.jit
def large_tiles(x, out, n, B: tl.constexpr, WIDTH: tl.constexpr):
    i, j, total = tl.arange(0, B)[:, None], tl.arange(0, WIDTH), tl.zeros((WIDTH,), tl.float32)
    for start in range(0, n, B):
        total += tl.sum(tl.load(x + (start + i) * WIDTH + j[None, :], start + i < n, 0.0), 0)
    tl.store(out + j, total)


@pytest.mark.parametrize(("aligned", "copies"), [("", 0), ("!", 2)])
def test_large_tiles_that_lie_together_have_rings(aligned, copies):
    """In the first iterations before the loop, and in the loop."""
    x, out = np.random.default_rng(0).integers(-9, 10, (37, 64)).astype(np.float32), np.zeros(64, np.float32)
    types = {"x": f"*fp32{aligned}", "out": "*fp32", "n": "i32"}
    made = whole(large_tiles, types, {"B": B, "WIDTH": 64}, 90, num_warps=1, num_stages=2)
    assert str(made.module).count('"ttg.async_copy_global_to_local"') == copies
    made.run((1,), x, out, 37)
    np.testing.assert_array_equal(out, x.sum(0))
