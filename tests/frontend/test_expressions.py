"""Values: constants and tensors, operators, indexing, tuples, formatting."""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

import pytest

import tilewright.language as tl
from tests.frontend.helpers import F16, F32, I32, build, count, f32, i32, jit, line_of, ops, text
from tilewright.base.options import Options
from tilewright.ir.op import location_of

SIZE = tl.constexpr(64)
PAIR = (tl.constexpr(2), tl.constexpr(3))


class Mode(enum.Enum):
    ADD = 1
    SUB = 2


class Point(NamedTuple):
    x: object
    y: object


def test_vector_add_is_what_is_written() -> None:
    @jit
    def add(x, y, o, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        m = i < n
        tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)

    lines = text(add, F32, F32, F32, i32, 128).splitlines()
    assert "tt.func public @add(" in lines[1] and lines[1].count("{tt.divisibility = 16 : i32}") == 3
    names = [line.strip().split(" = ", 1)[-1].split()[0] for line in lines[2:-2]]
    assert names == [
        "tt.get_program_id", "arith.constant", "arith.muli", "tt.make_range", "tt.splat", "arith.addi", "tt.splat",
        "arith.cmpi", "tt.splat", "tt.addptr", "tt.splat", "tt.addptr", "tt.load", "tt.splat", "tt.addptr", "tt.load",
        "arith.addf", "tt.store", "tt.return",
    ]  # fmt: skip


def test_assignment_makes_a_tensor_of_a_number() -> None:
    """int8 + literal stays int8, int8 + variable is int32; the same for float16."""

    @jit
    def kernel(p, h):
        x = tl.load(p)
        c = 5
        tl.static_assert((x + 5).dtype == tl.int8)
        tl.static_assert((x + c).dtype == tl.int32)
        d: tl.constexpr = 5
        tl.static_assert((x + d).dtype == tl.int8)
        y = tl.load(h)
        f = 0.5
        tl.static_assert((y * 0.5).dtype == tl.float16)
        tl.static_assert((y * f).dtype == tl.float32)

    build(kernel, tl.pointer_type(tl.int8), F16)


def test_constants_are_computed_as_python_does() -> None:
    @jit
    def kernel(N: tl.constexpr):
        tl.static_assert(-7 // 2 == -4 and -7 % 3 == 2)
        tl.static_assert(N * 2 + 1 == 9)
        tl.static_assert(2**N == 16 and ~N == -5 and (N << 1 | 1) == 9)
        tl.static_assert(1 < N < 10 and not 10 < N < 20)
        tl.static_assert("a" + "b" == "ab" and N in (1, 4) and N not in (1, 2))
        tl.static_assert(N is not None and None is None)
        tl.static_assert((1 if N > 3 else undefined) == 1)  # noqa: F821
        tl.static_assert(min(N, 3) == 3 and max((N, 3)) == 4 and abs(-N) == 4)
        tl.static_assert(int(2.5) == 2 and float("inf") > 1.0 and len((1, 2)) == 2)
        tl.static_assert(N.bit_length() == 3 and "Abc".lower() == "abc")
        tl.static_assert(math.log2(N) == 2.0 and math.pi > 3)

    assert not count(kernel, 4) - count(empty)


@jit
def empty():
    pass


def test_constants_decide_and_or() -> None:
    @jit
    def kernel(p, n, N: tl.constexpr):
        tl.static_assert(not (False and undefined))  # noqa: F821
        tl.static_assert(N == 4 or undefined)  # noqa: F821
        if N == 4 and n > 0:
            tl.store(p, 1.0)
        if n > 0 or n < -5 or N == 5:
            tl.store(p, 2.0)

    found = count(kernel, F32, i32, 4)
    assert found["arith.ori"] == 1 and found["arith.andi"] == 0 and found["arith.cmpi"] == 3


def test_chained_comparison_computes_the_middle_once() -> None:
    @jit
    def kernel(p, n):
        tl.store(p, (0 < tl.load(p) <= n).to(tl.int32))

    found = count(kernel, I32, i32)
    assert found["tt.load"] == 1 and found["arith.cmpi"] == 2 and found["arith.andi"] == 1


def test_indexing_inserts_dimensions() -> None:
    @jit
    def kernel():
        x = tl.arange(0, 4)
        tl.static_assert(x[None, :].shape == (1, 4))
        tl.static_assert(x[:, None].shape == (4, 1))
        tl.static_assert(x[None].shape == (1, 4))
        tl.static_assert(x[:].shape == (4,))
        y = x[:, None]
        tl.static_assert(y[:, None, :].shape == (4, 1, 1))
        tl.static_assert(y[None, :, :].shape == (1, 4, 1))

    build(kernel)


def test_attributes_of_tensors() -> None:
    @jit
    def kernel(p):
        x = tl.load(p + tl.arange(0, 8)[:, None] * 4 + tl.arange(0, 4)[None, :])
        tl.static_assert(x.shape[0] == 8 and x.shape[-1] == 4 and x.numel == 32)
        tl.static_assert(x.dtype == tl.float32 and x.type.element_ty == tl.float32)
        tl.static_assert(p.dtype.element_ty.primitive_bitwidth == 32 and p.dtype.is_ptr())
        tl.static_assert(x.T.shape == (4, 8))
        tl.static_assert(x.to(p.dtype.element_ty).dtype.is_floating())
        tl.static_assert(isinstance(x, tl.tensor) and hasattr(x, "dtype") and not hasattr(x, "nothing"))
        tl.static_assert(getattr(x, "numel") == 32)

    build(kernel, F32)


def test_tuples() -> None:
    @jit
    def kernel(p, n):
        a, (b, c) = 1, (n, 2.0)
        tl.static_assert(b.dtype == tl.int32 and c.dtype == tl.float32)
        t = (p, n, a)
        tl.static_assert(len(t) == 3 and len(t[1:]) == 2 and len(t + (1,)) == 4 and len(t * 2) == 6)
        tl.store(t[0], t[1] + t[-1])
        b, a = a, b
        tl.store(p, b)
        first, *rest = (1, 2) if False else (3, 4)
        tl.static_assert(len(rest) == 1)
        tl.store(p, first)

    build(kernel, I32, i32)


def test_named_tuples_and_enums() -> None:
    @jit
    def kernel(p, mode: tl.constexpr):
        point = Point(tl.load(p), 2.0)
        point = Point(x=point.y, y=point.x)
        if mode == Mode.ADD:
            tl.store(p, point.x + point.y)
        else:
            tl.store(p, point.x - point.y)

    assert count(kernel, F32, Mode.ADD)["arith.addf"] == 1
    assert count(kernel, F32, Mode.SUB)["arith.subf"] == 1


def test_globals_and_closures() -> None:
    inner = tl.constexpr(3)

    @jit
    def kernel(p):
        tl.static_assert(SIZE == 64 and PAIR[0] + PAIR[1] == 5 and inner == 3)
        tl.store(p + tl.arange(0, SIZE), 0.0)

    assert "tensor<64x!tt.ptr<f32>>" in text(kernel, F32)


def test_a_local_shadows_a_global() -> None:
    @jit
    def kernel(p):
        SIZE: tl.constexpr = 16
        tl.store(p + tl.arange(0, SIZE), 0.0)

    assert "tensor<16x!tt.ptr<f32>>" in text(kernel, F32)


def test_comprehensions_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    @jit
    def kernel(p, N: tl.constexpr):
        shape = [n * 2 for n in (1, 2, N) if n > 1]
        tl.static_assert(len(shape) == 2)
        tl.static_assert(f"{N:>3}|{N!r}|{'x'}" == "  8|8|x")
        tl.static_print(f"N is {N}")
        tl.store(p + tl.arange(0, 16), 0.0)
        pairs = [(a, b) for a in (1, 2) for b in ("x", "y")]
        tl.static_assert(len(pairs) == 4 and pairs[3][1] == "y")

    build(kernel, F32, 8)
    assert capsys.readouterr().out == "N is 8\n"


def test_walrus_and_several_targets() -> None:
    @jit
    def kernel(p):
        a = b = tl.load(p)
        tl.store(p, (c := a + b) * c)

    found = count(kernel, F32)
    assert found["tt.load"] == 1 and found["arith.addf"] == 1 and found["arith.mulf"] == 1


def test_declared_constants() -> None:
    @jit
    def kernel(p):
        n: tl.constexpr
        n = 8
        tl.store(p + tl.arange(0, n), 0.0)
        n = 9  # a plain assignment makes it a tensor
        tl.static_assert(n.dtype == tl.int32)
        x: tl.float32 = 1.0
        tl.static_assert(x.dtype == tl.float32)

    build(kernel, F32)


def test_a_data_type_is_called_to_convert() -> None:
    @jit
    def kernel(p, x):
        tl.store(p, tl.float16(x))
        tl.static_assert(tl.int64(3).dtype == tl.int64)

    assert count(kernel, F16, f32)["arith.truncf"] == 1


def test_min_max_abs_on_tensors() -> None:
    @jit
    def kernel(p, n):
        tl.store(p, min(n, 4) + max(n, 1, 2) + abs(n))

    found = count(kernel, I32, i32)
    assert found["arith.minsi"] == 1 and found["arith.maxsi"] == 2 and found["math.absi"] == 1


def test_assert_and_print() -> None:
    @jit
    def kernel(n):
        assert n > 0, "positive"
        print("n", n)

    found = ops(build(kernel, i32, options=Options(debug=True)).module)
    assert found["tt.assert"] == 1 and found["tt.print"] == 1


def test_one_constant_per_value() -> None:
    @jit
    def kernel(p):
        tl.store(p, 1)
        tl.store(p + 1, 1)
        tl.store(p + 0, -0.0)
        tl.store(p + 1, 0.0)

    printed = text(kernel, F32)
    assert printed.count("arith.constant 1 : i32") == 1
    assert (
        printed.count("arith.constant 0.000000e+00 : f32") == printed.count("arith.constant -0.000000e+00 : f32") == 1
    )


def test_values_are_called_as_in_the_source() -> None:
    @jit
    def kernel(out_ptr, n):
        x = tl.load(out_ptr)
        for i in range(n):
            x = x * x
            total = x + i
            tl.store(out_ptr, total)
        größe = x + 1.0
        tl.store(out_ptr, größe)

    lines = [line.strip() for line in text(kernel, F32, i32).splitlines()]
    assert lines[1].startswith("tt.func public @kernel(%out_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32)")
    assert "%x = tt.load %out_ptr : !tt.ptr<f32>" in lines
    assert "%x_1 = scf.for %i = %0 to %n step %1 iter_args(%x_2 = %x) -> (f32)  : i32 {" in lines
    assert "%x_3 = arith.mulf %x_2, %x_2 : f32" in lines
    assert any(line.startswith("%total = arith.addf %x_3, ") for line in lines)


def test_every_operation_has_its_place() -> None:
    @jit
    def kernel(p):
        x = tl.load(p)
        tl.store(p, x * x)

    lines = {op.name: location_of(op).line for op in build(kernel, F32).module.walk() if location_of(op)}
    assert lines["tt.load"] == line_of(kernel, "tl.load")
    assert lines["arith.mulf"] == lines["tt.store"] == line_of(kernel, "tl.store")
    assert all(location_of(op) for op in build(kernel, F32).module.body.block.walk())
