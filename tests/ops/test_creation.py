"""Constants and their text, arange and full, program ids, hints: values, text forms, errors."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr

from tests.ops.emitters import Evaluator, Recorder, array_of
from tilewright.base import dtypes
from tilewright.base.errors import LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ir.types import scalar_type, tile_type
from tilewright.ops import creation, program, text
from tilewright.ops.constant import ConstantOp, normalise, number_attribute
from tilewright.ops.function import FuncOp
from tilewright.ops.values import constexpr, tensor


def parsed(source: str) -> ConstantOp:
    (op,) = text.parse_module(source).ops
    assert isinstance(op, ConstantOp)
    return op


# --- constants ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "type_", "shape", "printed"),
    [
        (0, "i32", (), "arith.constant 0 : i32"),
        (True, "i1", (), "arith.constant true"),
        (True, "i1", (4,), "arith.constant dense<true> : tensor<4xi1>"),
        (2**32 - 1, "i32", (), "arith.constant -1 : i32"),
        (0.0, "f32", (8,), "arith.constant dense<0.000000e+00> : tensor<8xf32>"),
        (-0.0, "f32", (), "arith.constant -0.000000e+00 : f32"),
        (1.44269504, "f32", (), "arith.constant 1.44269502 : f32"),
        (4.6566126e-10, "f32", (), "arith.constant 4.6566126E-10 : f32"),
        (0.1, "f64", (), "arith.constant 1.000000e-01 : f64"),
        (1 / 3, "f64", (), "arith.constant 0.33333333333333331 : f64"),
        (-math.inf, "f32", (2,), "arith.constant dense<0xFF800000> : tensor<2xf32>"),
        (math.inf, "f16", (), "arith.constant 0x7C00 : f16"),
        (0.1, "bf16", (), "arith.constant 1.000980e-01 : bf16"),
        (2.0**100, "f32", (), "arith.constant 1.2676506E+30 : f32"),
    ],
)
def test_text(value: Any, type_: str, shape: tuple[int, ...], printed: str) -> None:
    op = ConstantOp.of(value, tile_type(shape, scalar_type(type_)))
    assert str(op).split(" = ")[1] == printed


@given(st.integers(0, 2**32 - 1))
def test_every_float32_survives_its_text(bits: int) -> None:
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    again = parsed(str(ConstantOp.of(value, scalar_type("f32")))).splat_value
    assert isinstance(again, float)
    if math.isnan(value):
        assert math.isnan(again)
    else:
        assert struct.pack("<f", again) == struct.pack("<f", value)


@pytest.mark.parametrize("name", ["f16", "bf16", "f8E4M3FN", "f8E5M2", "f8E4M3B11FNUZ", "f8E4M3FNUZ", "f8E5M2FNUZ"])
def test_every_small_float_survives_its_text(name: str) -> None:
    from tilewright.base.minifloat import from_memory
    from tilewright.ir.types import dtype_of

    type_ = dtype_of(scalar_type(name))
    step = 1 if type_.is_fp8() else 97
    unsigned = np.dtype(f"uint{type_.primitive_bitwidth}")
    codes = np.arange(0, 1 << type_.primitive_bitwidth, step).astype(unsigned).view(type_.memory_dtype)
    for value in from_memory(codes, type_).tolist():
        again = parsed(str(ConstantOp.of(value, scalar_type(name)))).splat_value
        assert again == value or (math.isnan(value) and isinstance(again, float) and math.isnan(again))


def test_a_tile_of_numbers_keeps_them() -> None:
    op = parsed("%0 = arith.constant dense<[[1, 2], [3, -4]]> : tensor<2x2xi8>")
    value = op.attr_values()["value"]
    assert op.splat_value is None
    assert value.dtype == np.int8
    assert value.tolist() == [[1, 2], [3, -4]]
    assert "dense<[[1, 2], [3, -4]]> : tensor<2x2xi8>" in str(op)


def test_attributes_are_shared_but_zeros_stay_apart() -> None:
    f32, i1 = scalar_type("f32"), scalar_type("i1")
    assert number_attribute(1.0, f32) is number_attribute(1, f32)
    assert number_attribute(0.0, f32) is not number_attribute(-0.0, f32)
    assert number_attribute(True, i1) is not number_attribute(1.0, f32)


@pytest.mark.parametrize(
    ("value", "type_", "want"),
    [(300, "i8", 44), (-1, "i1", True), (2, "i1", False), (2**63, "i64", -(2**63)), (1e39, "f32", math.inf),
     (1e30, "f8E5M2", 57344.0), (65519.0, "f16", 65504.0)],
)  # fmt: skip
def test_values_are_held_as_the_type_does(value: Any, type_: str, want: Any) -> None:
    assert normalise(value, scalar_type(type_)) == want


# --- creation -----------------------------------------------------------------------------------------------


def test_arange() -> None:
    b = Evaluator()
    assert array_of(creation.arange.fn(b, 3, constexpr(7))).tolist() == [3, 4, 5, 6]
    assert array_of(creation.arange.fn(b, -2, 2)).dtype == np.int32


@pytest.mark.parametrize(
    ("start", "end", "text_"),
    [
        (4, 4, "end argument must be greater"),
        (0, 2**33, "must fit in int32"),
        (0.0, 4, "arguments must be integers, got 0.0"),
        (0, 2**21, r"numel \(2097152\) exceeds triton maximum tensor numel \(1048576\)"),
    ],
)
def test_bad_ranges(start: Any, end: Any, text_: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text_):
        creation.arange.fn(Recorder(), start, end)


def test_a_run_time_bound_is_refused() -> None:
    b = Recorder()
    with pytest.raises(LanguageValueError, match="tl.constexpr") as caught:
        creation.arange.fn(b, 0, b.value("i32"))
    assert caught.value.hint


def test_full() -> None:
    b = Evaluator()
    assert array_of(creation.full.fn(b, (2, 4), 7, dtypes.int32)).tolist() == [[7] * 4] * 2
    assert array_of(creation.full.fn(b, [4], 0.0, dtypes.int8)).tolist() == [0] * 4
    assert array_of(creation.full.fn(b, (), 2.5, dtypes.float16)).item() == 2.5
    scalar = b.value(np.float32(3.7), "fp32")
    assert array_of(creation.full.fn(b, (2,), scalar, dtypes.int32)).tolist() == [3, 3]
    like = creation.zeros_like.fn(b, creation.zeros.fn(b, (2, 2), dtypes.bfloat16))
    assert (like.dtype, like.block_shape) == (dtypes.bfloat16, (2, 2))


def test_bad_tiles() -> None:
    b = Recorder()
    with pytest.raises(ValueError, match="cannot fill a tile of int32 with 1.5"):
        creation.full.fn(b, (4,), 1.5, dtypes.int32)
    with pytest.raises(ShapeError, match="Shape element 1 must be positive") as caught:
        creation.zeros.fn(b, (4, 0), dtypes.int32)
    assert "got 0" in str(caught.value)
    with pytest.raises(LanguageTypeError, match="Shape element 0 must have type `constexpr`"):
        creation.zeros.fn(b, (b.value("i32"),), dtypes.int32)
    with pytest.raises(ValueError, match="only accepts size-1 tensor"):
        creation.full.fn(b, (4,), b.value("i32", (4,)), dtypes.int32)


@pytest.mark.parametrize(
    ("number", "want"),
    [(True, "int1"), (5, "int32"), (2**31, "uint32"), (2**32, "int64"), (2**63, "uint64"), (-1, "int32"),
     (-(2**40), "int64"), (0.5, "fp32"), (1e50, "fp64"), (1e-40, "fp64"), (0.0, "fp32"), (math.inf, "fp32")],
)  # fmt: skip
def test_numbers_as_values(number: Any, want: str) -> None:
    assert str(creation.to_tensor.fn(Recorder(), constexpr(number)).dtype) == want


def test_other_things_are_not_values() -> None:
    with pytest.raises(TypeError, match="cannot convert text of type <class 'str'> to tensor"):
        creation.to_tensor.fn(Recorder(), "text")
    with pytest.raises(ValueError, match="Nonrepresentable integer"):
        creation.to_tensor.fn(Recorder(), 2**70)


# --- program ------------------------------------------------------------------------------------------------


def test_program_id() -> None:
    b = Recorder()
    assert str(program.program_id.fn(b, 1).type) == "int32"
    program.num_programs.fn(b, constexpr(2))
    assert "tt.get_program_id y : i32" in str(b.module)
    assert "tt.get_num_programs z : i32" in str(b.module)
    with pytest.raises(ValueError, match="program_id axis must be 0, 1, or 2 but got 3"):
        program.program_id.fn(b, 3)


def test_hints_stand_on_the_defining_operation() -> None:
    b = Recorder()
    x = creation.arange.fn(b, 0, 8)
    assert program.multiple_of.fn(b, x, 4) is x
    program.max_contiguous.fn(b, x, [constexpr(8)])
    attributes: Any = x.handle.owner.attributes  # type: ignore[attr-defined]
    assert list(attributes) == ["tt.divisibility", "tt.contiguity"]
    assert isinstance(attributes["tt.contiguity"], DenseIntOrFPElementsAttr)
    assert "tt.divisibility = dense<4> : tensor<1xi32>" in str(b.module)
    assert str(text.parse_module(str(b.module))) == str(b.module)


def test_hints_on_arguments_stand_on_the_function() -> None:
    function = FuncOp.build("f", [scalar_type("i32"), scalar_type("i32")], [])
    n, m = [tensor(argument, dtypes.int32) for argument in function.body.block.args]
    b = Recorder()
    program.multiple_of.fn(b, m, 8)
    program.multiple_of.fn(b, m, 4)
    assert function.arg_attributes(0) == {}
    assert str(function.arg_attributes(1)["tt.divisibility"]) == "8 : i32"
    program.multiple_of.fn(b, n, 16)
    assert str(function.arg_attributes(0)["tt.divisibility"]) == "16 : i32"


def test_hints_must_be_compile_time_integers() -> None:
    b = Recorder()
    x = creation.arange.fn(b, 0, 8)
    with pytest.raises(TypeError, match="values element 0 must have type `constexpr`"):
        program.multiple_of.fn(b, x, b.value("i32"))
    with pytest.raises(TypeError, match=r"values element 0 must have type `constexpr\[int\]`"):
        program.max_constancy.fn(b, x, constexpr(1.5))
    with pytest.raises(ValueError, match="2 values for 1 dimensions"):
        program.multiple_of.fn(b, x, [4, 4])


def test_assume() -> None:
    b = Recorder()
    program.assume.fn(b, constexpr(True))
    assert b.names == []
    program.assume.fn(b, b.value("u1"))
    assert b.names == ["llvm.intr.assume"]
    with pytest.raises(TypeError, match="scalar condition"):
        program.assume.fn(b, b.value("u1", (4,)))
