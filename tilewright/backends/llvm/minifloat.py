"""Narrow floating-point formats as integer bit manipulation: half and bfloat without hardware converts, and the 8-bit
forms.

`decode` widens codes to float exactly; `encode` rounds float or double once, to nearest even (or toward zero), with
the saturation rules of the format (`base.minifloat`, whose numpy forms are the reference). Normal results round by
adding half a unit to the bits; subnormal ones by a float addition whose unit in the last place is the smallest
subnormal, so the hardware rounds them.
"""

from __future__ import annotations

from tilewright.backends.llvm.module import Function
from tilewright.backends.llvm.types import BF16, F16, F32, I16, I32, I64, T, V, const
from tilewright.base.dtypes import dtype
from tilewright.base.minifloat import FORMATS as SMALL_FORMATS
from tilewright.base.minifloat import Format

FORMATS: dict[str, Format] = {dtype(name).ir_name: layout for name, layout in SMALL_FORMATS.items()}
FORMATS["f16"] = Format(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00, saturate=False)
"""Layouts by tile IR name; the half format serves targets without hardware converts."""


def decode(f: Function, code: V, fmt: Format) -> V:
    """Codes (integers of `fmt.bits`) as float, exactly; NaN codes give quiet NaN."""
    lanes = code.type.lanes
    i32, f32 = I32.vec(lanes), F32.vec(lanes)
    wide = f.cast("zext", code, i32)
    if fmt.mantissa == 7 and fmt.bias == 127:
        return f.cast("bitcast", f.shl(wide, 16), f32)
    magnitude = f.and_(wide, fmt.sign - 1)
    if fmt.inf_code is None and fmt.nan_code is None:  # the code past the largest reads as the largest
        magnitude = f.intrinsic("umin", magnitude, const(i32, fmt.max_code))
    shift = 23 - fmt.mantissa
    sign = f.shl(f.and_(wide, fmt.sign), 32 - fmt.bits)
    shifted = f.shl(magnitude, shift)
    normal = f.add(shifted, (127 - fmt.bias) << 23)
    # A subnormal is its mantissa under the smallest normal exponent, less that exponent's implicit one.
    lowest = (127 - fmt.bias + 1) << 23
    raised = f.cast("bitcast", f.add(shifted, lowest), f32)
    subnormal = f.cast("bitcast", f.fsub(raised, f.cast("bitcast", const(i32, lowest), f32)), i32)
    out = f.select(f.icmp("ult", magnitude, 1 << fmt.mantissa), subnormal, normal)
    if fmt.inf_code is not None:
        special = f.icmp("ugt", magnitude, fmt.max_code)
        quiet = f.select(f.icmp("ugt", magnitude, fmt.inf_code), const(i32, 0x00400000), const(i32, 0))
        out = f.select(special, f.or_(f.or_(shifted, 0x7F800000), quiet), out)
    elif fmt.unsigned_zero:
        out = f.select(f.icmp("eq", wide, fmt.sign), const(i32, 0x7FC00000), out)
    elif fmt.nan_code is not None:
        out = f.select(f.icmp("ugt", magnitude, fmt.max_code), const(i32, 0x7FC00000), out)
    return f.cast("bitcast", f.or_(out, sign), f32)


def encode(f: Function, x: V, fmt: Format, *, toward_zero: bool = False) -> V:
    """Float or double lanes as codes of `fmt`, rounded once.

    Args:
        x: float or double.
        fmt: the result format.
        toward_zero: truncate instead of rounding to nearest even. Overflow then gives the largest finite value.
    """
    lanes = x.type.lanes
    double = x.type.elem == "double"
    integer, width, mantissa, bias = (I64, 64, 52, 1023) if double else (I32, 32, 23, 127)
    integer = integer.vec(lanes)
    bits = f.cast("bitcast", x, integer)
    magnitude = f.and_(bits, (1 << (width - 1)) - 1)
    shift = mantissa - fmt.mantissa
    if toward_zero:
        code = f.lshr(magnitude, shift)
    else:
        odd = f.and_(f.lshr(magnitude, shift), 1)
        code = f.lshr(f.add(f.add(magnitude, odd), (1 << (shift - 1)) - 1), shift)
    code = f.sub(code, (bias - fmt.bias) << fmt.mantissa)
    if bias != fmt.bias:
        code = _select_subnormal(f, magnitude, code, x.type, fmt, toward_zero)
    limit = fmt.max_code
    if fmt.inf_code is not None and not fmt.saturate and not toward_zero:
        limit = fmt.inf_code
    code = f.select(f.icmp("sgt", code, limit), const(integer, limit), code)
    if toward_zero and fmt.inf_code is not None and not fmt.saturate:  # an infinite input stays infinite
        infinite = f.icmp("eq", magnitude, ((1 << (width - 1 - mantissa)) - 1) << mantissa)
        code = f.select(infinite, const(integer, fmt.inf_code), code)
    sign = f.and_(f.lshr(bits, width - fmt.bits), fmt.sign)
    if fmt.unsigned_zero:
        sign = f.select(f.icmp("eq", code, 0), const(integer, 0), sign)
    code = f.or_(code, sign)
    if fmt.nan_code is not None:
        code = f.select(f.fcmp("uno", x, x), const(integer, fmt.nan_code), code)
    return f.cast("trunc", code, T(f"i{fmt.bits}"))


def _select_subnormal(f: Function, magnitude: V, code: V, t: T, fmt: Format, toward_zero: bool) -> V:
    """`code`, or the rounded multiple of the smallest subnormal where the magnitude is below the smallest normal."""
    mantissa, bias = (52, 1023) if t.elem == "double" else (23, 127)
    integer = magnitude.type
    smallest_exponent = 1 - fmt.bias - fmt.mantissa
    if toward_zero:
        small = f.cast("bitcast", magnitude, t)
        scaled = f.fmul(small, 2.0**-smallest_exponent)
        limit = f.icmp("ult", magnitude, (bias + 1 - fmt.bias) << mantissa)
        safe = f.select(limit, scaled, const(t, 0.0))
        subnormal = f.cast("fptosi", safe, integer)
        return f.select(limit, subnormal, code)
    anchor = const(t, 2.0 ** (mantissa + smallest_exponent))
    raised = f.fadd(f.cast("bitcast", magnitude, t), anchor)
    subnormal = f.sub(f.cast("bitcast", raised, integer), f.cast("bitcast", anchor, integer))
    return f.select(f.icmp("ult", magnitude, (bias + 1 - fmt.bias) << mantissa), subnormal, code)


def half_bits(f: Function, code: V, name: str) -> V:
    """Codes of `f16`/`bf16` as values of the LLVM type."""
    return f.cast("bitcast", code, (F16 if name == "f16" else BF16).vec(code.type.lanes))


def widen(f: Function, x: V) -> V:
    """`half` or `bfloat` lanes as float, exactly."""
    f32 = F32.vec(x.type.lanes)
    if x.type.elem == "half" and not f.isa.has_half_convert:
        return decode(f, f.cast("bitcast", x, x.type.as_int), FORMATS["f16"])
    if x.type.elem == "bfloat":
        bits = f.cast("zext", f.cast("bitcast", x, x.type.as_int), I32)
        return f.cast("bitcast", f.shl(bits, 16), f32)
    return f.cast("fpext", x, f32)


def narrow(f: Function, x: V, to: T, *, toward_zero: bool = False) -> V:
    """Float or double lanes rounded once to `half` or `bfloat` (the element of `to`)."""
    lanes, name = x.type.lanes, "f16" if to.elem == "half" else "bf16"
    to = to.vec(lanes)
    if not toward_zero and x.type.elem == "float":
        if name == "f16" and f.isa.has_half_convert:
            return f.cast("fptrunc", x, to)
        if name == "bf16" and f.isa.has("avx512bf16") and f.isa.has_zmm and lanes >= 4:
            return _hardware_bfloat(f, x, to)
        if name == "bf16" and f.isa.arch == "nvptx64":
            return f.cast("fptrunc", x, to)
    return half_bits(f, encode(f, x, FORMATS[name], toward_zero=toward_zero), name)


def narrow_exactly(f: Function, x: V, to: T) -> V:
    """Float lanes that `half` or `bfloat` (the element of `to`) hold without rounding, as such."""
    if to.elem != "bfloat" or x.type.elem != "float" or f.isa.arch == "nvptx64":
        return narrow(f, x, to)
    high = f.lshr(f.cast("bitcast", x, x.type.as_int), 16)
    return half_bits(f, f.cast("trunc", high, I16), "bf16")


def _hardware_bfloat(f: Function, x: V, to: T) -> V:
    """Round float lanes with `vcvtneps2bf16`, which flushes subnormals: chunks that hold one take the integer route.

    any subnormal? --yes--> integer rounding --+
           \\--no--> vcvtneps2bf16 -------------+--> joined
    """
    lanes = x.type.lanes
    if lanes % 16:
        exponent = f.and_(f.cast("bitcast", x, x.type.as_int), 0x7F800000)
        nonzero = f.fcmp("une", x, 0.0)
        found = f.and_(f.icmp("eq", exponent, 0), nonzero)
    else:
        kinds = [
            f.call("llvm.x86.avx512.fpclass.ps.512", T("i1", 16), (piece, const(I32, 0x20))) for piece in f.split(x, 16)
        ]
        found = kinds[0]
        for kind in kinds[1:]:
            found = f.or_(found, kind)
    word = f.cast("bitcast", found, T(f"i{found.type.lanes}"))
    present = f.icmp("ne", word, 0) if word.type.bits else f.emit(T("i1"), f"icmp ne {word.typed}, 0")
    return f.if_else(
        present,
        lambda: [half_bits(f, encode(f, x, FORMATS["bf16"]), "bf16")],
        lambda: [f.cast("fptrunc", x, to)],
    )[0]
