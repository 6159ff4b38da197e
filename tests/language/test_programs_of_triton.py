"""Idioms of programs written for Triton, compiled and interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.base.errors import CompilationError, InterpreterError, LanguageTypeError

MODES = pytest.mark.parametrize("interpret", [False, True], ids=["compiled", "interpreted"])


def run(fn: Any, *args: Any, interpret: bool, dtype: type = np.float32, **options: Any) -> np.ndarray:
    """What `fn` leaves in an array of eight zeros, its first argument."""
    out = np.zeros(8, dtype)
    tilewright.jit(fn, interpret=interpret)[(1,)](out, *args, **options)
    return out


# --- types of values ------------------------------------------------------------


@MODES
def test_constants_and_tuples_have_types(interpret: bool) -> None:
    def kernel(out, n: tl.constexpr, strides, m):
        tl.static_assert(isinstance(n.type, tl.constexpr_type))
        tl.static_assert(isinstance(strides.type, tl.tuple_type))
        tl.static_assert(isinstance(strides[1].type, tl.constexpr_type))
        tl.static_assert(not isinstance(strides[0].type, tl.constexpr_type))
        tl.static_assert(m.type == tl.int32)
        tl.store(out, 1)

    assert run(kernel, 5, (3, tl.constexpr(1)), 7, interpret=interpret)[0] == 1


@tilewright.jit
def bits_of(dtype: tl.constexpr):
    return dtype.value.primitive_bitwidth


@MODES
def test_a_data_type_is_its_own_value(interpret: bool) -> None:
    def kernel(out):
        tl.store(out, bits_of(out.dtype.element_ty) + bits_of(tl.float64))

    assert run(kernel, interpret=interpret)[0] == 96
    assert tl.float32.value is tl.float32


@MODES
def test_an_argument_declared_uint1_by_text(interpret: bool) -> None:
    def kernel(out, flag: tl.uint1, other: uint1):  # noqa: F821
        tl.static_assert(flag.dtype == tl.int1)
        tl.static_assert(other.dtype == tl.int1)
        tl.store(out, flag.to(tl.float32))

    assert run(kernel, 1, 0, interpret=interpret)[0] == 1


# --- declared constants ------------------------------------------------------------


@MODES
def test_a_declared_constant_gets_its_value_in_a_tuple(interpret: bool) -> None:
    def kernel(out):
        y: tl.constexpr
        z: tl.constexpr
        x, (y, w) = 3, (4, 5)
        [z] = (2,)
        tl.static_assert(z == 2)
        tl.static_assert(isinstance(x, tl.tensor))
        tl.static_assert(isinstance(w, tl.tensor))
        tl.store(out + tl.arange(0, y), x)

    assert run(kernel, interpret=interpret).tolist() == [3] * 4 + [0] * 4


@MODES
def test_a_declared_constant_gets_its_value_in_an_expression(interpret: bool) -> None:
    def kernel(out):
        y: tl.constexpr
        if (y := 8) > 4:
            tl.store(out + tl.arange(0, y), 3)

    assert run(kernel, interpret=interpret).tolist() == [3] * 8


# --- functions ------------------------------------------------------------


@tl.constexpr
def twice(n):
    return n * 2


@MODES
def test_a_python_function_in_a_constexpr(interpret: bool) -> None:
    def kernel(out, N: tl.constexpr):
        tl.store(out + tl.arange(0, twice(N)), twice(n=N))

    assert run(kernel, 4, interpret=interpret).tolist() == [8] * 8
    assert twice(4) == 8


@tl.core.builtin
def as_list(*args, _semantic=None):
    return list(args)


@tl.core.builtin
def iota(n, scale=1, _semantic=None):
    return tl.mul(tl.arange(0, n, _semantic=_semantic), scale, _semantic=_semantic)


@tl.constexpr_function
def second(values):
    return values[1]


@MODES
def test_builtins_of_users_get_the_emitter_by_name(interpret: bool) -> None:
    def kernel(out):
        tl.static_assert(second(as_list(4, 8, 16)) == 8)
        tl.store(out + iota(8), iota(8, scale=3))

    assert run(kernel, interpret=interpret).tolist() == [3.0 * n for n in range(8)]


def test_builtins_of_users_say_their_own_signature() -> None:
    @tilewright.jit
    def kernel(out):
        tl.store(out, iota(8, 2, 3))

    with pytest.raises(CompilationError, match=r"the signature is iota\(n, scale=1\)"):
        kernel[(1,)](np.zeros(8, np.float32))
    with pytest.raises(RuntimeError, match="only inside"):
        iota(8)


# --- aggregates ------------------------------------------------------------


@tl.aggregate
class Pair:
    value: tl.tensor
    scale: tl.constexpr

    @staticmethod
    def create(value):
        return Pair(value, tl.constexpr(42))

    @classmethod
    def scaled(cls, value, scale):
        return cls(value, scale)

    def total(self):
        return self.value * self.scale


@MODES
def test_static_methods_of_an_aggregate(interpret: bool) -> None:
    def kernel(out):
        one = Pair.create(tl.load(out) + 1)
        other = one.create(2.0 + tl.load(out))
        third = Pair.scaled(one.value, 10)
        tl.store(out, one.total() + other.total() + third.total() + Pair.total(third))

    assert run(kernel, interpret=interpret)[0] == 42 + 84 + 10 + 10


@tl.aggregate
class Counting:
    value: tl.tensor

    def __init__(self, n=4, _semantic=None):
        self.value = tl.arange(0, n, _semantic=_semantic)


@MODES
def test_a_constructor_that_takes_the_emitter(interpret: bool) -> None:
    def kernel(out):
        tl.store(out + tl.arange(0, 4), Counting().value)
        tl.store(out + 4 + tl.arange(0, 2), Counting(2).value + 7)

    assert run(kernel, interpret=interpret).tolist() == [0, 1, 2, 3, 7, 8, 0, 0]


def test_aggregates_on_the_host() -> None:
    @tl.aggregate
    class State:
        strides: tl.tuple
        n: tl.constexpr

    state = State((3, (7, 8)), 1)
    assert type(state.strides) is tl.tuple and type(state.strides[0]) is tl.constexpr
    assert type(state.strides[1]) is tl.tuple and state.strides[1][0] == 7
    with pytest.raises(AttributeError, match="immutable aggregate State"):
        state.n = 2
    with pytest.raises(LanguageTypeError, match="aggregate_replace"):
        state.n = 2


@tilewright.aggregate
class Affine:
    scale: tl.tensor
    shift: tl.tensor
    factor: tl.constexpr

    @tilewright.jit
    def at(self, x):
        return x * self.scale + self.shift * self.factor

    @tilewright.jit
    def turned(self):
        return Affine(self.shift, self.at(self.scale), self.factor)


@MODES
def test_methods_of_aggregates_that_are_jit_functions(interpret: bool) -> None:
    def kernel(out):
        i = tl.arange(0, 8)
        line = Affine(i + 1, i * 0 + 2, 3)
        for _ in range(2):
            line = line.turned()
        tl.store(out + i, line.at(1))

    def turned(a, b):
        return b, a * a + b * 3

    want = [a + 3 * b for a, b in (turned(*turned(i + 1, 2)) for i in range(8))]
    assert run(kernel, interpret=interpret).tolist() == want


# --- pointers, printing ------------------------------------------------------------


@MODES
def test_pointer_scalars_take_none_as_an_index(interpret: bool) -> None:
    def kernel(out):
        tl.static_assert(out[None].shape[0] == 1)
        tl.store(out[None, None] + tl.arange(0, 8)[None, :], 2.0)

    assert run(kernel, interpret=interpret).tolist() == [2.0] * 8


@MODES
@pytest.mark.parametrize(("prefix", "shown"), [("x:", "x: 7"), ("x", "x: 7"), ("x ", "x: 7"), ("x: ", "x: 7")])
def test_the_text_before_a_printed_value(capfd: Any, interpret: bool, prefix: str, shown: str) -> None:
    def kernel(out, TEXT: tl.constexpr):
        tl.device_print(TEXT, tl.load(out).to(tl.int32) + 7)

    run(kernel, prefix, interpret=interpret)
    assert f" {shown}\n" in capfd.readouterr().out.replace("()", "")


# --- random numbers ------------------------------------------------------------


@MODES
@pytest.mark.parametrize("function", [tl.rand, tl.randn, tl.randint, tl.rand4x, tl.randint4x])
def test_a_seed_is_an_integer(interpret: bool, function: Any) -> None:
    def kernel(out, seed, f: tl.constexpr):
        f(seed, tl.arange(0, 8))

    for seed, shown in ((np.zeros(1, np.int64), "pointer<int64>"), (2.5, "fp32")):
        with pytest.raises((CompilationError, InterpreterError), match=f"a seed is an integer, not .*{shown}"):
            run(kernel, seed, function, interpret=interpret)
    run(kernel, 3, function, interpret=interpret)
