"""Element-wise operators against numpy and Python: values, edge cases, the ops that are built, overflow checks."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.emitters import Evaluator, Recorder, array_of
from tilewright.base import minifloat
from tilewright.base.dtypes import bfloat16, dtype, float16
from tilewright.base.errors import LanguageTypeError, LanguageValueError
from tilewright.base.options import Options
from tilewright.ops import math as tl_math
from tilewright.ops.constant import ConstantOp
from tilewright.ops.elementwise_reference import add_round_to_odd
from tilewright.ops.functions import operators as op
from tilewright.ops.values import tensor

BITS = {"i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i64": 64, "u64": 64}


def wrap(value: int, signature: str) -> int:
    """`value` as an integer of the type, by arithmetic on Python integers."""
    bits = BITS[signature]
    value %= 1 << bits
    return value - (1 << bits) if signature[0] == "i" and value >> (bits - 1) else value


def c_divide(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def c_remainder(a: int, b: int) -> int:
    return 0 if b == 0 else a - c_divide(a, b) * b


def c_shift_left(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def c_shift_right(a: int, b: int, bits: int) -> int:
    return a >> b if 0 <= b < bits else (-1 if a < 0 else 0)


INTEGER_OPS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "floordiv": lambda a, b, n: c_divide(a, b),
    "mod": lambda a, b, n: c_remainder(a, b),
    "and_": lambda a, b, n: a & b,
    "or_": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "lshift": lambda a, b, n: c_shift_left(a, b, n),
    "rshift": lambda a, b, n: c_shift_right(a, b, n),
    "minimum": lambda a, b, n: min(a, b),
    "maximum": lambda a, b, n: max(a, b),
}


def edge_integers(signature: str) -> list[int]:
    type_ = dtype({"i": "int", "u": "uint"}[signature[0]] + signature[1:])
    low, high = type_.get_int_min_value(), type_.get_int_max_value()
    near = (0, 1, 2, 3, 5, 7, 8, 31, 63, high // 3)
    candidates = {*near, *[-n for n in near], low, low + 1, high, high - 1}
    return sorted(value for value in candidates if low <= value <= high)


@pytest.mark.parametrize("signature", BITS)
@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integer_operators_are_those_of_c(name: str, signature: str) -> None:
    edges = edge_integers(signature)
    pairs = [(a, b) for a in edges for b in edges]
    size = 1 << (len(pairs) - 1).bit_length()
    pairs += [(0, 1)] * (size - len(pairs))
    b = Evaluator()
    work = dtype({"i": "int", "u": "uint"}[signature[0]] + signature[1:]).work_dtype
    x = b.value(np.array([p[0] for p in pairs], dtype=work), signature)
    y = b.value(np.array([p[1] for p in pairs], dtype=work), signature)
    function = getattr(op, name, None) or getattr(tl_math, name)
    got = array_of(function.fn(b, x, y)).tolist()
    # A negative shift amount is a huge unsigned one.
    want = [wrap(INTEGER_OPS[name](p, q, BITS[signature]), signature) for p, q in pairs]
    assert got == want


@pytest.mark.parametrize("name", ["add", "sub", "mul", "and_", "or_", "xor"])
def test_one_bit_arithmetic_is_modulo_two(name: str) -> None:
    b = Evaluator()
    x, y = b.value([0, 0, 1, 1], "u1"), b.value([0, 1, 0, 1], "u1")
    got = array_of(getattr(op, name).fn(b, x, y)).astype(int).tolist()
    want = [INTEGER_OPS[name](p, q, 1) % 2 for p, q in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert got == want


_RELATIONS = {
    "less_than": operator.lt, "less_equal": operator.le, "greater_than": operator.gt, "greater_equal": operator.ge,
    "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize("signature", ["i32", "u32", "i8", "fp32", "fp16"])
@pytest.mark.parametrize("name", _RELATIONS)
def test_comparisons(name: str, signature: str) -> None:
    values: list[Any] = (
        edge_integers(signature)[-8:] if signature in BITS else [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2]
    )
    work = np.array(
        values,
        dtype=dtype(
            {"fp32": "fp32", "fp16": "fp16", "i32": "int32", "u32": "uint32", "i8": "int8"}[signature]
        ).work_dtype,
    )
    x, y = np.repeat(work, 8), np.tile(work, 8)
    b = Evaluator()
    got = array_of(getattr(op, name).fn(b, b.value(x, signature), b.value(y, signature)))
    assert got.tolist() == [bool(_RELATIONS[name](p, q)) for p, q in zip(x.tolist(), y.tolist(), strict=True)]


def test_nan_and_extremes() -> None:
    b = Evaluator()
    nan, one = b.value([np.nan, 1, np.nan, 2], "fp32"), b.value([1, np.nan, np.nan, 3], "fp32")
    rule = tl_math.PropagateNan
    loses = array_of(tl_math.minimum.fn(b, nan, one))
    np.testing.assert_array_equal(loses, np.array([1, 1, np.nan, 2], np.float32))
    wins = array_of(tl_math.maximum.fn(b, nan, one, rule.ALL))
    np.testing.assert_array_equal(wins, np.array([np.nan, np.nan, np.nan, 3], np.float32))
    clamped = array_of(tl_math.clamp.fn(b, nan, 0.5, 1.5))
    np.testing.assert_array_equal(clamped, np.array([0.5, 1, 0.5, 1.5], np.float32))
    kept = array_of(tl_math.clamp.fn(b, nan, 0.5, 1.5, rule.ALL))
    np.testing.assert_array_equal(kept, np.array([np.nan, 1, np.nan, 1.5], np.float32))
    integers = array_of(tl_math.clamp.fn(b, b.value([-9, 0, 3, 9], "i32"), -2, 5))
    assert integers.tolist() == [-2, 0, 3, 5]


def test_division_of_integers_gives_float32() -> None:
    b = Evaluator()
    quotient = op.truediv.fn(b, b.value([7, -7], "i64"), 2)
    assert str(quotient.dtype) == "fp32"
    assert array_of(quotient).tolist() == [3.5, -3.5]


@pytest.mark.parametrize("type_", [float16, bfloat16])
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_small_floats_round_once(name: str, type_: dtype) -> None:
    """Exact rational arithmetic, then one rounding."""
    rng = np.random.default_rng(7)
    x = minifloat.round_to(rng.standard_normal(256) * 100, type_)
    y = minifloat.round_to(rng.standard_normal(256), type_)
    b = Evaluator()
    got = array_of(getattr(op, name).fn(b, b.value(x, type_.signature), b.value(y, type_.signature)))
    exact = [float(getattr(operator, name)(Fraction(float(p)), Fraction(float(q)))) for p, q in zip(x, y, strict=True)]
    np.testing.assert_array_equal(got, minifloat.round_to(np.array(exact), type_))


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(finite, finite, finite)
def test_fma_rounds_once(x: float, y: float, z: float) -> None:
    b = Evaluator()
    got = array_of(tl_math.fma.fn(b, *[b.value(np.float32(v), "fp32") for v in (x, y, z)])).item()
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        near = float(exact)
    except OverflowError:
        assert abs(got) == np.inf
        return
    # The float64 nearest to the exact value decides the float32 except on a tie of float32, which it must not hide.
    lower = np.nextafter(np.float32(got), np.float32(-np.inf))
    upper = np.nextafter(np.float32(got), np.float32(np.inf))
    if np.isfinite(got):
        for other in (lower, upper):
            if np.isfinite(other):
                assert abs(Fraction(got) - exact) <= abs(Fraction(float(other)) - exact)
    else:
        assert abs(near) >= 3.4028235e38


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
def test_round_to_odd_keeps_what_was_lost(a: float, b: float) -> None:
    got = Fraction(add_round_to_odd(np.array([a]), np.array([b])).item())
    exact = Fraction(a) + Fraction(b)
    if got != exact:
        assert np.array([float(got)]).view(np.uint64).item() & 1
        assert abs(got - exact) < abs(got) * Fraction(1, 2**52)


# --- what is built ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "left", "right", "ops"),
    [
        ("add", "i32", "i32", ["arith.addi"]),
        ("add", "fp16", "fp32", ["arith.extf", "arith.addf"]),
        ("add", "*fp32", "i32", ["tt.addptr"]),
        ("add", "i32", "*fp32", ["tt.addptr"]),
        ("add", "*fp32", "u32", ["arith.extui", "tt.addptr"]),
        ("sub", "*fp32", "i32", ["arith.subi", "tt.addptr"]),
        ("truediv", "i32", "i32", ["arith.sitofp", "arith.sitofp", "arith.divf"]),
        ("floordiv", "u32", "u32", ["arith.divui"]),
        ("mod", "fp32", "fp32", ["arith.remf"]),
        ("rshift", "i32", "i32", ["arith.shrsi"]),
        ("rshift", "u32", "u32", ["arith.shrui"]),
        ("rshift", "u8", "i32", ["arith.extui", "arith.shrui"]),
        ("less_than", "u32", "u32", ["arith.cmpi"]),
        ("not_equal", "fp32", "fp32", ["arith.cmpf"]),
        ("logical_and", "u1", "u1", ["arith.andi"]),
    ],
)
def test_operations_that_are_built(name: str, left: str, right: str, ops: list[str]) -> None:
    b = Recorder()
    getattr(op, name).fn(b, b.value(left), b.value(right))
    assert b.names == ops


def test_debug_builds_check_integer_overflow() -> None:
    for options, checked in ((Options(), False), (Options(debug=True), True)):
        b = Recorder(options)
        op.add.fn(b, b.value("i32", (8,)), b.value("i32", (8,)))
        assert ("tt.assert" in b.names) is checked
    assert "int32 overflow detected for operation add" in str(b.module)
    b = Recorder(Options(debug=True))
    op.add.fn(b, b.value("i32"), b.value("i32"), sanitize_overflow=False)
    op.add.fn(b, b.value("i64"), b.value("i64"))
    op.add.fn(b, b.value("fp32"), b.value("fp32"))
    assert "tt.assert" not in b.names


def test_a_shift_by_the_width_warns() -> None:
    b = Recorder()
    op.lshift.fn(b, b.value("i32"), 31)
    assert not b.warnings
    op.lshift.fn(b, b.value("i32"), 32)
    assert "exceeds the maximum bitwidth (32)" in b.warnings[0]


def test_logic_on_wider_integers_is_refused() -> None:
    b = Recorder()
    with pytest.raises(LanguageValueError, match="Cannot bitcast data-type of size 32 to data-type of size 1"):
        op.logical_and.fn(b, b.value("i32"), b.value("u1"))


@pytest.mark.parametrize(("name", "signature"), [("minus", "*fp32"), ("invert", "fp32"), ("invert", "*fp32")])
def test_unary_operators_refuse(name: str, signature: str) -> None:
    b = Recorder()
    with pytest.raises(LanguageValueError, match="wrong type argument to unary"):
        getattr(op, name).fn(b, b.value(signature))


def test_floor_division_of_floats_is_refused() -> None:
    b = Recorder()
    with pytest.raises(TypeError, match="unexpected type fp32") as caught:
        op.floordiv.fn(b, b.value("fp32"), b.value("fp32"))
    assert "tl.floor" in str(caught.value)


# --- where --------------------------------------------------------------------------------------------------


def test_where_promotes_and_broadcasts() -> None:
    b = Evaluator()
    flag = b.value([[1], [0]], "u1")
    got = op.where.fn(b, flag, b.value([1, 2, 3, 4], "i32"), 0.5)
    assert str(got.dtype) == "fp32"
    assert array_of(got).tolist() == [[1, 2, 3, 4], [0.5] * 4]


def test_where_takes_pointers_of_one_type_only() -> None:
    b = Recorder()
    flag = b.value("u1")
    assert op.where.fn(b, flag, b.value("*fp32"), b.value("*fp32")).dtype.is_ptr()
    for other in ("*i32", "i64"):
        with pytest.raises(TypeError, match="invalid operands"):
            op.where.fn(b, flag, b.value("*fp32"), b.value(other))


def test_where_warns_of_a_condition_that_is_not_bool() -> None:
    b = Evaluator()
    got = op.where.fn(b, b.value([0, 3], "i32"), 1, 2)
    assert array_of(got).tolist() == [2, 1]
    assert "deprecated" in b.warnings[0]


# --- tables and Python operators ----------------------------------------------------------------------------


def test_tables_cover_the_operators_of_the_language() -> None:
    every = {kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.operator)}
    assert every - set(op.BINARY) == {ast.operator, ast.Pow, ast.MatMult}
    assert set(op.COMPARE) == {ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq}
    assert set(op.UNARY) == {ast.USub, ast.Invert, ast.Not}


def test_python_operators_run_on_the_active_emitter() -> None:
    from tilewright.base.builtin import pop_emitter, push_emitter

    b = Evaluator()
    push_emitter(b)
    try:
        x: Any = b.value([1, 2, 3, 4], "i32")
        assert array_of(10 - x * 2).tolist() == [8, 6, 4, 2]
        assert array_of(-x // 2).tolist() == [0, -1, -1, -2]
        assert array_of((x > 2) & (x != 4)).tolist() == [False, False, True, False]
        assert array_of(8 >> x).tolist() == [4, 2, 1, 0]
        assert array_of(~x).tolist() == [-2, -3, -4, -5]
        assert isinstance(2 <= x, tensor)
        with pytest.raises(TypeError):
            x + "text"
    finally:
        pop_emitter()


def test_operators_need_a_kernel() -> None:
    with pytest.raises(RuntimeError, match="only inside a @jit kernel"):
        op.add(1, 2)


def test_pointers_move_by_elements() -> None:
    b = Recorder()
    moved = op.add.fn(b, b.value("*fp64", (4,)), 3)
    assert moved.dtype.is_ptr()
    assert moved.block_shape == (4,)
    assert b.names == ["tt.splat", "tt.addptr"] or b.names == ["tt.addptr"]
    assert any(isinstance(o, ConstantOp) for o in b.module.ops)


def test_fma_of_integers_is_refused() -> None:
    b = Recorder()
    with pytest.raises(LanguageTypeError, match="floating-point"):
        tl_math.fma.fn(b, b.value("i32"), b.value("i32"), b.value("i32"))
