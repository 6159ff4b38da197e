"""Conversions between the element types of tile IR, for scalars and vectors of any length.

Types are named as in tile IR (`i1 i8 i16 i32 i64 f16 bf16 f32 f64 f8E4M3FN f8E5M2 ... index ptr`) because LLVM has no
8-bit floats: they are `i8` here (`storage`). Narrowing rounds once, straight from the source type. Float to integer
truncates and saturates; NaN gives 0.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.backends.llvm.minifloat import FORMATS, decode, encode, narrow, widen
from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import BF16, F16, F32, F64, I1, I8, I16, I32, I64, PTR, T, V, const, zero
from tilewright.base.errors import InternalError

_STORAGE = {"i1": I1, "i8": I8, "i16": I16, "i32": I32, "i64": I64, "index": I64, "ptr": PTR}
_STORAGE |= {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
_STORAGE |= {name: I8 for name in FORMATS if name.startswith("f8")}


def storage(name: str, lanes: int = 0) -> T:
    """LLVM type of values of the tile IR element type `name` in registers (`i1` stays `i1`; in memory it is a byte)."""
    return _STORAGE[name].vec(lanes)


def convert(f: Function, op: str, x: V, src: str, dst: str, *, rounding: str = "rtne") -> V:
    """Apply a conversion operation.

    Args:
        f: where to emit.
        op: operation name without dialect: `trunci extsi extui sitofp uitofp fptosi fptoui extf truncf fp_to_fp
            bitcast index_cast int_to_ptr ptr_to_int`.
        x: the operand, of `storage(src)`.
        src, dst: element types by tile IR name.
        rounding: `"rtne"` or `"rtz"`, for narrowing floats.

    Returns:
        A value of `storage(dst)` with the lanes of `x`.

    Raises:
        InternalError: no such operation.
    """
    emitter = _CASTS.get(op)
    if emitter is None:
        raise InternalError(f"no conversion {op!r}")
    return emitter(f, x, src, dst, rounding)


def to_working_float(f: Function, x: V, src: str) -> V:
    """Any float element type as the type it is computed in: float, or double for `f64`; exact."""
    if src in ("f32", "f64"):
        return x
    return widen(f, x) if src in ("f16", "bf16") else decode(f, x, FORMATS[src])


def from_working_float(f: Function, x: V, dst: str, *, rounding: str = "rtne") -> V:
    """Float or double rounded once to any float element type."""
    toward_zero = rounding == "rtz"
    if dst == "f64":
        return f.cast("fpext", x, F64)
    if dst == "f32":
        if x.type.elem == "double" and toward_zero:
            return _double_to_float_toward_zero(f, x)
        return f.cast("fptrunc", x, F32)
    if dst in ("f16", "bf16"):
        return narrow(f, x, storage(dst), toward_zero=toward_zero)
    return encode(f, x, FORMATS[dst], toward_zero=toward_zero)


def _double_to_float_toward_zero(f: Function, x: V) -> V:
    """Round to nearest, then step back one unit where that went away from zero."""
    near = f.cast("fptrunc", x, F32)
    back = f.cast("fpext", near, F64)
    away = f.fcmp("ogt", f.intrinsic("fabs", back), f.intrinsic("fabs", x))
    finite = f.fcmp("olt", f.intrinsic("fabs", x), float("inf"))
    bits = f.cast("bitcast", near, near.type.as_int)
    stepped = f.sub(bits, f.cast("zext", f.and_(away, finite), bits.type))
    return f.cast("bitcast", stepped, near.type)


def _float_to_float(f: Function, x: V, src: str, dst: str, rounding: str) -> V:
    if src == dst:
        return x
    return from_working_float(f, to_working_float(f, x, src), dst, rounding=rounding)


def _integer(opcode: str) -> Callable[..., V]:
    return lambda f, x, src, dst, rounding: f.cast(opcode, x, storage(dst))


def _index_cast(f: Function, x: V, src: str, dst: str, rounding: str) -> V:
    to = storage(dst)
    return f.cast("trunc" if to.bits < x.type.bits else "sext", x, to)


def _int_to_float(opcode: str) -> Callable[..., V]:
    def emitter(f: Function, x: V, src: str, dst: str, rounding: str) -> V:
        if dst in ("f32", "f64"):
            return f.cast(opcode, x, storage(dst))
        # Integers that float holds exactly, and those whose rounding in double decides ties, round once this way.
        working = F64 if x.type.bits > 16 and dst != "f16" else F32
        return from_working_float(f, f.cast(opcode, x, working), dst, rounding=rounding)

    return emitter


def _float_to_int(kind: str) -> Callable[..., V]:
    def emitter(f: Function, x: V, src: str, dst: str, rounding: str) -> V:
        x = to_working_float(f, x, src)
        to = storage(dst, x.type.lanes)
        if dst == "i1":
            return f.fcmp("une", x, 0.0)
        if f.isa.is_x86 and to.lanes:
            return _saturated(f, x, to, kind)
        return f.call(f"llvm.fpto{kind}i.sat.{to.suffix}.{x.type.suffix}", to, (x,))

    return emitter


def _saturated(f: Function, x: V, to: T, kind: str) -> V:
    """Vectors of floats as integers: LLVM's own code for x86 takes out one element after the other.

    What does not fit is some number or other when it is converted, and replaced then.
    """
    signed = kind == "s"
    lowest, end = (-(1 << to.bits - 1), 1 << to.bits - 1) if signed else (0, 1 << to.bits)
    wide = to if to.bits >= 32 else I32.vec(to.lanes)
    number = f.freeze(f.cast("fptosi" if signed or wide is not to else "fptoui", x, wide))
    number = number if wide is to else f.cast("trunc", number, to)
    number = f.select(f.fcmp("oge", x, float(end)), f.splat(const(to.scalar, end - 1), to.lanes), number)
    if not signed:
        return f.select(f.fcmp("ult", x, 0.0), zero(to), number)
    number = f.select(f.fcmp("olt", x, float(lowest)), f.splat(const(to.scalar, lowest), to.lanes), number)
    return f.select(f.fcmp("uno", x, x), zero(to), number)


def _bitcast(f: Function, x: V, src: str, dst: str, rounding: str) -> V:
    to = storage(dst, x.type.lanes)
    if x.type.elem == "ptr" and to.elem != "ptr":
        return f.cast("ptrtoint", x, to)
    if to.elem == "ptr" and x.type.elem != "ptr":
        return f.cast("inttoptr", x, to)
    return f.cast("bitcast", x, to)


_CASTS: dict[str, Callable[..., V]] = {
    "trunci": _integer("trunc"),
    "extsi": _integer("sext"),
    "extui": _integer("zext"),
    "index_cast": _index_cast,
    "sitofp": _int_to_float("sitofp"),
    "uitofp": _int_to_float("uitofp"),
    "fptosi": _float_to_int("s"),
    "fptoui": _float_to_int("u"),
    "extf": _float_to_float,
    "truncf": _float_to_float,
    "fp_to_fp": _float_to_float,
    "bitcast": _bitcast,
    "int_to_ptr": _bitcast,
    "ptr_to_int": _bitcast,
}
CAST_NAMES = tuple(_CASTS)


def load_bool(f: Function, byte: V) -> V:
    """`i8` lanes read from memory as `i1`: any non-zero byte is true."""
    return f.icmp("ne", byte, 0)


def store_bool(f: Function, x: V) -> V:
    """`i1` lanes as the bytes 0 and 1 that memory holds."""
    return f.cast("zext", x, I8)
