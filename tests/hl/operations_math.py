"""Cases of the operation table: element by element, beyond arithmetic."""

from __future__ import annotations

from typing import Any

import torch

from tests.hl import operations
from tests.hl.operations import BOOL, NUMBERS, TWO

FLOATS = (torch.float32, torch.bfloat16)
REAL = (torch.float32, torch.float64)
F32 = (torch.float32,)
SIGNED = (torch.int32, torch.int64, torch.int8)
EXACT = (torch.float32, torch.float16, torch.int32)


def case(*args: Any, **kwargs: Any) -> None:
    """A case on whole rows only: tiles add nothing where each element is computed alone."""
    operations.case(*args, layouts=("rows",), **kwargs)


# --- whole numbers, signs, powers ---------------------------------------------------------------------------

for _name, _function in {
    "floor_divide": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "fmod": torch.fmod,
    "div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}.items():
    case(_name, _function, TWO, (*REAL, *SIGNED), domain="positive", tag="positive")
for _name, _function in {
    "floor_divide": lambda x: x // -3,
    "remainder": lambda x: x % -3,
    "fmod": lambda x: torch.fmod(x, 3),
    "div": lambda x: torch.div(x, 3, rounding_mode="floor"),
}.items():
    case(_name, _function, dtypes=(*FLOATS, *SIGNED), tag="number")
case("remainder", lambda x, y: x % (y - 20), TWO, (torch.int32, torch.float32), tag="negative")
case("floor_divide", lambda x, y: x // (y - 20), TWO, (torch.int32, torch.float32), tag="negative")
case("remainder", lambda x: 7 % x, dtypes=(torch.int32, torch.float32), domain="positive", tag="scalar")
for _exponent in (0, 0.5, 1, 2, 3, -0.5, -1, -2, 2.5, 4):
    case("pow", lambda x, e=_exponent: x**e, dtypes=FLOATS, domain="positive", tag=str(_exponent))
for _exponent in (0, 1, 2, 3, 5, 6):
    case("pow", lambda x, e=_exponent: x**e, dtypes=(torch.int32, torch.int64), domain="small", tag=f"int-{_exponent}")
case("pow", lambda x, y: x**y, TWO, FLOATS, domain="positive", tag="tensor")
case("pow", lambda x, y: x**y, TWO, (torch.int32, torch.int64), domain="counts", tag="tensor-int")
case("pow", lambda x: 2**x, dtypes=(torch.float32, torch.float16), tag="scalar")
case("pow", lambda x: torch.float_power(x, 2), dtypes=REAL, tag="float_power")
case("sign", torch.sign, dtypes=NUMBERS)
case("sign", torch.sign, domain="special", tag="special")
case("sgn", torch.sgn, dtypes=F32)
case("signbit", torch.signbit, dtypes=(*FLOATS, torch.int32), domain="special")
for _name in ("floor", "ceil", "trunc"):
    case(_name, getattr(torch, _name), dtypes=(*FLOATS, torch.int32))
case("frac", torch.frac, dtypes=FLOATS)
case("round", torch.round, dtypes=(*FLOATS, torch.int32))
case("round", lambda x: x.round(decimals=1), dtypes=REAL, tag="1")
case("round", lambda x: (x * 100).round(decimals=-1), dtypes=REAL, tag="-1")
case("bitwise_left_shift", lambda x, y: x << (y & 3), TWO, (torch.int32, torch.int64))
case("bitwise_right_shift", lambda x, y: x >> (y & 3), TWO, (torch.int32, torch.int64))
case("__lshift__", lambda x: x << 2, dtypes=(torch.int32,))
case("__rshift__", lambda x: x >> 1, dtypes=(torch.int32,))
for _name in ("logical_and", "logical_or", "logical_xor"):
    case(_name, getattr(torch, _name), TWO, (torch.float32, torch.int32, *BOOL), domain="small")
case("logical_not", torch.logical_not, dtypes=(torch.float32, torch.int32, *BOOL), domain="small")

# --- limits, tests ------------------------------------------------------------------------------------------

for _name in ("fmax", "fmin"):
    case(_name, getattr(torch, _name), TWO, FLOATS, domain="special")
for _name in ("maximum", "minimum"):
    case(_name, getattr(torch, _name), TWO, FLOATS, domain="special", tag="special")
case("clamp", lambda x: x.clamp(-0.5, 0.5), dtypes=FLOATS)
case("clamp", lambda x: x.clamp(-2, 3), dtypes=(torch.int32, torch.int8), tag="integers")
case("clamp", lambda x: x.clamp(-0.5, 1), dtypes=(torch.int32,), tag="mixed")
case("clamp", lambda x, y: x.clamp(y, y + 0.5), TWO, FLOATS, tag="tensors")
case("clamp", lambda x: x.clamp(max=0.25), tag="max")
for _name in ("isinf", "isfinite", "isposinf", "isneginf", "isnan"):
    case(_name, getattr(torch, _name), dtypes=FLOATS, domain="special", tag="special")
case("isfinite", torch.isfinite, dtypes=(torch.int32,), tag="integers")
case("isinf", torch.isinf, dtypes=(torch.int32,), tag="integers")
case("eq", torch.isclose, TWO, F32, domain="small", tag="isclose")
case("nan_to_num", torch.nan_to_num, dtypes=FLOATS, domain="special")
case("nan_to_num", lambda x: x.nan_to_num(1.0, 2.0, 3.0), domain="special", tag="given")
case("nextafter", torch.nextafter, TWO, REAL)
case("copysign", torch.copysign, TWO, FLOATS)
case("copysign", lambda x: torch.copysign(x, -1.0), tag="number")
case("heaviside", torch.heaviside, TWO, REAL, domain="small")

# --- mixtures -------------------------------------------------------------------------------------------------

case("lerp", lambda x, y: torch.lerp(x, y, 0.3), TWO, FLOATS, tag="number")
case("lerp", lambda x, y: torch.lerp(x, y, 0.8), TWO, FLOATS, tag="high")
case("lerp", lambda x, y: torch.lerp(x, y, y), TWO, FLOATS)
case("addcmul", lambda x, y: torch.addcmul(x, x, y, value=2), TWO, FLOATS)
case("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=2), TWO, FLOATS, domain="positive")
case("masked_fill", lambda x: x.masked_fill(x > 0, 0.5), dtypes=FLOATS)
case("masked_fill", lambda x: x.clone().masked_fill_(x > 0, float("-inf")), tag="in place")
case("fill", lambda x: x.clone().fill_(3), dtypes=EXACT)
case("zero", lambda x: x.clone().zero_(), dtypes=EXACT)
case("copy", lambda x, y: torch.zeros_like(x).copy_(y), TWO, EXACT)
case("ldexp", lambda x, y: torch.ldexp(x, y.to(torch.int32)), TWO, REAL)
case("hypot", torch.hypot, TWO, FLOATS)
case("atan2", torch.atan2, TWO, FLOATS)
case("logaddexp", torch.logaddexp, TWO, FLOATS)
case("logaddexp2", torch.logaddexp2, TWO, REAL)
case("xlogy", torch.xlogy, TWO, FLOATS, domain="counts")
case("special_xlog1py", torch.special.xlog1py, TWO, REAL, domain="counts")

# --- functions of one number -----------------------------------------------------------------------------------

for _name in ("sinh", "cosh", "asinh", "atan", "tan"):
    case(_name, getattr(torch, _name), dtypes=FLOATS)
for _name in ("asin", "acos", "atanh", "erfinv"):
    case(_name, getattr(torch, _name), dtypes=FLOATS, domain="unit")
case("acosh", lambda x: torch.acosh(x + 1), dtypes=FLOATS, domain="positive")
for _name in ("log10", "lgamma", "digamma"):
    case(_name, getattr(torch, _name), dtypes=FLOATS, domain="positive")
case("digamma", torch.digamma, dtypes=REAL, tag="negative", slack=100)
case("tan", torch.tan, dtypes=(torch.int32,), domain="small", tag="integers")
case("erfc", torch.erfc, dtypes=FLOATS)
for _name in ("deg2rad", "rad2deg", "angle"):
    case(_name, getattr(torch, _name), dtypes=FLOATS)
for _name in ("sinc", "i0", "special_i0e", "special_i1", "special_i1e"):
    case(_name, getattr(torch.special, _name.removeprefix("special_")), dtypes=REAL)
for _name in ("bessel_j0", "bessel_j1", "modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"):
    case(f"special_{_name}", getattr(torch.special, _name), dtypes=F32)
for _name in ("bessel_y0", "bessel_y1"):
    case(f"special_{_name}", getattr(torch.special, _name), dtypes=F32, domain="positive")
case("special_erfcx", torch.special.erfcx, dtypes=REAL)
case("special_log_ndtr", torch.special.log_ndtr, dtypes=REAL)
case("erf", torch.special.ndtr, dtypes=REAL, tag="ndtr")
for _name in ("special_ndtri", "logit"):
    case(_name, getattr(torch.special, _name.removeprefix("special_")), dtypes=REAL, domain="probability")
case("logit", lambda x: torch.logit(x, 0.1), dtypes=FLOATS, domain="probability", tag="eps")
case("special_entr", torch.special.entr, dtypes=REAL, domain="counts")
case("special_zeta", lambda x, y: torch.special.zeta(x + 1, y), TWO, F32, domain="positive")
case("polygamma", lambda x: torch.polygamma(2, x), dtypes=F32, domain="positive", slack=3)
case("mvlgamma", lambda x: torch.mvlgamma(x + 2, 3), dtypes=REAL, domain="positive")
