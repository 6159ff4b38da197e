"""Conversions: small float formats against their definition, pairs of types against Python, the ops that are built."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.emitters import Evaluator, Recorder, array_of
from tilewright.base import dtypes, minifloat
from tilewright.base.dtypes import PointerType, dtype
from tilewright.base.errors import LanguageTypeError, LanguageValueError
from tilewright.base.minifloat import FORMATS, decode, encode, round_to
from tilewright.base.target import Target
from tilewright.ops.casts import cast, cast_to

SMALL = [dtype(name) for name in FORMATS]
FP8 = [t for t in SMALL if t.is_fp8()]
FLOATS = [d for d in dtypes.ALL_DTYPES if d.is_floating()]
INTEGERS = [d for d in dtypes.ALL_DTYPES if d.is_int() and not d.is_bool()]


def ids(value: Any) -> str:
    return str(value)


# --- formats ------------------------------------------------------------------------------------------------


def values_of(type_: dtype) -> np.ndarray[Any, Any]:
    """All finite values of a type, ascending, computed from the definition of a binary format."""
    bits = type_.primitive_bitwidth
    fmt = FORMATS[type_.name]
    out = []
    for code in range(1 << (bits - 1)):
        field, fraction = code >> fmt.mantissa, code & ((1 << fmt.mantissa) - 1)
        hidden = 1 if field else 0
        value = Fraction(hidden * 2**fmt.mantissa + fraction, 2**fmt.mantissa) * Fraction(2) ** (
            max(field, 1) - fmt.bias
        )
        if code <= fmt.max_code:
            out.append(float(value))
    return np.array(out)


@pytest.mark.parametrize("type_", SMALL, ids=ids)
def test_codes_round_trip(type_: dtype) -> None:
    codes = np.arange(1 << type_.primitive_bitwidth).astype(type_.memory_dtype)
    values = decode(codes, type_)
    again = encode(values, type_)
    changed = codes[(again != codes) & ~np.isnan(values)]
    fmt = FORMATS[type_.name]
    if type_.name == "fp8e4b15":
        # The two codes above the largest value read as that value.
        assert changed.tolist() == [0x7F, 0xFF]
    elif fmt.inf_code is not None and fmt.saturate:
        assert changed.tolist() == [fmt.inf_code, fmt.inf_code | fmt.sign]
    else:
        assert changed.size == 0


@pytest.mark.parametrize(
    ("name", "largest", "smallest", "nans", "infinities"),
    [
        ("fp8e4nv", 448.0, 2.0**-9, 2, 0),
        ("fp8e5", 57344.0, 2.0**-16, 6, 2),
        ("fp8e4b15", 1.75, 2.0**-17, 0, 0),
        ("fp8e4b8", 240.0, 2.0**-10, 1, 0),
        ("fp8e5b16", 57344.0, 2.0**-17, 1, 0),
    ],
)
def test_ranges_of_the_eight_bit_floats(name: str, largest: float, smallest: float, nans: int, infinities: int) -> None:
    values = decode(np.arange(256, dtype=np.uint8), dtype(name))
    finite = values[np.isfinite(values)]
    assert finite.max() == largest
    assert finite[finite > 0].min() == smallest
    assert np.isnan(values).sum() == nans
    assert np.isinf(values).sum() == infinities
    assert (np.signbit(values) & (values == 0)).sum() == (0 if FORMATS[name].unsigned_zero else 1)


@pytest.mark.parametrize("type_", SMALL, ids=ids)
@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
def test_rounding_picks_the_right_neighbour(type_: dtype, rounding: str) -> None:
    """Midpoints between neighbours, and values just beside them, in float64."""
    grid = values_of(type_)
    low, high = grid[:-1], grid[1:]
    middle = (low + high) / 2
    even = np.where(np.arange(len(low)) % 2 == 0, low, high)
    toward_zero = rounding == "rtz"
    for probe, want in (
        (middle, low if toward_zero else even),
        (np.nextafter(middle, np.inf), low if toward_zero else high),
        (np.nextafter(middle, -np.inf), low),
        (low, low),
    ):
        np.testing.assert_array_equal(round_to(probe, type_, rounding=rounding), want.astype(np.float32))
        mirrored = round_to(-probe, type_, rounding=rounding)
        np.testing.assert_array_equal(mirrored, (-want).astype(np.float32))


@pytest.mark.parametrize("type_", FP8, ids=ids)
def test_eight_bit_floats_saturate(type_: dtype) -> None:
    largest = values_of(type_)[-1]
    got = round_to(np.array([np.inf, -np.inf, 1e30, -1e30, largest * 1.01]), type_)
    np.testing.assert_array_equal(got, np.float32([largest, -largest, largest, -largest, largest]))
    nan = round_to(np.array([np.nan]), type_)
    assert np.isnan(nan).all() or type_.name == "fp8e4b15"


def test_bfloat16_overflows_to_infinity() -> None:
    got = round_to(np.array([3.4e38, -3.4e38, np.inf, np.nan, 3.38e38]), dtypes.bfloat16)
    np.testing.assert_array_equal(got[:4], np.float32([np.inf, -np.inf, np.inf, np.nan]))
    assert np.isfinite(got[4])


@given(st.integers(0, 2**32 - 1))
def test_both_roundings_to_bfloat16_agree(bits: int) -> None:
    value = np.array([bits], dtype=np.uint32).view(np.float32)
    by_bits = round_to(value, dtypes.bfloat16)
    by_codes = decode(encode(value, dtypes.bfloat16), dtypes.bfloat16)
    np.testing.assert_array_equal(by_bits, by_codes)
    if value[0] == 0 or not np.isnan(value[0]):
        assert np.signbit(by_bits[0]) == np.signbit(by_codes[0])


def test_float64_rounds_once() -> None:
    """Just above a tie of bf16: rounding to float32 first would lose the excess and then go to even."""
    tie = 1 + 2.0**-8
    above = tie + 2.0**-40
    assert np.float32(above) == np.float32(tie)
    assert round_to(np.array(tie), dtypes.bfloat16) == 1.0
    assert round_to(np.array(above), dtypes.bfloat16) == 1 + 2.0**-7


def test_float32_to_half_toward_zero() -> None:
    x = np.float32([1 + 2**-11, 65504 + 31, 1e6, -1e6, 6e-8, 3e-8, -(1 + 2**-11)])
    got = round_to(x, dtypes.float16, rounding="rtz")
    np.testing.assert_array_equal(got, np.float16([1, 65504, 65504, -65504, 6e-8, 0, -1]))


@pytest.mark.parametrize("type_", list(dtypes.ALL_DTYPES), ids=ids)
def test_memory_form_round_trips(type_: dtype) -> None:
    plain = (
        np.array([0, 1, 1, 0])
        if type_.is_bool()
        else np.array([0, 1, 0.5, 1.5])
        if type_.is_floating()
        else np.array([0, 1, 7, 100])
    )
    work = plain.astype(type_.work_dtype)
    memory = minifloat.to_memory(work, type_)
    assert memory.dtype == type_.memory_dtype
    np.testing.assert_array_equal(minifloat.from_memory(memory, type_), work)


# --- values -------------------------------------------------------------------------------------------------


def converted(value: Any, source: dtype, target: dtype, **options: Any) -> Any:
    b = Evaluator()
    return array_of(cast.fn(b, b.value(value, source.signature), target, **options)).tolist()


@pytest.mark.parametrize(("source", "target"), list(itertools.product(INTEGERS, INTEGERS)), ids=ids)
def test_integer_to_integer_wraps(source: dtype, target: dtype) -> None:
    edges = [0, 1, 100, source.get_int_max_value(), source.get_int_min_value(), source.get_int_max_value() - 1]
    edges += [-1, -100] if source.is_int_signed() else [3, 5]
    got = converted(np.array(edges, dtype=source.work_dtype), source, target)
    for value, result in zip(edges, got, strict=True):
        assert (value - result) % (1 << target.primitive_bitwidth) == 0
        assert target.get_int_min_value() <= result <= target.get_int_max_value()


@pytest.mark.parametrize(("source", "target"), list(itertools.product(FLOATS, INTEGERS)), ids=ids)
def test_float_to_integer_cuts_and_saturates(source: dtype, target: dtype) -> None:
    drawn = [0.0, 0.9, -0.9, 1.5, -1.5, 100.7, -100.7, 1e5, -1e5, 3e9, -3e9, 1e19, -1e19, np.inf, -np.inf, np.nan]
    values = round_to(np.array(drawn), source)
    got = converted(values, source, target)
    low, high = target.get_int_min_value(), target.get_int_max_value()
    for value, result in zip(values.tolist(), got, strict=True):
        if value != value:
            assert result == 0
        elif abs(value) == np.inf:
            assert result == (high if value > 0 else low)
        else:
            assert result == min(max(int(value), low), high)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(INTEGERS, FLOATS)), ids=ids)
def test_integer_to_float_is_the_nearest(source: dtype, target: dtype) -> None:
    high, low = source.get_int_max_value(), source.get_int_min_value()
    edges = [0, 1, 3, high, low, high - 1, high // 2, high // 2 + 1, high // 3, 100]
    edges += [2**24 + 1, 2**25 + 3] if high > 2**26 else []
    edges += [2**55 + 2**31 + 1, 2**54 - 2**29 - 1] if high > 2**56 else []
    edges = (edges + [0] * 16)[:16]
    got = np.array(converted(np.array(edges, dtype=source.work_dtype), source, target))
    for value, result in zip(edges, got, strict=True):
        if np.isinf(result) or target.is_fp8():
            continue
        ulp = Fraction(2) ** -target.fp_mantissa_width * max(abs(Fraction(float(result))), 1)
        neighbours = [Fraction(float(result)) + sign * ulp / 2 for sign in (-1, 1)]
        near = abs(Fraction(float(result)) - value)
        for other in neighbours:
            assert near <= abs(other - value) or near <= ulp / 2
    if not target.is_fp8() and not target.is_fp16():
        exact = np.array([float(round_to(np.float64(v), target)) for v in edges if abs(v) < 2**53])
        np.testing.assert_array_equal(got[[abs(v) < 2**53 for v in edges]], exact)


def test_sixty_four_bit_integers_round_once_to_bfloat16() -> None:
    """2**62 + 2**54 is a tie of bf16; the last bit of the integer, lost in float64, decides it."""
    tie = 2**62 + 2**54
    assert converted(np.int64(tie), dtypes.int64, dtypes.bfloat16) == float(2**62)
    assert converted(np.int64(tie + 1), dtypes.int64, dtypes.bfloat16) == float(2**62 + 2**55)
    assert converted(np.uint64(2**63 + 2**55 + 1), dtypes.uint64, dtypes.bfloat16) == float(2**63 + 2**56)  # one number


@pytest.mark.parametrize("source", [d for d in dtypes.ALL_DTYPES if not d.is_bool()], ids=ids)
def test_anything_to_bool_is_not_zero(source: dtype) -> None:
    assert converted(np.array([0, 1], source.work_dtype), source, dtypes.int1) == [False, True]
    if source.is_floating():
        assert converted(np.array([np.nan, 0.25], np.float32), source, dtypes.int1) == [True, True]
    else:
        assert converted(np.array([64, 0], source.work_dtype), source, dtypes.int1) == [True, False]


def test_bool_extends_with_zero() -> None:
    for target in (dtypes.int8, dtypes.int64, dtypes.uint32, dtypes.float32, dtypes.bfloat16, dtypes.float8e5):
        assert converted([0, 1], dtypes.int1, target) == [0, 1]


def test_bitcast() -> None:
    assert converted(np.float32(1.0), dtypes.float32, dtypes.int32, bitcast=True) == 0x3F800000
    assert converted(np.int32(-1), dtypes.int32, dtypes.uint32, bitcast=True) == 2**32 - 1
    assert converted(np.int16(0x3F80), dtypes.int16, dtypes.bfloat16, bitcast=True) == 1.0
    assert converted(np.float32(448), dtypes.float8e4nv, dtypes.uint8, bitcast=True) == 0x7E


# --- operations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "options", "ops"),
    [
        ("fp32", "float16", {}, ["arith.truncf"]),
        ("fp32", "float16", {"fp_downcast_rounding": "rtz"}, ["tt.fp_to_fp"]),
        ("fp32", "float8e5", {}, ["tt.fp_to_fp"]),
        ("fp8e5", "float32", {}, ["tt.fp_to_fp"]),
        ("fp16", "bfloat16", {}, ["tt.fp_to_fp"]),
        ("fp16", "float64", {}, ["arith.extf"]),
        ("fp16", "int32", {}, ["arith.extf", "arith.fptosi"]),
        ("fp32", "uint8", {}, ["arith.fptoui"]),
        ("fp32", "int1", {}, ["arith.cmpf"]),
        ("i32", "int1", {}, ["arith.cmpi"]),
        ("u1", "float32", {}, ["arith.uitofp"]),
        ("i8", "float8e5", {}, ["arith.sitofp", "tt.fp_to_fp"]),
        ("u8", "int32", {}, ["arith.extui"]),
        ("i8", "uint32", {}, ["arith.extsi"]),
        ("i32", "uint32", {}, []),
        ("i64", "int32", {}, ["arith.trunci"]),
        ("fp32", "float32", {}, []),
        ("fp32", "int32", {"bitcast": True}, ["tt.bitcast"]),
        ("*fp32", "int64", {}, ["tt.ptr_to_int"]),
    ],
)
def test_operations_that_are_built(source: str, target: str, options: dict[str, Any], ops: list[str]) -> None:
    b = Recorder()
    result = cast.fn(b, b.value(source, (4,)), dtype(target), **options)
    assert b.names == ops
    assert result.dtype == dtype(target)
    assert result.block_shape == (4,)


def test_pointers_convert_to_pointers() -> None:
    b = Recorder()
    bytes_ = cast.fn(b, b.value("*fp32"), PointerType(dtypes.int8))
    assert b.names == ["tt.bitcast"]
    assert bytes_.dtype == PointerType(dtypes.int8)
    assert cast.fn(b, b.value("i64"), PointerType(dtypes.float32)).dtype.is_ptr()
    with pytest.raises(LanguageTypeError, match="cannot cast"):
        cast.fn(b, b.value("*fp32"), dtypes.int32)


# --- errors -------------------------------------------------------------------------------------------------


def test_bitcast_needs_equal_widths() -> None:
    b = Recorder()
    with pytest.raises(ValueError, match="Cannot bitcast data-type of size 32 to data-type of size 16"):
        cast.fn(b, b.value("fp32"), dtypes.int16, bitcast=True)


@pytest.mark.parametrize(("source", "target"), [("fp16", "fp32"), ("i32", "fp16"), ("fp32", "int8")])
def test_rounding_is_for_narrowing_floats(source: str, target: str) -> None:
    b = Recorder()
    with pytest.raises(ValueError, match="should be set only for truncating fp conversions"):
        cast.fn(b, b.value(source), dtype(target), "rtz")


def test_unknown_rounding_and_type() -> None:
    b = Recorder()
    with pytest.raises(LanguageValueError, match="invalid fp_downcast_rounding 'up'"):
        cast.fn(b, b.value("fp32"), dtypes.float16, "up")
    with pytest.raises(LanguageTypeError, match="needs a data type"):
        cast.fn(b, b.value("fp32"), "half")


def test_a_gpu_has_some_of_the_eight_bit_floats() -> None:
    for arch, type_, legal in (
        (80, "fp8e4nv", False),
        (90, "fp8e4nv", True),
        (90, "fp8e4b8", False),
        (80, "fp8e5", True),
    ):
        b = Recorder()
        b.target = Target("cuda", arch)
        if legal:
            cast_to(b, b.value("fp32"), dtype(type_))
        else:
            with pytest.raises(ValueError, match=f"type {type_} not supported in this architecture"):
                cast_to(b, b.value("fp32"), dtype(type_))
