"""Elementary functions: values against the math module, accepted types, and the generated names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.ops.emitters import Evaluator, Recorder, array_of
from tilewright.base import dtypes
from tilewright.ops import math as tl_math
from tilewright.ops.math_extern import ExternElementwiseOp, math_name
from tilewright.ops.spec import Call, spec_of

POINTS = [0.1, 0.5, 1.0, 2.5, 7.0, 1e-3, 30.0, 0.75]
FUNCTIONS: dict[str, Any] = {
    "exp": math.exp, "exp2": lambda x: 2.0**x, "log": math.log, "log2": math.log2, "sin": math.sin, "cos": math.cos,
    "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "erf": math.erf, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("type_", ["fp32", "fp64"])
def test_values(name: str, type_: str) -> None:
    b = Evaluator()
    x = np.array(POINTS, dtype=dtypes.dtype(type_).work_dtype)
    got = array_of(getattr(tl_math, name).fn(b, b.value(x, type_)))
    want = np.array([FUNCTIONS[name](float(v)) for v in x])
    if type_ == "fp32":
        np.testing.assert_array_equal(got, want.astype(np.float32))
    else:
        np.testing.assert_allclose(got, want, rtol=3e-16)


@pytest.mark.parametrize(
    ("name", "point", "want"),
    [
        ("exp", -math.inf, 0.0), ("exp", math.inf, math.inf), ("exp", 1000.0, math.inf), ("log", 0.0, -math.inf),
        ("log", -1.0, math.nan), ("sqrt", -1.0, math.nan), ("rsqrt", 0.0, math.inf), ("sin", math.inf, math.nan),
        ("erf", math.inf, 1.0), ("floor", -0.5, -1.0), ("ceil", math.nan, math.nan),
    ],
)  # fmt: skip
def test_edges(name: str, point: float, want: float) -> None:
    b = Evaluator()
    got = array_of(getattr(tl_math, name).fn(b, b.value(np.float32(point), "fp32"))).item()
    assert got == want or (math.isnan(got) and math.isnan(want))


@pytest.mark.parametrize("name", [*FUNCTIONS, "sqrt_rn"])
@pytest.mark.parametrize("signature", ["fp16", "bf16", "i32", "fp8e5", "u1"])
def test_other_types_are_refused(name: str, signature: str) -> None:
    b = Recorder()
    with pytest.raises(ValueError, match=r"Expected dtype \['fp32'.*\] but got") as caught:
        getattr(tl_math, name).fn(b, b.value(signature))
    assert f"tl.{name}" in str(caught.value)


def test_numbers_are_float32() -> None:
    b = Evaluator()
    assert array_of(tl_math.exp.fn(b, 0.0)).dtype == np.float32
    with pytest.raises(ValueError, match="but got int32"):
        tl_math.exp.fn(b, 1)


def test_abs() -> None:
    b = Evaluator()
    assert array_of(tl_math.abs.fn(b, b.value([-3, 3, -128, 0], "i8"))).tolist() == [3, 3, -128, 0]
    assert array_of(tl_math.abs.fn(b, b.value([-0.0, -1.5], "bf16"))).tolist() == [0.0, 1.5]
    unsigned = b.value([200, 1], "u8")
    assert tl_math.abs.fn(b, unsigned) is unsigned


@pytest.mark.parametrize(("signature", "bits"), [("u32", 32), ("u64", 64), ("i32", 32)])
def test_umulhi(signature: str, bits: int) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 1 << (bits - 1), (2, 8), dtype=np.uint64)
    type_ = dtypes.scalar_from_signature(signature)
    b = Evaluator()
    work: Any = type_.work_dtype  # type: ignore[union-attr]
    got = array_of(tl_math.umulhi.fn(b, b.value(x.astype(work), signature), b.value(y.astype(work), signature)))
    assert got.tolist() == [int(p) * int(q) >> bits for p, q in zip(x, y, strict=True)]


def test_division_functions() -> None:
    b = Recorder()
    half, single = b.value("fp16"), b.value("fp32")
    assert str(tl_math.fdiv.fn(b, half, half).dtype) == "fp32"
    assert tl_math.div_rn.fn(b, single, 3.0).dtype.is_fp32()
    assert b.names == ["arith.extf", "arith.extf", "arith.divf", "tt.precise_divf"]
    with pytest.raises(TypeError, match="must have floating scalar type"):
        tl_math.fdiv.fn(b, b.value("i32"), 2)
    with pytest.raises(ValueError, match="approximate division"):
        tl_math.fdiv.fn(b, b.value("fp64"), 2.0, approx=True)


def test_a_wrong_nan_rule_is_refused() -> None:
    b = Recorder()
    with pytest.raises(ValueError, match="Unexpected propagate_nan"):
        tl_math.minimum.fn(b, b.value("fp32"), 1.0, propagate_nan=True)


def test_functions_are_methods_too() -> None:
    from tilewright.ops.values import tensor

    for name in (*FUNCTIONS, "abs", "sqrt_rn", "to", "cast", "logical_and", "logical_or"):
        assert hasattr(tensor, name), name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("__nv_tanhf", "tanh"), ("__nv_tanh", "tanh"), ("__nv_powf", "powf"), ("__nv_pow", "powf"), ("__nv_erff", "erf"),
     ("__nv_atan2f", "atan2"), ("__nv_j0f", None)],
)  # fmt: skip
def test_libdevice_symbols(symbol: str, name: str | None) -> None:
    assert math_name(symbol) == name


def test_unknown_libdevice_functions_have_no_reference() -> None:
    reference = spec_of(ExternElementwiseOp).reference
    assert reference is not None
    with pytest.raises(NotImplementedError, match="__nv_j0f runs on NVIDIA GPUs only"):
        reference(Call({"symbol": "__nv_j0f"}), np.zeros(4))
