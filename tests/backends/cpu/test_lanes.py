"""Which dims of a tile get the lanes."""

from __future__ import annotations

import pytest

from tilewright.backends.cpu.plan.lanes import make_chunking


@pytest.mark.parametrize(
    ("shape", "lanes"),
    [
        ((16, 64), {1: 6}),
        ((16, 56), {1: 3}),
        ((56, 28), {1: 2}),
        ((64, 13), {0: 6}),
        ((16, 2), {1: 1, 0: 4}),
        ((4, 8), {1: 3, 0: 2}),
        ((2, 2, 2, 2, 2), {4: 1, 3: 1, 2: 1, 1: 1}),
    ],
)
def test_a_row_that_goes_on_keeps_its_lanes_to_itself(shape, lanes):
    chunking = make_chunking(shape, sorted(range(len(shape)), reverse=True), 64, 16, -1)
    assert {dim: bits for dim, (_, bits) in chunking.lane_bits.items()} == lanes
