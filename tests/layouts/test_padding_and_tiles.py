"""Masks of tiles that are no powers of two, and layouts under the shape operations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.layouts.simulator import tile_in
from tests.layouts.strategies import covering
from tilewright.layouts.distributed import default_blocked, mma_accumulator
from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.padding import Bounds, mask, padded_shape, register_bounds
from tilewright.layouts.picture import points
from tilewright.layouts.tile import (
    expand_tile,
    join_tiles,
    narrow_tile,
    reshape_tile,
    split_register,
    transpose_tile,
)


def test_padded_shape():
    assert padded_shape((1, 2, 3, 5, 100, 128)) == (1, 2, 4, 8, 128, 128)
    with pytest.raises(LayoutError, match="no elements"):
        padded_shape((4, 0))


@settings(max_examples=50)
@given(st.randoms(use_true_random=False), st.integers(1, 8), st.integers(1, 16), st.integers(0, 8))
def test_bounds(rng, rows, columns, mixing):
    """Each register's verdict is what all threads' coordinates say."""
    layout = covering(rng, {"register": 3, "lane": 3, "warp": 2, "block": 0}, (3, 4), mixing)
    held = mask(layout, (rows, columns))
    coordinates = np.array([tuple(o.values()) for _, o in points(layout)]).reshape(1, 4, 8, 8, 2)
    for register, bounds in enumerate(register_bounds(layout, (rows, columns))):
        inside = held[register]
        rows_of, columns_of = coordinates[..., register, 0], coordinates[..., register, 1]
        np.testing.assert_array_equal(inside, ((rows_of < rows) & (columns_of < columns)).transpose(2, 1, 0))
        if bounds.inside is not None:
            assert (inside == bounds.inside).all() and bounds.tests == ()
        else:
            needed = {axis for axis, (c, n) in enumerate(((rows_of, rows), (columns_of, columns))) if (c >= n).any()}
            assert set(bounds.tests) == needed and len(needed) > 0
    assert held.sum() >= rows * columns


def test_bounds_of_a_padded_row():
    layout = default_blocked((1, 192), 1, vector=2)  # four pairs per thread, 64 elements apart
    assert register_bounds(layout, (1, 192)) == (Bounds(True),) * 6 + (Bounds(False),) * 2
    assert register_bounds(layout, (1, 100))[2] == Bounds(None, (1,))


def shuffled(rng, shape):
    return covering(rng, {"register": 3, "lane": 5, "warp": 1, "block": 0}, shape, 5)


@settings(max_examples=40)
@given(st.randoms(use_true_random=False))
def test_shape_operations_move_nothing(rng):
    """A position holds the same element before and after, numbered in row-major order."""
    layout = shuffled(rng, (3, 5))
    held, numbers = tile_in(layout), np.arange(256).reshape(8, 32)
    for moved, tile in (
        (reshape_tile(layout, (4, 2, 32)), numbers.reshape(4, 2, 32)),
        (reshape_tile(layout, (256,)), numbers.reshape(256)),
        (reshape_tile(layout, (32, 8)), numbers.reshape(32, 8)),
        (transpose_tile(layout, (1, 0)), numbers.T),
        (expand_tile(layout, 1), numbers[:, None]),
        (transpose_tile(expand_tile(layout, 0), (1, 2, 0)), numbers[:, :, None]),
    ):
        assert tuple(moved.out_sizes.values()) == tile.shape
        np.testing.assert_array_equal(tile.ravel()[tile_in(moved)], held)


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_narrow(rng):
    """An operand of one column that is broadcast to the tile: every thread holds what its elements need."""
    layout = mma_accumulator((1, 2), (16, 16)) if rng.random() < 0.2 else shuffled(rng, (3, 5))
    axis = rng.randrange(2)
    narrow = narrow_tile(layout, axis)
    assert list(narrow.out_sizes.values())[axis] == 1
    has, needs = {}, {}
    for source, found in ((narrow, has), (layout, needs)):
        for inputs, outputs in points(source):
            thread = inputs["lane"], inputs["warp"]
            found.setdefault(thread, set()).add(tuple(c for i, c in enumerate(outputs.values()) if i != axis))
    assert has == needs


@settings(max_examples=15)
@given(st.randoms(use_true_random=False))
def test_join_and_split(rng):
    layout = shuffled(rng, (3, 5))
    joined = join_tiles(layout)
    assert list(joined.out_sizes.values()) == [8, 32, 2] and split_register(joined) == 0
    for inputs, outputs in points(layout):
        for half in range(2):
            inside = {**inputs, "register": 2 * inputs["register"] + half}
            assert joined(**inside) == {**outputs, "dim2": half}
    assert split_register(layout) is None
    turned = transpose_tile(reshape_tile(default_blocked((8, 2), 1), (8, 2)), (0, 1))
    assert split_register(turned) is None  # a lane selects along the last dim
