"""Coordinates as bit fields: what a reshape makes of an index, for every element of random shapes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.backends.cpu.against import check
from tilewright.analysis.index import CONST, Index, identity, keeps_bits, reshape

EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12])


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of the same number of elements: runs of dims, each split or joined in a way of its own."""
    source: list[int] = []
    target: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        whole = draw(EXTENTS)
        parts = [draw(EXTENTS), whole]
        if draw(st.booleans()):
            parts.reverse()
        left, right = (parts, [math.prod(parts)]) if draw(st.booleans()) else (parts, parts)
        if draw(st.booleans()):
            left, right = right, left
        source += left
        target += right
    return tuple(source), tuple(target)


def _place(index: Index, element: tuple[int, ...]) -> tuple[int, ...]:
    """The coordinates that an index names when the loop variables are those of `element`."""
    return tuple(
        sum((f.lo if f.src == CONST else element[f.src] >> f.lo & ((1 << f.width) - 1)) << f.pos for f in coord)
        for coord in index
    )


@given(reshapes())
def test_a_reshape_of_bits_names_the_same_element(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    source, target = shapes
    assume(keeps_bits(source, target))
    index = reshape(identity(target), source, target)
    for number, element in enumerate(np.ndindex(*target)):
        assert _place(index, element) == np.unravel_index(number, source), (source, target, element)


@pytest.mark.parametrize(
    ("source", "target", "keeps"),
    [
        ((4, 8), (2, 16), True),
        ((3, 32), (96,), True),
        ((96,), (6, 16), True),
        ((3, 32), (12, 8), True),
        ((7, 1), (1, 7, 1), True),
        ((5, 4, 7), (5, 2, 2, 7), True),
        ((32, 3), (96,), False),
        ((6, 4), (8, 3), False),
        ((4, 3, 8), (12, 8), False),
        ((9,), (3, 3), False),
    ],
)
def test_which_reshapes_move_bits(source: tuple[int, ...], target: tuple[int, ...], keeps: bool) -> None:
    assert keeps_bits(source, target) is keeps
    assert keeps_bits(target, source) is keeps


def test_low_bits_of_a_loop_are_dropped() -> None:
    """Row i of the result is x[8 * (i // 8)]: bits 3 to 5 of the row at their own place, without those below."""
    text = """
module {
  tt.func public @k(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>) attributes {noinline = false} {
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %ps = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
    %pp = tt.addptr %ps, %r : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
    %x = tt.load %pp : tensor<64x!tt.ptr<f32>>
    %a = tt.reshape %x : tensor<64xf32> -> tensor<32x2xf32>
    %b, %b1 = tt.split %a : tensor<32x2xf32> -> tensor<32xf32>
    %c = tt.reshape %b : tensor<32xf32> -> tensor<16x2xf32>
    %d, %d1 = tt.split %c : tensor<16x2xf32> -> tensor<16xf32>
    %e = tt.reshape %d : tensor<16xf32> -> tensor<8x2xf32>
    %f, %f1 = tt.split %e : tensor<8x2xf32> -> tensor<8xf32>
    %g = tt.expand_dims %f {axis = 1 : i32} : tensor<8xf32> -> tensor<8x1xf32>
    %h = tt.broadcast %g : tensor<8x1xf32> -> tensor<8x8xf32>
    %i = tt.reshape %h : tensor<8x8xf32> -> tensor<64x1xf32>
    %j = tt.broadcast %i : tensor<64x1xf32> -> tensor<64x8xf32>
    %s = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32>
    %t = tt.reshape %s : tensor<512xi32> -> tensor<64x8xi32>
    %qs = tt.splat %q : !tt.ptr<f32> -> tensor<64x8x!tt.ptr<f32>>
    %qp = tt.addptr %qs, %t : tensor<64x8x!tt.ptr<f32>>, tensor<64x8xi32>
    tt.store %qp, %j : tensor<64x8x!tt.ptr<f32>>
    tt.return
  }
}
"""
    check(text, (1,), np.arange(64, dtype=np.float32), np.zeros(512, np.float32))
