"""Minimax polynomial coefficients for `tilewright/backends/llvm/vecmath*.py`, printed as Python tables.

Each row approximates g(t) by a polynomial in t so that the largest weighted error is least: least squares with
weights multiplied by the error until it is level (C. L. Lawson, 1961), in mpmath. Coefficients are rounded to the
working type from the lowest order up, refitting the rest after each one, so that rounding them costs almost nothing.
Run: `python benchmarks/fit_vecmath.py` (needs mpmath).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.prec = 200
Real = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """g on [lo, hi] by `count` coefficients, error weighted by `weight`, rounded to `single` or double precision."""

    name: str
    g: Real
    weight: Real
    lo: mp.mpf
    hi: mp.mpf
    count: int
    single: bool = True


def round_to(value: mp.mpf, single: bool) -> mp.mpf:
    """Nearest float or double."""
    number = float(value)
    return mp.mpf(struct.unpack("<f", struct.pack("<f", number))[0] if single else number)


def best(fit: Fit, fixed: list[mp.mpf]) -> list[mp.mpf]:
    """Remaining coefficients after the `fixed` low-order ones: least squares, re-weighted by the error till level."""
    start, unknowns = len(fixed), fit.count - len(fixed)
    count = 12 * fit.count
    middle, half = (fit.lo + fit.hi) / 2, (fit.hi - fit.lo) / 2
    grid = [middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    scale = [fit.weight(t) for t in grid]
    rest = [fit.g(t) - mp.fsum(c * t**i for i, c in enumerate(fixed)) for t in grid]
    target = [w * g for g, w in zip(rest, scale, strict=True)]
    rows = [[w * t ** (start + j) for j in range(unknowns)] for t, w in zip(grid, scale, strict=True)]
    emphasis = [mp.mpf(1)] * count
    solution: list[mp.mpf] = []
    smallest = mp.inf
    for _ in range(24):
        normal = mp.matrix(unknowns, unknowns)
        right = mp.matrix(unknowns, 1)
        for row, value, factor in zip(rows, target, emphasis, strict=True):
            for j in range(unknowns):
                scaled = factor * row[j]
                right[j] += scaled * value
                for k in range(j, unknowns):
                    normal[j, k] += scaled * row[k]
        for j in range(unknowns):
            for k in range(j):
                normal[j, k] = normal[k, j]
        found = list(mp.lu_solve(normal, right))
        errors = [abs(value - mp.fdot(row, found)) for row, value in zip(rows, target, strict=True)]
        if max(errors) < smallest:
            smallest, solution = max(errors), found
        total = mp.fsum(f * e for f, e in zip(emphasis, errors, strict=True)) / count
        emphasis = [f * e / total for f, e in zip(emphasis, errors, strict=True)]
    return solution


def coefficients(fit: Fit) -> tuple[list[float], float]:
    """Rounded coefficients from the lowest order up, and log2 of the largest weighted error after rounding."""
    fixed: list[mp.mpf] = []
    while len(fixed) < fit.count:
        rest = best(fit, fixed)
        keep = rest[:1] if len(fixed) < (fit.count if fit.single else 2) else rest
        fixed += [round_to(c, fit.single) for c in keep]
    grid = [fit.lo + (fit.hi - fit.lo) * i / 2000 for i in range(1, 2001)]
    worst = max(abs(fit.weight(t) * (fit.g(t) - sum(c * t**i for i, c in enumerate(fixed)))) for t in grid)
    return [float(c) for c in fixed], float(mp.log(worst, 2))


def _series(function: Real, drop: Real, power: int) -> Real:
    """(function - drop) / t^power, safe at 0."""

    def g(t: mp.mpf) -> mp.mpf:
        t = t if t != 0 else mp.mpf(2) ** -60
        return (function(t) - drop(t)) / t**power

    return g


def _even(function: Real, drop: Real, power: int) -> Real:
    """The same in z = t^2."""
    inner = _series(function, drop, power)
    return lambda z: inner(mp.sqrt(z if z > 0 else mp.mpf(2) ** -120))


def _relative(function: Real, power: int, even: bool = False) -> Real:
    """t^power / function: turns an error of g into a relative error of the function."""

    def weight(t: mp.mpf) -> mp.mpf:
        x = mp.sqrt(t if t > 0 else mp.mpf(2) ** -120) if even else (t if t != 0 else mp.mpf(2) ** -60)
        return abs(x**power / function(x))

    return weight


def fits() -> list[Fit]:
    """Every approximation in use."""
    ident: Real = lambda t: t  # noqa: E731
    half_ln2 = mp.log(2) / 2 * mp.mpf("1.0005")
    root = mp.sqrt(mp.mpf("0.5"))
    f_lo, f_hi = root - 1, 1 / root - 1
    one_plus: Real = lambda t: 1 + t  # noqa: E731
    log_drop: Real = lambda t: t - t * t / 2  # noqa: E731
    cos_drop: Real = lambda t: 1 - t * t / 2  # noqa: E731
    exp2: Real = lambda t: mp.mpf(2) ** t  # noqa: E731
    one: Real = lambda t: mp.mpf(1)  # noqa: E731
    quarter = (mp.pi / 4 * mp.mpf("1.0005")) ** 2
    artanh2: Real = lambda s: mp.log((1 + s) / (1 - s))  # noqa: E731
    s_max = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
    erf_cut = mp.mpf("0.9")
    return [
        Fit("EXP_F32", _series(mp.exp, one_plus, 2), _relative(mp.exp, 2), -half_ln2, half_ln2, 5),
        Fit("EXPM1_F32", _series(mp.exp, one_plus, 2), _relative(mp.expm1, 2), -half_ln2, half_ln2, 5),
        Fit("EXP2_F32", _series(exp2, one, 1), _relative(exp2, 1), mp.mpf("-0.5"), mp.mpf("0.5"), 6),
        Fit("EXP2_COARSE_F32", _series(exp2, one, 1), _relative(exp2, 1), mp.mpf("-0.5"), mp.mpf("0.5"), 3),
        Fit("LOG_F32", _series(mp.log1p, log_drop, 3), _relative(mp.log1p, 3), f_lo, f_hi, 8),
        Fit("SIN_F32", _even(mp.sin, ident, 3), _relative(mp.sin, 3, True), mp.mpf(0), quarter, 3),
        Fit("COS_F32", _even(mp.cos, cos_drop, 4), _relative(mp.cos, 4, True), mp.mpf(0), quarter, 3),
        Fit("TANH_F32", _even(mp.tanh, ident, 3), _relative(mp.tanh, 3, True), mp.mpf(0), mp.mpf("0.625") ** 2, 5),
        Fit("SINH_F32", _even(mp.sinh, ident, 3), _relative(mp.sinh, 3, True), mp.mpf(0), mp.mpf(1), 4),
        Fit("ATAN_F32", _even(mp.atan, ident, 3), _relative(mp.atan, 3, True), mp.mpf(0), mp.mpf(1), 8),
        Fit("ASIN_F32", _even(mp.asin, ident, 3), _relative(mp.asin, 3, True), mp.mpf(0), mp.mpf("0.25"), 5),
        Fit("ERF_SMALL_F32", _even(mp.erf, ident, 1), _relative(mp.erf, 1, True), mp.mpf(0), erf_cut**2, 6),
        Fit(
            "ERF_LARGE_F32",
            lambda t: mp.log(mp.erfc(t)),
            lambda t: mp.erfc(t) / mp.erf(t),
            erf_cut,
            mp.mpf(4),
            9,
        ),
        Fit("EXP_F64", _series(mp.exp, one_plus, 2), _relative(mp.exp, 2), -half_ln2, half_ln2, 10, False),
        Fit("EXP2_F64", _series(exp2, one, 1), _relative(exp2, 1), mp.mpf("-0.5"), mp.mpf("0.5"), 11, False),
        Fit(
            "LOG_F64",
            _even(artanh2, lambda t: 2 * t, 3),
            _relative(artanh2, 3, True),
            mp.mpf(0),
            s_max**2,
            7,
            False,
        ),
        Fit("SIN_F64", _even(mp.sin, ident, 3), _relative(mp.sin, 3, True), mp.mpf(0), quarter, 6, False),
        Fit("COS_F64", _even(mp.cos, cos_drop, 4), _relative(mp.cos, 4, True), mp.mpf(0), quarter, 6, False),
    ]


def main() -> None:
    """Print the tables."""
    for fit in fits():
        values, error = coefficients(fit)
        print(f"{fit.name} = (  # largest relative error 2^{error:.1f}")
        for value in values:
            print(f"    {value!r},")
        print(")")


if __name__ == "__main__":
    main()
