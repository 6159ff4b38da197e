"""Vector math: exponentials, logarithms, powers and hyperbolic functions, inline, for float and double of any lane
count.

Polynomials on a reduced argument (coefficients: `coefficients`), exact at zeros, infinities and NaN, right for
subnormals. `ACCURACY` states the largest error in units in the last place; the tests hold it. Double functions
without a polynomial call the process's libm lane by lane (`LIBM`). Trigonometry is in `trigonometry`. `TABLE` gives
every function of both files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.backends.llvm import coefficients as c
from tilewright.backends.llvm import trigonometry
from tilewright.backends.llvm.mathcore import from_bits, horner, libm, magic_round, power_of_two, signed_like, to_bits
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import F64, I16, I32, T, V, const, zero

Emitter = Callable[..., V]

ACCURACY: dict[str, tuple[float, float]] = {
    "exp": (0.9, 0.9), "exp2": (0.9, 0.9), "exp10": (1.2, 4.0), "expm1": (1.6, 4.0),
    "log": (0.9, 0.9), "log2": (1.1, 1.2), "log10": (1.1, 4.0), "log1p": (1.5, 4.0),
    "tanh": (1.5, 4.0), "sinh": (1.7, 4.0), "cosh": (1.4, 4.0), "erf": (1.2, 4.0),
    "cbrt": (0.6, 4.0), "powf": (0.6, 4.0), "hypot": (0.6, 4.0),
    "sin": (1.9, 1.6), "cos": (1.9, 1.6), "tan": (3.9, 4.0),
    "asin": (2.0, 4.0), "acos": (1.4, 4.0), "atan": (1.6, 4.0), "atan2": (2.3, 4.0),
}  # fmt: skip
"""Largest error in units in the last place, for float and double, over all finite arguments.

4.0 for double is what C libraries promise. Without fused multiply-add (x86-64 before AVX2) errors grow by up to 0.3.
"""

_LN2_HI, _LN2_LO = 0.693145751953125, 1.4286068203094172e-06  # 16 bits: k * hi is exact in float
_LN2_HI64, _LN2_LO64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # 33 bits: exact in double
_LOG2E = math.log2(math.e)
_LOG2E_LO = 1.92596298909109e-08  # what rounding log2(e) to float leaves out


# --- exponentials ---------------------------------------------------------------------------------


def _scale(f: Function, p: V, k: V, k_int: V | None) -> V:
    """`p * 2^k` with gradual underflow and overflow to infinity.

    Args:
        p: the significand.
        k: integral float.
        k_int: the same as an integer, if the caller has it; needed without `has_scalef`.
    """
    if k_int is None or _has_scalef(f, p.type):
        wide = p.type.elem == "float"
        name = f"llvm.x86.avx512.mask.scalef.{'ps' if wide else 'pd'}.512"
        every, nearest = const(I16 if wide else T("i8"), -1), const(I32, 4)

        def piece(a: V, b: V) -> V:
            return f.call(name, a.type, (a, b, zero(a.type), every, nearest))

        return f.by_pieces(16 if wide else 8, piece, p, k)
    half = f.ashr(k_int, 1)
    return f.fmul(f.fmul(p, power_of_two(f, half, p.type)), power_of_two(f, f.sub(k_int, half), p.type))


def _has_scalef(f: Function, t: T) -> bool:
    return f.isa.has_zmm and t.lanes >= (16 if t.elem == "float" else 8)


def _exp_reduce(f: Function, x: V) -> tuple[V, V, V]:
    """x = k ln2 + r with |r| <= ln2/2: (r, k, k as integer)."""
    k, k_int = magic_round(f, x, _LOG2E)
    high, low = (_LN2_HI, _LN2_LO) if x.type.elem == "float" else (_LN2_HI64, _LN2_LO64)
    return f.mad(k, -low, f.mad(k, -high, x)), k, k_int


def _exp_polynomial(f: Function, r: V) -> V:
    """e^r on the reduced range, as 1 + (r + r^2 Q(r)) in Horner form."""
    terms = c.EXP_F32 if r.type.elem == "float" else c.EXP_F64
    return horner(f, r, (1.0, 1.0, *terms))


def _clamped(f: Function, x: V, low: float, high: float | None) -> V:
    """`x` limited from both sides; NaN stays NaN."""
    x = f.select(f.fcmp("olt", x, low), const(x.type, low), x)
    return x if high is None else f.select(f.fcmp("ogt", x, high), const(x.type, high), x)


def _vanishing(f: Function, p: V, x: V, low: float) -> V:
    """The significand `p` of a power of `x`, zero where the power vanishes.

    A product that underflows takes some 25 times as long on CPUs of Intel, one of zero does not: exp of 2^18 floats
    that are -inf, as masked softmax has them, took 2.05 ms where 0.08 is usual.
    """
    return f.select(f.fcmp("olt", x, low), zero(p.type), p)


def _exp_scaled(f: Function, x: V, shift: int = 0) -> V:
    """e^x * 2^shift without overflow in between."""
    single = x.type.elem == "float"
    if single and f.isa.arch == "nvptx64":
        return _exp_of_nvptx(f, x, shift)
    low, high = (-105.0, 90.0) if single else (-746.0, 711.0)
    # vscalef overflows by itself and makes inf of a NaN times 2^inf. A polynomial of even degree, as that of float is,
    # tends to +inf when k is so large that r is far outside its range.
    unlimited = single and not shift and _has_scalef(f, x.type)
    r, k, k_int = _exp_reduce(f, _clamped(f, x, low, None if unlimited else high))
    if shift:
        k, k_int = f.fadd(k, float(shift)), f.add(k_int, shift)
    return _scale(f, _vanishing(f, _exp_polynomial(f, r), x, low), k, k_int)


def _exp_of_nvptx(f: Function, x: V, shift: int) -> V:
    """`_exp_scaled` by the instruction for 2^r, with the integer part of x log2(e) in the exponent of a factor.

    The integer is limited to exponents that there are. Beyond them r takes the rest, overflows or vanishes as the
    result does, and is NaN where x is.
    """
    low, high = (const(x.type, bound) for bound in (-87.0 - shift * math.log(2.0), 88.0))
    anchor = const(x.type, 1.5 * 2.0**23 + 127 + shift)
    limited = f.intrinsic("minnum", f.intrinsic("maxnum", x, low), high)
    raised = f.mad(limited, _LOG2E, anchor)  # its low bits are those of an exponent
    r = f.mad(x, _LOG2E_LO, f.mad(x, _LOG2E, f.fsub(anchor, raised)))
    scale = from_bits(f, f.shl(to_bits(f, raised), 23), x.type)
    return f.fmul(f.call("llvm.nvvm.ex2.approx.ftz.f32", x.type, (r,)), scale)


def _exp(f: Function, x: V, **_: Any) -> V:
    """Cody-Waite reduction, degree 6 (float) or 11 (double)."""
    return _exp_scaled(f, x)


def _exp2(f: Function, x: V, **_: Any) -> V:
    return _exp2_polynomial(f, x, c.EXP2_F32 if x.type.elem == "float" else c.EXP2_F64)


def _exp2_coarse(f: Function, x: V, **_: Any) -> V:
    """2^x to a relative error of 1e-4, for results that will be rounded to bfloat. Double takes the full form."""
    return _exp2_polynomial(f, x, c.EXP2_COARSE_F32 if x.type.elem == "float" else c.EXP2_F64)


def _exp2_polynomial(f: Function, x: V, terms: Sequence[float]) -> V:
    low, high = (-151.0, 129.0) if x.type.elem == "float" else (-1076.0, 1025.0)
    if _has_scalef(f, x.type):
        k = f.intrinsic("rint", x)
        # At +inf r is NaN, which vscalef turns into the limit.
        return _scale(f, _vanishing(f, horner(f, f.fsub(x, k), (1.0, *terms)), x, low), k, None)
    limited = _clamped(f, x, low, high)
    k, k_int = magic_round(f, limited, 1.0)
    return _scale(f, _vanishing(f, horner(f, f.fsub(limited, k), (1.0, *terms)), x, low), k, k_int)


def _exp10(f: Function, x: V, **_: Any) -> V:
    """10^x: k = rint(x log2 10), r = (x - k log10 2) ln 10."""
    if x.type.elem == "double":
        return libm(f, "pow", const(x.type, 10.0), x)
    limited = _clamped(f, x, -46.0, 39.0)
    k, k_int = magic_round(f, limited, math.log2(10.0))
    r = f.mad(k, -4.6050390665e-06, f.mad(k, -0.301025390625, limited))
    return _scale(f, _vanishing(f, _exp_polynomial(f, f.fmul(r, math.log(10.0))), x, -46.0), k, k_int)


def _expm1(f: Function, x: V, **_: Any) -> V:
    """2^k (expm1(r) + 1) - 1, doubled at the end so that 2^k never overflows before the result does."""
    if x.type.elem == "double":
        return libm(f, "expm1", x)
    limited = _clamped(f, x, -18.0, 88.75)
    r, _k, k_int = _exp_reduce(f, limited)
    p = f.mad(f.fmul(r, r), horner(f, r, c.EXPM1_F32), r)
    half = power_of_two(f, f.sub(k_int, 1), x.type)
    scaled = f.fma(half, p, f.fsub(half, 0.5))
    return f.select(f.icmp("eq", k_int, 0), f.select(f.fcmp("oeq", x, 0.0), x, p), f.fadd(scaled, scaled))


# --- hyperbolic functions -----------------------------------------------------------------------------


def _odd_small(f: Function, x: V, terms: Sequence[float]) -> V:
    """x + x^3 P(x^2)."""
    square = f.fmul(x, x)
    return f.mad(f.fmul(x, square), horner(f, square, terms), x)


def _quotient(f: Function, a: float, x: V) -> V:
    """`a / x` of an `x` of at least 0.5, where what is left of a large one's does not matter.

    A division that rounds correctly is a branch on NVIDIA; the reciprocal is an instruction, off by one unit at most,
    and 0 where that would be subnormal.
    """
    if f.isa.arch == "nvptx64":
        return f.fmul(f.call("llvm.nvvm.rcp.approx.ftz.f", x.type, (x,)), a)
    return f.fdiv(const(x.type, a), x)


def _tanh(f: Function, x: V, **_: Any) -> V:
    """Odd polynomial below 0.625, else 1 - 2 / (e^2|x| + 1), which has a third of the exponential's error."""
    if x.type.elem == "double":
        return libm(f, "tanh", x)
    size = f.intrinsic("fabs", x)
    if f.isa.arch == "nvptx64":
        e = f.call("llvm.nvvm.ex2.approx.ftz.f32", x.type, (f.fmul(size, 2.0 * _LOG2E),))
    else:
        e = _exp_scaled(f, f.fadd(size, size))
    large = f.fsub(1.0, _quotient(f, 2.0, f.fadd(e, 1.0)))
    return signed_like(f, f.select(f.fcmp("olt", size, 0.625), _odd_small(f, size, c.TANH_F32), large), x)


def _sinh(f: Function, x: V, **_: Any) -> V:
    """Odd polynomial below 1, else (e^|x| - e^-|x|) / 2 from h = e^|x| / 2."""
    if x.type.elem == "double":
        return libm(f, "sinh", x)
    size = f.intrinsic("fabs", x)
    h = _exp_scaled(f, size, -1)
    large = f.fsub(h, _quotient(f, 0.25, h))
    return signed_like(f, f.select(f.fcmp("olt", size, 1.0), _odd_small(f, size, c.SINH_F32), large), x)


def _cosh(f: Function, x: V, **_: Any) -> V:
    if x.type.elem == "double":
        return libm(f, "cosh", x)
    h = _exp_scaled(f, f.intrinsic("fabs", x), -1)
    return f.fadd(h, _quotient(f, 0.25, h))


# --- logarithms -------------------------------------------------------------------------------------------


def _split(f: Function, x: V) -> tuple[V, V]:
    """Positive x = m 2^e with m in [sqrt(1/2), sqrt(2)): (m - 1, e as float). Subnormals are scaled up first."""
    single = x.type.elem == "float"
    mantissa, root, tiny = (23, 0x3F3504F3, 2.0**-126) if single else (52, 0x3FE6A09E667F3BCD, 2.0**-1022)
    subnormal = f.fcmp("olt", x, tiny)
    x = f.select(subnormal, f.fmul(x, 2.0**mantissa), x)
    bits = to_bits(f, x)
    e_int = f.ashr(f.sub(bits, root), mantissa)
    m = from_bits(f, f.sub(bits, f.shl(e_int, mantissa)), x.type)
    e = f.cast("sitofp", e_int, x.type) if single else _small_to_double(f, e_int)
    e = f.select(subnormal, f.fsub(e, float(mantissa)), e)
    return f.fsub(m, 1.0), e


def _small_to_double(f: Function, value: V) -> V:
    """Small `i64` lanes as double (64-bit conversions are scalar before AVX512DQ)."""
    return f.cast("sitofp", f.cast("trunc", value, I32), F64)


def _log_limits(f: Function, x: V, r: V) -> V:
    """Put in the results at 0 (-inf), below (NaN), at +inf and NaN (themselves)."""
    r = f.select(f.fcmp("olt", x, math.inf), r, x)
    r = f.select(f.fcmp("oeq", x, 0.0), const(x.type, -math.inf), r)
    return f.select(f.fcmp("olt", x, 0.0), const(x.type, math.nan), r)


def _log_tail(f: Function, m1: V) -> V:
    """log1p(m1) - m1 on the reduced range."""
    square = f.fmul(m1, m1)
    if m1.type.elem == "float":
        return f.mad(f.fmul(m1, square), horner(f, m1, c.LOG_F32), f.fmul(square, -0.5))
    # log1p(m) = m - (h - s (h + R)), h = m^2/2, s = m / (2 + m), R = s^2 P(s^2) (fdlibm e_log.c, Sun 1993)
    half = f.fmul(square, 0.5)
    s = f.fdiv(m1, f.fadd(m1, 2.0))
    z = f.fmul(s, s)
    return f.fsub(f.fmul(s, f.mad(z, horner(f, z, c.LOG_F64), half)), half)


def _log(f: Function, x: V, **_: Any) -> V:
    m1, e = _split(f, x)
    tail = _log_tail(f, m1)
    high, low = (_LN2_HI, _LN2_LO) if x.type.elem == "float" else (_LN2_HI64, _LN2_LO64)
    return _log_limits(f, x, f.mad(e, high, f.fadd(m1, f.mad(e, low, tail))))


def _log_base(f: Function, x: V, scale: tuple[float, float], unit: tuple[float, float]) -> V:
    """log(x) * scale, with `unit` = scale * ln2; both as high and low parts."""
    m1, e = _split(f, x)
    tail = _log_tail(f, m1)
    rest = f.mad(m1, scale[1], f.fmul(tail, scale[0]))
    if unit != (1.0, 0.0):
        rest = f.mad(e, unit[1], rest)
    if x.type.elem == "double":
        # m1 * scale with its rounding error, then a two-sum: the integer part is 0 or the larger one.
        product = f.fmul(m1, scale[0])
        rest = f.fadd(rest, f.fma(m1, scale[0], f.fneg(product)))
        whole = e if unit[0] == 1.0 else f.fmul(e, unit[0])
        total = f.fadd(whole, product)
        rest = f.fadd(rest, f.fsub(product, f.fsub(total, whole)))
        return _log_limits(f, x, f.fadd(total, rest))
    return _log_limits(f, x, f.mad(e, unit[0], f.fma(m1, scale[0], rest)))


def _log2(f: Function, x: V, **_: Any) -> V:
    if x.type.elem == "float":
        return _log_base(f, x, (1.4426950216293335, 1.9259629911266175e-08), (1.0, 0.0))
    return _log_base(f, x, (1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0))


def _log10(f: Function, x: V, **_: Any) -> V:
    if x.type.elem == "double":
        return libm(f, "log10", x)
    return _log_base(f, x, (0.4342944920063019, -1.0103050052231683e-08), (0.301025390625, 4.605038981195214e-06))


def _log1p(f: Function, x: V, **_: Any) -> V:
    """The exponent e of 1 + x scales x and 1 apart: log1p(x 2^-e + (2^-e - 1)) + e ln2, rounded once in between."""
    if x.type.elem == "double":
        return libm(f, "log1p", x)
    whole = f.fadd(x, 1.0)
    exponent = f.and_(f.sub(to_bits(f, whole), 0x3F3504F3), -0x800000)
    quadruple = from_bits(f, f.sub(const(exponent.type, 0x40800000), exponent), x.type)  # 4 * 2^-e never underflows
    scaled = from_bits(f, f.sub(to_bits(f, x), exponent), x.type)
    m1 = f.fadd(scaled, f.fma(quadruple, 0.25, -1.0))
    e = f.cast("sitofp", f.ashr(exponent, 23), x.type)
    r = f.mad(e, _LN2_HI, f.fadd(m1, f.mad(e, _LN2_LO, _log_tail(f, m1))))
    return f.select(f.fcmp("oeq", x, 0.0), x, _log_limits(f, whole, r))


# --- powers and roots ---------------------------------------------------------------------------------------


def _pow(f: Function, x: V, y: V, **_: Any) -> V:
    """Float: 2^(y log2|x|) in double, then the sign and domain rules of C `pow`. Double: libm."""
    if x.type.elem == "double":
        return libm(f, "pow", x, y)
    t = x.type
    size = f.intrinsic("fabs", x)
    exponent = f.fmul(f.cast("fpext", y, F64), _log2(f, f.cast("fpext", size, F64)))
    r = f.cast("fptrunc", _exp2(f, exponent), t)
    integral = f.fcmp("oeq", f.intrinsic("rint", y), y)
    half = f.fmul(y, 0.5)
    odd = f.and_(integral, f.fcmp("une", f.intrinsic("rint", half), half))
    r = f.select(odd, signed_like(f, r, x), r)
    finite_negative = f.and_(f.fcmp("olt", x, 0.0), f.fcmp("one", x, -math.inf))
    outside = f.and_(finite_negative, f.and_(f.not_(integral), f.fcmp("ord", y, y)))
    r = f.select(outside, const(t, math.nan), r)
    limit = f.and_(f.fcmp("oeq", x, -1.0), f.fcmp("oeq", f.intrinsic("fabs", y), math.inf))
    one = f.or_(f.or_(f.fcmp("oeq", x, 1.0), f.fcmp("oeq", y, 0.0)), limit)
    return f.select(one, const(t, 1.0), r)


def _cbrt(f: Function, x: V, **_: Any) -> V:
    """Float: 2^(log2|x| / 3) in double."""
    if x.type.elem == "double":
        return libm(f, "cbrt", x)
    logarithm = _log2(f, f.cast("fpext", f.intrinsic("fabs", x), F64))
    root = _exp2(f, f.fmul(logarithm, 1.0 / 3.0))
    return signed_like(f, f.cast("fptrunc", root, x.type), x)


def _hypot(f: Function, x: V, y: V, **_: Any) -> V:
    """Float: in double, where the squares neither overflow nor underflow; an infinity wins over NaN."""
    if x.type.elem == "double":
        return libm(f, "hypot", x, y)
    a, b = f.cast("fpext", x, F64), f.cast("fpext", y, F64)
    r = f.cast("fptrunc", f.intrinsic("sqrt", f.mad(a, a, f.fmul(b, b))), x.type)
    infinite = f.or_(*(f.fcmp("oeq", f.intrinsic("fabs", v), math.inf) for v in (x, y)))
    return f.select(infinite, const(x.type, math.inf), r)


# --- error function -------------------------------------------------------------------------------------------


def _erf(f: Function, x: V, **_: Any) -> V:
    """x + x P(x^2) below 0.9, else 1 - e^Q(|x|) with Q fitted to log(erfc)."""
    if x.type.elem == "double":
        return libm(f, "erf", x)
    size = f.intrinsic("fabs", x)
    small = f.mad(size, horner(f, f.fmul(size, size), c.ERF_SMALL_F32), size)
    limited = f.select(f.fcmp("ogt", size, 4.0), const(x.type, 4.0), size)  # erf(4) rounds to 1
    large = f.fsub(1.0, _exp_scaled(f, horner(f, limited, c.ERF_LARGE_F32)))
    return signed_like(f, f.select(f.fcmp("olt", size, 0.9), small, large), x)


TABLE: dict[str, tuple[int, Emitter]] = {
    "exp": (1, _exp),
    "exp2": (1, _exp2),
    "exp2_coarse": (1, _exp2_coarse),
    "exp10": (1, _exp10),
    "expm1": (1, _expm1),
    "log": (1, _log),
    "log2": (1, _log2),
    "log10": (1, _log10),
    "log1p": (1, _log1p),
    "tanh": (1, _tanh),
    "sinh": (1, _sinh),
    "cosh": (1, _cosh),
    "erf": (1, _erf),
    "cbrt": (1, _cbrt),
    "powf": (2, _pow),
    "hypot": (2, _hypot),
    **trigonometry.TABLE,
}
"""Name: number of operands and emitter (which sees float or double only)."""
