"""Layouts as text: every layout is read back from what it is written as; constructors by name; what is no layout."""

from __future__ import annotations

import pytest

from tilewright.layouts import distributed, shared, text
from tilewright.layouts.f2 import LayoutError

MADE = [
    distributed.blocked((1, 2), (8, 4), (2, 1), (1, 0), (16, 8)),
    distributed.default_blocked((128,), 4, vector=4),
    distributed.mma_accumulator((2, 2), (64, 64)),
    distributed.mma_operand_b((4, 1), (32, 64), 16),
    distributed.wgmma_accumulator((4, 1), 64, (128, 128)),
    distributed.sliced(distributed.default_blocked((32, 64), 4), 1),
    shared.hardware_swizzled((64, 64), 16, 128),
    shared.swizzled((32, 32), 1, 1, 32),
    shared.row_major((4, 8, 16)),
]


@pytest.mark.parametrize("layout", MADE, ids=str)
def test_what_is_written_is_read_back(layout):
    assert text.parsed(text.spelled(layout)) == layout
    assert text.read(f'#tw.layout<"{text.spelled(layout)}">') == layout


@pytest.mark.parametrize(
    ("call", "layout"),
    [
        ("blocked((1, 2), (8, 4), (2, 1), (1, 0), (16, 8))", MADE[0]),
        ("default_blocked((128,), num_warps=4, vector=4)", MADE[1]),
        ("hardware_swizzled((64, 64), element_bits=16, swizzle_bytes=128)", MADE[6]),
    ],
)
def test_constructors_are_read_by_name(call, layout):
    assert text.read(call) == layout


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("register", "is no layout"),
        ("register=(0,1 : 4x2", "is no layout"),
        ("register=(0,1) : ax2", "is no layout"),
        ("register=(0,8) : 4x2", "does not lie in"),
        ("register=(1) : 4x2", "does not lie in"),
        ("blocked(open('x'))", "no call with constants"),
        ("round((1, 2))", "no layout 'round'"),
        ("blocked((1, 2))", "missing"),
        ("row_major((3.5,))", "row_major"),
    ],
)
def test_what_is_no_layout_is_refused(wrong, complaint):
    with pytest.raises(LayoutError, match=complaint.replace("(", r"\(")):
        text.read(wrong)
