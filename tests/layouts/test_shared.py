"""Shared-memory layouts against the address formulae that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.layouts.f2 import LayoutError
from tilewright.layouts.shared import SWIZZLE_ALIGNMENT, hardware_swizzled, padded, row_major, swizzled, widest_swizzle

SIZES = st.sampled_from([1, 2, 4, 8, 16, 32])


def offsets(layout) -> np.ndarray:
    """The offset of each element, as an array of the tile's shape."""
    result = np.full(tuple(layout.out_sizes.values()), -1)
    for offset in range(layout.in_sizes["offset"]):
        result[tuple(layout(offset=offset).values())] = offset
    assert (result >= 0).all()
    return result


@given(st.data(), st.integers(1, 3))
def test_row_major(data, rank):
    shape = tuple(data.draw(SIZES) for _ in range(rank))
    order = data.draw(st.permutations(range(rank)))
    dense = np.arange(np.prod(shape)).reshape([shape[axis] for axis in reversed(order)])
    expected = dense.transpose(np.argsort(list(reversed(order))))
    np.testing.assert_array_equal(offsets(row_major(shape, order)), expected)


@given(SIZES, SIZES, *[st.sampled_from([1, 2, 4, 8])] * 3, st.booleans())
def test_swizzled(rows, columns, vec, per_phase, max_phase, turned):
    order = (0, 1) if turned else (1, 0)
    shape = (columns, rows) if turned else (rows, columns)
    found = offsets(swizzled(shape, vec, per_phase, max_phase, order))
    found = found.T if turned else found
    for row in range(rows):
        for column in range(columns):
            phase = row // per_phase % max_phase
            moved = ((column // vec ^ phase) * vec + column % vec) % columns
            if vec <= columns:
                assert found[row, column] == row * columns + moved


def test_swizzled_batches():
    """Dims beyond the second are stacked whole."""
    one, three = offsets(swizzled((8, 32), 4, 1, 8)), offsets(swizzled((2, 8, 32), 4, 1, 8))
    np.testing.assert_array_equal(three, np.stack([one, one + 256]))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("width, mask", [(128, 7), (64, 3), (32, 1), (16, 0)])
@pytest.mark.parametrize("turned", [False, True])
def test_hardware_swizzle(bits, width, mask, turned):
    """Byte address: panel, row, column in the panel; then bits 4 and up are exclusive-ored with bits 7 and up."""
    size, rows = bits // 8, 16
    per_row = width // size
    for panels in (1, 2, 4):
        shape = (rows, panels * per_row)
        layout = hardware_swizzled(shape[::-1] if turned else shape, bits, width, (0, 1) if turned else None)
        found = offsets(layout)
        found = found.T if turned else found
        row, column = np.indices(shape)
        address = column // per_row * rows * width + row * width + column % per_row * size
        address ^= (address >> 7 & mask) << 4
        np.testing.assert_array_equal(found * size, address)
    assert SWIZZLE_ALIGNMENT[width] == 8 * width  # the pattern repeats after eight rows


def test_hardware_swizzle_takes_rows_of_all_outer_dims():
    flat, stacked = hardware_swizzled((16, 64), 16, 128), hardware_swizzled((2, 8, 64), 16, 128)
    np.testing.assert_array_equal(offsets(stacked).reshape(16, 64), offsets(flat))


def test_widest_swizzle():
    assert [widest_swizzle((8, n), 16) for n in (8, 16, 32, 64, 256)] == [16, 32, 64, 128, 128]
    assert widest_swizzle((128, 8), 8, (0, 1)) == 128
    with pytest.raises(LayoutError, match="narrower"):
        widest_swizzle((8, 4), 16)


@given(SIZES, SIZES, st.integers(0, 8), st.sampled_from([None, 4, 8, 64]))
def test_padded(rows, columns, padding, interval):
    buffer = padded((rows, columns), padding, interval)
    positions = buffer.position(offsets(buffer.layout)).ravel()
    step = interval or columns
    expected, at = [], 0
    for i in range(rows * columns):
        at += padding if i and i % step == 0 else 0
        expected.append(at + i)
    assert positions.tolist() == expected
    assert buffer.size == expected[-1] + 1


def test_refusals():
    for wrong, message in (
        (lambda: hardware_swizzled((8, 32), 16, 128), "narrower than 128"),
        (lambda: hardware_swizzled((8, 32), 16, 48), "no swizzle of 48"),
        (lambda: hardware_swizzled((8, 32), 4, 32), "elements of 4 bits"),
    ):
        with pytest.raises(LayoutError, match=message):
            wrong()
