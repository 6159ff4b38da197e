"""Loads with a version without masks: what they give, and where there is one."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia.whole import whole

TYPES = {"x": "*fp32", "out": "*fp32", "rows": "i32", "columns": "i32"}
R, C = 16, 32


@tilewright.jit
def exponentials(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0) * R + tl.arange(0, R)[:, None]
    column = tl.program_id(1) * C + tl.arange(0, C)[None, :]
    mask = (row < rows) & (column < columns)
    tile = tl.load(x + row * columns + column, mask, 3.0)
    tl.store(out + row * columns + column, tl.exp(-tile) + 1, mask)


@tilewright.jit
def doubled(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    row, column = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    mask = (row < rows) & (column < columns)
    tl.store(out + row * columns + column, tl.load(x + row * columns + column, mask) * 2, mask)


@tilewright.jit
def softmax(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    row, column = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    mask = (row < rows) & (column < columns)
    e = tl.exp(tl.load(x + row * columns + column, mask, -float("inf")))
    tl.store(out + row * columns + column, e / tl.sum(e, 1)[:, None], mask)


@tilewright.jit
def all_stored(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    row, column = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    tile = tl.load(x + row * columns + column, (row < rows) & (column < columns), other=row * 0.5)
    tl.store(out + row * C + column, tl.exp(-tile))


@tilewright.jit
def product(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    row, column = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    tile = tl.exp(tl.load(x + row * columns + column, (row < rows) & (column < columns), 0.0))
    tl.store(out + row * R + tl.arange(0, R)[None, :], tl.dot(tile, tile.T))


def _made(kernel, **known):
    types = {name: type_ for name, type_ in TYPES.items() if name not in known}
    return whole(kernel, types, {"R": R, "C": C} | known, 90, num_warps=1)


@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (32, 32), (33, 67), (5, 33), (16, 31), (1, 1)])
def test_elements_at_the_edge(rows, columns):
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    out = np.full((rows + 2, columns), 7, np.float32)
    _made(exponentials).run((-(-rows // R), -(-columns // C)), x, out, rows, columns)
    np.testing.assert_allclose(out[:rows], np.exp(-x) + 1, rtol=1e-6)
    assert (out[rows:] == 7).all()


@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (15, 32), (16, 30), (0, 5)])
def test_elements_that_are_off(rows, columns):
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    out, expected = np.zeros((R, C), np.float32), np.repeat(np.arange(R, dtype=np.float32)[:, None] * 0.5, C, 1)
    expected[:rows, :columns] = x
    _made(all_stored).run((1,), x, out, rows, columns)
    np.testing.assert_allclose(out, np.exp(-expected), rtol=1e-6)


def _versions(kernel, **known) -> bool:
    return "vote.all" in _made(kernel, **known).lowered().llvm


def test_which_loads_have_two_versions():
    assert _versions(exponentials) and _versions(all_stored)
    assert not _versions(doubled), "little is computed"
    assert not _versions(softmax), "elements are reduced: all are waited for"
    assert not _versions(product), "elements are exchanged"
    assert not _versions(exponentials, R=4), "few instructions"
