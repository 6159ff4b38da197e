"""Bessel functions of libdevice in the block language.

Order 0 and 1: polynomials up to 8, Hankel's expansion beyond; higher orders by recurrence (upward where that is
stable, J beyond its argument by Miller's downward one; F. Olver, "Digital Library of Mathematical Functions", 10.74).
Computed in float64. Errors are those of `docs/libdevice.md`: measured against sqrt(J^2 + Y^2) near zeros.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.language.extra.special import polynomial
from tilewright.language.library import constexpr_function, library
from tilewright.language.standard import max
from tilewright.ops.functions.operators import where
from tilewright.ops.math import abs, cos, exp, log, sin, sqrt
from tilewright.ops.values import Flag, Size, Word, constexpr, tensor

_TWO_OVER_PI = constexpr(0.6366197723675814)
_SQRT_PI = constexpr(1.772453850905516)


@constexpr_function
def _table(kind: Word, order: Size, part: Word) -> Any:
    """Name of a polynomial."""
    return f"{kind}{order}{part}"


# --- order 0 and 1 ---------------------------------------------------------------------------------------------------


@library
def _near(x: tensor, kind: Word, order: Size, single: Flag) -> Any:
    """J, or the regular part of Y, of 0 <= x <= 2."""
    value = polynomial(x * x, _table(kind, order, "_NEAR"), single)
    if order == 1:
        value = value * x
    return value


@library
def _joined(x: tensor, near: tensor, far: tensor, kind: Word, order: Size, single: Flag) -> Any:
    """J or Y of x >= 0 from its values `near` below 2 and `far` beyond 8."""
    to_five = polynomial(x, _table(kind, order, "_MIDDLE"), single)
    to_eight = polynomial(x, _table(kind, order, "_FAR"), single)
    return where(x < 2, near, where(x < 5, to_five, where(x < 8, to_eight, far)))


@library
def _hankel(x: tensor, order: Size, single: Flag) -> Any:
    """(J, Y) of x >= 8."""
    z = 1 / (x * x)
    p = polynomial(z, _table("P", order, ""), single)
    q = polynomial(z, _table("Q", order, ""), single) / x
    sine, cosine = sin(x), cos(x)
    if order == 0:
        u, v = sine + cosine, sine - cosine
    else:
        u, v = sine - cosine, -(sine + cosine)
    size = 1 / (sqrt(x) * _SQRT_PI)
    infinite = x == float("inf")
    return where(infinite, 0.0, size * (p * u - q * v)), where(infinite, 0.0, size * (p * v + q * u))


@library
def _both(x: tensor, order: Size, single: Flag) -> Any:
    """(J, Y) of x >= 0."""
    far_j, far_y = _hankel(x, order, single)
    near_j = _near(x, "J", order, single)
    near_y = _TWO_OVER_PI * log(x) * near_j + _near(x, "Y", order, single)
    if order == 1:
        near_y = near_y - _TWO_OVER_PI / x
    near_y = where(x == 0, float("-inf"), near_y)
    j = _joined(x, near_j, far_j, "J", order, single)
    return j, _joined(x, near_y, far_y, "Y", order, single)


@library
def _odd(x: tensor, value: tensor) -> Any:
    """`value` of |x| for an odd function, a zero with the sign of its own."""
    return where(x == 0, x, where(x < 0, -value, value))


@library
def j0(x: tensor) -> Any:
    """J of order 0."""
    j, _y = _both(abs(x.to(dtypes.float64)), 0, x.dtype.is_fp32())
    return j.to(x.dtype)


@library
def j1(x: tensor) -> Any:
    """J of order 1."""
    j, _y = _both(abs(x.to(dtypes.float64)), 1, x.dtype.is_fp32())
    return _odd(x, j).to(x.dtype)


@library
def y0(x: tensor) -> Any:
    """Y of order 0; NaN below zero."""
    _j, y = _both(abs(x.to(dtypes.float64)), 0, x.dtype.is_fp32())
    return where(x < 0, float("nan"), y).to(x.dtype)


@library
def y1(x: tensor) -> Any:
    """Y of order 1; NaN below zero."""
    _j, y = _both(abs(x.to(dtypes.float64)), 1, x.dtype.is_fp32())
    return where(x < 0, float("nan"), y).to(x.dtype)


@library
def _modified(x: tensor, order: Size, single: Flag) -> Any:
    """I of x >= 0: its series up to 4, e^x times a polynomial up to 8, e^x / sqrt(x) times one in 1 / x beyond."""
    quarter = x * x * 0.25
    near = 1 + quarter * polynomial(quarter, _table("I", order, "_NEAR"), single)
    if order == 1:
        near = near * (x * 0.5)
    limited = where(x > 1e4, 1e4, x)
    middle = polynomial(x, _table("I", order, "_MIDDLE"), single)
    far = polynomial(1 / limited, _table("I", order, "_FAR"), single) / sqrt(limited)
    return where(x < 4, near, exp(x - 8) * where(x < 8, middle, far))


@library
def cyl_bessel_i0(x: tensor) -> Any:
    """Modified Bessel function of the first kind and order 0."""
    return _modified(abs(x.to(dtypes.float64)), 0, x.dtype.is_fp32()).to(x.dtype)


@library
def cyl_bessel_i1(x: tensor) -> Any:
    """Modified Bessel function of the first kind and order 1."""
    size = _modified(abs(x.to(dtypes.float64)), 1, x.dtype.is_fp32())
    return _odd(x, size).to(x.dtype)


# --- any order -------------------------------------------------------------------------------------------------------


@library
def _largest(n: tensor) -> Any:
    """The largest element, a scalar."""
    if len(n.shape) == 0:
        return n
    else:
        return max(n)


@library
def yn(n: tensor, x: tensor) -> Any:
    """Y of order `n`, upwards from 0 and 1; NaN for a negative order, or below zero."""
    single: constexpr = x.dtype.is_fp32()
    v = abs(x.to(dtypes.float64))
    _j, zeroth = _both(v, 0, single)
    _j, first = _both(v, 1, single)
    before, now = zeroth, first
    k = 1
    top = _largest(n)
    while k < top:
        going = (k < n) & (now > float("-inf"))
        following = 2.0 * k / v * now - before
        before = where(going, now, before)
        now = where(going, following, now)
        k += 1
    result = where(n == 0, zeroth, now)
    return where((n < 0) | (x < 0), float("nan"), result).to(x.dtype)


@library
def _downward(n: tensor, x: tensor, zeroth: tensor, first: tensor) -> Any:
    """J of order `n` > x by Miller's recurrence from an order far above, scaled by `zeroth` or `first`."""
    start = n + 16 + sqrt(160.0 * n.to(dtypes.float64)).to(dtypes.int32)
    above, now, kept = x * 0, x * 0, x * 0
    k = _largest(start)
    while k > 0:
        now = where(k == start, 1.0, now)
        below = 2.0 * k / x * now - above
        above, now = now, below
        large = abs(now) > 1e150
        kept = where(k - 1 == n, now, kept)
        above = where(large, above * 1e-150, above)
        kept = where(large, kept * 1e-150, kept)
        now = where(large, now * 1e-150, now)
        k -= 1
    by_zeroth = abs(zeroth) > abs(first)
    return kept * (where(by_zeroth, zeroth, first) / where(by_zeroth, now, above))


@library
def jn(n: tensor, x: tensor) -> Any:
    """J of order `n`; NaN for a negative order."""
    single: constexpr = x.dtype.is_fp32()
    v = abs(x.to(dtypes.float64))
    zeroth, _y = _both(v, 0, single)
    first, _y = _both(v, 1, single)
    before, now = zeroth, first
    small = v * 0.5  # (x / 2)^n / n!, all that is left for small arguments
    k = 1
    top = _largest(n)
    while k < top:
        going = k < n
        following = 2.0 * k / v * now - before
        before = where(going, now, before)
        now = where(going, following, now)
        small = where(going, small * (v * 0.5 / (k + 1)), small)
        k += 1
    above = _downward(n, v, zeroth, first)
    result = where(v < n, where(v < 1e-8, small, above), now)
    result = where(n == 0, zeroth, where(n == 1, first, result))
    result = where((x < 0) & ((n & 1) != 0), -result, result)
    return where(n < 0, float("nan"), result).to(x.dtype)
