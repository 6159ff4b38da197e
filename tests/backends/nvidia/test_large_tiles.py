"""Tiles larger than the registers of a block: loops over strips where several passes read them, and equal results."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.whole import whole
from tests.language.kernel_runner import run, running_on

B = 16384  # 512 registers of each thread of one warp


@tilewright.jit
def shares(x, out, n, B: tl.constexpr):
    i, row = tl.arange(0, B), tl.program_id(0)
    values = tl.load(x + row * n + i, i < n, -float("inf"))
    powers = tl.exp2(values - tl.max(values, 0))
    tl.store(out + row * n + i, powers / tl.sum(powers, 0), i < n)


@tilewright.jit
def centred(x, out, n, B: tl.constexpr):
    """Columns of a tile of two dims, of which the second is cut."""
    i, j = tl.arange(0, 4)[:, None], tl.arange(0, B // 4)[None, :]
    inside = (i < 3) & (j < n)
    values = tl.load(x + i * n + j, inside, 0.0)
    away = tl.where(inside, values - (tl.sum(values, 1) / n)[:, None], 0.0)
    spread = tl.sum(away * away, 1)
    tl.store(out + i * n + j, away / spread[:, None], inside)


@tilewright.jit
def of_columns(x, out, n, B: tl.constexpr):
    """The dim that is reduced is the first; the sums are a tile of the second."""
    i, j = tl.arange(0, B // 4)[:, None], tl.arange(0, 4)[None, :]
    values = tl.load(x + i * 4 + j, i < n, 0.0)
    top = tl.max(tl.where(i < n, values, -float("inf")), 0)
    away = tl.where(i < n, top[None, :] - values, 0.0)
    tl.store(out + tl.arange(0, 4), tl.sum(away, 0))


@tilewright.jit
def in_turns(x, out, n, B: tl.constexpr):
    """Passes in a loop over rows, and what they find is carried along."""
    i, largest = tl.arange(0, B), 0.0
    for row in range(3):
        values = tl.load(x + row * n + i, i < n, 0.0)
        low, high = tl.min(values, 0), tl.max(values, 0)
        tl.store(out + row * n + i, (values - low) / (high - low + 1), i < n)
        largest = tl.maximum(largest, high)
    tl.store(out + 3 * n, largest)


def _shares(x, n):
    powers = np.exp2(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _centred(x, n):
    away = x - x.mean(1, keepdims=True)
    return away / (away * away).sum(1, keepdims=True)


def _of_columns(x, n):
    x = x.ravel()[: 4 * n].reshape(n, 4)
    return (x.max(0) - x).sum(0)


def _in_turns(x, n):
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    return np.append(((x - low) / (high - low + 1)).ravel(), max(0.0, x.max()))


CASES = [(shares, _shares, 5001, 3, 3), (shares, _shares, B, 3, 3), (centred, _centred, 1999, 1, 3)]
CASES += [(of_columns, _of_columns, 1777, 1, 2), (in_turns, _in_turns, 4100, 1, 3)]
TYPES = {"x": "*fp32!", "out": "*fp32!", "n": "i32"}


@pytest.mark.parametrize(("kernel", "expected", "n", "programs", "loops"), CASES)
def test_passes_are_loops_and_give_what_they_gave(kernel: Any, expected: Any, n: int, programs: int, loops: int):
    x = np.random.default_rng(n).integers(-9, 10, (3, max(n, 3000))).astype(np.float32)
    x = x[:, :n].copy() if kernel is not of_columns else x
    out = np.zeros(3 * n + 4, np.float32)
    made = whole(kernel, TYPES, {"B": B}, 90, num_warps=1)
    made.run((programs,), x, out, n)
    want = np.asarray(expected(x.astype(np.float64), n)).ravel()
    np.testing.assert_allclose(out[: want.size], want, rtol=2e-5, atol=1e-6)
    assert not out[want.size :].any()
    assert str(made.module).count("scf.for") == loops


@tilewright.jit
def in_place(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, i < n, 0.0)
    tl.store(x + i, values - tl.max(values, 0), i < n)


@tilewright.jit
def counted(x, out, n, B: tl.constexpr):
    """An atomic, which another program may have made before the second pass reads."""
    i = tl.arange(0, B)
    values = tl.load(x + i, i < n, 0.0)
    tl.atomic_add(out, tl.max(values, 0))
    tl.store(out + 1 + i, values, i < n)


@tilewright.jit
def places(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    values = tl.load(x + i, i < n, 0.0)
    tl.store(out + i, values - tl.argmax(values, 0).to(tl.float32), i < n)


@tilewright.jit
def once(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out, tl.sum(tl.load(x + i, i < n, 0.0), 0))


@tilewright.jit
def across(x, out, n, B: tl.constexpr):
    """Tops of columns, which the next pass would want in strips."""
    i, j = tl.arange(0, 2)[:, None], tl.arange(0, B // 2)[None, :]
    values = tl.load(x + j * 2 + i, j * 2 < n, 0.0)
    tl.store(out + j * 2 + i, tl.max(values, 0)[None, :] - values, j * 2 < n)


@pytest.mark.parametrize("kernel", [in_place, counted, places, once, across])
def test_what_may_change_meanwhile_is_taken_whole(kernel: Any):
    n, x = 1500, np.random.default_rng(3).integers(-9, 10, B).astype(np.float32)
    out, given = np.zeros(B + 1, np.float32), x.copy()
    made = whole(kernel, TYPES, {"B": B}, 90, num_warps=1)
    assert "scf.for" not in str(made.module)
    made.run((1,), x, out, n)
    want = {
        "in_place": given[:n] - max(given[:n].max(), 0),
        "counted": np.append(given[:n].max(), given[:n]),
        "places": given[:n] - given[:n].argmax(),
        "across": (given[:n].reshape(-1, 2).max(1, keepdims=True) - given[:n].reshape(-1, 2)).ravel(),
        "once": given[:1] * 0 + given[:n].sum(),
    }[kernel.__name__]
    np.testing.assert_allclose((x if kernel is in_place else out)[: want.size], want)


@pytest.mark.parametrize(("warps", "length"), [(4, 65536), (8, 131072)])
def test_a_long_row_is_assembled_without_spills(warps: int, length: int):
    _, cubin = whole(shares, TYPES, {"B": length}, 90, num_warps=warps).assembled()
    assert cubin.spill_bytes == 0
    assert cubin.registers <= 128


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "expected", "programs"), [(shares, _shares, 3), (in_turns, _in_turns, 1)])
@pytest.mark.parametrize("n", [40_001, 65_536])
def test_long_rows_on_the_gpu(kernel: Any, expected: Any, programs: int, n: int):
    x = np.random.default_rng(n).integers(-9, 10, (3, n)).astype(np.float32)
    out = np.zeros(3 * n + 1, np.float32)
    with running_on("cuda"):
        run(kernel, x, out, n, grid=(programs,), B=65_536)
    want = np.asarray(expected(x.astype(np.float64), n)).ravel()
    np.testing.assert_allclose(out[: want.size], want, rtol=1e-4, atol=1e-6)
