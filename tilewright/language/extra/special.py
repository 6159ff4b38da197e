"""Special functions of libdevice in the block language: the error function's family, gamma, the normal distribution.

All are computed in float64, float32 with shorter polynomials; results are within 4 units in the last place (tests
against mpmath; `docs/libdevice.md` states the few exceptions). Polynomials: `special_coefficients.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.language.extra.libdevice_functions import rounded
from tilewright.language.extra.special_coefficients import TABLES
from tilewright.language.library import library
from tilewright.ops import elementwise as ew
from tilewright.ops.builtin import Emitter, builtin, unwrap
from tilewright.ops.functions.operators import where
from tilewright.ops.math import OPS, abs, exp, floor, fma, log, sqrt
from tilewright.ops.values import Flag, Operand, Word, constexpr, tensor

_SQRT_HALF = constexpr(0.7071067811865476)
_SQRT_2 = constexpr(1.4142135623730951)
_SQRT_2_LOW = constexpr(-9.667293313452913e-17)
_SQRT_2PI = constexpr(2.5066282746310002)
_LOG_SQRT_2PI = constexpr(0.9189385332046728)
_LN2_HIGH = constexpr(6.93147180369123816490e-01)  # 33 bits: times an exponent it is exact
_LN2_LOW = constexpr(1.90821492927058770002e-10)
_BITS_OF_SQRT_HALF = constexpr(0x3FE6A09E667F3BCD)


@builtin(export=False)
def polynomial(b: Emitter, x: tensor, name: Word, single: Flag) -> tensor:
    """The polynomial `name` of the tables at float64 `x`; `single`: as good as float32 needs."""
    centre, short, long = TABLES[unwrap(name)]
    t = b.emit(ew.SubFOp, x.type, x, b.constant(centre, x.type)) if centre else x
    terms = [b.constant(term, x.type) for term in (short if unwrap(single) else long)]
    result = terms.pop()
    while terms:
        result = b.emit(ew.AddFOp, x.type, b.emit(ew.MulFOp, x.type, result, t), terms.pop())
    return result


@builtin(export=False)
def round_even(b: Emitter, x: tensor) -> tensor:
    """The nearest integer, ties to even."""
    return b.emit(OPS["roundeven"], x.type, x)


# --- error function --------------------------------------------------------------------------------------------------


@library
def _limited(x: tensor, most: Operand) -> Any:
    """The smaller of `x` and the number `most`; NaN stays."""
    return where(x > most, most, x)


@library
def _exp_of_square(x: tensor, factor: Operand, single: Flag) -> Any:
    """e to the power `factor` x^2, for a factor that is a power of two; the rounding of the square is made up for."""
    square = x * x
    size = exp(factor * square)
    if single:
        return size
    else:
        lost = fma(x, x, -square)
        return where(size == float("inf"), size, size + size * (factor * lost))


@library
def _scaled(x: tensor, single: Flag) -> Any:
    """e^(x^2) erfc(x) of x >= 0, by a polynomial in (x - 4) / (x + 4)."""
    return polynomial(1 - 8 / (x + 4), "ERFCX", single) * 0.5 / (x + 0.5)


@library
def _erf_near(x: tensor, single: Flag) -> Any:
    """erf of |x| <= 0.5."""
    return x * polynomial(x * x, "ERF_NEAR", single)


@library
def erfc(x: tensor) -> Any:
    """One less the error function."""
    single: constexpr = x.dtype.is_fp32()
    v = x.to(dtypes.float64)
    size = _limited(abs(v), 40.0)
    far = _exp_of_square(size, -1.0, single) * _scaled(size, single)
    far = where(v < 0, 2 - far, far)
    return where(size < 0.45, 1 - _erf_near(v, single), far).to(x.dtype)


@library
def erfcx(x: tensor) -> Any:
    """e^(x^2) erfc(x)."""
    single: constexpr = x.dtype.is_fp32()
    v = x.to(dtypes.float64)
    size = abs(v)
    scaled = _scaled(size, single)
    power = _exp_of_square(_limited(size, 40.0), 1.0, single)
    far = where(v < 0, 2 * power - scaled, scaled)
    return where(size < 0.45, power * (1 - _erf_near(v, single)), far).to(x.dtype)


@library
def normcdf(x: tensor) -> Any:
    """Probability that a standard normal variable is below `x`."""
    single: constexpr = x.dtype.is_fp32()
    v = x.to(dtypes.float64)
    size = _limited(abs(v), 60.0)
    far = 0.5 * _exp_of_square(size, -0.5, single) * _scaled(size * _SQRT_HALF, single)
    far = where(v > 0, 1 - far, far)
    return where(size < 0.5, 0.5 + 0.5 * _erf_near(v * _SQRT_HALF, single), far).to(x.dtype)


@library
def _inverse_ratio(w: tensor, single: Flag, tail: Flag) -> Any:
    """erfinv(x) / x of w = -log(1 - x^2) (M. Giles, 2011); `tail`: beyond 39, too."""
    root = sqrt(w)
    beside = polynomial(root, "ERFINV_FAR", single)
    if tail:
        beside = where(root > 6.25, polynomial(1 / root, "ERFINV_TAIL", single), beside)
    return where(w < 6.25, polynomial(w, "ERFINV_NEAR", single), root + beside)


@library
def erfinv(x: tensor) -> Any:
    """Inverse of the error function."""
    single: constexpr = x.dtype.is_fp32()
    v = x.to(dtypes.float64)
    ratio = _inverse_ratio(-log((1 - v) * (1 + v)), single, False)
    return where(abs(v) == 1, v * float("inf"), v * ratio).to(x.dtype)


@library
def _erfc_inverse(y: tensor, single: Flag) -> Any:
    """Inverse of erfc, float64."""
    upper = y > 1
    rest = where(upper, 2 - y, y)
    size = (1 - rest) * _inverse_ratio(-log(rest * (2 - rest)), single, True)
    size = where(rest == 0, float("inf"), size)
    return where(upper, -size, size)


@library
def erfcinv(x: tensor) -> Any:
    """Inverse of erfc."""
    return _erfc_inverse(x.to(dtypes.float64), x.dtype.is_fp32()).to(x.dtype)


@library
def normcdfinv(x: tensor) -> Any:
    """Inverse of normcdf."""
    size = _erfc_inverse(2 * x.to(dtypes.float64), x.dtype.is_fp32())
    return -where(abs(size) < float("inf"), size * _SQRT_2 + size * _SQRT_2_LOW, size).to(x.dtype)


# --- gamma -----------------------------------------------------------------------------------------------------------


@library
def _log_parts(x: tensor) -> Any:
    """log(x) of a normal number as a sum of two."""
    bits = x.to(dtypes.int64, bitcast=True)
    exponent = (bits - _BITS_OF_SQRT_HALF) >> 52
    mantissa = (bits - (exponent << 52)).to(dtypes.float64, bitcast=True)
    over, under = mantissa - 1, mantissa + 1
    s = over / under
    lost = fma(-s, under, over) - s * (mantissa - (under - 1))
    square = s * s
    k = exponent.to(dtypes.float64)
    whole, twice = k * _LN2_HIGH, 2 * s
    high = whole + twice
    rest = 2 * (lost / under) + s * square * polynomial(square, "ATANH", False)
    return high, (twice - (high - whole)) + (k * _LN2_LOW + rest)


@library
def _log_gamma_parts(z: tensor, single: Flag) -> Any:
    """log(gamma(z) / sqrt(2 pi)) of z >= 2.5 by Stirling's series, as a sum of two."""
    series = polynomial(1 / (z * z), "STIRLING", single) / z
    if single:
        total = (z - 0.5) * log(z) - z + series
        return total, total * 0
    else:
        log_high, log_low = _log_parts(z)
        factor = z - 0.5
        product = rounded(factor * log_high)
        product_low = fma(factor, log_high, -product) + factor * log_low
        high = product - z
        taken = product - high  # the sum of product, -z and the series, each with what rounding loses
        lost = (product - (high + taken)) + (taken - z)
        total = high + series
        kept = total - high
        low = ((high - (total - kept)) + (series - kept)) + (lost + product_low)
        result = total + low
        return result, low - (result - total)


@library
def _sine_of_half_turns(x: tensor, single: Flag) -> Any:
    """sqrt(2 / pi) sin(pi x)."""
    whole = round_even(x)
    rest = x - whole
    sine = rest * polynomial(rest * rest, "SINPI", single)
    return where(whole == 2 * floor(whole * 0.5), sine, -sine)


@library
def lgamma(x: tensor) -> Any:
    """Logarithm of |gamma(x)|."""
    single: constexpr = x.dtype.is_fp32()
    v = x.to(dtypes.float64)
    size = abs(v)
    high, low = _log_gamma_parts(_limited(size, 1e17), single)
    far = where(size > 1e16, size * (log(size) - 1), high + (low + _LOG_SQRT_2PI))
    r = where(size < 0.5, v, size - 1)
    near = r * (r - 1) * polynomial(r, "LGAMMA_ONE", single)
    near = where(size < 0.5, near - log(size), near)
    middle = (size - 1) * (size - 2) * polynomial(size - 1, "LGAMMA_TWO", single)
    result = where(size < 1.5, near, where(size < 2.5, middle, far))
    reflected = log(_SQRT_2PI / (size * abs(_sine_of_half_turns(v, single)))) - result
    result = where((v <= -0.5) & (size < float("inf")), reflected, result)
    return result.to(x.dtype)


@library
def _gamma_near(x: tensor, single: Flag) -> Any:
    """gamma(x) of |x| <= 2.5: one over the entire function 1 / gamma, by recurrence."""
    whole = round_even(x)
    below = where(whole < 1, x, 1.0) * where(whole < 0, x + 1, 1.0) * where(whole < -1, x + 2, 1.0)
    return where(whole > 1, x - 1, 1.0) / (below * polynomial(x - whole, "RGAMMA", single))


@library
def tgamma(x: tensor) -> Any:
    """Gamma function; NaN at negative integers."""
    single: constexpr = x.dtype.is_fp32()
    v = x.to(dtypes.float64)
    size = abs(v)
    z = _limited(where(size < 2.5, 2.5, size), 200.0)
    high, low = _log_gamma_parts(z, single)
    negative = v < 0
    high, low = where(negative, -high, high), where(negative, -low, low)
    # One over a large gamma passes through numbers too small to be exact: e^314, whose inverse is one, keeps it away.
    small = high < -600
    power = exp(where(small, high + 314, high))
    power = where(power < float("inf"), power + power * low, power)
    reflected = power / (z * _sine_of_half_turns(v, single))
    reflected = where(small, reflected * 4.280876336630965e-137, reflected)
    far = where(negative, reflected, power * _SQRT_2PI)
    result = where(size <= 2.5, _gamma_near(v, single), far)
    return where(negative & (v == floor(v)), float("nan"), result).to(x.dtype)
