"""Programs that wait for each other: for earlier ones in any launch, for all in a cooperative one."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from benchmarks import waiting
from tilewright.base.errors import DeviceAssertionError, OutOfResources


@tilewright.jit
def running_sum(x_ptr, out_ptr, sums_ptr, ready_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    before = 0
    if program > 0:
        while tl.atomic_add(ready_ptr + program - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(sums_ptr + program - 1)
    tl.store(sums_ptr + program, before + tl.sum(x))
    tl.atomic_xchg(ready_ptr + program, 1, sem="release")
    tl.store(out_ptr + at, before + tl.cumsum(x, 0))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("threading", ["auto", "pool"])
def test_a_program_may_wait_for_earlier_ones(threads, threading, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cpu, "num_threads", threads)
    monkeypatch.setattr(tilewright.knobs.cpu, "threading", threading)
    for programs in (1, 2, 5, 301):
        x = np.random.default_rng(0).integers(-9, 9, programs * 16, dtype=np.int32)
        out, sums, ready = np.zeros_like(x), np.zeros(programs, np.int32), np.zeros(programs, np.int32)
        running_sum[(programs,)](x, out, sums, ready, BLOCK=16)
        np.testing.assert_array_equal(out, np.cumsum(x))


@tilewright.jit
def rounds(x_ptr, arrived_ptr, COUNT: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    for step in range(COUNT):
        left = tl.atomic_add(x_ptr + (program + 1) % programs, 0, sem="relaxed")
        tl.atomic_add(arrived_ptr, 1, sem="acq_rel")
        while tl.atomic_add(arrived_ptr, 0, sem="acquire") < (2 * step + 1) * programs:
            pass
        tl.atomic_xchg(x_ptr + program, left, sem="relaxed")
        tl.atomic_add(arrived_ptr, 1, sem="acq_rel")
        while tl.atomic_add(arrived_ptr, 0, sem="acquire") < (2 * step + 2) * programs:
            pass


def test_all_programs_of_a_cooperative_grid_run_at_once(monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cpu, "num_threads", 2)
    for programs in (1, 2, 23):
        x, arrived = np.arange(programs, dtype=np.int32), np.zeros(1, np.int32)
        rounds[(programs,)](x, arrived, COUNT=3, launch_cooperative_grid=True)
        np.testing.assert_array_equal(x, np.roll(np.arange(programs), -3))


def test_a_cooperative_grid_has_a_largest_size():
    x, arrived = np.zeros(600, np.int32), np.zeros(1, np.int32)
    with pytest.raises(OutOfResources, match="programs of a cooperative grid, Required: 600, Hardware limit: 512"):
        rounds[(600,)](x, arrived, COUNT=1, launch_cooperative_grid=True)


@tilewright.jit
def guarded(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at)
    tl.device_assert((index >= 0) & (index < n), "no such element")
    tl.store(out_ptr + at, tl.load(x_ptr + index))


def test_what_an_assertion_guards_does_not_happen():
    x, index, out = np.arange(8.0), np.arange(16) % 8, np.zeros(16)
    index[5] = 2**40  # far from any memory
    with pytest.raises(DeviceAssertionError, match="no such element"):
        guarded[(4,)](x, index, out, 8, BLOCK=4, debug=True)
    index[5] = 5
    guarded[(4,)](x, index, out, 8, BLOCK=4, debug=True)
    np.testing.assert_array_equal(out, np.arange(16) % 8)


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_look_back_goes_on_with_more_threads_than_processors(threads, monkeypatch):
    monkeypatch.setattr(tilewright.knobs.cpu, "num_threads", threads)
    x = np.random.default_rng(0).integers(0, 9, 2000 * 16, dtype=np.int32)
    out, state = np.zeros_like(x), np.zeros(2000, np.int32)
    compiled = waiting.running_sum[(2000,)](x, out, state, BLOCK=16)
    np.testing.assert_array_equal(out, np.cumsum(x))
    assert compiled.metadata["waits"]


@tilewright.jit
def halves(x_ptr, out_ptr, n):
    found, first, last = 0, 0, n
    while first < last:  # bisection looks at memory, and waits for nobody
        found = (first + last) // 2
        if tl.load(x_ptr + found) < tl.program_id(0):
            first = found + 1
        else:
            last = found
    tl.store(out_ptr + tl.program_id(0), first)


@tilewright.jit
def under_lock(lock_ptr, sum_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(sum_ptr, tl.load(sum_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


def test_loops_that_may_wait_offer_their_processor():
    x, out, lock, total = np.arange(9, dtype=np.int32), np.zeros(9, np.int32), np.zeros(1, np.int32), np.zeros(1, int)
    bisected, locked = halves[(9,)](x, out, 9), under_lock[(50,)](lock, total)
    np.testing.assert_array_equal(out, x)
    assert total == 50
    for compiled, waits in ((bisected, False), (locked, True)):
        assert compiled.metadata["waits"] == waits
        assert ("sched_yield" in compiled.asm["llir"] or "SwitchToThread" in compiled.asm["llir"]) == waits
