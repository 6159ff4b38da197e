"""Elementwise integer operations that neither trap nor give poison whatever the lanes hold.

Division by a variable is the expensive one: vectors of up to 32 bits divide in floating point (8 and 16 bits in
float, 32 bits in double), which gives the exact quotient after truncation and replaces a scalar division per lane.
By a number that all lanes share they multiply: its reciprocal is made once, where the number is.
High halves of 32-bit products are taken from even and odd lanes, so that no lane is widened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import F32, F64, I1, I32, I64, T, V, const

Emitter = Callable[..., V]


def _binary(opcode: str) -> Emitter:
    return lambda f, a, b, **_: f.op(opcode, a, b)


def _intrinsic(name: str) -> Emitter:
    return lambda f, *args, **_: f.intrinsic(name, *args)


def _counting(name: str) -> Emitter:
    # The second operand of ctlz/cttz: zero input is the width, not poison.
    return lambda f, x, **_: f.call(f"llvm.{name}.{x.type.suffix}", x.type, (x, const(I1, 0)))


def _cmpi(f: Function, a: V, b: V, *, predicate: str) -> V:
    return f.icmp(predicate, a, b)


def _absi(f: Function, x: V, **_: Any) -> V:
    return f.call(f"llvm.abs.{x.type.suffix}", x.type, (x, const(I1, 0)))


# --- shifts ---------------------------------------------------------------------------------------


def _shift(opcode: str) -> Emitter:
    def emitter(f: Function, a: V, b: V, **_: Any) -> V:
        bits = a.type.bits
        if b.const is not None and 0 <= b.const < bits:
            return f.op(opcode, a, b)
        if opcode == "ashr":
            return f.ashr(a, f.intrinsic("umin", b, const(b.type, bits - 1)))
        inside = f.icmp("ult", b, bits)
        return f.select(inside, f.op(opcode, a, f.select(inside, b, const(b.type, 0))), const(a.type, 0))

    return emitter


# --- division -----------------------------------------------------------------------------------------


def _division(*, signed: bool, remainder: bool) -> Emitter:
    opcode = ("s" if signed else "u") + ("rem" if remainder else "div")

    def emitter(f: Function, a: V, b: V, **_: Any) -> V:
        t = a.type
        if t.lanes and not b.type.lanes and is_shared_divisor(t, b):
            return _shared_division(f, a, b, signed=signed, remainder=remainder)
        b = f.splat(b, t.lanes)
        if b.const is not None and b.const not in (0, -1):
            return f.op(opcode, a, b)
        if t.bits == 1:
            return _boolean_division(f, a, b, remainder=remainder)
        if t.lanes >= 4 and t.bits <= 32:
            return _float_division(f, a, b, signed=signed, remainder=remainder)
        if not signed:
            by_zero = f.icmp("eq", b, 0)
            return f.select(by_zero, const(t, 0), f.op(opcode, a, f.select(by_zero, const(t, 1), b)))
        # What is asked of the divisor alone is asked once for many elements: x % 0 and x % -1 are 0 as x % 1 is, and
        # x / 0 and x / -1 are -x & 0 and -x & -1, which wraps.
        special = f.icmp("ult", f.add(b, 1), 2)
        safe = f.op(opcode, a, f.select(special, const(t, 1), b))
        return safe if remainder else f.select(special, f.and_(f.sub(const(t, 0), a), b), safe)

    return emitter


def _boolean_division(f: Function, a: V, b: V, *, remainder: bool) -> V:
    """One-bit numbers: x / 1 = x, anything by zero is 0, and no remainder is ever left."""
    return const(a.type, 0) if remainder else f.and_(a, b)


def _float_division(f: Function, a: V, b: V, *, signed: bool, remainder: bool) -> V:
    """Quotient or remainder through floating point.

    With p bits of significand and operands below 2^n, n < p, the rounded quotient is off by at most (a/b) 2^-p < 1/b,
    less than its distance to the next integer, so truncation is exact.
    """
    t = a.type
    lanes = t.lanes
    small = t.bits <= 16
    by_zero = f.icmp("eq", b, 0)
    divisor = f.select(by_zero, const(t, 1), b)
    if small:
        wide = I32.vec(lanes)
        x, y = (f.cast("sitofp", f.cast("sext" if signed else "zext", v, wide), F32) for v in (a, divisor))
        q = f.cast("trunc", f.cast("fptosi", f.fdiv(x, y), wide), t)
    else:
        x, y = (f.cast("sitofp" if signed else "uitofp", v, F64) for v in (a, divisor))
        q = (_to_signed if signed else _to_unsigned)(f, f.fdiv(x, y), t)
    if remainder:
        return f.select(by_zero, const(t, 0), f.sub(a, f.mul(q, divisor)))
    return f.select(by_zero, const(t, 0), q)


REMAINDERS, SIGNED_DIVISIONS = frozenset({"remsi", "remui"}), frozenset({"divsi", "remsi"})
DIVISIONS = REMAINDERS | SIGNED_DIVISIONS | {"divui"}
"""Operations whose second operand may be a number beside a vector."""


def is_shared_divisor(t: T, divisor: V) -> bool:
    """Whether a vector of type `t` is divided by one number through its reciprocal."""
    return t.lanes >= 4 and 1 < t.bits <= 32 and divisor.const is None


def _shared_division(f: Function, a: V, divisor: V, *, signed: bool, remainder: bool) -> V:
    """Quotient or remainder by a number, through its reciprocal, which is a little too large.

    With p bits of significand, and 1 / b made larger by 2^(3-p) of itself, the rounded product lies beyond a / b by
    2^(2-p) to 2^(4-p) of that, whatever is rounded: never short of a quotient that is whole, and, for operands below
    2^n, n + 4 <= p, by less than 1 / b, its distance to the next integer.
    """
    small = a.type.bits <= 16
    real, bits = (F32, 24) if small else (F64, 53)
    whole = I32 if small else a.type.scalar
    wide, into = ("sext", "sitofp") if signed else ("zext", "uitofp")
    by_zero = f.icmp("eq", divisor, 0)
    number, x = (f.cast(wide, v, whole.vec(v.type.lanes)) if small else v for v in (divisor, a))
    once = f.fdiv(const(real, 1.0), f.cast(into, number, real))
    once = f.select(by_zero, const(real, 0.0), f.fmul(once, const(real, 1 + 2.0 ** (3 - bits))))
    product = f.fmul(f.cast(into, x, real.vec(a.type.lanes)), f.splat(once, a.type.lanes))
    if small:
        q = f.cast("trunc", f.cast("fptosi", product, whole.vec(a.type.lanes)), a.type)
    else:
        q = (_to_signed if signed else _to_unsigned)(f, product, a.type)
    if not remainder:
        return q
    rest = f.sub(a, f.mul(q, f.splat(divisor, a.type.lanes)))
    return f.select(f.splat(by_zero, a.type.lanes), const(a.type, 0), rest)


def _to_signed(f: Function, quotient: V, t: T) -> V:
    """Truncate doubles in [-2^31, 2^31] to i32; 2^31 becomes -2^31, as wrapping division has it."""
    top = f.fcmp("oge", quotient, 2.0**31)
    q = f.cast("fptosi", f.select(top, const(quotient.type, 0.0), quotient), t)
    return f.select(top, const(t, -(2**31)), q)


def _to_unsigned(f: Function, quotient: V, t: T) -> V:
    """Truncate doubles in [0, 2^32) to i32."""
    if f.isa.has_zmm or not f.isa.is_x86:
        return f.cast("fptoui", quotient, t)
    high = f.fcmp("oge", quotient, 2.0**31)
    low = f.select(high, f.fsub(quotient, 2.0**31), quotient)
    q = f.cast("fptosi", low, t)
    return f.select(high, f.xor(q, -(2**31)), q)


# --- high half of a product ---------------------------------------------------------------------------


def _mulhi_unsigned(f: Function, a: V, b: V, **_: Any) -> V:
    t = a.type
    if t.bits == 32 and t.lanes >= 4 and t.lanes % 2 == 0 and f.isa.is_x86:
        return _mulhi_pairs(f, a, b)
    if t.bits == 64 and t.lanes >= 2:
        return _mulhi_quads(f, a, b)
    wide = t.with_elem(f"i{2 * t.bits}")
    product = f.emit(wide, f"mul {wide.text} {f.cast('zext', a, wide).ref}, {f.cast('zext', b, wide).ref}")
    return f.cast("trunc", f.emit(wide, f"lshr {product.typed}, {_wide_literal(wide, t.bits)}"), t)


def _wide_literal(wide: T, value: int) -> str:
    return f"splat ({wide.elem} {value})" if wide.lanes else str(value)


def _mulhi_pairs(f: Function, a: V, b: V) -> V:
    """32-bit lanes two to a 64-bit lane: multiply the even ones and the odd ones, then merge the high halves."""
    lanes = a.type.lanes
    pairs = I64.vec(lanes // 2)
    low = 0xFFFFFFFF
    x, y = f.cast("bitcast", a, pairs), f.cast("bitcast", b, pairs)
    if b.const is not None:
        y = const(pairs, (int(b.const) & low) * 0x100000001)
    even = f.mul(f.and_(x, low), f.and_(y, low))
    odd = f.mul(f.lshr(x, 32), f.lshr(y, 32))
    highs = f.cast("bitcast", f.lshr(even, 32), a.type), f.cast("bitcast", odd, a.type)
    return f.shuffle(highs[0], highs[1], [i if i % 2 == 0 else lanes + i for i in range(lanes)])


def _mulhi_quads(f: Function, a: V, b: V) -> V:
    """64-bit lanes from four products of 32-bit halves (schoolbook with carries)."""
    low = 0xFFFFFFFF
    a0, a1, b0, b1 = f.and_(a, low), f.lshr(a, 32), f.and_(b, low), f.lshr(b, 32)
    carry = f.lshr(f.mul(a0, b0), 32)
    middle = f.add(f.mul(a1, b0), carry)
    other = f.add(f.mul(a0, b1), f.and_(middle, low))
    return f.add(f.add(f.mul(a1, b1), f.lshr(middle, 32)), f.lshr(other, 32))


def _mulhi_signed(f: Function, a: V, b: V, **_: Any) -> V:
    """The unsigned high half less each operand where the other is negative."""
    zero = const(a.type, 0)
    high = _mulhi_unsigned(f, a, b)
    high = f.sub(high, f.select(f.icmp("slt", a, 0), b, zero))
    return f.sub(high, f.select(f.icmp("slt", b, 0), a, zero))


TABLE: dict[str, tuple[int, Emitter]] = {
    "addi": (2, _binary("add")),
    "subi": (2, _binary("sub")),
    "muli": (2, _binary("mul")),
    "divsi": (2, _division(signed=True, remainder=False)),
    "divui": (2, _division(signed=False, remainder=False)),
    "remsi": (2, _division(signed=True, remainder=True)),
    "remui": (2, _division(signed=False, remainder=True)),
    "andi": (2, _binary("and")),
    "ori": (2, _binary("or")),
    "xori": (2, _binary("xor")),
    "shli": (2, _shift("shl")),
    "shrsi": (2, _shift("ashr")),
    "shrui": (2, _shift("lshr")),
    "maxsi": (2, _intrinsic("smax")),
    "maxui": (2, _intrinsic("umax")),
    "minsi": (2, _intrinsic("smin")),
    "minui": (2, _intrinsic("umin")),
    "cmpi": (2, _cmpi),
    "absi": (1, _absi),
    "mulhiui": (2, _mulhi_unsigned),
    "mulhisi": (2, _mulhi_signed),
    "ctlz": (1, _counting("ctlz")),
    "cttz": (1, _counting("cttz")),
    "ctpop": (1, _intrinsic("ctpop")),
    "bitreverse": (1, _intrinsic("bitreverse")),
}
"""Name: number of operands and emitter."""
