"""Operations that have no meaning on tiles are refused by name, with the reason."""

from __future__ import annotations

import pytest
import torch

from tilewright import hl


@hl.kernel(config=hl.Config(block_sizes=[4, 8]))
def on_tiles(operation, out, x):
    for rows in hl.tile(x.size(0)):
        for columns in hl.tile(x.size(1)):
            out[rows, columns] = operation(x[rows, columns])


REFUSED = {
    "flip": (lambda x: x.flip(1), "flip along a dimension that is a tile"),
    "roll": (lambda x: x.roll(1, 1), "roll along a dimension that is a tile"),
    "cat": (lambda x: torch.cat([x, x], 1), "cat along a dimension that is a tile"),
    "slice": (lambda x: x[:, 2:], "a slice that narrows a tile"),
    "select": (lambda x: x[:, 3], "select along a dimension that is a tile"),
    "cummax": (lambda x: x.cummax(1)[0], "hl.associative_scan"),
    "nonzero": (lambda x: x.nonzero(), "nonzero cannot be computed on tiles"),
    "masked_select": (lambda x: x.masked_select(x > 0), "masked_select cannot be computed on tiles"),
    "scatter": (lambda x: x.scatter(1, (x > 0).to(torch.int64), 0.0), "scatter cannot be computed on tiles"),
    "gcd": (lambda x: torch.gcd(x.int(), x.int()), "gcd cannot be computed on tiles"),
    "float64 sort": (lambda x: x.double().sort(1)[0], "sorting torch.float64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    function, reason = REFUSED[name]
    x = torch.randn(7, 21)
    with pytest.raises(hl.exc.UnsupportedOperation) as caught:
        on_tiles(function, torch.empty_like(x), x)
    assert reason in str(caught.value)


def test_unknown_operations_name_their_neighbours():
    x = torch.randn(7, 21)
    with pytest.raises(hl.exc.UnsupportedOperation) as caught:
        on_tiles(lambda x: torch.special.scaled_modified_bessel_k0(x), torch.empty_like(x), x)
    assert "near names that exist" in str(caught.value)
