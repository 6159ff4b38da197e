"""Dimensions of one element, which any index reads, under tiles of more lanes; and rows of none."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.base.knobs import knobs

BLOCKS = hl.Config(block_sizes=[4, 8])


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Nothing is compiled."""
    monkeypatch.setattr(knobs.runtime, "interpret", True)


@hl.kernel(config=BLOCKS)
def sums(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for columns in hl.tile(x.size(1)):
            total = total + x[rows, columns].sum(1)
        out[rows] = total
    return out


@hl.kernel(config=BLOCKS)
def largest(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        found = hl.full([rows], float("-inf"))
        for columns in hl.tile(x.size(1)):
            found = torch.maximum(found, torch.exp(x[rows, columns]).cumsum(1).amax(1))
        out[rows] = found
    return out


@hl.kernel(config=hl.Config(block_sizes=[4, 4, 8]))
def product(x, y):
    out = torch.empty([x.size(0), y.size(1)])
    for m, n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([m, n])
        for k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[m, k], y[k, n])
        out[m, n] = acc
    return out


@hl.kernel(config=BLOCKS)
def by_index(x, at):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for places in hl.tile(at.size(0)):
            total = total + x[rows, at[places]].sum(1)
        out[rows] = total
    return out


@hl.kernel(config=hl.Config(block_sizes=[4]))
def masked(x):
    out = torch.empty([x.size(0)])
    for rows in hl.tile(x.size(0)):
        out[rows] = hl.load(x, [rows], extra_mask=rows.index + 1 < 3)
    return out


@hl.kernel
def of_rows(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], 1)
    return out


SHAPES = [(1, 1), (3, 1), (1, 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_lanes_behind_the_end_of_a_tile_count_for_nothing(shape):
    x = torch.randn(shape)
    torch.testing.assert_close(sums(x), x.sum(1))
    torch.testing.assert_close(largest(x), x.exp().cumsum(1).amax(1))
    torch.testing.assert_close(by_index(x, torch.zeros(3, dtype=torch.int64)), 3 * x[:, 0])


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_one_column_by_one_row(shape):
    x, y = torch.randn(shape), torch.randn(shape[1], 3)
    torch.testing.assert_close(product(x, y), x @ y)
    torch.testing.assert_close(product(y.t().contiguous(), x.t().contiguous()), y.t() @ x.t())


def test_loads_with_a_mask_of_their_own():
    assert torch.equal(masked(torch.ones(1)), torch.ones(1))


@pytest.mark.parametrize("rows", [0, 5])
def test_rows_of_no_elements(rows):
    assert of_rows(torch.empty(rows, 0)).shape == (rows, 0)
