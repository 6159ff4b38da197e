"""Special functions of `tl.extra.libdevice` against mpmath, in units in the last place.

The stated exceptions: near zeros of a Bessel function the unit is that of the modulus sqrt(J^2 + Y^2); of lgamma below
-2 that of lgamma(-x), at least of 1; orders n of jn and yn add n / 2 units in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import run, running_on
from tilewright.language.extra import libdevice

mp = pytest.importorskip("mpmath")
LIMIT = {np.float32: 1.0, np.float64: 4.0}
COUNT = 24  # numbers of each range
KINDS = (np.float32, np.float64)


def one(x_ptr, o_ptr, NAME: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o_ptr + i, getattr(libdevice, NAME)(tl.load(x_ptr + i)))


def two(n_ptr, x_ptr, o_ptr, NAME: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o_ptr + i, getattr(libdevice, NAME)(tl.load(n_ptr + i), tl.load(x_ptr + i)))


def inverse_erfc(c: Any) -> Any:
    """x with erfc(x) = c, by Halley's iteration."""
    if c in (0, 2):
        return mp.inf if c == 0 else -mp.inf
    if not 0 < c < 2:
        return mp.nan
    if c > 0.25:
        return mp.erfinv(1 - c)
    log = -mp.log(c)
    x = mp.sqrt(log - mp.log(mp.pi * log) / 2)
    for _ in range(6):
        step = (mp.erfc(x) - c) / (2 / mp.sqrt(mp.pi) * mp.exp(-x * x))
        x += step / (1 - x * step)
    return x


def modulus(n: int, x: Any) -> Any:
    """sqrt(J^2 + Y^2)."""
    return mp.sqrt(mp.besselj(n, x) ** 2 + mp.bessely(n, x) ** 2)


def log_gamma(x: Any) -> Any:
    return mp.log(abs(mp.gamma(x)))


# Function of mpmath, ranges of arguments, and what the error is measured by if not by the result.
ONE: dict[str, tuple[Callable[[Any], Any], tuple[tuple[float, float], ...]]] = {
    "erfc": (mp.erfc, ((-6, 6), (0.4, 0.5), (5, 26))),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), ((-26, 0), (-1, 1), (1, 90))),
    "erfinv": (mp.erfinv, ((-1, 1), (0.99, 1))),
    "erfcinv": (inverse_erfc, ((0, 2), (0, 1e-3), (0, 1e-30))),
    "normcdf": (mp.ncdf, ((-37, 8), (-1, 1))),
    "normcdfinv": (lambda p: -mp.sqrt(2) * inverse_erfc(2 * p), ((0, 1), (0, 1e-3), (0, 1e-30))),
    "lgamma": (log_gamma, ((-1, 3), (0.9, 2.1), (2, 150), (-40, -2))),
    "tgamma": (mp.gamma, ((-3, 3), (2, 171), (-180, -2))),
    "j0": (lambda x: mp.besselj(0, x), ((-9, 9), (0, 90))),
    "j1": (lambda x: mp.besselj(1, x), ((-9, 9), (0, 90))),
    "y0": (lambda x: mp.bessely(0, x), ((0, 9), (0, 90))),
    "y1": (lambda x: mp.bessely(1, x), ((0, 9), (0, 90))),
    "cyl_bessel_i0": (lambda x: mp.besseli(0, x), ((-20, 20), (0, 700))),
    "cyl_bessel_i1": (lambda x: mp.besseli(1, x), ((-20, 20), (0, 700))),
}
WITH_SCALE: dict[str, Callable[[Any], Any]] = {
    "j0": lambda x: modulus(0, abs(x)) if abs(x) > 1 else 0,
    "j1": lambda x: modulus(1, abs(x)) if abs(x) > 1 else 0,
    "y0": lambda x: modulus(0, x),
    "y1": lambda x: modulus(1, x),
    "lgamma": lambda x: max(mp.mpf(1), log_gamma(-x)) if x < -2 else 0,
}


def errors(found: np.ndarray, wanted: list[Any], scales: list[Any]) -> np.ndarray:
    """Units in the last place between results and exact values; infinite where only one of them is finite."""
    kind = found.dtype.type
    made = np.empty(found.size)
    with np.errstate(over="ignore"):
        for i, (got, want, scale) in enumerate(zip(found, wanted, scales, strict=True)):
            rounded = kind(float(want))
            if not (np.isfinite(got) and np.isfinite(rounded)):
                made[i] = 0 if got == rounded or (np.isnan(got) and np.isnan(rounded)) else np.inf
                continue
            unit = float(np.spacing(kind(float(max(abs(want), scale)))))
            made[i] = float(abs(mp.mpf(float(got)) - want) / unit)
    return made


@functools.cache
def cases(name: str, kind: type) -> tuple[np.ndarray, list[Any], list[Any]]:
    """Arguments, exact results, and the sizes that errors are measured by."""
    rng = np.random.default_rng(len(name))
    function, ranges = ONE[name]
    parts = [rng.uniform(low, high, COUNT) for low, high in ranges]
    tiny = np.exp(rng.uniform(-60, -1, COUNT))
    parts.append(tiny * (1 if ranges[0][0] == 0 else rng.choice([-1, 1], COUNT)))
    x = np.concatenate(parts).astype(kind)
    with mp.workprec(90):
        exact = [mp.mpf(float(v)) for v in x]
        scale = WITH_SCALE.get(name, lambda _: 0)
        return x, [function(v) for v in exact], [scale(v) for v in exact]


@pytest.fixture(params=("interpreter", "cpu"))
def portable(request):
    """The back ends that compute these functions themselves."""
    with running_on(request.param):
        yield


def rounded_up(x: np.ndarray) -> np.ndarray:
    """`x` repeated to a power of two of elements."""
    return np.resize(x, 1 << (x.size - 1).bit_length())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ONE)
def test_within_four_units_in_the_last_place(portable, name, kind):
    x, wanted, scales = cases(name, kind)
    padded = rounded_up(x)
    found = np.zeros_like(padded)
    run(one, padded, found, NAME=name, N=padded.size)
    error = errors(found[: x.size], wanted, scales)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMIT[kind], (name, x[worst], found[worst], wanted[worst], error[worst])


@functools.cache
def cases_of_any_order(name: str, kind: type) -> tuple[np.ndarray, np.ndarray, list[Any], list[Any]]:
    """Orders, arguments, exact results, and the sizes that errors are measured by."""
    rng = np.random.default_rng(7)
    n = np.array([0, 1, 2, 3, 7, 20, 60, 128], np.int32).repeat(8)
    x = np.concatenate([rng.uniform(0, 40, 32), rng.uniform(0, 200, 16), np.exp(rng.uniform(-9, 1, 16))])
    x = rng.permutation(x).astype(kind)
    function = mp.besselj if name == "jn" else mp.bessely
    with mp.workprec(90):
        pairs = [(int(a), mp.mpf(float(b))) for a, b in zip(n, x, strict=True)]
        return n, x, [function(a, b) for a, b in pairs], [modulus(a, b) if a <= b else 0 for a, b in pairs]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ("jn", "yn"))
def test_bessel_functions_of_any_order(portable, name, kind):
    n, x, wanted, scales = cases_of_any_order(name, kind)
    found = np.zeros_like(x)
    run(two, n, x, found, NAME=name, N=x.size)
    error = errors(found, wanted, scales)
    limit = LIMIT[kind] + (n / 2 if kind is np.float64 else 0)
    assert np.all(error <= limit), [(n[i], x[i], error[i]) for i in np.flatnonzero(error > limit)]


INF, NAN = float("inf"), float("nan")
SPECIAL = {
    "erfc": ((0, 1), (-0.0, 1), (INF, 0), (-INF, 2), (NAN, NAN)),
    "erfcx": ((0, 1), (INF, 0), (-INF, INF), (NAN, NAN)),
    "erfinv": ((0, 0), (-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (NAN, NAN)),
    "erfcinv": ((0, INF), (1, 0), (2, -INF), (-1, NAN), (3, NAN), (NAN, NAN)),
    "normcdf": ((0, 0.5), (INF, 1), (-INF, 0), (NAN, NAN)),
    "normcdfinv": ((0, -INF), (0.5, 0), (1, INF), (-1, NAN), (2, NAN), (NAN, NAN)),
    "lgamma": (
        (0, INF),
        (-0.0, INF),
        (1, 0),
        (2, 0),
        (-1, INF),
        (-7, INF),
        (INF, INF),
        (-INF, INF),
        (3e38, 3e38 * 87.6),
        (NAN, NAN),
    ),
    "tgamma": ((0, INF), (-0.0, -INF), (1, 1), (5, 24), (-3, NAN), (INF, INF), (-INF, NAN), (1e6, INF), (NAN, NAN)),
    "j0": ((0, 1), (INF, 0), (-INF, 0), (NAN, NAN)),
    "j1": ((0, 0), (-0.0, -0.0), (INF, 0), (NAN, NAN)),
    "y0": ((0, -INF), (-1, NAN), (INF, 0), (NAN, NAN)),
    "y1": ((0, -INF), (-1, NAN), (INF, 0), (NAN, NAN)),
    "cyl_bessel_i0": ((0, 1), (INF, INF), (-INF, INF), (NAN, NAN)),
    "cyl_bessel_i1": ((0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(portable, name, kind):
    with np.errstate(over="ignore"):
        x, want = (np.array(column).astype(kind) for column in zip(*SPECIAL[name], strict=True))
    padded = rounded_up(x)
    found = np.zeros_like(padded)
    run(one, padded, found, NAME=name, N=padded.size)
    np.testing.assert_allclose(found[: x.size], want, rtol=1e-2 if name == "lgamma" else 4 * np.finfo(kind).eps)
    zero = want == 0
    assert np.array_equal(np.signbit(found[: x.size])[zero & (x == 0)], np.signbit(want)[zero & (x == 0)])


def test_a_negative_order_is_no_number(portable):
    found = np.zeros(2)
    run(two, np.array([-1, -4], np.int32), np.array([1.0, 2.0]), found, NAME="jn", N=2)
    assert np.isnan(found).all()


def test_scalars_have_special_functions_too(portable):
    def kernel(x_ptr, o_ptr):
        x = tl.load(x_ptr)
        tl.store(o_ptr, libdevice.jn(3, x))
        tl.store(o_ptr + 1, libdevice.lgamma(x))

    found = np.zeros(2)
    run(kernel, np.array([2.5]), found)
    np.testing.assert_allclose(found, [float(mp.besselj(3, 2.5)), float(mp.loggamma(2.5))], rtol=1e-14)
