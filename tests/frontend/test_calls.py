"""Calls: binding of arguments, inlining, functions kept as calls, lambdas, places of inlined code."""

from __future__ import annotations

import functools

import pytest

import tilewright.language as tl
from tests.frontend.helpers import F32, I32, TARGET, build, count, f32, i32, jit, line_of, ops, text
from tilewright.base.options import Options
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ir.op import location_of


@jit
def scaled(x, factor: tl.constexpr = 2, *more, offset=0.0):
    for extra in more:
        x = x + extra
    return x * factor, x + offset


def test_defaults_keywords_and_stars() -> None:
    @jit
    def kernel(p, x):
        a, b = scaled(x)
        c, d = scaled(x, 3, 1.0, *(x, x), offset=4.0)
        e, f = scaled(factor=5, x=x)
        tl.store(p, a + b + c + d + e + f)

    found = count(kernel, F32, f32)
    assert found["arith.mulf"] == 3 and found["tt.call"] == 0
    assert found["arith.addf"] == 3 + 3 + 5


def test_literals_arrive_as_constants() -> None:
    @jit
    def block(p, n, dtype):
        return tl.load(p + tl.arange(0, n)).to(dtype)

    @jit
    def kernel(p):
        tl.store(p + tl.arange(0, 8), block(p, 8, tl.float16))

    assert "tensor<8xf16>" in text(kernel, F32)


def test_a_constant_result_stays_constant() -> None:
    @jit
    def half(n: tl.constexpr):
        return n // 2

    @jit
    def kernel(p):
        tl.store(p + tl.arange(0, half(16)), 0.0)

    assert "tensor<8x!tt.ptr<f32>>" in text(kernel, F32)


def test_functions_are_values() -> None:
    @jit
    def apply(fn: tl.constexpr, pair, x):
        return fn(x) + pair[0](x)

    @jit
    def double(x):
        return x * 2

    @jit
    def kernel(p, x):
        tl.store(p, apply(double, (double, double), x))

    assert count(kernel, F32, f32)["arith.mulf"] == 2


def test_recursion_on_constants() -> None:
    @jit
    def power(x, n: tl.constexpr):
        if n == 0:
            return 1.0
        return x * power(x, n - 1)

    @jit
    def kernel(p, x):
        tl.store(p, power(x, 3))

    assert count(kernel, F32, f32)["arith.mulf"] == 3


def test_lambdas() -> None:
    @jit
    def apply(fn, x):
        return fn(x)

    @jit
    def kernel(p, x, y):
        add = lambda a, b=y: a + b
        tl.store(p, apply(lambda v: add(v) * y, x))

    found = count(kernel, F32, f32, f32)
    assert found["arith.addf"] == 1 and found["arith.mulf"] == 1


def test_builtins_call_back_functions_and_lambdas() -> None:
    @jit
    def combine(a, b):
        if a > b:
            return a
        return b

    @jit
    def kernel(p):
        x = tl.load(p + tl.arange(0, 8))
        tl.store(p, tl.reduce(x, 0, combine) + tl.reduce(x, 0, lambda a, b: a + b))

    printed = text(kernel, F32)
    assert printed.count('"tt.reduce"') == 2
    assert printed.count("tt.reduce.return") == 2 and printed.count("scf.if") == 1


# --- noinline -----------------------------------------------------------------------------------------------


@jit(noinline=True)
def slow_add(a, b, k: tl.constexpr):
    if a > b:
        return a
    return a + b * k


def test_noinline_makes_one_function_per_types_and_constants() -> None:
    @jit
    def kernel(p, n):
        x = slow_add(tl.load(p), tl.load(p + 1), 2)
        y = slow_add(x, 3.0, 2)
        z = slow_add(n, n, 2)
        tl.store(p, slow_add(x, y, 3) + z + slow_add(x, y, 2))

    module = build(kernel, F32, i32).module
    names = [op.sym_name.data for op in module.body.block.ops]
    stem = "_".join(f"{__name__}.slow_add".split("/"))
    assert names == ["kernel", f"{stem}__fp32_fp32_c2", f"{stem}__fp32_c3_0_c2", f"{stem}__i32_i32_c2",
                     f"{stem}__fp32_fp32_c3"]  # fmt: skip
    assert ops(module)["tt.call"] == 5
    printed = text(kernel, F32, i32)
    assert "tt.func private" in printed and "-> f32 attributes {noinline = true}" in printed


def test_noinline_without_result_and_with_pointers() -> None:
    @jit(noinline=True)
    def write(p, x):
        tl.store(p, x)

    @jit
    def kernel(p, x):
        write(p, x)
        write(p + 1, x)

    printed = text(kernel, F32, f32)
    assert printed.count("tt.call") == 2 and printed.count("tt.func private") == 1 and "Pfp32_fp32" in printed


def test_noinline_may_return_several_values() -> None:
    @jit(noinline=True)
    def both(a, b):
        return a + b, (a - b, 7)

    @jit
    def kernel(p, a, b):
        x, (y, k) = both(a, b)
        tl.store(p, x + y + k)

    assert "-> (f32, f32)" in text(kernel, F32, f32, f32)


# --- places ----------------------------------------------------------------------------------------------------


def test_inlined_operations_remember_the_calls() -> None:
    @jit
    def inner(x):
        return x * x

    @jit
    def outer(x):
        return inner(x) + 1.0

    @jit
    def kernel(p, x):
        tl.store(p, outer(x))

    op = next(op for op in build(kernel, F32, f32).module.walk() if op.name == "arith.mulf")
    place = location_of(op)
    assert place.line == line_of(inner, "x * x")
    assert place.caller.line == line_of(outer, "inner(x)")
    assert place.caller.caller.line == line_of(kernel, "outer(x)")
    store = next(op for op in build(kernel, F32, f32).module.walk() if op.name == "tt.store")
    assert location_of(store).caller is None


# --- parameters of the kernel ---------------------------------------------------------------------------------


def test_tuple_parameters_are_flattened() -> None:
    @jit
    def kernel(p, strides, n):
        tl.store(p + strides[0] * strides[1][0], n)

    specs = [ParamSpec("p", I32, {"divisibility": 16}),
             ParamSpec("strides", (i32, (i32, tl.constexpr(1))), [{}, {"divisibility": 16}]),
             ParamSpec("n", i32)]  # fmt: skip
    kernel_ir = build_module(kernel, specs, Options(), TARGET)
    assert [p.name for p in kernel_ir.params] == ["p", "strides.0", "strides.1.0", "n"]
    assert [dict(p.attrs) for p in kernel_ir.params] == [{"divisibility": 16}, {}, {"divisibility": 16}, {}]
    assert len(kernel_ir.module.body.block.first_op.body.block.args) == 4


def test_the_signature_must_fit() -> None:
    @jit
    def kernel(p, n):
        pass

    with pytest.raises(TypeError, match=r"kernel has parameters \['p', 'n'\], the signature names \['p'\]"):
        build_module(kernel, [ParamSpec("p", I32)], Options(), TARGET)


def test_warnings_have_a_place() -> None:
    @jit
    def kernel(p):
        tl.store(p, tl.load(p) << 40)

    (warning,) = build(kernel, I32).warnings
    assert warning.startswith(f"{__file__}:{line_of(kernel, '<< 40')}: Value 40 exceeds the maximum bitwidth")


def test_partial_application_is_not_a_kernel_function() -> None:
    helper = functools.partial(max, 1)

    @jit
    def kernel(p):
        tl.store(p, helper(2))

    with pytest.raises(Exception, match="Cannot access global variable helper"):
        build(kernel, I32)
