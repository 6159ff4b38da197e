"""Promotion of mixed operands: the table of rules, numbers beside tensors, pointers, range checks, shapes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.ops.emitters import Recorder
from tilewright.base import dtypes
from tilewright.base.dtypes import dtype
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ops.functions import operators
from tilewright.ops.promotion import computation_type, promote_binary, promote_integers, promote_many

ARITHMETIC, DIVISION = False, True
INTS = ("int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

# (left, right, result of + - *, result of / // %); a number is written as "#value".
RULES = [
    ("fp64", "fp32", "fp64", "fp64"), ("fp64", "int64", "fp64", "fp64"), ("fp64", "fp8e5", "fp64", "fp64"),
    ("fp32", "fp16", "fp32", "fp32"), ("fp32", "bf16", "fp32", "fp32"), ("fp32", "int64", "fp32", "fp32"),
    ("fp32", "fp8e5", "fp32", "fp32"), ("fp16", "fp16", "fp16", "fp32"), ("fp16", "int64", "fp16", "fp32"),
    ("fp16", "bf16", "fp16", "fp32"), ("fp16", "fp8e5", "fp16", "fp32"), ("bf16", "bf16", "bf16", "fp32"),
    ("bf16", "int32", "fp32", "fp32"), ("bf16", "int1", "fp32", "fp32"), ("bf16", "fp8e5", "fp32", "fp32"),
    ("fp8e5", "fp8e5", "fp8e5", "fp32"), ("fp8e5", "fp8e4nv", "fp16", "fp32"),
    ("int8", "int32", "int32", "int32"), ("uint8", "uint32", "uint32", "uint32"), ("int1", "int1", "int1", "int1"),
    ("int32", "uint32", "uint32", None), ("int64", "uint32", "int64", None), ("int8", "uint8", "uint8", None),
    ("int1", "int32", "int32", None), ("int1", "uint8", "uint8", "uint8"), ("fp8e5", "int32", None, "fp32"),
    # A number yields to a tensor of its kind or a later one ...
    ("int8", "#5", "int8", "int8"), ("int8", "#True", "int8", "int8"), ("uint8", "#5", "uint8", "uint8"),
    ("fp16", "#0.5", "fp16", "fp32"), ("fp16", "#2", "fp16", "fp32"), ("bf16", "#0.5", "bf16", "fp32"),
    ("bf16", "#1e300", "bf16", "fp32"), ("fp8e5", "#0.5", "fp8e5", "fp32"), ("fp64", "#1", "fp64", "fp64"),
    # ... and otherwise counts by its own type.
    ("int1", "#1", "int32", None), ("int32", "#0.5", "fp32", "fp32"), ("int64", "#1e300", "fp64", "fp64"),
    ("int1", "#0.5", "fp32", "fp32"), ("uint32", "#0.5", "fp32", "fp32"),
]  # fmt: skip


def operand(b: Recorder, text: str) -> Any:
    return eval(text[1:]) if text[0] == "#" else b.value(dtype(text).signature)


@pytest.mark.parametrize(("left", "right", "plain", "division"), RULES)
@pytest.mark.parametrize("swap", [False, True])
def test_rules(left: str, right: str, plain: str | None, division: str | None, swap: bool) -> None:
    for want, div_or_mod in ((plain, ARITHMETIC), (division, DIVISION)):
        b = Recorder()
        pair = [operand(b, left), operand(b, right)]
        pair = pair[::-1] if swap else pair
        if want is None:
            with pytest.raises(DTypeError):
                promote_binary(b, *pair, div_or_mod=div_or_mod)
        else:
            x, y = promote_binary(b, *pair, div_or_mod=div_or_mod)
            assert (str(x.dtype), str(y.dtype)) == (want, want)


def test_every_pair_is_symmetric() -> None:
    for a, b in itertools.product(dtypes.ALL_DTYPES, repeat=2):
        for div_or_mod in (False, True):
            results = []
            for x, y in ((a, b), (b, a)):
                try:
                    results.append(str(computation_type(x, y, div_or_mod=div_or_mod)))
                except DTypeError:
                    results.append("error")
            assert results[0] == results[1], (a, b, div_or_mod)


@pytest.mark.parametrize("pair", list(itertools.product(INTS, repeat=2)), ids="-".join)
def test_integers_follow_c_without_widening(pair: tuple[str, str]) -> None:
    """The result holds every value of the wider operand, and all of both if one signed type of the two can."""
    a, b = dtype(pair[0]), dtype(pair[1])
    result = promote_integers(a, b)
    assert result.int_bitwidth == max(a.int_bitwidth, b.int_bitwidth)
    assert result in (a, b)
    if a.int_bitwidth == b.int_bitwidth and a != b:
        assert result.is_int_unsigned()


@pytest.mark.parametrize(
    ("type_", "number", "text"),
    [
        ("uint32", -1, "unsigned tensor and a negative scalar"),
        ("int8", 300, "Scalar 300 is out of range for type int8"),
        ("int8", -129, "Scalar -129 is out of range for type int8"),
        ("uint8", 256, "Scalar 256 is out of range for type uint8"),
        ("int32", 2**40, "Scalar 1099511627776 is out of range for type int32"),
    ],
)
def test_numbers_must_fit_the_tensor(type_: str, number: int, text: str) -> None:
    b = Recorder()
    value = b.value(dtype(type_).signature)
    for pair in ((value, number), (number, value)):
        with pytest.raises(ValueError, match=text) as caught:
            promote_binary(b, *pair)
        assert isinstance(caught.value, LanguageValueError)
        assert caught.value.hint


def test_numbers_at_the_edge_fit() -> None:
    b = Recorder()
    for type_, number in (("int8", -128), ("int8", 127), ("uint8", 255), ("uint64", 2**64 - 1), ("int64", -(2**63))):
        x, _ = promote_binary(b, b.value(dtype(type_).signature), number)
        assert str(x.dtype) == type_


def test_different_signedness_in_division_names_both_types() -> None:
    b = Recorder()
    with pytest.raises(TypeError, match="int32 and uint32 because they have different signedness") as caught:
        operators.floordiv.fn(b, b.value("i32"), b.value("u32"))
    assert "x.to(tl.int32)" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("add", "*fp32", "fp32"), ("add", "*fp32", "*i32"), ("sub", "*fp32", "*i32"), ("sub", "i32", "*fp32"),
        ("mul", "*fp32", "i32"), ("less_than", "*fp32", "*fp32"), ("equal", "*fp32", "i32"), ("and_", "*fp32", "i32"),
        ("and_", "fp32", "i32"), ("lshift", "i32", "fp32"), ("truediv", "*fp32", "i32"),
    ],
)  # fmt: skip
def test_operands_that_do_not_go_together(name: str, left: str, right: str) -> None:
    b = Recorder()
    with pytest.raises(TypeError, match="invalid operands of type"):
        getattr(operators, name).fn(b, b.value(left), b.value(right))


def test_two_pointers_are_not_added() -> None:
    b = Recorder()
    with pytest.raises(LanguageTypeError, match="cannot add pointers together"):
        operators.add.fn(b, b.value("*fp32"), b.value("*fp32"))


@pytest.mark.parametrize(
    ("a", "b", "want", "ops"),
    [
        ((8,), (8,), (8,), []),
        ((), (8,), (8,), ["tt.splat"]),
        ((8,), (), (8,), ["tt.splat"]),
        ((8,), (4, 8), (4, 8), ["tt.expand_dims", "tt.broadcast"]),
        ((4, 1), (1, 8), (4, 8), ["tt.broadcast", "tt.broadcast"]),
        ((1,), (4, 8), (4, 8), ["tt.expand_dims", "tt.broadcast"]),
        ((2, 1, 8), (4, 1), (2, 4, 8), ["tt.broadcast", "tt.expand_dims", "tt.broadcast"]),
    ],
)
def test_shapes_broadcast(a: tuple[int, ...], b: tuple[int, ...], want: tuple[int, ...], ops: list[str]) -> None:
    emitter = Recorder()
    x, y = promote_binary(emitter, emitter.value("fp32", a), emitter.value("fp32", b))
    assert x.block_shape == y.block_shape == want
    assert emitter.names == ops


def test_shapes_that_do_not_broadcast() -> None:
    b = Recorder()
    with pytest.raises(ShapeError, match="incompatible dimensions at index 1: 8 and 4") as caught:
        promote_binary(b, b.value("fp32", (2, 8)), b.value("fp32", (4,)))
    assert "[2, 8] and [4]" in str(caught.value)


@pytest.mark.parametrize(
    ("operands", "want"),
    [
        (("fp16", "#0.0", "#1.0"), "fp16"),
        (("#0.0", "#1.0", "bf16"), "bf16"),
        (("int8", "fp16", "#1"), "fp16"),
        (("bf16", "int8", "#1"), "fp32"),
        (("#1", "#2.5", "int8"), "fp32"),
        (("int8", "int16", "int32"), "int32"),
    ],
)
def test_three_operands(operands: tuple[str, ...], want: str) -> None:
    b = Recorder()
    out = promote_many(b, *[operand(b, text) for text in operands])
    assert {str(value.dtype) for value in out} == {want}
