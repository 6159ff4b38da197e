"""`reversed(hl.tile(...))` and `reversed(hl.grid(...))`: the passes of an inner loop from the last to the first."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl


@hl.kernel(config=hl.Config(block_sizes=[4, 8]))
def decayed(x: torch.Tensor, first: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        state = hl.zeros([rows])
        for columns in reversed(hl.tile(first, x.size(1))):
            state = 0.5 * state + x[rows, columns].sum(-1)
            out[rows, columns] = state[:, None] + columns.begin
    return out


@hl.kernel(config=hl.Config(block_sizes=[4]))
def suffixes(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        state = hl.zeros([rows])
        for column in reversed(hl.grid(x.size(1))):
            state = state + x[rows, column]
            out[rows, column] = state
    return out


def decayed_reference(x, first):
    out, state = torch.empty_like(x), torch.zeros(x.size(0))
    for begin in reversed(range(first, x.size(1), 8)):
        state = 0.5 * state + x[:, begin : begin + 8].sum(-1)
        out[:, begin : begin + 8] = state[:, None] + begin
    return out


@pytest.mark.parametrize(("columns", "first"), [(32, 0), (29, 0), (30, 3), (3, 0)])
def test_tiles_from_the_last_to_the_first(columns, first):
    x = torch.randn(6, columns)
    torch.testing.assert_close(decayed(x, first)[:, first:], decayed_reference(x, first)[:, first:])


@pytest.mark.parametrize("columns", [1, 7])
def test_indices_from_the_last_to_the_first(columns):
    x = torch.randn(6, columns)
    torch.testing.assert_close(suffixes(x), x.flip(1).cumsum(1).flip(1))


def test_a_range_without_tiles():
    x = torch.randn(6, 4)
    assert suffixes(x[:, :0]).shape == (6, 0)


def test_the_reference_has_the_same_order():
    x = torch.randn(6, 30)
    bound = decayed.bind((x, 3))
    torch.testing.assert_close(bound.run_ref(x, 3, mode=hl.RefMode.TILED)[:, 3:], decayed_reference(x, 3)[:, 3:])
