"""Loops: carried values, unrolling, options, and what is visible behind them."""

from __future__ import annotations

import tilewright.language as tl
from tests.frontend.helpers import F16, F32, I32, build, count, i32, jit, text


def test_only_values_that_change_are_carried() -> None:
    @jit
    def kernel(p, n, MASKED: tl.constexpr):
        acc = 0.0
        scale = 2.0
        same = 1.0
        for i in range(n):
            acc += tl.load(p + i) * scale
            same = same
            if MASKED:
                scale = scale * 2
        tl.store(p, acc + scale + same)

    assert "iter_args(%acc_1 = %0) -> (f32)  : i32" in text(kernel, F32, i32, False)
    assert "-> (f32, f32)  : i32" in text(kernel, F32, i32, True)


def test_swapped_values_are_carried_right() -> None:
    @jit
    def kernel(p, n):
        a = tl.load(p)
        b = tl.load(p + 1)
        c = tl.load(p + 2)
        for _ in range(n):
            a, b = b, a
            c = a
        tl.store(p, a - b + c)

    loop = next(op for op in build(kernel, F32, i32).module.walk() if op.name == "scf.for")
    _, a, b, _ = loop.regions[0].block.args
    assert list(loop.regions[0].block.last_op.operands) == [b, a, b]


def test_a_constant_argument_that_is_carried_becomes_a_tensor() -> None:
    @jit
    def total(p, start, n):
        for i in range(n):
            if start < 100:
                start += tl.load(p + i)
        return start

    @jit
    def kernel(p, n):
        tl.store(p, total(p, 0, n))

    printed = text(kernel, I32, i32)
    assert printed.count("tt.load") == 1 and printed.count("scf.for") == 1  # nothing of the first attempt is left


def test_bounds_and_direction() -> None:
    @jit
    def kernel(p, n):
        for i in range(3, n, 2):
            tl.store(p + i, 1.0)
        for i in range(n, 3, -2):
            tl.store(p + i, 1.0)

    up, down = (op for op in build(kernel, F32, i32).module.walk() if op.name == "scf.for")
    argument = up.operands[1]
    assert [up.operands[0].owner.splat_value, up.operands[2].owner.splat_value] == [3, 2]
    assert down.operands[1] is argument or down.operands[1].owner.name == "tt.func"
    assert [down.operands[0].owner.splat_value, down.operands[2].owner.splat_value] == [3, 2]
    assert [op.name for op in down.regions[0].block.ops][:2] == ["arith.subi", "arith.addi"]


def test_the_counter_has_the_promoted_type() -> None:
    @jit
    def kernel(p, n, m):
        for i in range(n, m):
            tl.static_assert(i.dtype == tl.int64)
        for j in range(0, 5000000000):
            tl.static_assert(j.dtype == tl.int64)
        for k in range(4):
            tl.static_assert(k.dtype == tl.int32)

    printed = text(kernel, F32, i32, tl.int64)
    assert printed.count(" : i64 {") == 2 and printed.count(" : i32 {") == 1


def test_options_of_a_loop() -> None:
    @jit
    def kernel(p, n):
        for i in tl.range(0, n, num_stages=3, loop_unroll_factor=2, flatten=True):
            tl.store(p + i, 0.0)

    printed = text(kernel, F32, i32)
    assert "{tt.flatten, tt.loop_unroll_factor = 2 : i32, tt.num_stages = 3 : i32}" in printed


def test_unrolled_loops() -> None:
    @jit
    def kernel(p, N: tl.constexpr):
        for i in tl.static_range(N - 1, -1, -1):
            offset: tl.constexpr = i * 2
            tl.store(p + offset, i)
        for pointer, value in ((p, 1.0), (p + 1, 2.0)):
            tl.store(pointer, value)
        for word in ("a", "b"):
            tl.static_assert(word == "a" or word == "b")

    found = count(kernel, F32, 3)
    assert found["tt.store"] == 5 and found["scf.for"] == 0


def test_range_objects_are_values() -> None:
    @jit
    def kernel(p, n):
        steps = range(n)
        for i in steps:
            tl.store(p + i, 0.0)

    assert count(kernel, F32, i32)["scf.for"] == 1


def test_tuples_and_pointers_are_carried() -> None:
    @jit
    def kernel(p, n):
        state = (tl.load(p), 0)
        q = p
        for i in range(n):
            state = (state[0] + tl.load(q), state[1] + i)
            q += 4
        tl.store(q, state[0] + state[1])

    assert "-> (f32, i32, !tt.ptr<f32>)" in text(kernel, F32, i32)


def test_nested_loops_and_branches() -> None:
    @jit
    def kernel(p, n, m):
        acc = 0.0
        for a in range(n):
            row = 0.0
            for b in range(a, m):
                v = tl.load(p + b)
                if b % 2 == 0:
                    row += v
                else:
                    row -= v
            acc = tl.maximum(acc, row)
        tl.store(p, acc)

    found = count(kernel, F32, i32, i32)
    assert (found["scf.for"], found["scf.if"], found["scf.yield"]) == (2, 1, 4)


def test_a_counter_may_be_used_again() -> None:
    @jit
    def kernel(p, n):
        i = 5
        for i in range(n):
            tl.store(p + i, 0.0)
        for j in range(n):
            for i in range(j):
                tl.store(p + i, 1.0)
        i = 7
        tl.store(p + i, 2.0)

    assert count(kernel, F32, i32)["scf.for"] == 3


def test_while() -> None:
    @jit
    def kernel(p, limit):
        x = tl.load(p)
        fixed = tl.load(p + 1)
        count = 0
        while (count < limit) & (x < 1000.0):
            x = x * 2 + fixed
            count += 1
            fixed = fixed
        tl.store(p, x + count)

    printed = text(kernel, F32, i32)
    assert ": (f32, i32) -> (f32, i32) {" in printed
    assert printed.count("scf.condition") == 1


def test_while_with_options_and_walrus() -> None:
    @jit
    def kernel(p, n):
        x = 0.0
        while tl.condition((x := x + tl.load(p)) < n, disable_licm=True):
            tl.store(p, x)
        tl.store(p, x)

    printed = text(kernel, F32, i32)
    assert "attributes {tt.disable_licm}" in printed and "(f32) -> f32" in printed


def test_calls_in_loops_may_return_early() -> None:
    @jit
    def clip(x):
        if x > 1.0:
            return 1.0
        return x

    @jit
    def kernel(p, n):
        acc = 0.0
        for i in range(n):
            acc += clip(tl.load(p + i))
        tl.store(p, acc)

    assert count(kernel, F32, i32)["scf.if"] == 1


def test_a_float16_accumulator_keeps_its_type() -> None:
    @jit
    def kernel(p, n):
        acc = tl.load(p)
        for i in range(n):
            acc = acc * 2
        tl.store(p, acc)

    assert "-> (f16)" in text(kernel, F16, i32)
