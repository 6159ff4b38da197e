"""Element by element operations written with simpler ones: ordinary PyTorch, traced like user code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tilewright.hl.rows.recipes import Operand, wide
from tilewright.hl.rows.table import recipe, refuse

_INF = float("inf")
_LOG2 = math.log(2)


def floats(x: Tensor) -> Any:
    """`x` in the type in which PyTorch computes functions of real numbers of it."""
    return wide(x) if x.dtype.is_floating_point else x.float()


def like(result: Tensor, x: Tensor) -> Any:
    """`result` in the type that a function of real numbers gives for `x`."""
    return result.to(x.dtype) if x.dtype.is_floating_point else result


def both(x: Operand, y: Operand) -> tuple[Any, Any, Any]:
    """(two operands in the type in which PyTorch computes with them, the type of the result)."""
    dtype = torch.result_type(x, y)
    dtype = dtype if dtype.is_floating_point else torch.float32
    inner = torch.float32 if dtype.itemsize < 4 else dtype
    x, y = (arg.to(inner) if isinstance(arg, Tensor) else arg for arg in (x, y))
    return x, y, dtype


@recipe("add")
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    """The sum of two booleans is whether one of them holds; others have a row."""
    if not all(one.dtype == torch.bool if isinstance(one, Tensor) else isinstance(one, bool) for one in (x, y)):
        return NotImplemented  # without a look at numbers of the launcher, which would be constants then
    return x | (y if alpha else False)


# --- powers and parts of numbers -------------------------------------------------------------------------


@recipe("pow")
def pow(x: Operand, exponent: Operand) -> Any:
    """Integer powers: by squaring; real ones have a row."""
    if torch.result_type(x, exponent).is_floating_point:
        return NotImplemented
    if not isinstance(exponent, Tensor):
        return NotImplemented if exponent in (0, 1, 2, 3) else _constant_power(x, int(exponent))
    dtype = torch.result_type(x, exponent)
    base = x.to(dtype) if isinstance(x, Tensor) else torch.full_like(exponent, x, dtype=dtype)
    result, power = torch.ones_like(base), base
    for bit in range(6):
        result = torch.where((exponent >> bit) & 1 != 0, result * power, result)
        power = power * power
    if not dtype.is_signed:
        return result
    odd = exponent & 1 != 0
    small = torch.where(base == 1, 1, torch.where(base == -1, torch.where(odd, -1, 1), 0)).to(dtype)
    return torch.where(exponent < 0, small, result)


def _constant_power(x: Operand, exponent: int) -> Any:
    result = None
    while exponent:
        if exponent & 1:
            result = x if result is None else result * x
        exponent >>= 1
        x = x * x if exponent else x
    return result


@recipe("sgn")
def sgn(x: Tensor) -> Any:
    """The sign."""
    return torch.sign(x)


@recipe("frac")
def frac(x: Tensor) -> Any:
    """What is behind the point."""
    return x - torch.trunc(x)


@recipe("signbit")
def signbit(x: Tensor) -> Any:
    """Whether the sign bit is set, also of zeros and NaN."""
    return torch.copysign(torch.ones_like(x), x) < 0 if x.dtype.is_floating_point else x < 0


@recipe("ldexp")
def ldexp(x: Tensor, exponent: Tensor) -> Any:
    """x · 2^exponent."""
    return x * torch.pow(2.0, exponent)


@recipe("isposinf")
def isposinf(x: Tensor) -> Any:
    """Whether it is +inf."""
    return x == _INF


@recipe("isneginf")
def isneginf(x: Tensor) -> Any:
    """Whether it is -inf."""
    return x == -_INF


@recipe("nan_to_num")
def nan_to_num(x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Numbers in the place of NaN and infinities."""
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(x.dtype)
    x = torch.where(x == _INF, limits.max if posinf is None else posinf, x)
    x = torch.where(x == -_INF, limits.min if neginf is None else neginf, x)
    return torch.where(torch.isnan(x), 0.0 if nan is None else nan, x)


@recipe("heaviside")
def heaviside(x: Tensor, at_zero: Tensor) -> Any:
    """0 below, 1 above, `at_zero` at zero."""
    return torch.where(x == 0, at_zero, (x > 0).to(x.dtype))


@recipe("angle")
def angle(x: Tensor) -> Any:
    """0 or π; NaN stays."""
    y = like(floats(x), x)
    return torch.where(torch.isnan(y), y, torch.where(x < 0, torch.full_like(y, math.pi), 0))


@recipe("deg2rad")
def deg2rad(x: Tensor) -> Any:
    """Degrees in radians."""
    return x * (math.pi / 180)


@recipe("rad2deg")
def rad2deg(x: Tensor) -> Any:
    """Radians in degrees."""
    return x * (180 / math.pi)


# --- limits, mixtures ------------------------------------------------------------------------------------


@recipe("clamp")
def clamp(x: Tensor, low: Operand | None = None, high: Operand | None = None) -> Any:
    """Between two limits, of which one may be missing."""
    if low is not None:
        x = torch.maximum(x, _tensor(low, x)) if isinstance(low, Tensor) else torch.clamp_min(x, low)
    if high is not None:
        x = torch.minimum(x, _tensor(high, x)) if isinstance(high, Tensor) else torch.clamp_max(x, high)
    return x


def _tensor(limit: Tensor, x: Tensor) -> Any:
    return limit.to(torch.result_type(x, limit))


@recipe("lerp")
def lerp(x: Tensor, end: Tensor, weight: Operand) -> Any:
    """x + weight · (end - x), from the nearer end."""
    a, b = wide(x), wide(end)
    if not isinstance(weight, Tensor):
        made = a + weight * (b - a) if abs(weight) < 0.5 else b - (b - a) * (1 - weight)
    else:
        w = wide(weight)
        made = torch.where(w.abs() < 0.5, a + w * (b - a), b - (b - a) * (1 - w))
    return made.to(x.dtype)


@recipe("addcmul")
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Any:
    """x + value · a · b."""
    dtype = torch.promote_types(x.dtype, torch.promote_types(a.dtype, b.dtype))
    return (wide(x) + value * wide(a) * wide(b)).to(dtype)


@recipe("addcdiv")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Any:
    """x + value · a / b."""
    return (wide(x) + value * wide(a) / wide(b)).to(x.dtype)


@recipe("masked_fill")
def masked_fill(x: Tensor, mask: Tensor, value: Operand) -> Any:
    """`value` where the mask holds."""
    return torch.where(mask, value, x).to(x.dtype)


@recipe("fill")
def fill(x: Tensor, value: Operand) -> Any:
    """`value` everywhere."""
    return torch.full_like(x, 0) + value.to(x.dtype) if isinstance(value, Tensor) else torch.full_like(x, value)


@recipe("zero")
def zero(x: Tensor) -> Any:
    """0 everywhere."""
    return torch.zeros_like(x)


@recipe("copy")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    """`source` with the type and shape of `x`."""
    return source.to(x.dtype).expand_as(x)


# --- logarithms and what is made of them ------------------------------------------------------------------


@recipe("logaddexp")
def logaddexp(x: Tensor, y: Tensor) -> Any:
    """log(exp(x) + exp(y)) without overflow."""
    x, y, dtype = both(x, y)
    m = torch.maximum(x, y)
    made = m + torch.log1p(torch.exp(-torch.abs(x - y)))
    return torch.where((x == y) & (x.abs() == _INF), x, made).to(dtype)


@recipe("logaddexp2")
def logaddexp2(x: Tensor, y: Tensor) -> Any:
    """log2(2^x + 2^y) without overflow."""
    x, y, dtype = both(x, y)
    m = torch.maximum(x, y)
    made = m + torch.log1p(torch.exp2(-torch.abs(x - y))) / _LOG2
    return torch.where((x == y) & (x.abs() == _INF), x, made).to(dtype)


@recipe("logit")
def logit(x: Tensor, eps: float | None = None) -> Any:
    """log(x / (1 - x))."""
    y = floats(x)
    if eps is not None:
        y = y.clamp(eps, 1 - eps)
    return like(torch.log(y / (1 - y)), x)


@recipe("xlogy")
def xlogy(x: Operand, y: Operand) -> Any:
    """x · log(y), 0 where x is 0."""
    return _times(x, y, torch.log)


@recipe("special_xlog1py")
def xlog1py(x: Operand, y: Operand) -> Any:
    """x · log(1 + y), 0 where x is 0."""
    return _times(x, y, torch.log1p)


def _times(x: Operand, y: Operand, function: Callable[[Tensor], Tensor]) -> Any:
    x, y, dtype = both(x, y)
    if not isinstance(y, Tensor):
        y = torch.full_like(x, y)
    zero = torch.isnan(y).logical_not() & (x == 0)
    return torch.where(zero, 0.0, x * function(y)).to(dtype)


@recipe("special_entr")
def entr(x: Tensor) -> Any:
    """-x · log(x); -inf below 0."""
    y = floats(x)
    made = torch.where(y > 0, -y * torch.log(y), torch.where(y == 0, 0.0, -_INF))
    return like(torch.where(torch.isnan(y), y, made), x)


@recipe("special_log_ndtr")
def log_ndtr(x: Tensor) -> Any:
    """Logarithm of the normal distribution function."""
    y = floats(x)
    t = y * math.sqrt(0.5)
    low = torch.log(torch.special.erfcx(-t) / 2) - t * t
    return like(torch.where(y < -1, low, torch.log1p(-torch.erfc(t) / 2)), x)


@recipe("sinc")
def sinc(x: Tensor) -> Any:
    """sin(πx) / (πx), 1 at 0."""
    y = floats(x) * math.pi
    return like(torch.where(y == 0, 1.0, torch.sin(y) / y), x)


@recipe("special_i0e")
def i0e(x: Tensor) -> Any:
    """exp(-|x|) · I₀(x)."""
    y = floats(x)
    return like(torch.exp(-y.abs()) * torch.i0(y), x)


@recipe("special_i1e")
def i1e(x: Tensor) -> Any:
    """exp(-|x|) · I₁(x)."""
    y = floats(x)
    return like(torch.exp(-y.abs()) * torch.special.i1(y), x)


@recipe("special_spherical_bessel_j0")
def spherical_bessel_j0(x: Tensor) -> Any:
    """sin(x) / x, 1 at 0."""
    y = floats(x)
    return like(torch.where(y == 0, 1.0, torch.sin(y) / y), x)


# --- the gamma function's family ---------------------------------------------------------------------------

# Bernoulli numbers B_2k / 2k of the asymptotic series of digamma.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# (2k)! / B_2k of the Euler-Maclaurin formula.
_ZETA = (12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.8924375803183791606e9, 7.47242496e10)


@recipe("digamma")
def digamma(x: Tensor) -> Any:
    """Logarithmic derivative of the gamma function: reflection, recurrence to x ≥ 10, asymptotic series."""
    y = floats(x)
    fraction = y - torch.trunc(y)
    mirrored = y < 0
    z = torch.where(mirrored, 1 - y, y)
    total = torch.where(mirrored, -math.pi / torch.tan(math.pi * fraction), 0.0)
    for _ in range(10):
        low = z < 10
        total = torch.where(low, total - 1 / z, total)
        z = torch.where(low, z + 1, z)
    square, tail = 1 / (z * z), torch.zeros_like(z)
    for factor in reversed(_DIGAMMA):
        tail = square * (factor + tail)
    made = total + torch.log(z) - 0.5 / z - tail
    made = torch.where(y == 0, torch.copysign(torch.full_like(y, _INF), -y), made)
    return like(torch.where(mirrored & (fraction == 0), float("nan"), made), x)


@recipe("special_zeta")
def zeta(x: Operand, q: Operand) -> Any:
    """Hurwitz zeta function for x > 1 and q > 0, and its poles: ten terms, then the Euler-Maclaurin formula."""
    x, q, dtype = both(x, q)
    x, q = (arg if isinstance(arg, Tensor) else torch.full_like(other, arg) for arg, other in ((x, q), (q, x)))
    total = torch.pow(q, -x)
    for at in range(1, 10):
        total = total + torch.pow(q + at, -x)
    last = q + 9
    term = torch.pow(last, -x)
    total = total + term * last / (x - 1) - 0.5 * term
    factor = x
    for at, weight in enumerate(_ZETA):
        term = term / last
        total = total + factor * term / weight
        factor = factor * (x + 2 * at + 1) * (x + 2 * at + 2)
        term = term / last
    poles = (q <= 0) & (q == torch.floor(q))
    made = torch.where((x > 1) & (q > 0), total, torch.where((x > 1) & poles, _INF, float("nan")))
    return torch.where(x == 1, _INF, made).to(dtype)


@recipe("polygamma")
def polygamma(n: int, x: Tensor) -> Any:
    """Derivatives of digamma, for x > 0."""
    if n == 0:
        return torch.digamma(x)
    y = floats(x)
    made = torch.special.zeta(torch.full_like(y, n + 1), y) * (math.factorial(n) * (-1) ** (n + 1))
    return like(made, x)


@recipe("mvlgamma")
def mvlgamma(x: Tensor, p: int) -> Any:
    """Logarithm of the multivariate gamma function."""
    y = floats(x)
    total = torch.lgamma(y)
    for at in range(1, p):
        total = total + torch.lgamma(y - at / 2)
    return like(total + p * (p - 1) / 4 * math.log(math.pi), x)


for _name in ("gcd", "lcm"):
    refuse(_name, "each element would loop a number of times of its own; write it with a while loop on scalars")
for _name in ("igamma", "igammac", "special_airy_ai", "special_modified_bessel_k0", "special_modified_bessel_k1"):
    refuse(_name, "this special function is not there")
