"""Masks in many spellings compare the place of an element with a bound; what is no index is left alone."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir, tile_ir
from tilewright.analysis.axis import axis_facts
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import CmpIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import StoreOp


@tilewright.jit
def plain(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=i < n)


@tilewright.jit
def doubled(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=2 * i < 2 * n)


@tilewright.jit
def tripled_with_rest(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=i * 3 + 2 < 3 * n)


@tilewright.jit
def at_most(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=i <= n - 1)


@tilewright.jit
def last_place(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=n - 1 >= i)


@tilewright.jit
def next_place(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=i + 1 <= n)


@tilewright.jit
def room(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=n - i > 0)


@tilewright.jit
def both_moved(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=i + 7 < n + 7)


@tilewright.jit
def wide(out, n, s):
    i = s.to(tl.int64) + tl.arange(0, 64)
    tl.store(out + i, i.to(tl.int32), mask=i * 4 <= 4 * (n - 1))


@tilewright.jit
def not_beyond(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=~(i > n - 1) & (i >= 0))


@tilewright.jit
def backwards(out, n, s):
    i = s + tl.arange(0, 64)
    tl.store(out + i, i, mask=(i < n) & (0 <= 2 * i - 2 * s))


SPELLINGS = [plain, doubled, tripled_with_rest, at_most, last_place, next_place, room, both_moved, wide, not_beyond,
             backwards]  # fmt: skip


@tilewright.jit
def rows(out, n, s):
    i, j = s + tl.arange(0, 8), tl.arange(0, 64)
    tl.store(out + i[:, None] * n + j[None, :], j[None, :] + i[:, None] * 0, mask=(j * 2)[None, :] <= 2 * n - 2)


@tilewright.jit
def of_data(out, n, s):
    i = tl.arange(0, 64)
    x = tl.load(out + i) + 2147483647
    tl.store(out + i, i, mask=x + 1 <= n)


@tilewright.jit
def never_below(out, n, s):
    for start in range(0, n, 64):
        i = start + tl.arange(0, 64)
        tl.store(out + i, i, mask=(i >= 0) & (i < n))


_TYPES = {"out": "*i32!", "n": "i32!", "s": "i32!"}


def _name(kernel):
    return kernel.fn.__name__


def _start(kernel):
    return 0 if kernel is rows else 16


def _stores(kernel):
    module = tile_ir(kernel, _TYPES)
    (function,) = [op for op in module.walk() if isinstance(op, FuncOp)]
    facts = axis_facts(function)
    return [facts[op.mask] for op in function.walk() if isinstance(op, StoreOp)]


@pytest.mark.parametrize("kernel", SPELLINGS, ids=_name)
def test_masks_stay_the_same_for_as_long(kernel):
    (found,) = _stores(kernel)
    assert found.constancy == (16,)


def test_of_rows_as_well():
    (found,) = _stores(rows)
    assert found.constancy == (8, 16)


def test_numbers_from_memory_are_no_places():
    ranges = [op for op in tile_ir(of_data, _TYPES).walk() if isinstance(op, MakeRangeOp)]
    assert len(ranges) == 1
    assert str(tile_ir(of_data, _TYPES)).count("arith.addi") == 2


def test_bounds_that_always_hold_leave_the_mask():
    (mask,) = [op.mask for op in tile_ir(never_below, _TYPES).walk() if isinstance(op, StoreOp)]
    assert isinstance(mask.owner, CmpIOp)


@pytest.mark.parametrize("kernel", [*SPELLINGS, rows, of_data, never_below], ids=_name)
@pytest.mark.parametrize("n", [0, 16, 48, 64, 96])
def test_results_are_what_they_were(kernel, n):
    """Against the masks as the front end made them."""
    out, want = (np.full(1024, -5, np.int32) for _ in range(2))
    Compiled(tile_ir(kernel, _TYPES), passes=False)((1,), out, n, _start(kernel))
    memory = Memory()
    module = built_ir(kernel, _TYPES)
    Evaluator(module, memory).launch(_name(kernel), (1,), [memory.register(want), n, _start(kernel)])
    assert np.array_equal(out, want)
