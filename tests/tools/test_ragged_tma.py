"""Ragged descriptors: blocks that hang over the end of their group are cut off there."""

from __future__ import annotations

import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import ArgumentError
from tilewright.tools.ragged_tma import atomic_add_ragged, create_ragged_descriptor, load_ragged, store_ragged

torch = pytest.importorskip("torch")


@tilewright.jit
def double_groups(source, target, offsets, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    group = tl.program_id(0)
    start = tl.load(offsets + group)
    length = tl.load(offsets + group + 1) - start
    for row in range(0, length, ROWS):
        block = load_ragged(source, start, length, [row, tl.program_id(1) * COLUMNS])
        store_ragged(target, start, length, [row, tl.program_id(1) * COLUMNS], block * 2 + 1)


@tilewright.jit
def one_block(source, out, start, length, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    block = load_ragged(source, start, length, [0, 0])
    tl.store(out + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS), block)


@tilewright.jit
def move_middle(source, target, start, length):
    block = load_ragged(source, start, length, [0, 0, 0], ragged_dim=1)
    store_ragged(target, start, length, [0, 0, 0], block, ragged_dim=1)


@pytest.mark.parametrize("interpret", [False, True])
@pytest.mark.parametrize("write_only", [False, True])
def test_groups_do_not_touch_each_other(interpret, write_only):
    lengths = [3, 0, 17, 8, 1]
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    x = torch.randn(int(offsets[-1]) + 5, 20)  # the last rows belong to no group
    out = torch.zeros_like(x)
    kernel = tilewright.jit(double_groups.fn, interpret=interpret)
    source, target = create_ragged_descriptor(x, [8, 16]), create_ragged_descriptor(out, [8, 16], write_only=write_only)
    kernel[(len(lengths), 2)](source, target, offsets, ROWS=8, COLUMNS=16)
    rows = int(offsets[-1])
    assert torch.equal(out[:rows], x[:rows] * 2 + 1)
    assert not out[rows:].any()


@tilewright.jit
def add_to_groups(target, start, length, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    atomic_add_ragged(target, start, length, [0, 0], tl.full((ROWS, COLUMNS), 1.0, tl.float32))


@pytest.mark.parametrize("write_only", [False, True])
def test_sums_stay_in_their_group(write_only):
    out = torch.zeros(20, 16)
    target = create_ragged_descriptor(out, [8, 16], write_only=write_only)
    add_to_groups[(3,)](target, 4, 5, ROWS=8, COLUMNS=16)
    rows = torch.arange(20)
    assert torch.equal(out, 3.0 * ((rows >= 4) & (rows < 9)).float()[:, None].expand(20, 16))


@pytest.mark.parametrize("interpret", [False, True])
def test_what_lies_behind_the_end_reads_as_zeros(interpret):
    x, out = torch.ones(40, 16), torch.full((8, 16), -1.0)
    kernel = tilewright.jit(one_block.fn, interpret=interpret)
    kernel[(1,)](create_ragged_descriptor(x, [8, 16]), out, 30, 5, ROWS=8, COLUMNS=16)
    assert torch.equal(out, (torch.arange(8) < 5).float()[:, None].expand(8, 16))


def test_another_dimension_may_be_ragged():
    x, out = torch.randn(4, 30, 8), torch.zeros(4, 30, 8)
    made = [create_ragged_descriptor(t, [4, 16, 8], ragged_dim=-2) for t in (x, out)]
    move_middle[(1,)](*made, 7, 11)
    assert torch.equal(out[:, 7:18], x[:, 7:18])
    assert not out[:, :7].any() and not out[:, 18:].any()


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((4, 8), {"ragged_dim": 1}, "last dimension cannot be ragged"),
        ((2, 2, 2, 8), {}, "at most 3 dimensions, got 4"),
        ((2, 2, 2, 2, 8), {"write_only": True}, "at most 4 dimensions, got 5"),
    ],
)
def test_what_cannot_be_ragged(shape, options, message):
    with pytest.raises(ArgumentError, match=message):
        create_ragged_descriptor(torch.zeros(shape), [1] * (len(shape) - 1) + [8], **options)
