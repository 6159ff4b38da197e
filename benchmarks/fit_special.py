"""Polynomials for `tilewright/language/extra/special_coefficients.py`, which this prints.

Each row approximates a smooth function g on an interval by a polynomial in (t - centre): the Chebyshev series of g,
cut where its tail passes below 2^-29 (for float32) or 2^-56 (for float64) of its size, and rewritten in powers.
That is within a small factor of the best polynomial (L. N. Trefethen, "Approximation Theory and Approximation
Practice", 2013, chapters 4 and 16). Run: `python benchmarks/fit_special.py` (needs mpmath).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.prec = 200
Real = Callable[[mp.mpf], mp.mpf]
NODES = 48
PRECISIONS = (29, 56)


@dataclass(frozen=True)
class Fit:
    """g on [low, high] in powers of (t - centre); the middle is the centre if none is given.

    The tail that is cut is relative to `least`, by default half of the mean of g.
    """

    name: str
    g: Real
    low: float
    high: float
    centre: float | None = None
    least: float | None = None


def chebyshev(fit: Fit) -> list[mp.mpf]:
    """Coefficients of the interpolant of g in the Chebyshev points of the interval."""
    middle, half = (mp.mpf(fit.low) + fit.high) / 2, (mp.mpf(fit.high) - fit.low) / 2
    angles = [mp.pi * (2 * i + 1) / (2 * NODES) for i in range(NODES)]
    values = [fit.g(middle + half * mp.cos(angle)) for angle in angles]
    series = [2 * mp.fsum(v * mp.cos(k * a) for v, a in zip(values, angles, strict=True)) / NODES for k in range(NODES)]
    return [series[0] / 2, *series[1:]]


def shortest(series: list[mp.mpf], bits: int, least: mp.mpf) -> list[mp.mpf]:
    """The head of the series whose tail is below 2^-bits of `least`."""
    count, tail = len(series), mp.mpf(0)
    while tail + abs(series[count - 1]) < least * mp.mpf(2) ** -bits:
        tail += abs(series[count - 1])
        count -= 1
    return series[:count]


def powers(series: list[mp.mpf], fit: Fit, centre: mp.mpf) -> list[float]:
    """The series in powers of (t - centre), lowest first, rounded to float64."""
    middle, half = (mp.mpf(fit.low) + fit.high) / 2, (mp.mpf(fit.high) - fit.low) / 2
    slope, shift = 1 / half, (centre - middle) / half  # Chebyshev's variable is shift + slope (t - centre)

    def times_variable(terms: list[mp.mpf]) -> list[mp.mpf]:
        return [shift * a + slope * b for a, b in zip([*terms, 0], [0, *terms], strict=True)]

    before, now = [mp.mpf(1)], [shift, slope]
    total = [mp.mpf(0)] * len(series)
    for k, factor in enumerate(series):
        for i, term in enumerate(before):
            total[i] += factor * term
        if k + 1 < len(series):
            doubled = [2 * term for term in times_variable(now)]
            following = [a - b for a, b in zip(doubled, before + [0] * (len(doubled) - len(before)), strict=True)]
            before, now = now, following
    return [float(term) for term in total]


# --- the functions ------------------------------------------------------------------------------------------------


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    """(1 + 2x) e^(x^2) erfc(x) where t = (x - 4) / (x + 4)  (M. Shepherd and J. Laframboise, 1981)."""
    x = 4 * (1 + t) / (1 - t)
    if x > 60:
        tail = mp.fsum((-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(14))
        return (1 + 2 * x) * tail / (x * mp.sqrt(mp.pi))
    return (1 + 2 * x) * mp.erfc(x) * mp.exp(x * x)


def inverse_erfc(c: mp.mpf) -> mp.mpf:
    """x with erfc(x) = c < 1, by Halley's iteration from its asymptotic form."""
    log = -mp.log(c)
    x = mp.erfinv(1 - c) if c > 0.25 else mp.sqrt(log - mp.log(mp.pi * log) / 2)
    for _ in range(10):
        step = (mp.erfc(x) - c) / (2 / mp.sqrt(mp.pi) * mp.exp(-x * x))
        x = x + step / (1 - x * step)
    return x


def inverse_ratio(w: mp.mpf) -> mp.mpf:
    """erfinv(x) / x where w = -log(1 - x^2)  (M. Giles, "Approximating the erfinv function", 2011)."""
    if w < mp.mpf(2) ** -80:
        return mp.sqrt(mp.pi) / 2
    rest = mp.exp(-w)
    x = mp.sqrt(1 - rest)
    return inverse_erfc(rest / (1 + x)) / x


def log_gamma_ratio(r: mp.mpf) -> mp.mpf:
    """log(gamma(x)) / ((x - 1) (x - 2)) where x = 1 + r."""
    r = r if r not in (0, 1) else r + mp.mpf(2) ** -90
    return mp.loggamma(1 + r) / (r * (r - 1))


def stirling(z: mp.mpf) -> mp.mpf:
    """x (log(gamma(x)) - (x - 1/2) log x + x - log(2 pi) / 2) where z = 1 / x^2."""
    x = 1 / mp.sqrt(z)
    if x > 40:
        return mp.fsum(mp.bernoulli(2 * k) / (2 * k * (2 * k - 1)) * z ** (k - 1) for k in range(1, 20))
    return x * (mp.loggamma(x) - (x - mp.mpf("0.5")) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)


def modulus_and_phase(order: int, x: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """Hankel's P and Q: J = sqrt(2 / (pi x)) (P cos(c) - Q sin(c)), Y = ... (P sin(c) + Q cos(c)), c = x - ...

    Args:
        order: 0 or 1; c = x - (2 order + 1) pi / 4.
    """
    angle, size = x - (2 * order + 1) * mp.pi / 4, mp.sqrt(mp.pi * x / 2)
    j, y = mp.besselj(order, x), mp.bessely(order, x)
    c, s = mp.cos(angle), mp.sin(angle)
    return size * (j * c + y * s), size * (y * c - j * s)


def regular_part(order: int) -> Real:
    """What Y has beside its logarithm (and, for order 1, its pole)."""

    def g(x: mp.mpf) -> mp.mpf:
        x = max(x, mp.mpf(2) ** -60)
        if order:
            return mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)
        return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)

    return g


def of_square(g: Real, odd: bool = False) -> Real:
    """g(x), or g(x) / x, as a function of x^2."""

    def even(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(max(z, mp.mpf(2) ** -80))
        return g(x) / x if odd else g(x)

    return even


def of_inverse_square(order: int, which: int) -> Real:
    """P, or Q times x, as a function of z = 1 / x^2; x beyond 60 gets the limit's neighbour."""

    def g(z: mp.mpf) -> mp.mpf:
        x = 1 / mp.sqrt(z)
        if x > 400:
            m = 4 * order * order
            terms = [mp.mpf(1)]
            for k in range(1, 12):
                terms.append(terms[-1] * (m - (2 * k - 1) ** 2) / (8 * k))
            return mp.fsum((-1) ** k * terms[2 * k + which] * z**k for k in range(5))
        part = modulus_and_phase(order, x)[which]
        return part * x if which else part

    return g


def grown(order: int) -> Real:
    """e^(8 - x) sqrt(x) I(x) as a function of 1 / x."""

    def g(u: mp.mpf) -> mp.mpf:
        x = 1 / u
        if x > 2000:
            total = term = mp.mpf(1)
            for k in range(1, 14):
                term *= -(4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
                total += term
            return mp.exp(8) * total / mp.sqrt(2 * mp.pi)
        return mp.besseli(order, x) * mp.exp(8 - x) * mp.sqrt(x)

    return g


def bessel_fits(order: int) -> list[Fit]:
    """Bessel functions of order 0 or 1: near zero in x^2, up to 8 in x, beyond in 1 / x^2 or 1 / x."""
    odd, j, y = order == 1, lambda x: mp.besselj(order, x), lambda x: mp.bessely(order, x)
    return [
        Fit(f"J{order}_NEAR", of_square(j, odd), 0, 4, 0),
        Fit(f"J{order}_MIDDLE", j, 2, 5, least=0.3),
        Fit(f"J{order}_FAR", j, 5, 8, least=0.3),
        Fit(f"Y{order}_NEAR", of_square(regular_part(order), odd), 0, 4, 0),
        Fit(f"Y{order}_MIDDLE", y, 2, 5, least=0.3),
        Fit(f"Y{order}_FAR", y, 5, 8, least=0.3),
        Fit(f"P{order}", of_inverse_square(order, 0), 0, 1 / 64, 0),
        Fit(f"Q{order}", of_inverse_square(order, 1), 0, 1 / 64, 0),
        Fit(f"I{order}_NEAR", _rising(order), 0, 4, 0),
        Fit(f"I{order}_MIDDLE", lambda x: mp.besseli(order, x) * mp.exp(8 - x), 4, 8),
        Fit(f"I{order}_FAR", grown(order), 0, 0.125),
    ]


def _rising(order: int) -> Real:
    """(I(x) / (x / 2)^order - 1) / a as a function of a = x^2 / 4."""

    def g(a: mp.mpf) -> mp.mpf:
        a = max(a, mp.mpf(2) ** -60)
        x = 2 * mp.sqrt(a)
        return (mp.besseli(order, x) / (x / 2) ** order - 1) / a

    return g


def fits() -> list[Fit]:
    """Every approximation in use."""
    return [
        Fit("ERF_NEAR", of_square(mp.erf, True), 0, 0.25, 0),
        Fit("ERFCX", scaled_erfc, -1, 1),
        Fit("ERFINV_NEAR", inverse_ratio, 0, 6.25),
        Fit("ERFINV_FAR", lambda s: inverse_ratio(s * s) - s, 2.5, 6.25, least=2),
        Fit("ERFINV_TAIL", lambda u: inverse_ratio(1 / u**2) - 1 / u, 0.036, 0.16, least=6),
        Fit("LGAMMA_ONE", log_gamma_ratio, -0.5, 0.5),
        Fit("LGAMMA_TWO", log_gamma_ratio, 0.5, 1.5),
        Fit("STIRLING", stirling, 0, 0.16, 0),
        Fit("RGAMMA", lambda r: mp.rgamma(1 + r), -0.5, 0.5),
        Fit("SINPI", of_square(lambda r: mp.sqrt(2 / mp.pi) * mp.sin(mp.pi * r), True), 0, 0.25, 0),
        Fit("ATANH", lambda z: (of_square(mp.atanh, True)(z) - 1) / z * 2, 0, 0.0295, 0),
        *bessel_fits(0),
        *bessel_fits(1),
    ]


def _rows(values: list[float]) -> str:
    """Numbers in lines of four."""
    lines = [values[i : i + 4] for i in range(0, len(values), 4)]
    return "\n".join("        " + " ".join(f"{value!r}," for value in line) for line in lines)


def main() -> None:
    """Print the module."""
    print(
        '"""Coefficients of the special functions of libdevice, lowest order first; made by benchmarks/fit_special.py.'
    )
    print()
    print("Name: (centre of the variable, terms for float32, terms for float64); both are evaluated in float64.")
    print('"""\n\n# fmt: off')
    print("TABLES: dict[str, tuple[float, tuple[float, ...], tuple[float, ...]]] = {")
    for fit in fits():
        centre = mp.mpf(fit.centre) if fit.centre is not None else (mp.mpf(fit.low) + fit.high) / 2
        centre = mp.mpf(float(centre))
        series = chebyshev(fit)
        least = mp.mpf(fit.least) if fit.least else abs(series[0]) / 2
        short, long = (_rows(powers(shortest(series, bits, least), fit, centre)) for bits in PRECISIONS)
        print(f'    "{fit.name}": ({float(centre)!r}, (\n{short}\n    ), (\n{long}\n    )),')
    print("}")


if __name__ == "__main__":
    main()
