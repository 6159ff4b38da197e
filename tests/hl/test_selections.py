"""Masks and selections that a configuration makes superfluous: tiles that begin and end at multiples of their size."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.hl.trace.tiles import Dividing

X = torch.randn(128, generator=torch.Generator().manual_seed(0))


@hl.kernel
def up_to_the_tile(x):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        total = hl.zeros([rows])
        for columns in hl.tile(rows.end):
            seen = rows.index[:, None] >= columns.index[None, :]
            total = total + torch.where(seen, x[columns][None, :], 0.0).sum(1)
        out[rows] = total
    return out


@pytest.mark.parametrize(("blocks", "masked"), [([32, 32], False), ([64, 32], False), ([32, 64], True)])
def test_tiles_up_to_the_end_of_another(blocks, masked):
    bound = up_to_the_tile.bind((X,))
    config = hl.Config(block_sizes=blocks)
    assert ("mask=" in bound.to_code(config)) is masked
    torch.testing.assert_close(bound.compile_config(config)(X), X.cumsum(0), rtol=1e-5, atol=1e-5)


def test_a_tensor_that_ends_within_a_tile_is_masked():
    x = X[:100].clone()
    bound, config = up_to_the_tile.bind((x,)), hl.Config(block_sizes=[32, 32])
    assert "mask=" in bound.to_code(config)
    torch.testing.assert_close(bound.compile_config(config)(x), x.cumsum(0), rtol=1e-5, atol=1e-5)


@hl.kernel
def from_the_tile(x):
    out = torch.empty_like(x)
    for columns in hl.tile(x.size(0)):
        total = hl.zeros([columns])
        for rows in hl.tile((columns.begin // 32) * 32, x.size(0), block_size=32):
            reached = columns.index < min(rows.begin + 32, x.size(0))
            total = total + torch.where(reached, hl.zeros([columns]) + x[rows].sum(), 0.0)
        out[columns] = total
    return out


@pytest.mark.parametrize(("block", "selects"), [(32, False), (16, False), (64, True)])
def test_lanes_that_every_pass_reaches(block, selects):
    bound, config = from_the_tile.bind((X,)), hl.Config(block_sizes=[block])
    assert ("tl.where" in bound.to_code(config)) is selects
    ends = X.view(-1, 32).sum(1).flip(0).cumsum(0).flip(0)
    torch.testing.assert_close(bound.compile_config(config)(X), ends.repeat_interleave(32), rtol=1e-5, atol=1e-5)


@hl.kernel
def from_the_tile_around(x):
    out = torch.empty_like(x)
    for columns in hl.tile(x.size(0)):
        total = hl.zeros([columns])
        for rows in hl.tile((columns.begin // 32) * 32, x.size(0), block_size=Dividing(32)):
            reached = columns.index < min(rows.begin // 32 * 32 + 32, x.size(0))
            total = total + torch.where(reached, hl.zeros([columns]) + x[rows].sum(), 0.0)
        out[columns] = total
    return out


@pytest.mark.parametrize(
    ("blocks", "selects"), [([32, 8], False), ([16, 16], False), ([32, 32], False), ([64, 8], True)]
)
def test_lanes_that_every_pass_in_a_larger_tile_reaches(blocks, selects):
    bound, config = from_the_tile_around.bind((X,)), hl.Config(block_sizes=blocks)
    assert ("tl.where" in bound.to_code(config)) is selects
    ends = X.view(-1, 32).sum(1).flip(0).cumsum(0).flip(0)
    torch.testing.assert_close(bound.compile_config(config)(X), ends.repeat_interleave(32), rtol=1e-5, atol=1e-5)


@hl.kernel
def pairs_of_a_tile(x, w):
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows] = (w[rows][:, None] * torch.exp(x[rows][None, :])).sum(1)
    return out


def test_a_tile_along_two_dimensions_is_cut_along_both():
    x, w = X[:70].clone(), X[30:100].clone()
    run = pairs_of_a_tile.bind((x, w)).compile_config(hl.Config(block_sizes=[16]))
    parts = zip(x.split(16), w.split(16), strict=True)
    expected = torch.cat([(one[:, None] * torch.exp(row[None, :])).sum(1) for row, one in parts])
    torch.testing.assert_close(run(x, w), expected, rtol=1e-5, atol=1e-5)
