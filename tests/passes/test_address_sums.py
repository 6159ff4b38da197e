"""Places that are computed and added in addresses: one sum for all iterations, or rows, where the base alone moves."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@tilewright.jit
def looked_up(x, ids, out, wide, planes, PLANES: tl.constexpr, N: tl.constexpr, WAY: tl.constexpr):
    i = tl.arange(0, N)
    row, column = tl.load(ids + i), tl.load(ids + N + i)
    if WAY == "loop":
        for plane in range(planes):
            at = x + plane * wide * wide
            tl.store(out + plane * N + i, tl.load(at + row * wide + column) - tl.load(at + row * wide + i))
    elif WAY == "tile":
        plane = tl.arange(0, PLANES)[:, None]
        at = x + plane * wide * wide
        tl.store(out + plane * N + i[None, :], tl.load(at + (row * wide)[None, :] + column[None, :]))
    else:  # the column changes, and is read in the loop
        for plane in range(planes):
            at = x + plane * wide * wide
            tl.store(out + plane * N + i, tl.load(at + row * wide + tl.load(ids + N + (i + plane) % N)))


@pytest.mark.parametrize("way", ["loop", "tile", "changing"])
def test_places(way: str) -> None:
    rng, wide, planes, n = np.random.default_rng(0), 50, 4, 32
    x, ids = (
        rng.standard_normal((planes, wide, wide)).astype(np.float32),
        rng.integers(0, wide, (2, n)).astype(np.int32),
    )
    out = np.zeros((planes, n), np.float32)
    looked_up[(1,)](x, ids, out, wide, planes, planes, n, way)
    row, column = ids
    if way == "loop":
        wanted = x[:, row, column] - x[:, row, np.arange(n)]
    else:
        shifts = range(planes) if way == "changing" else [0] * planes
        wanted = np.stack([x[p, row, np.roll(column, -shift)] for p, shift in enumerate(shifts)])
    np.testing.assert_array_equal(out, wanted)


@tilewright.jit
def far_apart(x, ids, out, N: tl.constexpr):
    i = tl.arange(0, N)
    there, back = tl.load(ids + i), tl.load(ids + N + i)
    for part in range(2):
        tl.store(out + part * N + i, tl.load(x + part * N + there + back))


def test_sums_are_as_wide_as_addresses() -> None:
    x, ids = np.arange(64, dtype=np.float32), np.zeros((2, 16), np.int32)
    ids[0], ids[1] = -(2**31) + np.arange(16), 2**31 - 1  # their sum is -1 + i, that of three numbers overflows
    ids[0] += 1
    out = np.zeros((2, 16), np.float32)
    far_apart[(1,)](x, ids, out, 16)
    np.testing.assert_array_equal(out, np.arange(32).reshape(2, 16))
    kinds = far_apart.warmup(x, ids, out, 16, grid=(1,)).asm["loops"]
    assert "16xi64" in kinds, "the sum is kept"
