"""Elementwise operations: one table from operation name to the instructions that compute it, for scalars and vectors of
any length.

Names are those of the tile IR operations without their dialect (`addi`, `maxnumf`, `mulhiui`, `precise_sqrt`, ...);
`emit(f, name, *args)` is the way in, `arity(name)` and `TABLE` describe the rest. Nothing here traps or gives poison,
because padded and masked lanes hold garbage: integer division by zero gives 0 and remainder by zero gives 0, MIN / -1
wraps; shifts by the width or more give 0 (or the sign); conversions of floats to integers saturate and take NaN to 0.
half and bfloat arithmetic is done in float and rounded after every operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.llvm import integers, vecmath
from tilewright.backends.llvm.minifloat import narrow, narrow_exactly, widen
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import I1, V, const
from tilewright.base.errors import InternalError

Emitter = Callable[..., V]


@dataclass(frozen=True, slots=True)
class Entry:
    """How one operation is computed.

    Args:
        arity: number of value operands.
        kind: what the operands are: `"int"`, `"float"` or `"any"`.
        emit: `emit(f, *operands, **attributes)`; for floats it sees float or double only.
    """

    arity: int
    kind: str
    emit: Emitter


def emit(f: Function, name: str, *args: V, **attributes: Any) -> V:
    """Compute operation `name` of the table.

    Args:
        f: where to emit.
        name: operation name without dialect; `cmpi`/`cmpf` take `predicate="slt"`/`"olt"`.
        args: operands of equal lane count; floats may be half, bfloat, float or double.
        attributes: of the operation.

    Raises:
        InternalError: no such operation.
    """
    entry = TABLE.get(name)
    if entry is None:
        raise InternalError(f"no elementwise operation {name!r}")
    if entry.kind != "float" or args[0].type.elem in ("float", "double"):
        return entry.emit(f, *args, **attributes)
    narrow_type = args[0].type
    if name in _NARROW:
        return _NARROW[name](f, *args)
    result = entry.emit(f, *(widen(f, arg) for arg in args), **attributes)
    if not result.type.is_float:
        return result
    return (narrow_exactly if name in _EXACT else narrow)(f, result, narrow_type)


def arity(name: str) -> int:
    """Number of operands of an operation of the table."""
    return TABLE[name].arity


# --- floating point -----------------------------------------------------------------------------


def _binary(opcode: str) -> Emitter:
    return lambda f, a, b, **_: f.op(opcode, a, b)


def _intrinsic(name: str) -> Emitter:
    return lambda f, *args, **_: f.intrinsic(name, *args)


def _min_max(pred: str, *, propagate_nan: bool) -> Emitter:
    """IEEE maximumNumber/minimumNumber (the number wins) or maximum/minimum (NaN wins)."""
    largest = pred == "ogt"

    def emitter(f: Function, a: V, b: V, **_: Any) -> V:
        if not f.isa.is_x86:
            names = ("maximum", "minimum") if propagate_nan else ("maxnum", "minnum")
            return f.intrinsic(names[0] if largest else names[1], a, b)
        picked = f.select(f.fcmp(pred, a, b), a, b)  # maxps/minps: b if either is NaN
        odd = a if propagate_nan else b
        return f.select(f.fcmp("uno", odd, odd), a, picked)

    return emitter


def clamp(f: Function, x: V, low: V, high: V, *, propagate_nan: bool = False) -> V:
    """`min(max(x, low), high)`; a NaN `x` gives `low`, or NaN if `propagate_nan`."""
    suffix = "imumf" if propagate_nan else "numf"
    return emit(f, f"min{suffix}", emit(f, f"max{suffix}", x, low), high)


def accumulate_max(f: Function, best: V, x: V, *, smallest: bool = False) -> V:
    """`maxnumf(best, x)` for a `best` that is known not to be NaN, in one instruction on x86 (`vmaxps`)."""
    if not f.isa.is_x86:
        return f.intrinsic("minnum" if smallest else "maxnum", best, x)
    return f.select(f.fcmp("olt" if smallest else "ogt", x, best), x, best)


def _cmpf(f: Function, a: V, b: V, *, predicate: str) -> V:
    if predicate in ("false", "true"):
        return const(I1.vec(a.type.lanes), int(predicate == "true"))
    return f.fcmp(predicate, a, b)


def _remf(f: Function, a: V, b: V, **_: Any) -> V:
    """C `fmod`. Float vectors divide in double, exact while the quotient has less than 52 bits.

    all |a| < |b| * 2^50? --yes--> a - b * trunc(a / b), corrected by one b --+
                    \\--no--> fmod, lane by lane ------------------------------+--> joined
    """
    if a.type.elem == "double" or not a.type.lanes:
        return f.op("frem", a, b)
    wide = a.type.with_elem("double")
    x, y = f.cast("fpext", a, wide), f.cast("fpext", b, wide)
    ax, ay = f.intrinsic("fabs", x), f.intrinsic("fabs", y)
    near = f.fcmp("olt", ax, f.fmul(ay, 2.0**50))

    def fast() -> list[V]:
        quotient = f.intrinsic("trunc", f.fdiv(ax, ay))
        rest = f.fma(f.fneg(quotient), ay, ax)  # exact; negative when the division rounded up to an integer
        rest = f.select(f.fcmp("olt", rest, 0.0), f.fadd(rest, ay), rest)
        rest = f.select(f.fcmp("olt", ax, ay), ax, rest)  # 0 * inf among them
        return [f.intrinsic("copysign", f.cast("fptrunc", rest, a.type), a)]

    return f.if_else(f.reduce("and", near), fast, lambda: [f.op("frem", a, b)])[0]


def _fma(f: Function, a: V, b: V, c: V, **_: Any) -> V:
    return f.fma(a, b, c)


def _sqrt(f: Function, x: V, **_: Any) -> V:
    return f.intrinsic("sqrt", x)


def _rsqrt(f: Function, x: V, **_: Any) -> V:
    return f.fdiv(const(x.type, 1.0), f.intrinsic("sqrt", x))


def _isnan(f: Function, x: V, **_: Any) -> V:
    return f.fcmp("uno", x, x)


def _isinf(f: Function, x: V, **_: Any) -> V:
    return f.fcmp("oeq", f.intrinsic("fabs", x), float("inf"))


# Operations on the sign bit alone need no widening.
def _sign_bits(f: Function, x: V) -> tuple[V, int]:
    return f.cast("bitcast", x, x.type.as_int), 1 << (x.type.bits - 1)


def _half_neg(f: Function, x: V) -> V:
    bits, sign = _sign_bits(f, x)
    return f.cast("bitcast", f.xor(bits, sign), x.type)


def _half_abs(f: Function, x: V) -> V:
    bits, sign = _sign_bits(f, x)
    return f.cast("bitcast", f.and_(bits, sign - 1), x.type)


def _half_copysign(f: Function, x: V, y: V) -> V:
    bits, sign = _sign_bits(f, x)
    other, _ = _sign_bits(f, y)
    return f.cast("bitcast", f.or_(f.and_(bits, sign - 1), f.and_(other, sign)), x.type)


def _half_fma(f: Function, *args: V) -> V:
    """a * b + c of half or bfloat, rounded once.

    The product is exact in float; the sum is rounded to odd there, which cannot spoil the rounding that follows
    (S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    a, b, c = (widen(f, arg) for arg in args)
    product = f.fmul(a, b)
    total = f.fadd(product, c)
    shifted = f.fsub(total, product)
    error = f.fadd(f.fsub(product, f.fsub(total, shifted)), f.fsub(c, shifted))
    bits = f.cast("bitcast", total, total.type.as_int)
    even = f.icmp("eq", f.and_(bits, 1), 0)
    inexact = f.and_(f.fcmp("one", error, 0.0), even)
    # Away from zero where the error has the sign of the sum.
    away = f.icmp("sge", f.xor(bits, f.cast("bitcast", error, bits.type)), 0)
    step = f.select(away, const(bits.type, 1), const(bits.type, -1))
    odd = f.select(inexact, f.add(bits, step), bits)
    return narrow(f, f.cast("bitcast", odd, total.type), args[0].type)


# half and bfloat forms of operations that are not simply the float form, rounded.
_NARROW: dict[str, Emitter] = {
    "negf": _half_neg,
    "absf": _half_abs,
    "copysign": _half_copysign,
    "fma": _half_fma,
}

# Operations that give one of their operands, or an integer: what half and bfloat hold is not rounded again.
_EXACT = frozenset(
    {"maxnumf", "minnumf", "maximumf", "minimumf", "clampf", "floor", "ceil", "trunc", "roundeven", "rint"}
)


def _select(f: Function, cond: V, a: V, b: V, **_: Any) -> V:
    return f.select(cond, a, b)


def _floats() -> dict[str, Entry]:
    one: dict[str, Emitter] = {
        "negf": lambda f, x, **_: f.fneg(x),
        "absf": _intrinsic("fabs"),
        "sqrt": _sqrt,
        "precise_sqrt": _sqrt,
        "rsqrt": _rsqrt,
        "floor": _intrinsic("floor"),
        "ceil": _intrinsic("ceil"),
        "trunc": _intrinsic("trunc"),
        "roundeven": _intrinsic("rint"),  # the rounding mode is always to nearest even
        "rint": _intrinsic("rint"),
        "isnan": _isnan,
        "isinf": _isinf,
    }
    two: dict[str, Emitter] = {
        "addf": _binary("fadd"),
        "subf": _binary("fsub"),
        "mulf": _binary("fmul"),
        "divf": _binary("fdiv"),
        "precise_divf": _binary("fdiv"),
        "remf": _remf,
        "maxnumf": _min_max("ogt", propagate_nan=False),
        "minnumf": _min_max("olt", propagate_nan=False),
        "maximumf": _min_max("ogt", propagate_nan=True),
        "minimumf": _min_max("olt", propagate_nan=True),
        "copysign": _intrinsic("copysign"),
        "cmpf": _cmpf,
    }
    table = {name: Entry(1, "float", emitter) for name, emitter in one.items()}
    table |= {name: Entry(2, "float", emitter) for name, emitter in two.items()}
    return table | {"fma": Entry(3, "float", _fma), "clampf": Entry(3, "float", clamp)}


TABLE: dict[str, Entry] = {
    **_floats(),
    **{name: Entry(count, "int", emitter) for name, (count, emitter) in integers.TABLE.items()},
    **{name: Entry(count, "float", emitter) for name, (count, emitter) in vecmath.TABLE.items()},
    "select": Entry(3, "any", _select),
}
"""Every elementwise operation that the native back ends have."""

CMPI_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
CMPF_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
