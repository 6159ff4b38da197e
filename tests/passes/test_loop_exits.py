"""Loops that are left early, or of which some iterations do nothing, count to where that is; others stay."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir, tile_ir
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.ops.control import ForOp, IfOp, WhileOp


@tilewright.jit
def at_the_head(out, n, k):
    total = 0
    for i in range(0, n, 3):
        if i >= k:
            break
        total += i + 1
    tl.store(out, total)


@tilewright.jit
def beyond(out, n, k):
    total = 0
    for i in range(0, n):
        if i > k:
            break
        tl.store(out + 1, i)
        total += i
    tl.store(out, total)


@tilewright.jit
def otherwise(out, n, k):
    total = 0
    for i in range(0, n, 2):
        if i < k:
            total += i + 1
        else:
            break
    tl.store(out, total)


@tilewright.jit
def negated(out, n, k):
    total = 0
    for i in range(0, n, 2):
        if not (i + 1 <= k):
            break
        total += i + 1
    tl.store(out, total)


@tilewright.jit
def two_conditions(out, n, k):
    total = 0
    for i in range(0, n):
        if i >= k:
            break
        if i + i > 11:
            break
        total += i + 1
    tl.store(out, total)


@tilewright.jit
def either_condition(out, n, k):
    total = 0
    for i in range(n):
        if (i >= k) | (i * 3 >= 20):
            break
        total += i + 1
    tl.store(out, total)


@tilewright.jit
def for_ever(out, n, k):
    i, total = 0, 0
    while True:
        if i >= n:
            break
        total += i
        i += 4
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def at_least_once(out, n, k):
    i, total = k, 0
    while True:
        total += i
        tl.store(out + 2, total)
        i += 4
        if i >= n:
            break
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def before_the_step(out, n, k):
    i, j, total = 0, 0, 0
    while i < n:
        total += i
        tl.store(out + 2, total)
        if i >= k:
            break
        i += 2
        j += 5
    tl.store(out, total)


@tilewright.jit
def at_the_end_of_a_for(out, n, k):
    total = 0
    for i in range(0, n, 2):
        total += i + 1
        tl.store(out + 1, total)
        if i + 2 >= k:
            break
    tl.store(out, total)


@tilewright.jit
def done_is_a_flag(out, n, k):
    i, total = 0, 0
    done = n <= n - 1
    done = False
    while not done:
        total += i + 1
        tl.store(out + 1, total)
        i += 3
        done = i >= n
    tl.store(out, total)


@tilewright.jit
def returns(out, n, k):
    total = 0
    for i in range(0, n, 2):
        if i >= k:
            tl.store(out, total + 1000)
            return
        total += i + 1
    tl.store(out, total)


@tilewright.jit
def acts_before_it_leaves(out, n, k):
    total = 0
    for i in range(0, n):
        if i >= k:
            total = total * 2 + i
            tl.store(out + 2, total)
            break
        total += i + 1
    else:
        total += 500
    tl.store(out, total)


@tilewright.jit
def counter_behind(out, n, k):
    i, total = -1, 0
    for i in range(0, n, 3):
        if i >= k:
            break
        total += i + 1
    tl.store(out, total)
    tl.store(out + 1, i)


@tilewright.jit
def down(out, n, k):
    total = 0
    while n > 0:
        if n <= k:
            break
        total = total * 3 + n
        n -= 2
    tl.store(out, total)
    tl.store(out + 1, n)


@tilewright.jit
def another_counter(out, n, k):
    j, total = 3, 0
    for i in range(0, n, 2):
        if j > k:
            break
        total += i
        j += 4
    tl.store(out, total)
    tl.store(out + 1, j)


@tilewright.jit
def guarded(out, n, k):
    total = 0
    for i in range(0, n, 2):
        if i < k:
            total += i + 1
            tl.store(out + 1, i)
    tl.store(out, total)


@tilewright.jit
def skipped(out, n, k):
    total = 0
    for i in range(0, n, 2):
        if i * 2 >= k:
            continue
        total += i + 1
        tl.store(out + 1, i)
    tl.store(out, total)


@tilewright.jit
def nested(out, n, k):
    total = 0
    for i in range(0, n):
        if i >= k:
            break
        for j in range(i, n, 2):
            if j > k + i:
                break
            total += i * j + 1
    tl.store(out, total)


@tilewright.jit
def moving_limit(out, n, k):
    total = 0
    for i in range(0, n):
        if i >= k:
            break
        total += i
        k -= 1
    tl.store(out, total)


@tilewright.jit
def late_iterations_only(out, n, k):
    total = 0
    for i in range(0, n):
        if i >= k:
            total += i
    tl.store(out, total)


COUNTING = [
    at_the_head, beyond, otherwise, negated, two_conditions, either_condition, for_ever, at_least_once,
    before_the_step, at_the_end_of_a_for, done_is_a_flag, returns, acts_before_it_leaves, counter_behind, down,
    another_counter, guarded, skipped, nested, moving_limit, late_iterations_only,
]  # fmt: skip


@tilewright.jit
def what_was_found(out, n, k):
    total = 0
    for i in range(0, n):
        if total > 20:
            break
        total += i
    tl.store(out, total)


@tilewright.jit
def what_memory_holds(out, n, k):
    total = 0
    for i in range(0, n):
        if i > tl.load(out + 2):
            break
        total += i
    tl.store(out, total)


@tilewright.jit
def in_the_middle(out, n, k):
    total = 0
    for i in range(0, n):
        tl.store(out + 1, total)
        if i >= k:
            break
        total += i
        tl.store(out + 2, total)
    tl.store(out, total)


@tilewright.jit
def until_equal(out, n, k):
    total = 0
    for i in range(0, n):
        if i == k:
            break
        total += i
    tl.store(out, total)


OTHERS = [what_was_found, what_memory_holds, in_the_middle, until_equal]


@tilewright.jit
def idle_iterations_count(out, n, k):
    total, idle = 0, 0
    for i in range(0, n):
        if i < k:
            total += i
        else:
            idle += 1
    tl.store(out, total)
    tl.store(out + 1, idle)


GUARDS_THAT_STAY = [idle_iterations_count]
_TYPES = {"out": "*i32", "n": "i32", "k": "i32"}
_MOST = 2**31 - 1


def _name(kernel):
    return kernel.fn.__name__


def _loops(kernel):
    ops = [type(op) for op in tile_ir(kernel, _TYPES).walk()]
    return ops.count(ForOp), ops.count(WhileOp)


def _inner_branches(kernel):
    loops = [op for op in tile_ir(kernel, _TYPES).walk() if isinstance(op, ForOp)]
    return sum(isinstance(op, IfOp) for loop in loops for op in loop.body.walk())


@pytest.mark.parametrize("kernel", COUNTING, ids=_name)
def test_loops_that_are_left_under_a_bound_count_to_it(kernel):
    assert _loops(kernel) == (2 if kernel is nested else 1, 0)
    assert _inner_branches(kernel) == 0


@pytest.mark.parametrize("kernel", OTHERS, ids=_name)
def test_other_loops_stay(kernel):
    assert _loops(kernel) == (0, 1)


@pytest.mark.parametrize("kernel", GUARDS_THAT_STAY, ids=_name)
def test_other_guards_stay(kernel):
    assert _inner_branches(kernel) == 1


@pytest.mark.parametrize("kernel", COUNTING + OTHERS + GUARDS_THAT_STAY, ids=_name)
def test_results_are_what_they_were(kernel):
    """Against the loop as the front end made it; the largest number is no limit."""
    compiled, module = Compiled(tile_ir(kernel, _TYPES), passes=False), built_ir(kernel, _TYPES)
    for n in (-3, 0, 1, 2, 3, 11, 12):
        for k in (-5, 0, 1, 2, 5, 11, 30, _MOST):
            if k == _MOST and kernel in (nested, at_least_once):
                continue  # these count beyond it
            out, want = (np.array([0, 0, 5], np.int32) for _ in range(2))
            compiled((1,), out, n, k)
            memory = Memory()
            Evaluator(module, memory).launch(_name(kernel), (1,), [memory.register(want), n, k])
            assert np.array_equal(out, want), (n, k, out, want)


def test_options_of_a_loop_that_is_left_early_are_kept():
    @tilewright.jit
    def staged(out, n, k):
        for i in tl.range(0, n, num_stages=4):
            if i >= k:
                break
            tl.store(out + i, i)

    (loop,) = [op for op in tile_ir(staged, _TYPES).walk() if isinstance(op, ForOp)]
    assert loop.attributes["tt.num_stages"].value.data == 4
