"""Rows that a tile spans whole, and axes of one tile: lanes and offsets that generated code gives them."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl
from tilewright.hl.tune.machine import Machine


@hl.kernel(config=hl.Config(block_sizes=[4]))
def spread(x):
    """Values that masked lanes would spoil: exponentials, means, positions of extremes, products."""
    out, rest = torch.empty_like(x), x.new_empty([x.size(0), 4])
    for rows in hl.tile(x.size(0)):
        value = x[rows, :].float()
        shifted = value - value.mean(-1, keepdim=True)
        out[rows, :] = torch.softmax(shifted, -1)
        rest[rows, 0] = value.argmin(-1)
        rest[rows, 1] = torch.exp(-value * value).prod(-1)
        rest[rows, 2] = (value == value).all(-1)
        rest[rows, 3] = (value + 3).amin(-1)
    return out, rest


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [9, 17, 250])
def test_rows_that_are_no_whole_vectors(width, dtype):
    x = (torch.randn(7, width) * 0.1).to(dtype)
    wide = x.float()
    expected = torch.softmax(wide - wide.mean(-1, keepdim=True), -1).to(dtype)
    others = [wide.argmin(-1), torch.exp(-wide * wide).prod(-1), torch.ones(7), (wide + 3).amin(-1)]
    found, rest = spread(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(rest, torch.stack([other.to(dtype) for other in others], 1))
    code = spread.bind((x,)).to_code()
    lanes = -(-width // 16) * 16
    assert f"lane_{lanes} < {width}" in code and f"{width}, tl.float32" in code  # the mean is of the elements


@hl.kernel(config=hl.Config(block_sizes=[4, 8]))
def carried(x):
    out = x.new_zeros([x.size(0)])
    for rows in hl.tile(x.size(0)):
        acc = hl.zeros([rows, x.size(2)])
        for columns in hl.tile(x.size(1)):
            acc += x[rows, columns, :].sum(1) + 1
        out[rows] = acc.sum(-1)
    return out


def test_rounded_rows_are_carried_through_loops():
    x = torch.randn(5, 20, 21)
    torch.testing.assert_close(carried(x), (x.sum(1) + 3).sum(-1), atol=1e-4, rtol=1e-4)
    assert "[4, 32]" in carried.bind((x,)).to_code()


@hl.kernel(config=hl.Config(block_sizes=[4]))
def reshaped(x):
    out = x.new_zeros([x.size(0), 3])
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :].reshape(rows.block_size, 3, -1).sum(-1) + x[rows, :].sum(-1, keepdim=True)
    return out


def test_reshaped_and_short_rows_keep_their_extents():
    x = torch.randn(7, 30)
    torch.testing.assert_close(reshaped(x), x.view(7, 3, 10).sum(-1) + x.sum(-1, keepdim=True), atol=1e-5, rtol=1e-5)
    assert "lane_30" in reshaped.bind((x,)).to_code()
    assert "lane_7" in spread.bind((torch.randn(9, 7),)).to_code()


def test_a_gpu_keeps_all_extents():
    assert Machine("cuda", 132, 227 << 10).vector == 1


@hl.kernel
def doubled(x):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.shape):
        out[rows, columns] = x[rows, columns] * 2
    return out


@pytest.mark.parametrize("blocks", [[8, 64], [64, 8], [64, 64]])
@pytest.mark.parametrize("pid_type", ["flat", "xyz", "persistent_blocked"])
def test_an_axis_of_one_tile_begins_at_a_constant(blocks, pid_type):
    x = torch.randn(40, 50)
    config = hl.Config(block_sizes=blocks, pid_type=pid_type, l2_groupings=[2])
    code = doubled.bind((x,)).to_code(config)
    for name, block, extent in zip(("rows", "columns"), blocks, x.shape, strict=True):
        assert (f"offset_{name} = 0\n" in code) == (block >= extent)
    torch.testing.assert_close(doubled.bind((x,)).compile_config(config)(x), x * 2)
