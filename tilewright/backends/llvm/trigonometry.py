"""Vector math: sine, cosine, tangent and their inverses, inline, for float and double of any lane count.

Float arguments below 71476 are reduced by pi/2 in three parts (Cody and Waite); chunks with a larger one take a
routine that multiplies by 2/pi modulo 4 from a table per exponent (after Payne and Hanek, 1983), so every finite
float is accurate:

    any |x| > 71476? --no--> keep --+
                    \\--yes--> table ---> (r, quadrant)

Double arguments beyond 1e5, and the inverse functions and tangent of doubles, go to libm.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from tilewright.backends.llvm import coefficients as c
from tilewright.backends.llvm.mathcore import any_lane, horner, libm, magic_round, signed_like, to_bits
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import F32, F64, I32, I64, PTR, VOID, V, const

Emitter = Callable[..., V]

# Parts of pi/2, each rounded down, so that the products of a zero quotient do not change the sign of zero.
_PIO2_F32 = (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15)
_PIO2_F64 = (1.5707963267948966, 6.123233995736765e-17, 1.0828566739219139e-32)
_LIMIT_F32, _LIMIT_F64 = 71476.0, 1.0e5
_FIRST_EXPONENT = 16  # of the table: 2^16 < 71476
_HALF_PI = math.pi / 2


# --- argument reduction ---------------------------------------------------------------------------


def _reduce(f: Function, x: V) -> tuple[V, V]:
    """x = q pi/2 + r with |r| <= pi/4, for 0 <= x below the limit: (r, q as integer)."""
    k, q = magic_round(f, x, 2.0 / math.pi)
    r = x
    for part in _PIO2_F32 if x.type.elem == "float" else _PIO2_F64:
        r = f.fma(k, -part, r)
    return r, q


def _reduce_float(f: Function, x: V) -> tuple[V, V]:
    """The same for every float x >= 0; r is NaN at infinity and NaN."""
    r, q = _reduce(f, x)
    large = f.fcmp("ogt", x, _LIMIT_F32)

    def by_table() -> list[V]:
        far_r, far_q = _reduce_far(f, x)
        return [f.select(large, far_r, r), f.select(large, far_q, q)]

    joined = f.if_else(any_lane(f, large), by_table, lambda: [r, q])
    return joined[0], joined[1]


def _reduce_far(f: Function, x: V) -> tuple[V, V]:
    """Call the shared table routine on all lanes."""
    if f.isa.arch == "nvptx64":
        return _call_for_one(f, x)
    lanes = max(1, x.type.lanes)
    places = [f.alloca(x.type), f.alloca(x.type), f.alloca(x.type.as_int)]
    f.store(x, places[0], 64)
    name = "tilewright.reduce_far"
    if not f.module.has(name):
        _emit_reduce_far(f.module.function(name, VOID, [PTR, PTR, PTR, I64], attrs="nounwind noinline cold"))
    f.call(name, VOID, (*places, const(I64, lanes)))
    return f.load(x.type, places[1], 64), f.load(x.type.as_int, places[2], 64)


def _emit_reduce_far(f: Function) -> None:
    """void(ptr x, ptr r, ptr q, i64 n): one float x >= 0 an iteration."""
    source, rests, quadrants, count = f.args
    with f.loop(0, count) as loop:
        r, q = _far(f, f.load(F32, f.gep(source, loop.index, F32)))
        f.store(r, f.gep(rests, loop.index, F32))
        f.store(q, f.gep(quadrants, loop.index, I32))
    f.ret()


def _call_for_one(f: Function, x: V) -> tuple[V, V]:
    """Call the routine on a scalar, both results in one register: a GPU keeps stack memory for every thread."""
    name = "tilewright.reduce_far"
    if not f.module.has(name):
        routine = f.module.function(name, I64, [F32], attrs="nounwind noinline cold")
        r, q = (routine.cast("zext", to_bits(routine, v), I64) for v in _far(routine, routine.args[0]))
        routine.ret(routine.or_(r, routine.shl(q, 32)))
    both = f.call(name, I64, (x,))
    return f.cast("bitcast", f.cast("trunc", both, I32), F32), f.cast("trunc", f.lshr(both, 32), I32)


def _far(f: Function, x: V) -> tuple[V, V]:
    """Remainder and quadrant (i32) of one float x >= 0.

    x = m 2^E with m of 24 bits. The table has T = 2^E 2/pi mod 4 as a double of 29 bits, so that m * T is exact, and
    the rest.
    """
    entries = _two_over_pi()
    table = f.module.constant("tilewright.two_over_pi", F64, [const(F64, v) for pair in entries for v in pair])
    bits = to_bits(f, x)
    row = f.sub(f.lshr(bits, 23), 127 + _FIRST_EXPONENT)
    row = f.intrinsic("smax", f.intrinsic("smin", row, const(I32, len(entries) - 1)), const(I32, 0))
    place = f.gep(table, f.shl(f.cast("zext", row, I64), 4))
    significand = f.cast("sitofp", f.or_(f.and_(bits, 0x7FFFFF), 0x800000), F64)
    product = f.fmul(significand, f.load(F64, place))
    nearest, _ = magic_round(f, product, 1.0)
    fraction = f.fma(significand, f.load(F64, f.gep(place, 8)), f.fsub(product, nearest))
    r = f.cast("fptrunc", f.fmul(fraction, _HALF_PI), F32)
    r = f.select(f.fcmp("ueq", x, math.inf), const(F32, math.nan), r)
    return r, f.cast("fptosi", nearest, I32)


@functools.cache
def _two_over_pi() -> tuple[tuple[float, float], ...]:
    """For each exponent E of a float x = m 2^(E-23): 2^(E-23) * 2/pi mod 4, as (multiple of 2^-27, remainder)."""
    precision = 400
    two_over_pi = (2 << (2 * precision)) // _pi_bits(precision)
    rows = []
    for exponent in range(_FIRST_EXPONENT, 128):
        scaled = two_over_pi << (exponent - 23) if exponent >= 23 else two_over_pi >> (23 - exponent)
        fraction = scaled % (4 << precision)
        unit = precision - 27
        high = (fraction + (1 << (unit - 1))) >> unit
        rows.append((high / 2**27, (fraction - (high << unit)) / 2**precision))
    return tuple(rows)


def _pi_bits(precision: int) -> int:
    """floor(pi * 2^precision), give or take a few units, by Machin's formula."""
    guard = precision + 16

    def arctan_inverse(n: int) -> int:
        term = total = (1 << guard) // n
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    return (16 * arctan_inverse(5) - 4 * arctan_inverse(239)) >> 16


# --- sine, cosine, tangent ------------------------------------------------------------------------


def _kernels(f: Function, r: V) -> tuple[V, V]:
    """sin and cos on [-pi/4, pi/4]."""
    single = r.type.elem == "float"
    z = f.fmul(r, r)
    sine = f.mad(f.fmul(r, z), horner(f, z, c.SIN_F32 if single else c.SIN_F64), r)
    cosine = f.mad(f.fmul(z, z), horner(f, z, c.COS_F32 if single else c.COS_F64), f.mad(z, -0.5, 1.0))
    return sine, cosine


def _sin_or_cos(name: str) -> Emitter:
    turn = 1 if name == "cos" else 0

    def from_reduced(f: Function, x: V, r: V, q: V) -> V:
        q = f.add(q, turn)
        sine, cosine = _kernels(f, r)
        value = f.select(f.icmp("ne", f.and_(q, 1), 0), cosine, sine)
        flip = f.shl(q, value.type.bits - 2)
        if name == "sin":
            flip = f.xor(flip, to_bits(f, x))
        sign = f.and_(flip, -1 << (value.type.bits - 1))
        return f.cast("bitcast", f.xor(to_bits(f, value), sign), value.type)

    def emitter(f: Function, x: V, **_: Any) -> V:
        size = f.intrinsic("fabs", x)
        if x.type.elem == "float":
            return from_reduced(f, x, *_reduce_float(f, size))
        if f.isa.arch == "nvptx64":
            return libm(f, name, x)
        large = any_lane(f, f.fcmp("ogt", size, _LIMIT_F64))
        return f.if_else(large, lambda: [libm(f, name, x)], lambda: [from_reduced(f, x, *_reduce(f, size))])[0]

    return emitter


def _tan(f: Function, x: V, **_: Any) -> V:
    if x.type.elem == "double":
        return libm(f, "tan", x)
    r, q = _reduce_float(f, f.intrinsic("fabs", x))
    sine, cosine = _kernels(f, r)
    odd = f.icmp("ne", f.and_(q, 1), 0)
    size = f.fdiv(f.select(odd, f.fneg(cosine), sine), f.select(odd, sine, cosine))
    sign = f.and_(to_bits(f, x), -1 << (x.type.bits - 1))
    return f.cast("bitcast", f.xor(to_bits(f, size), sign), x.type)


# --- inverse functions ------------------------------------------------------------------------------


def _arctan_core(f: Function, t: V) -> V:
    """atan on [0, 1]."""
    square = f.fmul(t, t)
    return f.mad(f.fmul(t, square), horner(f, square, c.ATAN_F32), t)


def _atan(f: Function, x: V, **_: Any) -> V:
    if x.type.elem == "double":
        return libm(f, "atan", x)
    size = f.intrinsic("fabs", x)
    inverted = f.fcmp("ogt", size, 1.0)
    angle = _arctan_core(f, f.select(inverted, f.fdiv(const(x.type, 1.0), size), size))
    angle = f.select(inverted, _less_than_half_pi(f, angle), angle)
    return signed_like(f, angle, x)


def _less_than_half_pi(f: Function, angle: V) -> V:
    """pi/2 - angle with pi/2 in two parts."""
    return f.fadd(f.fsub(1.57079637050628662109375, angle), -4.37113900018624283e-08)


def _atan2(f: Function, y: V, x: V, **_: Any) -> V:
    """atan(min/max) of the sizes, moved to the octant; signs of zeros and infinities as in C."""
    if x.type.elem == "double":
        return libm(f, "atan2", y, x)
    t = x.type
    ay, ax = f.intrinsic("fabs", y), f.intrinsic("fabs", x)
    steep = f.fcmp("ogt", ay, ax)
    small, large = f.select(steep, ax, ay), f.select(steep, ay, ax)
    ratio = f.fdiv(small, large)
    # 0/0 and inf/inf: the quotient is NaN while the limit is 0 and 1.
    ratio = f.select(f.fcmp("oeq", large, 0.0), const(t, 0.0), ratio)
    ratio = f.select(f.fcmp("oeq", small, math.inf), const(t, 1.0), ratio)
    angle = _arctan_core(f, ratio)
    angle = f.select(steep, _less_than_half_pi(f, angle), angle)
    left = f.icmp("slt", to_bits(f, x), 0)
    mirrored = f.fadd(f.fsub(3.1415927410125732421875, angle), -8.74227800037248566e-08)
    angle = f.select(left, mirrored, angle)
    return f.select(f.fcmp("uno", x, y), f.fadd(x, y), signed_like(f, angle, y))


def _arcsine_core(f: Function, t: V, square: V) -> V:
    """asin on [0, 1/2], from t and t^2."""
    return f.mad(f.fmul(t, square), horner(f, square, c.ASIN_F32), t)


def _asin(f: Function, x: V, **_: Any) -> V:
    """Above 1/2: pi/2 - 2 asin(sqrt((1 - x) / 2))."""
    if x.type.elem == "double":
        return libm(f, "asin", x)
    size = f.intrinsic("fabs", x)
    steep = f.fcmp("ogt", size, 0.5)
    square = f.select(steep, f.mad(size, -0.5, 0.5), f.fmul(x, x))
    root = f.select(steep, f.intrinsic("sqrt", square), size)
    angle = _arcsine_core(f, root, square)
    far = _less_than_half_pi(f, f.fadd(angle, angle))
    return signed_like(f, f.select(steep, far, angle), x)


def _acos(f: Function, x: V, **_: Any) -> V:
    """pi/2 - asin(x) near 0, 2 asin(sqrt((1 - |x|) / 2)) near 1, pi minus that near -1."""
    if x.type.elem == "double":
        return libm(f, "acos", x)
    size = f.intrinsic("fabs", x)
    steep = f.fcmp("ogt", size, 0.5)
    square = f.select(steep, f.mad(size, -0.5, 0.5), f.fmul(x, x))
    root = f.select(steep, f.intrinsic("sqrt", square), x)
    angle = _arcsine_core(f, root, square)
    twice = f.fadd(angle, angle)
    mirrored = f.fadd(f.fsub(3.1415927410125732421875, twice), -8.74227800037248566e-08)
    far = f.select(f.fcmp("olt", x, 0.0), mirrored, twice)
    return f.select(steep, far, _less_than_half_pi(f, angle))


TABLE: dict[str, tuple[int, Emitter]] = {
    "sin": (1, _sin_or_cos("sin")),
    "cos": (1, _sin_or_cos("cos")),
    "tan": (1, _tan),
    "asin": (1, _asin),
    "acos": (1, _acos),
    "atan": (1, _atan),
    "atan2": (2, _atan2),
}
"""Name: number of operands and emitter (which sees float or double only)."""
