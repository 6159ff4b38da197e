"""Blocks that are much longer than a row: what is computed past its end counts as often as it is written."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.families import FAMILIES
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir

B, ROWS = 1024, 3
LENGTHS = (0, 1, 64, 65, 300, 961, 1024)
Rows = np.ndarray[Any, Any]


@tilewright.jit
def softmax(x, y, n, m, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, tl.arange(0, B) < n, -float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + at, e / tl.sum(e, 0), mask=tl.arange(0, B) < n)


@tilewright.jit
def others_count(x, y, n, m, B: tl.constexpr):
    """What stands for elements that are not there is added up and multiplied."""
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i, i < n, 0.25)
    w = tl.load(x + tl.program_id(0) * B + i, i + 1 < m, 4.0)
    tl.store(y + tl.program_id(0) * B + i, tl.zeros((B,), tl.float32) + tl.sum(v, 0) + tl.max(v * w, 0), n - i > 0)


@tilewright.jit
def places_count(x, y, n, m, B: tl.constexpr):
    """Where the largest element is, and a sum of places."""
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i, mask=i < n, other=1.5)
    first = tl.argmax(v, 0) + tl.sum(tl.where(i < n, 0, i), 0)
    tl.store(y + tl.program_id(0) * B + i, v + first, mask=i < m)


@tilewright.jit
def chosen_instead(x, y, n, m, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.where(i < n, tl.load(x + tl.program_id(0) * B + i), 2.0)
    d = tl.where((i < m) & (i >= 1), v - tl.sum(v, 0) / B, 0.5)
    tl.store(y + tl.program_id(0) * B + i, d * tl.sum(d * d, 0))


@tilewright.jit
def whole_rows(x, y, n, m, B: tl.constexpr):
    """Rows and columns end; sums of columns, which are loops over rows."""
    i, j = tl.arange(0, 16), tl.arange(0, B // 16)
    at = tl.program_id(0) * B + i[:, None] * (B // 16) + j[None, :]
    v = tl.load(x + at, mask=(i[:, None] * 64 < n) & (2 * j[None, :] < m // 8), other=-1.0)
    tl.store(y + at, v * tl.sum(v, 0)[None, :] + tl.sum(v, 1)[:, None], mask=i[:, None] * 64 < n)


@tilewright.jit
def tile_of_rows(x, y, n, m, B: tl.constexpr):
    """Rows behind the last one count as well, and so does what stands for their elements."""
    i, j = tl.arange(0, 4), tl.arange(0, B // 4)
    inside = (i[:, None] * (B // 4) < n) & (j[None, :] < m // 4)
    v = tl.load(x + tl.program_id(0) * B + i[:, None] * (B // 4) + j[None, :], inside, 0.5)
    e = v - tl.max(v, 1)[:, None]
    total = tl.sum(tl.sum(e, 1), 0) + tl.sum(tl.sum(v, 0), 0)
    tl.store(y + tl.program_id(0) * B + i[:, None] * (B // 4) + j[None, :], e * tl.sum(e, 1)[:, None] + total, inside)


def _softmax(v: Rows, n: int, m: int) -> Rows:
    inside = np.arange(B) < n
    e = np.where(inside, np.exp(v - np.max(v[:n], initial=-np.inf)), 0)
    return e / e.sum()


def _others_count(v: Rows, n: int, m: int) -> Rows:
    i = np.arange(B)
    v, w = np.where(i < n, v, 0.25), np.where(i + 1 < m, v, 4)
    return np.full(B, v.sum() + (v * w).max())


def _places_count(v: Rows, n: int, m: int) -> Rows:
    v = np.where(np.arange(B) < n, v, 1.5)
    return v + v.argmax() + np.arange(n, B).sum()


def _chosen_instead(v: Rows, n: int, m: int) -> Rows:
    i = np.arange(B)
    v = np.where(i < n, v, 2)
    d = np.where((i < m) & (i >= 1), v - v.sum() / B, 0.5)
    return d * (d * d).sum()


def _whole_rows(v: Rows, n: int, m: int) -> Rows:
    i, j = np.arange(16)[:, None], np.arange(B // 16)[None, :]
    v = np.where((i * 64 < n) & (2 * j < m // 8), v.reshape(16, -1), -1)
    return (v * v.sum(0) + v.sum(1)[:, None]).reshape(-1)


def _tile_of_rows(v: Rows, n: int, m: int) -> Rows:
    i, j = np.arange(4)[:, None], np.arange(B // 4)[None, :]
    v = np.where((i * (B // 4) < n) & (j < m // 4), v.reshape(4, -1), 0.5)
    e = v - v.max(1)[:, None]
    return (e * e.sum(1)[:, None] + e.sum() + v.sum()).reshape(-1)


def _stored(kernel: Any, n: int, m: int) -> Rows:
    """Which elements of a row a kernel stores."""
    i = np.arange(B)
    tile = (i // 256 * 256 < n) & (i % 256 < m // 4)
    ends = {chosen_instead: i >= 0, places_count: i < m, whole_rows: i // 64 * 64 < n, tile_of_rows: tile}
    return ends.get(kernel, i < n)


KERNELS: list[tuple[Any, Callable[[Rows, int, int], Rows]]] = [
    (softmax, _softmax), (others_count, _others_count), (places_count, _places_count),
    (chosen_instead, _chosen_instead), (whole_rows, _whole_rows),
    (tile_of_rows, _tile_of_rows),
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize(("kernel", "want"), KERNELS, ids=[kernel.fn.__name__ for kernel, _ in KERNELS])
def test_rows_shorter_than_a_block(kernel: Any, want: Callable[[Rows, int, int], Rows], family: Any) -> None:
    compiled = Compiled(built_ir(kernel, {"x": "*fp32", "y": "*fp32", "n": "i32", "m": "i32"}, B=B), isa=family.isa)
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (ROWS, B)).astype(np.float32) / 8
    for n in LENGTHS:
        for m in {n, n // 2, min(B, n + 130)}:
            y = np.full((ROWS, B), 7.0, np.float32)
            compiled((ROWS,), x, y, n, m)
            stored = _stored(kernel, n, m)
            with np.errstate(all="ignore"):
                rows = np.stack([want(row.astype(np.float64), n, m) for row in x])
            np.testing.assert_allclose(y, np.where(stored, rows, 7), rtol=2e-5, atol=1e-5, err_msg=f"{n} {m}")


def test_what_lies_past_the_end_is_computed_once() -> None:
    """NaN and negative zero go through sums and maxima past the end as they would chunk by chunk."""
    compiled = Compiled(built_ir(softmax, {"x": "*fp32", "y": "*fp32", "n": "i32", "m": "i32"}, B=B))
    said = [d["text"] for d in compiled.program.decisions if d["subject"] == "tail chunks"]
    assert said == ["computed once", "computed once", "left out"]
    x, y = np.full((1, B), np.nan, np.float32), np.zeros((1, B), np.float32)
    compiled((1,), x, y, 100, 0)
    assert np.isnan(y[0, :100]).all() and not y[0, 100:].any()


@tilewright.jit
def shares(x, out, n, BLOCK: tl.constexpr):
    """What lies past the end of a row adds a number for each element that is not there."""
    i = tl.program_id(0) * n + tl.arange(0, BLOCK)
    value = tl.exp(tl.load(x + i, tl.arange(0, BLOCK) < n, 0.0))
    tl.store(out + i, value / tl.sum(value, 0), tl.arange(0, BLOCK) < n)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 500, 1023, 1024])
def test_what_is_added_many_times(n: int) -> None:
    x, out = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32), np.zeros((3, n), np.float32)
    shares[(3,)](x, out, n, 1024)
    wanted = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(out, wanted / (wanted.sum(1, keepdims=True) + 1024 - n), rtol=1e-5)


@tilewright.jit
def counted(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, 7)
    tl.store(out, tl.sum(value * 3, 0))
    tl.store(out + 1, tl.xor_sum(value, 0))


@pytest.mark.parametrize("n", [0, 1, 64, 300, 1000, 1024])
def test_integers_many_times(n: int) -> None:
    x, out = np.random.default_rng(n).integers(-(2**31), 2**31, max(n, 1)).astype(np.int32), np.zeros(2, np.int32)
    counted[(1,)](x, out, n, 1024)
    whole = np.concatenate([x[:n], np.full(1024 - n, 7, np.int32)])
    np.testing.assert_array_equal(out, [(whole * np.int32(3)).sum(dtype=np.int32), np.bitwise_xor.reduce(whole)])
