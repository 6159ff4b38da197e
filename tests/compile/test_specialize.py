"""Specialisation: the table of types and keys, annotations, opt-outs, tuples, and what makes two calls alike."""

from __future__ import annotations

import copy
import inspect
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtypes import float32, int64
from tilewright.base.errors import ArgumentError
from tilewright.compile.specialize import (
    Param,
    Specialization,
    constant_key,
    from_signature,
    int_type,
    parse_params,
    register_constant,
    specialize,
    specialize_call,
)
from tilewright.devices.arrays import Array

PLAIN = Param(0, "x")
CONST = Param(0, "x", is_constexpr=True)


def params_of(fn: Any, **lists: Any) -> tuple[Param, ...]:
    return parse_params(inspect.signature(fn), **lists)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("constexpr", None)),
        (True, ("u1", None)),
        (False, ("u1", None)),
        (0, ("i32", "D")),
        (1, ("constexpr", 1)),
        (-1, ("i32", "")),
        (8, ("i32", "")),
        (16, ("i32", "D")),
        (-32, ("i32", "D")),
        (17, ("i32", "")),
        (2**31 - 1, ("i32", "")),
        (2**31, ("i64", "D")),
        (-(2**31), ("i32", "D")),
        (-(2**31) - 1, ("i64", "")),
        (2**32 - 1, ("i64", "")),
        (2**63 - 1, ("i64", "")),
        (2**63, ("u64", "D")),
        (2**64 - 1, ("u64", "")),
        (1.0, ("fp32", None)),
        (float("nan"), ("fp32", None)),
        (np.float64(2.0), ("fp32", None)),
        (Array("fp32", 64), ("*fp32", "D")),
        (Array("bf16", 72), ("*bf16", "")),
        (Array("i8", 0), ("*i8", "D")),
    ],
)
def test_table(value: Any, expected: tuple[str, Any]) -> None:
    kind, key = specialize(value, PLAIN)
    assert (kind, key) == expected and type(key) is type(expected[1])


@pytest.mark.parametrize("value", ["text", [1, 2], {}, np.int32(4), np.float32(1.0), float32, object()])
def test_values_without_a_type_name_the_parameter(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"failed to specialize argument of type: .*`x`"):
        specialize(value, PLAIN)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_that_fit_nothing(value: int) -> None:
    with pytest.raises(OverflowError):
        specialize(value, PLAIN)


@given(st.integers(-(2**63), 2**64 - 1))
def test_int_type_holds_the_value(value: int) -> None:
    bits, signed = int(int_type(value)[1:]), int_type(value)[0] == "i"
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
    assert low <= value < high


def test_constexpr_parameters_keep_any_value() -> None:
    for value in (1, True, 2.5, "relu", (1, 2), None, float32, Array):
        assert specialize(value, CONST) == ("constexpr", value)


# --- opting out -----------------------------------------------------------------------------------------


def test_do_not_specialize() -> None:
    def kernel(a, b, c): ...

    a, b, c = params_of(kernel, do_not_specialize=["a"], do_not_specialize_on_alignment=[1])
    for value in (1, 8, 16):
        assert specialize(value, a) == ("i32", None)
    assert [specialize(v, b) for v in (1, 8, 16)] == [("constexpr", 1), ("i32", ""), ("i32", "")]
    assert [specialize(v, c) for v in (1, 8, 16)] == [("constexpr", 1), ("i32", ""), ("i32", "D")]
    array = Array("fp32", 64)
    assert [specialize(array, p)[1] for p in (a, b, c)] == [None, "", "D"]


def test_constexpr_cannot_opt_out() -> None:
    def kernel(N: tl.constexpr): ...  # noqa: F821

    with pytest.raises(ArgumentError, match="N marked as constexpr and listed in do_not_specialize"):
        params_of(kernel, do_not_specialize=["N"])


def test_keyword_dictionaries_are_refused() -> None:
    def kernel(**rest): ...

    with pytest.raises(ArgumentError, match="do not support"):
        params_of(kernel)


# --- annotations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "fixed"),
    [
        ("tl.int32", "i32"),
        ("i32", "i32"),
        (int64, "i64"),
        (int, "i32"),
        (float, "fp32"),
        (bool, "u1"),
        ("fp64", "fp64"),
        ("triton.language.float16", "fp16"),
        ("*fp32", "*fp32"),
        ("*kfp32", "*kfp32"),
        ("const float*", "*kfp32"),
        ("torch.Tensor", ""),
        ("", ""),
        (inspect.Parameter.empty, ""),
        (dict, ""),
    ],
)
def test_annotations(annotation: Any, fixed: str) -> None:
    parameter = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
    (param,) = parse_params(inspect.Signature([parameter]))
    assert param.fixed_type == fixed and not param.is_constexpr


def test_constexpr_annotations() -> None:
    class constexpr: ...

    for annotation in ("tl.constexpr", "constexpr", constexpr, "'tl.constexpr'"):
        parameter = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
        assert parse_params(inspect.Signature([parameter]))[0].is_constexpr


def test_const_pointers() -> None:
    class const: ...

    for annotation in ("tl.const", const):
        parameter = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)
        (param,) = parse_params(inspect.Signature([parameter]))
        assert specialize(Array("fp16", 16), param) == ("*kfp16", "D")


def test_an_annotated_integer_is_keyed_but_not_folded() -> None:
    param = Param(0, "x", fixed_type="i64")
    assert [specialize(v, param) for v in (1, 8, 16, 17)] == [("i64", 1), ("i64", ""), ("i64", "D"), ("i64", "")]


def test_an_annotated_float_or_flag_is_not_keyed() -> None:
    assert specialize(1, Param(0, "x", fixed_type="fp64")) == ("fp64", None)
    assert specialize(1.0, Param(0, "x", fixed_type="fp16")) == ("fp16", None)
    assert specialize(1, Param(0, "x", fixed_type="u1")) == ("u1", None)
    assert specialize(True, Param(0, "x", fixed_type="i32")) == ("i32", None)


def test_annotated_pointers() -> None:
    param = Param(0, "x", fixed_type="*bf16")
    assert specialize(Array("i16", 32), param) == ("*bf16", "D")
    assert specialize(0x1008, param) == ("*bf16", "")
    assert specialize(None, param) == ("constexpr", None)


def test_values_that_contradict_the_annotation() -> None:
    with pytest.raises(ArgumentError, match="annotated i32, got the float"):
        specialize(1.5, Param(0, "x", fixed_type="i32"))
    with pytest.raises(ArgumentError, match="annotated i32, got an array"):
        specialize(Array("fp32", 16), Param(0, "x", fixed_type="i32"))


# --- tuples and registered constants ----------------------------------------------------------------------


def test_tuples_are_recursive_and_keep_their_class() -> None:
    Point = namedtuple("Point", "x y")
    kind, key = specialize((1, (Array("fp32", 16), 2.0), Point(3, None)), PLAIN)
    assert kind == ("constexpr", ("*fp32", "fp32"), Point("i32", "constexpr"))
    assert key == (1, ("D", None), Point("", None))
    assert type(kind[2]) is Point


def test_specialization_paths() -> None:
    spec = specialize_call((Param(0, "a"), Param(1, "b")), ((16, 1, (2.0,)), Array("i8", 32)))
    assert spec.runtime_types == ("i32", "fp32", "*i8")
    assert spec.runtime_paths == ((0, 0), (0, 2, 0), (1,))
    assert spec.constants == {(0, 1): 1}
    assert spec.attributes == {(0, 0): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}
    assert spec.signature == {"a": ("i32", "constexpr", ("fp32",)), "b": "*i8"}


def test_registered_classes_are_constants() -> None:
    class Wrapper:
        def __init__(self, value):
            self.value = value

    class Function: ...

    register_constant(Wrapper, lambda wrapper: wrapper.value)
    register_constant(Function)
    function = Function()
    assert specialize(Wrapper(5), PLAIN) == ("constexpr", 5)
    assert specialize(Wrapper(5), CONST) == ("constexpr", 5)
    assert specialize(function, PLAIN) == ("constexpr", function)


# --- equality ---------------------------------------------------------------------------------------------


def spec_of(value: Any, param: Param = CONST) -> Specialization:
    return specialize_call((param,), (value,))


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, True), (1, 1.0), (0, False), (0.0, -0.0), ((1, 2), (1.0, 2)), ((1, 2), (1, (2,))), ("1", 1), (None, 0)],
)
def test_constants_that_look_alike_differ(a: Any, b: Any) -> None:
    assert spec_of(a) != spec_of(b)
    assert spec_of(a).text() != spec_of(b).text()


def test_equal_constants_are_equal() -> None:
    for value in (float("nan"), "relu", (1, (2.0, None)), float32):
        assert spec_of(value) == spec_of(value) and hash(spec_of(value)) == hash(spec_of(value))
        assert spec_of(value).text() == spec_of(value).text()


def test_run_time_values_do_not_distinguish() -> None:
    assert spec_of(17, PLAIN) == spec_of(33, PLAIN) and spec_of(17, PLAIN) != spec_of(32, PLAIN)
    assert spec_of(Array("fp32", 16), PLAIN) == spec_of(Array("fp32", 4096, False), PLAIN)
    assert spec_of(Array("fp32", 16), PLAIN) != spec_of(Array("i32", 16), PLAIN)


def test_tuple_nesting_and_class_distinguish() -> None:
    Point = namedtuple("Point", "x y")
    calls = [spec_of(v, PLAIN) for v in ((2, 3), Point(2, 3), (2, (3,)), ((2, 3),))]
    assert len(set(calls)) == 4 and len({call.text() for call in calls}) == 4


def test_constants_that_may_change_are_keyed_by_what_they_hold() -> None:
    for value in ([1, 2], {"a": 1}, (1, [2])):
        before = spec_of(value)
        assert before == spec_of(copy.deepcopy(value)) and before.text() == spec_of(copy.deepcopy(value)).text()
        held = value[1] if isinstance(value, tuple) else value
        held.update(b=2) if isinstance(held, dict) else held.append(3)
        assert before != spec_of(value) and before.text() != spec_of(value).text()
    assert constant_key((1, "a"), "x") == constant_key((1, "a"), "x")


def test_from_signature_matches_a_call() -> None:
    def kernel(p, n, m, s, N: tl.constexpr): ...  # noqa: F821

    params = params_of(kernel)
    call = specialize_call(params, (Array("fp32", 64), 32, 33, 0.5, 128))
    written = from_signature(
        params,
        {"p": "*fp32", "n": "i32", "m": "i32", "s": "fp32"},
        {"N": 128},
        {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
    )
    assert written == call
    with pytest.raises(ArgumentError, match="`m`"):
        from_signature(params, {"p": "*fp32", "n": "i32", "s": "fp32"}, {"N": 128})


def test_a_constant_without_a_value_is_named_with_what_to_write() -> None:
    def kernel(p, B: tl.constexpr = 32, *, T: tl.constexpr): ...  # noqa: F821

    params, types = params_of(kernel), {"p": "*fp32"}
    for signature in (types, types | {"B": "constexpr", "T": "constexpr"}):
        with pytest.raises(ArgumentError, match=r"`B` is missing\nhint: .*torch.compile passes none on: name B=32"):
            from_signature(params, signature, {"T": 1})
        with pytest.raises(ArgumentError, match="`T` is missing"):
            from_signature(params, signature, {"B": 32})
