"""Loads that a loop makes for later iterations bring what they would have brought, for any number of iterations."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.laying import tile_ir
from tests.backends.nvidia.whole import whole
from tilewright.backends.nvidia.arch import target_of
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.pipeline import lay_out_module
from tilewright.ir.decisions import Decisions

TYPES = {"x": "*fp32", "ids": "*i32", "out": "*fp32", "n": "i32", "step": "i32"}
B = 32


@tilewright.jit
def by_counter(x, ids, out, n, step, B: tl.constexpr):
    """Masked elements are ones; the sums between threads need barriers."""
    j, total = tl.arange(0, B), 0.0
    for start in range(0, n * B - 5, step * B):
        total += tl.sum(tl.load(x + start + j, start + j < n * B - 5, 1.0))
        tl.store(out + j, total)


@tilewright.jit
def by_moving_pointers(x, ids, out, n, step, B: tl.constexpr):
    j, total = tl.arange(0, B), tl.zeros((B,), tl.float32)
    at, factor = x + j, x
    tl.store(out + j, total)
    for _ in range(0, n, step):
        total += tl.load(at) * tl.load(factor)
        tl.store(out + j, total)
        at += B
        factor += 1


@tilewright.jit
def by_table(x, ids, out, n, step, B: tl.constexpr):
    """Numbers of rows are loaded twice as far ahead as the rows."""
    j = tl.arange(0, B)
    for i in range(0, n, step):
        which = tl.load(ids + i)
        if which < 0:
            which += n
        tl.store(out + i * B + j, tl.load(x + which * B + j))


@tilewright.jit
def over_its_stores(x, ids, out, n, step, B: tl.constexpr):
    """Every iteration loads what the one before has stored."""
    j = tl.arange(0, B)
    for i in range(0, n - 1, step):
        tl.store(x + (i + step) * B + j, tl.load(x + i * B + j) + 1.0)


@tilewright.jit
def by_blocks(x, ids, out, n, step, B: tl.constexpr):
    """Few iterations, of many elements each."""
    j, total = tl.arange(0, B), 0.0
    for start in range(0, n * B, B):
        total += tl.sum(tl.load(x + start + j))
    tl.store(out + j, total)


@tilewright.jit
def by_pairs(x, ids, out, n, step, B: tl.constexpr):
    """Two steps of a recurrence in an iteration: the counter is multiplied, and that is no block of a tile."""
    j, state = tl.arange(0, B), tl.zeros((B,), tl.float32)
    for i in range(0, n // 2):
        first = i * 2
        for k in tl.static_range(2):
            state = state * 2 + tl.load(x + (first + k) * B + j)
            state -= tl.sum(state) * 0.125
            tl.store(out + (first + k) * B + j, state)


def _ahead(kernel: Any) -> list[str]:
    decisions = Decisions()
    module = tile_ir(kernel, TYPES, B=B)
    lay_out_module(module, CudaOptions(num_warps=2), target_of(90), decisions)
    return [d.text for d in decisions if d.subject == "double buffering" and d.taken]


def _wanted(kernel: Any, x: Any, ids: Any, out: Any, n: int, step: int) -> None:
    rows = x.reshape(-1, B)
    if kernel is by_counter:
        flat = np.where(np.arange(rows.size) < n * B - 5, x, 1.0).reshape(-1, B)
        out[:B] = sum(flat[i].sum() for i in range(0, n, step))
    elif kernel is by_moving_pointers:
        for iteration, _ in enumerate(range(0, n, step)):
            out[:B] += rows[iteration] * x[iteration]
    elif kernel is by_table:
        for i in range(0, n, step):
            out[i * B : (i + 1) * B] = rows[ids[i] % n]
    elif kernel is by_blocks:
        out[:B] = rows[:n].sum()
    elif kernel is by_pairs:
        state = np.zeros(B, np.float32)
        for i in range(n // 2 * 2):
            state = state * 2 + rows[i]
            state -= state.sum() * np.float32(0.125)
            out[i * B : (i + 1) * B] = state
    else:
        for i in range(0, n - 1, step):
            rows[i + step] = rows[i] + 1


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("kernel", [by_counter, by_moving_pointers, by_table, by_blocks, by_pairs, over_its_stores])
def test_results_are_what_they_were(kernel, n, step):
    rng = np.random.default_rng(n)
    x = rng.integers(-9, 10, (n + 4) * B).astype(np.float32)
    ids = rng.integers(-n, max(n, 1), max(n, 1)).astype(np.int32)
    out = np.zeros((n + 4) * B, np.float32)
    first, wanted = x.copy(), out.copy()
    made = whole(kernel, TYPES, {"B": B}, 90, num_warps=2)
    made.run((1,), x, ids, out, n, step)
    _wanted(kernel, first, ids[:n], wanted, n, step)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(x, first)


def test_where_an_iteration_keeps_loads_apart():
    assert _ahead(by_counter) == ["1 ahead"]
    assert _ahead(by_table) == ["2 ahead", "1 ahead"]
    assert _ahead(by_moving_pointers) == _ahead(by_pairs) == ["1 ahead"] * 2
    assert not [*_ahead(by_blocks), *_ahead(over_its_stores)]
