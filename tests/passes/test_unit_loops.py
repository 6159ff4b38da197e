"""Loops count their iterations from 0 by 1, as many as the loop of the program has, with its counter's values."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.cpu.harness import Compiled
from tests.backends.nvidia.laying import built_ir, tile_ir
from tilewright.analysis.iterations import counter_of, is_unit
from tilewright.backends.reference.address_space import Memory
from tilewright.backends.reference.evaluate import Evaluator
from tilewright.ops.control import ForOp

LEAST, MOST = -(1 << 31), (1 << 31) - 1
PLACES = 16


@tilewright.jit
def up(out, lo, hi):
    t = 0
    for k in range(lo, hi, 48):
        tl.store(out + t % 16, k)
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def up_from_zero(out, lo, hi):
    t = 0
    for k in range(0, hi, 1 << 28):
        tl.store(out + t % 16, k + lo * 0)
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def by_large_steps(out, lo, hi):
    t = 0
    for k in range(lo, hi, 1 << 28):
        tl.store(out + t % 16, k)
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def down(out, lo, hi):
    t = 0
    for k in range(hi, lo, -(1 << 28)):
        tl.store(out + t % 16, k)
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def down_to_zero(out, lo, hi):
    t = 0
    for k in range(hi - 64, -1, -64):
        tl.store(out + t % 16, k + lo * 0)
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def without_sign(out, lo, hi):
    t = 0
    for k in range(lo.to(tl.uint32), hi.to(tl.uint32), 1 << 28):
        tl.store(out + t % 16, k.to(tl.int32))
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def wide(out, lo, hi):
    t = 0
    for k in range(lo.to(tl.int64) * 4, hi.to(tl.int64) * 4, 1 << 30):
        tl.store(out + t % 16, (k // 4).to(tl.int32))
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def narrow(out, lo, hi):
    t = 0
    for k in range(lo.to(tl.int8), hi.to(tl.int8), tl.full([], 9, tl.int8)):
        tl.store(out + t % 16, k.to(tl.int32))
        t += 1
    tl.store(out + 16, t)


@tilewright.jit
def nested(out, lo, hi):
    t = 0
    for outer in range(lo, hi, 1 << 28):
        for k in range(outer, min(outer + (1 << 28), hi), 1 << 27):
            tl.store(out + t % 16, k)
            t += 1
    tl.store(out + 16, t)


SMALL, BELOW = [(0, 0), (0, 1), (3, 100), (-70, 70), (5, 5), (9, 2)], [(0, MOST), (MOST - 5, MOST), (7, -MOST)]
FAR = [(LEAST, MOST), (LEAST, LEAST + 3), (-3, MOST), (MOST, LEAST), (LEAST, 0)]
CASES = [
    (up, SMALL), (up_from_zero, SMALL + BELOW), (by_large_steps, SMALL + BELOW + FAR), (down, SMALL + BELOW + FAR),
    (down_to_zero, SMALL), (without_sign, SMALL + BELOW + FAR), (wide, SMALL + BELOW + FAR), (narrow, SMALL),
    (nested, SMALL),
]  # fmt: skip
TYPES = {"out": "*i32", "lo": "i32", "hi": "i32"}


def _name(kernel):
    return kernel.fn.__name__


@pytest.mark.parametrize(("kernel", "bounds"), CASES, ids=[_name(kernel) for kernel, _ in CASES])
def test_iterations_are_those_of_the_program(kernel, bounds):
    module = tile_ir(kernel, TYPES)
    loops = [op for op in module.walk() if isinstance(op, ForOp)]
    assert loops and all(is_unit(loop) for loop in loops)
    for lo, hi in bounds:
        out, want = (np.full(PLACES + 1, -7, np.int32) for _ in range(2))
        memory = Memory()
        Evaluator(built_ir(kernel, TYPES), memory).launch(_name(kernel), (1,), [memory.register(want), lo, hi])
        Compiled(tile_ir(kernel, TYPES), passes=False)((1,), out, lo, hi)
        np.testing.assert_array_equal(out, want, err_msg=f"{lo} to {hi}")


@tilewright.jit
def rows(out, lo, hi):
    for k in range(0, hi, 64):
        tl.store(out + k, k < hi - 64)


@tilewright.jit
def rows_of_programs(out, lo, hi):
    for k in range(lo, hi):
        tl.store(out + k, k)


@tilewright.jit
def rows_downwards(out, lo, hi):
    for k in range(hi - 64, -1, -64):
        tl.store(out + k, k)


def _loop(kernel):
    (loop,) = [op for op in tile_ir(kernel, TYPES).walk() if isinstance(op, ForOp)]
    return loop


@pytest.mark.parametrize(("kernel", "step"), [(rows, 64), (rows_of_programs, 1)], ids=["blocks", "rows"])
def test_the_counter_of_the_program_is_found_again(kernel, step):
    counter = counter_of(_loop(kernel))
    assert counter is not None and counter.step == step and counter.alone and counter.end.name_hint == "hi"


def test_no_counter_is_made_up():
    assert counter_of(_loop(rows_downwards)) is None
