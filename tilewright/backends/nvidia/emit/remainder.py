"""Remainder of floats with a quotient cut toward zero (C `fmod`), exactly, in integer arithmetic.

LLVM's own expansion for NVPTX rounds the quotient. This is long division of significands, a function of the module:

    |a| < |b|? --yes--> a
          \\--no--> m = significand of a; for the difference d of exponents: m = (m << s) mod significand of b; d -= s
                   m normalised again, with the exponent of b
"""

from __future__ import annotations

from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, I32, I64, T, V, const
from tilewright.backends.nvidia.emit.context import Kernel
from tilewright.backends.nvidia.emit.module import NvModule


def remainder(k: Kernel, a: V, b: V) -> V:
    """`fmod(a, b)` of floats or doubles; NaN where `a` is infinite, `b` is zero, or either is NaN."""
    name, module = f"tilewright_fmod_{a.type.suffix}", k.f.module
    if not module.has(name):
        assert isinstance(module, NvModule)
        _define(module.internal(name, a.type, (a.type, a.type), "nounwind noinline"))
    return k.f.call(name, a.type, (a, b))


def _define(f: Function) -> None:
    a, b = f.args
    t, mantissa = a.type, 23 if a.type.elem == "float" else 52
    x, y = (f.intrinsic("fabs", v) for v in (a, b))
    invalid = f.or_(f.fcmp("ueq", x, float("inf")), f.fcmp("ueq", y, 0.0))
    trivial = f.or_(invalid, f.fcmp("ult", x, y))
    simple = f.select(invalid, const(t, float("nan")), a)
    (result,) = f.if_else(trivial, lambda: [simple], lambda: [_divide(f, a, x, y, mantissa)])
    f.ret(result)


def _parts(f: Function, x: V, mantissa: int) -> tuple[V, V]:
    """Positive x = significand * 2^(exponent - bias - mantissa): significand (i64) and exponent (i32, at least 1)."""
    bits = f.cast("zext", f.cast("bitcast", x, x.type.as_int), I64)
    field = f.cast("trunc", f.lshr(bits, mantissa), I32)
    implicit = f.shl(f.cast("zext", f.icmp("ne", field, 0), I64), mantissa)
    significand = f.or_(f.and_(bits, (1 << mantissa) - 1), implicit)
    return significand, f.intrinsic("umax", field, const(I32, 1))


def _divide(f: Function, a: V, x: V, y: V, mantissa: int) -> V:
    """The remainder of x >= y > 0, with the sign of a."""
    (m, first), (divisor, exponent) = _parts(f, x, mantissa), _parts(f, y, mantissa)
    most = const(I32, 63 - mantissa)  # a significand moves up that far and stays in 64 bits

    def iteration(values: list[V]) -> list[V]:
        m, left, _ = values
        step = f.intrinsic("umin", left, most)
        m = f.op("urem", f.shl(m, f.cast("zext", step, I64)), divisor)
        left = f.sub(left, step)
        return [m, left, f.icmp("ne", left, 0)]

    start = [m, f.sub(first, exponent), const(I1, 1)]  # once even where the exponents are equal
    m, *_ = f.while_(start, lambda values: values[2], iteration)
    return _joined(f, a, m, exponent, mantissa)


def _joined(f: Function, a: V, m: V, exponent: V, mantissa: int) -> V:
    """m * 2^(exponent - bias - mantissa), a number of the type, with the sign of a."""
    t = a.type
    zeros = f.cast("trunc", f.call("llvm.ctlz.i64", I64, (m, const(I1, 0))), I32)
    up = f.intrinsic("umin", f.sub(zeros, 63 - mantissa), f.sub(exponent, 1))
    field = f.sub(f.sub(exponent, up), 1)  # the implicit bit of a normal number adds one
    moved = f.shl(m, f.cast("zext", up, I64))
    bits = f.add(f.shl(f.cast("zext", field, I64), mantissa), moved)
    bits = f.select(f.icmp("eq", m, 0), const(I64, 0), bits)
    size = f.cast("bitcast", f.cast("trunc", bits, T(f"i{t.bits}")), t)
    return f.intrinsic("copysign", size, a)


__all__ = ["remainder"]
