"""What each input precision computes, against float64: the bounds that docs/language.md states, and special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.dot_harness import Case, run_case, to_bf16, value
from tests.backends.cpu.families import FAMILIES, in_pairs
from tilewright.backends.cpu.emit.dot import DotPlan, plan_dot

Array = np.ndarray[Any, Any]
_PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
# Relative error of one product, before the sum in f32, where operands are rounded or split (only f32 operands are).
_OF_A_PRODUCT = {"tf32": 2.0**-10 + 2.0**-22, "bf16x3": 2.0**-15}
_M, _N, _K = 16, 32, 64


def _run(family: str, dtype: str, precision: str, a: Array, b: Array) -> tuple[DotPlan, Array]:
    isa = FAMILIES[family].isa
    plan = plan_dot(isa, _M, _N, _K, dtype, dtype, "f32", precision)
    result, _, _ = run_case(isa, plan, Case(), np.random.default_rng(0), (a, b))
    return plan, result


def _stored(values: Array, dtype: str) -> Array:
    return to_bf16(values) if dtype == "bf16" else values.astype({"f16": np.float16, "f32": np.float32}[dtype])


def _random(rng: np.random.Generator, dtype: str) -> tuple[Array, Array]:
    """Operands whose magnitudes cover the range of f16, its subnormal numbers included."""
    powers = [np.exp2(rng.integers(-22, 8, shape)) for shape in ((_M, _K), (_K, _N))]
    a, b = (_stored(rng.standard_normal(power.shape) * power, dtype) for power in powers)
    return a, b


def _exactly(a: Array, b: Array, dtype: str) -> tuple[Array, Array]:
    """The product in float64, and the sum of the magnitudes of its terms."""
    wide_a, wide_b = (value(x, dtype).astype(np.float64) for x in (a, b))
    with np.errstate(invalid="ignore"):
        return wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)


def _tf32(x: Array) -> Array:
    """Rounded to 10 bits of mantissa, halves away from zero."""
    return ((x.view(np.uint32) + (1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)


_MODES = in_pairs(FAMILIES, ["f16", "bf16", "f32"], _PRECISIONS)


@pytest.mark.parametrize(("family", "dtype", "precision"), _MODES)
def test_error_of_a_mode(family: str, dtype: str, precision: str) -> None:
    a, b = _random(np.random.default_rng(4), dtype)
    plan, result = _run(family, dtype, precision, a, b)
    exact, size = _exactly(a, b, dtype)
    product = _OF_A_PRODUCT.get(precision, 0.0) if dtype == "f32" else 0.0
    bound = (product + _K * (4 if plan.planes > 1 else 1) * 2.0**-24) * size
    assert (np.abs(result - exact) <= bound).all()


def test_tf32_is_exact_on_rounded_operands() -> None:
    a, b = _random(np.random.default_rng(5), "f32")
    plan, result = _run("amx", "f32", "tf32", a, b)
    exact, size = _exactly(_tf32(a), _tf32(b), "f32")
    assert (np.abs(result - exact) <= _K * (4 if plan.planes > 1 else 1) * 2.0**-24 * size).all()


@pytest.mark.parametrize("precision", ["ieee", "tf32", "bf16x3"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_sums_that_are_exact_in_f32_are_exact(dtype: str, precision: str) -> None:
    """Integers of 9 bits, whose products and sums have 24 at most."""
    rng = np.random.default_rng(7)
    a, b = (_stored(rng.integers(-300, 301, shape).astype(np.float64), dtype) for shape in ((_M, _K), (_K, _N)))
    for family in ("amx", "avx512"):
        _, result = _run(family, dtype, precision, a, b)
        np.testing.assert_array_equal(result, _exactly(a, b, dtype)[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_products_of_f16_alone_are_exact(family: str) -> None:
    """Sums of one term, of which nothing is rounded: subnormal numbers to the largest, of either sign."""
    rng = np.random.default_rng(6)
    a, b = np.zeros((128, 16), np.float16), np.zeros((16, 128), np.float16)
    bits = rng.integers(0, 0x7C00, (2, 128)) | (rng.integers(0, 2, (2, 128)) << 15)
    a[:, 3], b[3, :] = bits.astype(np.uint16).view(np.float16)
    isa = FAMILIES[family].isa
    result, exact, _ = run_case(isa, plan_dot(isa, 128, 128, 16, "f16", "f16", "f32"), Case(), rng, (a, b))
    np.testing.assert_array_equal(result, exact)


@pytest.mark.parametrize(("family", "dtype", "precision"), _MODES)
def test_special_values(family: str, dtype: str, precision: str) -> None:
    """Infinities meet ones, zeros, each other and numbers whose halves have either sign; NaN stays."""
    a, b = np.ones((_M, _K)), np.ones((_K, _N))
    b[:, 1], b[:, 2], b[0, 3], b[1, 4], b[1, 5] = 1 + 2.0**-10, 1 - 2.0**-9, -(2.0**-14), np.inf, -np.inf
    b[0, 6], b[0, 7], b[0, 8] = 0.0, np.nan, np.inf
    a[0, 0], a[1, 0], a[2, 5], a[3, 0], a[4, :2] = np.inf, -np.inf, np.nan, 0.0, (np.inf, -np.inf)
    stored = _stored(a, dtype), _stored(b, dtype)
    _, result = _run(family, dtype, precision, *stored)
    exact, _ = _exactly(*stored, dtype)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
    np.testing.assert_array_equal(result[np.isinf(exact)], exact[np.isinf(exact)])
    finite = np.isfinite(exact)
    np.testing.assert_allclose(result[finite], exact[finite], rtol=1e-3)
