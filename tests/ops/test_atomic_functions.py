"""Atomic functions: old values, masks, floats by sign, types, and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import Held, build, run
from tilewright.base.errors import CompilationError, InterpreterError
from tilewright.ops.atomic import AtomicRMWOp

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(9)
N, BINS = 64, 8


def rmw_kernel(mem, values, old, n, F: tl.constexpr, N: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(values + i)
    tl.store(old + i, F(mem + i % BINS, v, mask=i < n), mask=i < n)


OPERATIONS = {
    "atomic_add": lambda a, b: a + b,
    "atomic_max": max,
    "atomic_min": min,
    "atomic_and": lambda a, b: a & b,
    "atomic_or": lambda a, b: a | b,
    "atomic_xor": lambda a, b: a ^ b,
    "atomic_xchg": lambda a, b: b,
}


KINDS = ["int32", "uint32", "int64", "uint64", "float32", "float64"]
INTEGERS_ONLY = ("atomic_and", "atomic_or", "atomic_xor")
CASES = [(name, kind) for name in OPERATIONS for kind in KINDS if name not in INTEGERS_ONLY or "int" in kind]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_lanes_update_memory_one_after_the_other(name: str, kind: str, backend: str) -> None:
    if kind.startswith("float"):
        values, memory = RNG.integers(-50, 50, N).astype(kind) / 2, RNG.integers(-9, 9, BINS).astype(kind)
    else:
        values = RNG.integers(0, 2**32, N, dtype=np.uint64).astype(kind)
        memory = RNG.integers(0, 2**32, BINS, dtype=np.uint64).astype(kind)
    wanted, seen, n = memory.copy(), np.zeros(N, kind), N - 5
    with np.errstate(over="ignore"):
        for i in range(n):
            seen[i] = wanted[i % BINS]
            wanted[i % BINS] = OPERATIONS[name](wanted[i % BINS], values[i])
    old = np.zeros(N, kind)
    run(rmw_kernel, memory, values, old, n, F=getattr(tl, name), N=N, BINS=BINS)
    if backend == "cuda":  # in any order there
        _check_any_order(name, memory, wanted, values[:n], old[:n])
        return
    np.testing.assert_array_equal(memory, wanted)
    if not (kind.startswith("float") and name in ("atomic_max", "atomic_min")):
        np.testing.assert_array_equal(old, seen)


def _check_any_order(name: str, memory: Any, wanted: Any, values: Any, old: Any) -> None:
    """What holds of the results of threads that update `memory` at once.

    Args:
        name: of the function.
        memory: what they left.
        wanted: what is left by updates in the order of lanes.
        values: what each lane brought; lane i went to place ``i % BINS``.
        old: what each lane got.
    """
    if name != "atomic_xchg":
        np.testing.assert_array_equal(memory, wanted)
        return
    for place in range(BINS):  # all but one value that was there, or came, has been handed on
        came, got = values[place::BINS], old[place::BINS]
        assert memory[place] in came
        assert len(got) == len(came) and np.isin(got, came).sum() >= len(came) - 1


def extremes_kernel(mem, F: tl.constexpr):
    F(mem, -0.0)
    F(mem + 1, 0.0)


def test_float_extremes_order_zeros_by_sign() -> None:
    memory = np.array([0.0, -0.0], np.float32)
    run(extremes_kernel, memory, F=tl.atomic_max)
    assert np.signbit(memory).tolist() == [False, False]
    memory = np.array([0.0, -0.0], np.float32)
    run(extremes_kernel, memory, F=tl.atomic_min)
    assert np.signbit(memory).tolist() == [True, True]


def half_kernel(mem):
    i = tl.arange(0, 4)
    tl.atomic_add(mem + i % 2, i.to(tl.float16))


@pytest.mark.parametrize("type_", [tl.float16, tl.bfloat16])
def test_small_floats_add(type_: Any) -> None:
    memory = Held(np.array([0.5, 1.5], np.float32), type_)
    run(half_kernel, memory)
    assert memory.values.tolist() == [2.5, 5.5]


@pytest.mark.parametrize("type_", [tl.float16, tl.bfloat16])
@pytest.mark.parametrize("name", ["atomic_max", "atomic_min"])
def test_extremes_of_small_floats(name: str, type_: Any, backend: str) -> None:
    values = np.float32(RNG.integers(-200, 200, N) / 2)
    start = np.float32([-1000, 1000, 0, -0.0, np.inf, -np.inf, 3, -3])
    memory, brought, old = Held(start, type_), Held(values, type_), Held(np.zeros(N, np.float32), type_)
    run(rmw_kernel, memory, brought, old, N - 5, F=getattr(tl, name), N=N, BINS=BINS)
    wanted, seen = start.copy(), np.zeros(N, np.float32)
    for i in range(N - 5):
        seen[i] = wanted[i % BINS]
        wanted[i % BINS] = OPERATIONS[name](wanted[i % BINS], values[i])
    np.testing.assert_array_equal(memory.values, wanted)
    assert np.isin(old.values[: N - 5], [*values, *start]).all() and not old.values[N - 5 :].any()


def cas_kernel(mem, old, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(old + i, tl.atomic_cas(mem + i, i, i * 10))
    tl.store(old + N, tl.atomic_cas(mem + 1, 10, -1, sem="acquire", scope="sys"))


def test_compare_and_swap() -> None:
    memory, old = np.array([0, 1, 7, 3], np.int32), np.zeros(5, np.int32)
    run(cas_kernel, memory, old, N=4)
    assert memory.tolist() == [0, -1, 7, 30]
    assert old.tolist() == [0, 1, 7, 3, 10]


def cas_of_constants(mem, old, NEW: tl.constexpr):
    tl.store(old, tl.atomic_cas(mem, 0, NEW))
    tl.store(old + 1, tl.atomic_cas(mem + 1, 0, NEW))


@pytest.mark.parametrize("kind", ["int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"])
@pytest.mark.parametrize("new", [1, -1, 2**16 - 1, 2**32 - 1, 2**64 - 1, True])
def test_compare_and_swap_takes_constants_that_fit_the_elements(kind: str, new: int) -> None:
    bits = np.dtype(kind).itemsize * 8
    memory, old = np.array([0, 3], kind), np.full(2, 9, kind)
    if "int" in kind and new >= 2**bits:
        with pytest.raises((CompilationError, InterpreterError), match=f"does not fit in {bits} bits"):
            run(cas_of_constants, memory, old, NEW=new)
        return
    run(cas_of_constants, memory, old, NEW=new)
    wanted = np.array([new % 2**bits], f"uint{bits}").view(kind)[0] if "int" in kind else np.dtype(kind).type(new)
    assert memory.tolist() == [wanted, 3] and old.tolist() == [0, 3]


def cas_of_the_other_sign(mem, values, old, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(values + i)
    tl.store(old + i, tl.atomic_cas(mem + i, v, (v + 1)))
    tl.store(old + N + i, tl.atomic_cas(mem + i, 6, v))


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_compare_and_swap_reads_integers_of_the_same_width_as_the_elements(bits: int, sign: str) -> None:
    mine, other = f"{sign}int{bits}", f"{'' if sign else 'u'}int{bits}"
    memory = np.array([5, 2**bits - 3, 6, 8], f"uint{bits}").view(mine)
    values = np.array([5, 2**bits - 3, 0, 8], f"uint{bits}").view(other)
    old = np.zeros(8, mine)
    run(cas_of_the_other_sign, memory, values, old, N=4)
    assert memory.view(f"uint{bits}").tolist() == [5, 2**bits - 2, 0, 9]
    assert old.view(f"uint{bits}").tolist() == [5, 2**bits - 3, 6, 8, 6, 2**bits - 2, 6, 9]


def all_of_constants(mem, old):
    tl.store(old + 0, tl.atomic_add(mem + 0, 7))
    tl.store(old + 1, tl.atomic_max(mem + 1, 7))
    tl.store(old + 2, tl.atomic_min(mem + 2, 7))
    tl.store(old + 3, tl.atomic_xchg(mem + 3, 7))
    tl.atomic_store(mem + 4, 7)


def bits_of_constants(mem, old):
    tl.store(old + 5, tl.atomic_and(mem + 5, 7))
    tl.store(old + 6, tl.atomic_or(mem + 6, 7))
    tl.store(old + 7, tl.atomic_xor(mem + 7, 7))


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64", "float32", "float64"])
def test_every_atomic_takes_integer_constants(kind: str) -> None:
    memory, old = np.arange(8, 16).astype(kind), np.zeros(8, kind)
    run(all_of_constants, memory, old)
    if "int" in kind:
        run(bits_of_constants, memory, old)
        assert memory.tolist() == [15, 9, 7, 7, 7, 5, 15, 8] and old.tolist() == [8, 9, 10, 11, 0, 13, 14, 15]
    else:
        assert memory.tolist() == [15, 9, 7, 7, 7, 13, 14, 15] and old.tolist() == [8, 9, 10, 11, 0, 0, 0, 0]


def spin_with(lock, count):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(count, tl.load(count) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64"])
def test_locks_of_every_kind_of_integer(kind: str) -> None:
    lock, count = np.zeros(1, kind), np.zeros(1, np.int32)
    run(spin_with, lock, count, grid=(8,))
    assert (lock[0], count[0]) == (0, 8)


def load_store_kernel(mem, out, n):
    i = tl.arange(0, 4)
    v = tl.atomic_load(mem + i, mask=i < n, sem="relaxed")
    tl.atomic_store(out + i, v, mask=i < n)


def test_atomic_load_and_store() -> None:
    memory, out = np.arange(4, dtype=np.int32) + 1, np.zeros(4, np.int32)
    run(load_store_kernel, memory, out, 3)
    assert out.tolist() == [1, 2, 3, 0]


def order_kernel(mem):
    tl.atomic_add(mem, 1)
    mem.atomic_add(2, sem="relaxed", scope="cta")


def test_orders_stand_in_the_ir() -> None:
    module = build(order_kernel, np.zeros(1, np.int32))
    first, second = (op.attr_values() for op in module.walk() if isinstance(op, AtomicRMWOp))
    assert first == {"atomic_rmw_op": "add", "sem": "acq_rel", "scope": "gpu"}
    assert second == {"atomic_rmw_op": "add", "sem": "relaxed", "scope": "cta"}


def bad_order(x):
    tl.atomic_add(x, 1, sem="later")


def bad_scope(x):
    tl.atomic_add(x, 1, scope="world")


def bits_of_floats(x):
    tl.atomic_and(x.to(tl.pointer_type(tl.float32)), 1.0)


def small_integers(x):
    tl.atomic_add(x.to(tl.pointer_type(tl.int16)), 1)


def small_maximum(x):
    tl.atomic_max(x.to(tl.pointer_type(tl.int16)), 1)


def cas_of_another_type(x):
    tl.atomic_cas(x, 0.0, 1.0)


def cas_of_another_width(x):
    tl.atomic_cas(x, tl.program_id(0).to(tl.int64), 1)


def poll_with_a_clock(x):
    tl.atomic_poll(x, 1, timeout_ns=1000)


def poll_floats(x):
    tl.atomic_poll(x.to(tl.pointer_type(tl.float32)), 1.0)


def poll_kernel(flags, out, N: tl.constexpr):
    i = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.atomic_store(flags + i, i + 1)
    else:
        tl.store(out + i, tl.atomic_poll(flags + i, i + 1).to(tl.int32))
        tl.store(out + N, tl.atomic_poll(flags + 2, 3, sem="relaxed", scope="sys").to(tl.int32))
        tl.store(out + N + 1 + i, tl.atomic_poll(flags + i, 2, timeout_ns=0).to(tl.int32))


def test_poll_waits_for_the_values_of_another_program() -> None:
    flags, out = np.zeros(4, np.int32), np.full(9, 7, np.int32)
    run(poll_kernel, flags, out, grid=(2,), N=4)
    assert out.tolist() == [1, 1, 1, 1, 1, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (bad_order, "Memory semantic later not supported"),
        (bad_scope, "Memory semantic world not supported"),
        (bits_of_floats, "atomic_and does not support fp32"),
        (small_integers, "atomic_add does not support int16"),
        (small_maximum, "atomic_max does not support int16"),
        (cas_of_another_type, "cmp of atomic_cas has type fp32 where int32 is needed"),
        (cas_of_another_width, "cmp of atomic_cas has type int64 where int32 is needed"),
        (poll_with_a_clock, "timeout_ns is None or 0"),
        (poll_floats, "atomic_poll takes pointers to integers"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError) as error:
        build(kernel, np.zeros(8, np.int32))
    assert message in str(error.value)
