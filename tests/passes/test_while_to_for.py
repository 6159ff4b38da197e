"""While loops that count, in many spellings, become for loops; others stay."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir, tile_ir
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.ops.control import ForOp, WhileOp


@tilewright.jit
def less(out, n, k):
    i, total = 0, 0
    while i < n:
        total += i + 1
        i += 3
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def at_most(out, n, k):
    i, total = k, 0
    while i <= n:
        total += i
        i = 2 + i
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def bound_first(out, n, k):
    i, total = 0, 0
    while n > i:
        total = total * 2 + i
        i += 1
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def room_left(out, n, k):
    i, total = k, 0
    while n - i > 0:
        total += i
        i += 4
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def room_with_margin(out, n, k):
    i, total = 0, 0
    while i + 2 < n + k:
        total += i * i
        i += 5
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def down_to_nothing(out, n, k):
    total = 0
    while n > 0:
        total = total * 3 + n
        n -= 4
    tl.store(out, total)
    tl.store(out + 1, n)


@tilewright.jit
def down_to_bound(out, n, k):
    i, total = n, 0
    while i >= k:
        total += i * 7
        i += -2
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def step_of_the_launch(out, n, k):
    i, total = tl.program_id(0), 0
    while i < n:
        total += i
        i += tl.num_programs(0)
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def wide_counter(out, n, k):
    i, total = n.to(tl.int64) * 0, 0
    while i < n:
        total += 1
        i += 1
    tl.store(out, total)
    tl.store(out + 1, i.to(tl.int32))


@tilewright.jit
def counter_in_the_middle(out, n, k):
    a, i, b = 1, 0, 2
    while i < n:
        a, b = b, a + i
        i += 1
    tl.store(out, a * 1000 + b)
    tl.store(out + 1, i)


@tilewright.jit
def two_counters(out, n, k):
    i, j = 0, n
    while i < n:
        i += 2
        j -= 1
    tl.store(out, j)
    tl.store(out + 1, i)


@tilewright.jit
def nested(out, n, k):
    i, total = 0, 0
    while i < n:
        j = i
        while j < n:
            total += j
            j += 2
        i += 3
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def moving_bound(out, n, k):
    i, total = 0, 0
    while i < n:
        total += i
        n -= 1
        i += 1
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def beside_data(out, n, k):
    """The value that an iteration advances by one may wrap: it is no counter, though it comes first."""
    i, value = 0, tl.load(out + 2)
    while i < n:
        value += 1
        i += 2
    tl.store(out, value)
    tl.store(out + 1, i)


@tilewright.jit
def beside_data_with_a_flag(out, n, k):
    """The counter is asked at the end of an iteration only."""
    i, value, more = 0, tl.load(out + 2), True
    while more:
        value += 1
        i += 2
        more = i < n
    tl.store(out, value)
    tl.store(out + 1, i)


COUNTING = [
    less, at_most, bound_first, room_left, room_with_margin, down_to_nothing, down_to_bound, step_of_the_launch,
    wide_counter, counter_in_the_middle, two_counters, nested, moving_bound,
    beside_data, beside_data_with_a_flag,
]  # fmt: skip


@tilewright.jit
def doubling(out, n, k):
    i, total = 1, 0
    while i < n:
        total += i
        i *= 2
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def until_equal(out, n, k):
    i, total = 0, 0
    while i != n:
        total += i
        i += 1
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def with_a_break(out, n, k):
    i, total = 0, 0
    while i < n:
        total += i
        if total > 50:
            break
        i += 1
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def beside_data_by_squares(out, n, k):
    """What is asked counts nothing that is known: the data does not count instead."""
    i, value = 0, tl.load(out + 2)
    while i * i < n * n:
        value += 1
        i += 2
    tl.store(out, value)
    tl.store(out + 1, i)


@tilewright.jit
def of_what_memory_holds(out, n, k):
    i = 0
    while i < tl.load(out + 2):
        i += 1
    tl.store(out, i)
    tl.store(out + 1, n)


OTHERS = [doubling, until_equal, with_a_break, beside_data_by_squares, of_what_memory_holds]
_TYPES = {"out": "*i32", "n": "i32", "k": "i32"}


def _loops(kernel):
    ops = [type(op) for op in tile_ir(kernel, _TYPES).walk()]
    return ops.count(ForOp), ops.count(WhileOp)


@pytest.mark.parametrize("kernel", COUNTING, ids=lambda kernel: kernel.fn.__name__)
def test_loops_that_count_are_for_loops(kernel):
    assert _loops(kernel) == (2 if kernel is nested else 1, 0)


@pytest.mark.parametrize("kernel", OTHERS, ids=lambda kernel: kernel.fn.__name__)
def test_other_loops_stay(kernel):
    assert _loops(kernel) == (0, 1)


@pytest.mark.parametrize("kernel", COUNTING + OTHERS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("held", [5, (1 << 31) - 2], ids=["small", "wraps"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 11, 12, 13])
def test_results_are_what_they_were(kernel, n, held):
    """Against the loop as the front end made it."""
    if kernel is of_what_memory_holds and held > 5:
        pytest.skip("would take that many iterations")
    out, want = (np.array([0, 0, held], np.int32) for _ in range(2))
    Compiled(tile_ir(kernel, _TYPES), passes=False)((1,), out, n, 3)
    memory = Memory()
    Evaluator(built_ir(kernel, _TYPES), memory).launch(kernel.fn.__name__, (1,), [memory.register(want), n, 3])
    assert np.array_equal(out, want)
