"""Vector math: the stated accuracy against float64 and long double, and special values, with and without AVX-512."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.backends.llvm.harness import NO_AVX512, operation
from tilewright.backends.llvm.vecmath import ACCURACY

RNG = np.random.default_rng(99)
CPUS = {"": 64, NO_AVX512: 32}

# name: reference, ranges where it is interesting
Reference = Callable[..., np.ndarray]
ONE: dict[str, tuple[Reference, tuple[tuple[float, float], ...]]] = {
    "exp": (np.exp, ((-106, 90), (-1, 1))),
    "exp2": (np.exp2, ((-152, 130), (-1, 1))),
    "exp10": (lambda x: np.power(x.dtype.type(10), x), ((-46, 39), (-1, 1))),
    "expm1": (np.expm1, ((-20, 90), (-1, 1), (-1e-3, 1e-3))),
    "log": (np.log, ((0, 4), (0.5, 2), (0, 1e38))),
    "log2": (np.log2, ((0, 4), (0.5, 2))),
    "log10": (np.log10, ((0, 4), (0.5, 2))),
    "log1p": (np.log1p, ((-1, 4), (-0.1, 0.1), (0, 1e6))),
    "tanh": (np.tanh, ((-10, 10), (-1, 1))),
    "sinh": (np.sinh, ((-91, 91), (-2, 2))),
    "cosh": (np.cosh, ((-91, 91), (-2, 2))),
    "erf": (lambda x: np.array([math.erf(v) for v in x.tolist()], x.dtype), ((-5, 5), (-1, 1))),
    "cbrt": (np.cbrt, ((-10, 10),)),
    "sin": (np.sin, ((-4, 4), (-1e5, 1e5), (-1e30, 1e30))),
    "cos": (np.cos, ((-4, 4), (-1e5, 1e5), (-1e30, 1e30))),
    "tan": (np.tan, ((-4, 4), (-1e5, 1e5))),
    "asin": (np.arcsin, ((-1, 1),)),
    "acos": (np.arccos, ((-1, 1),)),
    "atan": (np.arctan, ((-3, 3), (-1e3, 1e3))),
}
TWO: dict[str, tuple[Reference, tuple[tuple[float, float], ...]]] = {
    "powf": (np.power, ((0, 10), (-5, 5))),
    "hypot": (np.hypot, ((-10, 10), (-1e30, 1e30))),
    "atan2": (np.arctan2, ((-10, 10), (-1e30, 1e30))),
}
SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    3.0,
    -3.0,
    1e-45,
    -1e-45,
    1e-39,
    3.4e38,
    -3.4e38,
]


def largest_error(got: np.ndarray, want: np.ndarray) -> tuple[float, int]:
    """Largest distance in units in the last place of the result type, and where; infinite where the kinds differ."""
    rounded = want.astype(got.dtype)
    finite = np.isfinite(got) & np.isfinite(rounded)
    error = np.where((np.isnan(got) & np.isnan(rounded)) | (got == rounded), 0.0, np.inf)
    unit = np.spacing(np.abs(rounded[finite])).astype(want.dtype)
    error[finite] = np.abs(got[finite].astype(want.dtype) - want[finite]) / unit
    where = int(np.argmax(error))
    return float(error[where]), where


def samples(ranges: tuple[tuple[float, float], ...], kind: type, count: int) -> np.ndarray:
    """Uniform numbers of each range, and random bit patterns."""
    width = np.dtype(kind).itemsize
    bits = RNG.integers(0, 1 << (8 * width), count, dtype=np.uint64).astype(f"u{width}").view(kind)
    return np.concatenate([RNG.uniform(low, high, count).astype(kind) for low, high in ranges] + [bits])


def check(name: str, element: str, reference: Reference, *args: np.ndarray) -> None:
    wide = np.float64 if element == "f32" else np.longdouble
    limit = ACCURACY[name][element == "f64"]
    with np.errstate(all="ignore"):
        want = reference(*(x.astype(wide) for x in args))
        for cpu, lanes in CPUS.items():
            got = operation(name, element, lanes, flags=cpu)(*args)
            error, where = largest_error(got, want)
            assert error <= limit, (name, element, lanes, error, [float(x[where]) for x in args], float(got[where]))


@pytest.mark.parametrize("name", ONE)
def test_float_accuracy(name: str) -> None:
    reference, ranges = ONE[name]
    check(name, "f32", reference, samples(ranges, np.float32, 1 << (13 if name == "erf" else 17)))


@pytest.mark.parametrize("name", ONE)
def test_double_accuracy(name: str) -> None:
    reference, ranges = ONE[name]
    if name == "erf":
        return check(name, "f64", reference, samples(ranges, np.float64, 1000))
    return check(name, "f64", reference, samples(ranges, np.float64, 1 << 13))


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("element", ("f32", "f64"))
def test_accuracy_of_two_arguments(name: str, element: str) -> None:
    reference, ranges = TWO[name]
    kind = np.float32 if element == "f32" else np.float64
    a = samples(ranges, kind, 1 << 15)
    check(name, element, reference, a, RNG.permutation(a))


@pytest.mark.parametrize("name", (*ONE, *TWO))
def test_special_values_and_signs_of_zero(name: str) -> None:
    reference = (ONE | TWO)[name][0]
    x = np.array(SPECIAL, np.float32)
    args = [x] if name in ONE else [np.repeat(x, x.size), np.tile(x, x.size)]
    with np.errstate(all="ignore"):
        want = reference(*(a.astype(np.float64) for a in args)).astype(np.float32)
    for cpu, lanes in ({"": 0} | CPUS).items():
        got = operation(name, "f32", lanes, flags=cpu)(*args)
        error, where = largest_error(got, want)
        assert error <= 4, (name, lanes, [float(a[where]) for a in args], float(got[where]), float(want[where]))
        signs = (np.signbit(got) == np.signbit(want)) | np.isnan(want)
        assert signs.all(), (name, lanes, [a[~signs] for a in args])


def test_halves_are_computed_in_float_and_rounded_once() -> None:
    x = RNG.normal(0, 2, 2000).astype(np.float16)
    with np.errstate(all="ignore"):
        want = np.exp(x.astype(np.float64))
    got = operation("exp", "f16", 64)(x)
    error, where = largest_error(got, want)
    assert error <= 0.501, (x[where], got[where])


def test_coarse_exp2_is_good_to_a_bfloat() -> None:
    x = RNG.uniform(-120, 120, 1 << 16).astype(np.float32)
    got = operation("exp2_coarse", "f32", 64)(x).astype(np.float64)
    want = np.exp2(x.astype(np.float64))
    assert np.max(np.abs(got / want - 1)) < 1.1e-4
