"""The text emitter: literals, folding, memory, structured control; checked by compiling and running what it writes."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.backends.llvm import codegen, features
from tilewright.backends.llvm.module import Function, Module
from tilewright.backends.llvm.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    T,
    V,
    const,
    const_vector,
    float_bits,
    iota,
    wrap_int,
    zero,
)  # fmt: skip

_alive: list[object] = []


def run(emit: Callable[[Function], None], *arguments: int) -> str:
    """Compile `void k(i64...)`, call it with addresses or numbers, return the text."""
    module = Module(features.host())
    f = module.function("k", params=[I64] * len(arguments), linkage="")
    f.args = [
        f.cast("inttoptr", a, PTR) if i < len(arguments) and arguments[i] > 1 << 20 else a for i, a in enumerate(f.args)
    ]
    emit(f)
    f.ret()
    text = module.render()
    library = codegen.load(codegen.compile_object(text, features.host()), ["k"])
    _alive.append(library)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))(library.address("k"))(*arguments)
    return text


def test_types_are_interned_and_describe_themselves() -> None:
    assert T("float", 16) is T("float", 16)
    assert str(T("float", 16)) == "<16 x float>"
    assert (F32.vec(16).suffix, PTR.vec(4).suffix, I64.suffix) == ("v16f32", "v4p0", "i64")
    assert (F16.vec(8).as_int, F16.vec(8).bytes, I1.vec(8).bytes) == (T("i16", 8), 16, 8)


@given(st.floats(allow_nan=False, width=32))
def test_float_literals_keep_every_bit(value: float) -> None:
    want = struct.unpack("<I", struct.pack("<f", value))[0]
    assert float_bits(value, "float") == want
    number = struct.unpack("<d", struct.pack("<Q", int(const(F32, value).ref, 16)))[0] if value else 0.0
    assert struct.pack("<f", number) == struct.pack("<f", value) or value == 0


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_half_literals_round_like_numpy(value: float) -> None:
    with np.errstate(over="ignore"):
        assert float_bits(value, "half") == int(np.float16(value).view(np.uint16))


def test_literal_text() -> None:
    assert const(I32.vec(4), 5).ref == "splat (i32 5)"
    assert const(I8, 255).ref == "-1"
    assert const(I1, True).ref == "true"
    assert const(F32.vec(4), 0.0).ref == "zeroinitializer"
    assert const(F32, -0.0).ref != const(F32, 0.0).ref
    assert const(BF16, 1.0).ref == "0xR3F80"
    assert const(F64, math.inf).ref == "0x7FF0000000000000"
    assert iota(I32.vec(3), 2, 5).ref == "<i32 2, i32 7, i32 12>"


@given(st.sampled_from(["add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr"]), st.integers(), st.integers())
def test_folding_agrees_with_arithmetic(opcode: str, x: int, y: int) -> None:
    f = Module(features.describe("x86_64-unknown-linux-gnu", "x86-64")).function("k")
    x, y = wrap_int(x, 32), wrap_int(y, 32) if opcode not in ("shl", "lshr", "ashr") else y % 32
    unsigned = x & 0xFFFFFFFF
    want = {"add": x + y, "sub": x - y, "mul": x * y, "and": x & y, "or": x | y, "xor": x ^ y}
    want |= {"shl": x << (y % 32), "lshr": unsigned >> (y % 32), "ashr": x >> (y % 32)}
    assert f.op(opcode, const(I32, x), y).const == wrap_int(want[opcode], 32)


def test_neutral_operands_emit_nothing() -> None:
    f = Module(features.describe("x86_64-unknown-linux-gnu", "x86-64")).function("k", params=[I32, PTR])
    a, p = f.args
    assert f.add(a, 0) is a and f.mul(a, 1) is a and f.or_(a, 0) is a and f.and_(a, -1) is a
    assert f.mul(a, 0).const == 0
    assert f.gep(p, 0) is p
    assert f.select(const(I1, 1), a, const(I32, 3)) is a
    assert f.render().count("%v") == 0


def test_bits_taken_for_another_type_and_back_emit_one_cast() -> None:
    f = Module(features.describe("x86_64-unknown-linux-gnu", "x86-64")).function("k", params=[F32])
    bits = f.cast("bitcast", f.args[0], I32)
    assert f.cast("bitcast", bits, F32) is f.args[0] and f.cast("bitcast", bits, F32.vec(1)) is not f.args[0]
    assert f.render().count("bitcast") == 2


def test_mixed_types_are_refused() -> None:
    f = Module(features.describe("x86_64-unknown-linux-gnu", "x86-64")).function("k", params=[I32, I64])
    with pytest.raises(TypeError, match="add of i32 and i64"):
        f.add(*f.args)


def test_counted_loop_carries_values() -> None:
    out = np.zeros(2, np.int64)

    def emit(f: Function) -> None:
        place, count = f.args
        with f.loop(0, count, 3, [const(I64, 0), const(I64, 1)], unroll=False) as loop:
            total, product = loop.values
            loop.next(f.add(total, loop.index), f.mul(product, 2))
        f.store(loop.results[0], place)
        f.store(loop.results[1], f.gep(place, 1, I64))

    run(emit, out.ctypes.data, 10)
    assert out.tolist() == [0 + 3 + 6 + 9, 16]
    run(emit, out.ctypes.data, 0)
    assert out.tolist() == [0, 1]


def test_loop_of_one_iteration_is_straight_line() -> None:
    out = np.zeros(1, np.int64)

    def emit(f: Function) -> None:
        with f.loop(4, 8, 4, [const(I64, 5)]) as loop:
            loop.next(f.add(loop.values[0], loop.index))
        f.store(loop.results[0], f.args[0])

    assert "br " not in run(emit, out.ctypes.data)
    assert out[0] == 9


def test_while_and_branches() -> None:
    out = np.zeros(2, np.int64)

    def emit(f: Function) -> None:
        place, start = f.args

        def step(values: list[V]) -> list[V]:  # Collatz
            n, count = values
            odd = f.icmp("ne", f.and_(n, 1), 0)
            following = f.if_else(odd, lambda: [f.add(f.mul(n, 3), 1)], lambda: [f.lshr(n, 1)])[0]
            return [following, f.add(count, 1)]

        n, count = f.while_([start, const(I64, 0)], lambda v: f.icmp("ne", v[0], 1), step)
        f.store(count, place)
        with f.if_(f.icmp("sgt", count, 100)):
            f.store(n, f.gep(place, 8))

    run(emit, out.ctypes.data, 27)
    assert out.tolist() == [111, 1]


def test_masked_and_indexed_memory() -> None:
    source = np.arange(32, dtype=np.float32)
    out = np.full(64, -1, np.float32)

    def emit(f: Function) -> None:
        src, dst = f.args
        lane = iota(I32.vec(16))
        mask = f.icmp("slt", lane, 11)
        got = f.masked_load(F32.vec(16), src, mask, other=const(F32.vec(16), 7.0))
        f.store(got, dst)
        f.masked_store(got, f.gep(dst, 16, F32), mask)
        even = f.gather(F32.vec(16), f.gep(src, f.mul(lane, 2), F32), mask)
        f.store(even, f.gep(dst, 32, F32))
        f.scatter(got, f.gep(dst, f.sub(const(I32.vec(16), 63), lane), F32), mask)

    run(emit, source.ctypes.data, out.ctypes.data)
    assert out[:16].tolist() == [*range(11), *[7] * 5]
    assert out[16:32].tolist() == [*range(11), *[-1] * 5]
    assert out[32:43].tolist() == [*range(0, 22, 2)]
    assert out[63:52:-1].tolist() == [*range(11)]


def test_masked_load_does_not_touch_what_it_skips() -> None:
    out = np.zeros(8, np.float32)

    def emit(f: Function) -> None:
        nowhere = f.cast("inttoptr", const(I64, 64), PTR)
        mask = f.icmp("ugt", iota(I32.vec(8)), f.splat(f.cast("trunc", f.args[1], I32), 8))
        f.store(f.masked_load(F32.vec(8), nowhere, mask, other=const(F32.vec(8), 3.0)), f.args[0])

    run(emit, out.ctypes.data, 100)
    assert out.tolist() == [3.0] * 8


def test_lanes_move() -> None:
    out = np.zeros(16, np.int32)

    def emit(f: Function) -> None:
        v = f.load(I32.vec(8), f.args[0])
        low, high = f.split(v, 4)
        f.store(f.concat([high, low]), f.gep(f.args[1], 0))
        f.store(f.interleave(low, high), f.gep(f.args[1], 32))

    run(emit, np.arange(8, dtype=np.int32).ctypes.data, out.ctypes.data)
    assert out.tolist() == [4, 5, 6, 7, 0, 1, 2, 3, 0, 4, 1, 5, 2, 6, 3, 7]


def test_reductions_and_lane_access() -> None:
    source, out = np.arange(1, 17, dtype=np.float32), np.zeros(4, np.float32)

    def emit(f: Function) -> None:
        v = f.load(F32.vec(16), f.args[0])
        for i, value in enumerate([f.reduce("fadd", v), f.reduce("fmax", v), f.reduce("fmin", v), f.extract(v, 3)]):
            f.store(value, f.gep(f.args[1], i, F32))

    run(emit, source.ctypes.data, out.ctypes.data)
    assert out.tolist() == [136, 16, 1, 4]


@pytest.mark.parametrize(
    ("t", "n"), [(I8, 16), (I8, 32), (T("i16"), 16), (F32, 2), (F32, 4), (F32, 8), (F32, 16), (F64, 8)]
)
def test_squares_are_turned(t: T, n: int) -> None:
    size = t.bits // 8
    square = np.random.default_rng(0).integers(0, 1 << min(8 * size, 62), (n, n)).astype(f"u{size}")
    out = np.zeros_like(square)

    def emit(f: Function) -> None:
        read, write = f.args
        rows = [f.load(t.vec(n), f.gep(read, row * n * size)) for row in range(n)]
        for number, column in enumerate(f.turned(rows)):
            f.store(column, f.gep(write, number * n * size))

    run(emit, square.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, square.T)


def test_atomics_fill_copy_and_alloca() -> None:
    data = np.array([5, 7, 0], np.int64)

    def emit(f: Function) -> None:
        p = f.args[0]
        old = f.atomic_rmw("add", p, const(I64, 10))
        seen = f.atomic_cas(f.gep(p, 8), const(I64, 7), const(I64, 70))
        room = f.alloca(I64, 2)
        f.memset(room, 0xFF, 16)
        f.store(f.add(old, seen), room)
        f.memcpy(f.gep(p, 16), room, 8)
        f.prefetch(p)

    run(emit, data.ctypes.data)
    assert data.tolist() == [15, 70, 12]


def test_shared_functions_and_constants() -> None:
    out = np.zeros(1, np.int64)

    def emit(f: Function) -> None:
        table = f.module.constant("table", I64, [const(I64, v) for v in (3, 5)])
        assert not f.module.has("twice")
        twice = f.module.function("twice", I64, [I64])
        twice.ret(twice.add(twice.args[0], twice.args[0]))
        assert f.module.has("twice")
        f.store(f.call("twice", I64, [f.load(I64, f.gep(table, 8))]), f.args[0])

    text = run(emit, out.ctypes.data)
    assert "declare i64 @twice" not in text
    assert out[0] == 10
    module = Module(features.host())
    module.function("once")
    with pytest.raises(ValueError, match="once"):
        module.function("once")


def test_debug_locations() -> None:
    module = Module(features.host())
    f = module.function("k", params=[PTR], linkage="")
    f.debug_scope('/tmp/a "b"é.py', 3)
    f.at(7, 2)
    f.store(zero(I64), f.args[0])
    f.ret()
    text = module.render()
    assert text.count("!DILocation(line: 7, column: 2") == 1
    listing = codegen.assembly(text, features.host())
    assert ".loc" in listing and "7 2" in listing


def test_void_function_call_and_vector_constants() -> None:
    out = np.zeros(4, np.int32)

    def emit(f: Function) -> None:
        fill = f.module.function("fill", VOID, [PTR])
        fill.store(const_vector(I32.vec(4), [4, 3, 2, 1]), fill.args[0])
        fill.ret()
        f.call("fill", VOID, [f.args[0]])

    run(emit, out.ctypes.data)
    assert out.tolist() == [4, 3, 2, 1]
