"""Conversions between element types on a GPU: two neighbouring registers at a time where PTX converts pairs.

    f32, f32 --cvt.rn.bf16x2.f32--> one register          f32, f32 --cvt.rn.satfinite.e4m3x2.f32--> 16 bits
    two bytes --cvt.rn.f16x2.e4m3x2--> two halves

Pairs cost one instruction and come out packed, as stores and tensor cores want them. The rest is the shared code of
`backends/llvm/casts`, with single instructions where PTX rounds or saturates as tile IR does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Operation

from tilewright.backends.llvm import casts
from tilewright.backends.llvm.types import BF16, F16, F32, I8, I16, I32, V
from tilewright.backends.nvidia.emit.context import Kernel, Tile
from tilewright.ir.op import TileOp
from tilewright.ir.types import element_type, ir_name

Pair = Callable[[Kernel, V, V], Sequence[V]]
_FP8 = {"f8E4M3FN": "e4m3x2", "f8E5M2": "e5m2x2"}
_SIXTEEN = {"f16": F16, "bf16": BF16}


def convert(k: Kernel, op: Operation, name: str, registers: Tile) -> Tile:
    """Apply conversion `name` (see `llvm.casts.convert`) to all registers of the operand of `op`."""
    assert isinstance(op, TileOp)
    src, dst = (ir_name(element_type(v.type)) for v in (op.operands[0], op.results[0]))
    rounding = str(op.attr_values().get("rounding") or "rtne")
    pair = _pair(k, src, dst, rounding) if name in ("truncf", "extf", "fp_to_fp") else None
    if pair is None:
        return [_one(k, name, x, src, dst, rounding) for x in registers]
    made: Tile = []
    for i in range(0, len(registers), 2):
        low = registers[i]
        made += pair(k, low, registers[i + 1] if i + 1 < len(registers) else low)
    return made[: len(registers)]


# --- pairs ----------------------------------------------------------------------------------------------------


def _pair(k: Kernel, src: str, dst: str, rounding: str) -> Pair | None:
    """How two values convert at once, if PTX has it."""
    if dst in _SIXTEEN and src == "f32":
        return _narrowing(dst, "rz" if rounding == "rtz" else "rn")
    if not k.arch.has_fp8_conversions:
        return None
    if dst in _FP8 and src in ("f16", "bf16", "f32") and rounding == "rtne":
        return _to_fp8(src, dst)
    if src in _FP8 and dst not in _FP8:
        return _from_fp8(src, dst)
    return None


def _narrowing(dst: str, mode: str) -> Pair:
    t = _SIXTEEN[dst].vec(2)

    def pair(k: Kernel, low: V, high: V) -> Sequence[V]:
        return k.f.elements(k.f.call(f"llvm.nvvm.ff2{dst}x2.{mode}", t, (high, low)))

    return pair


def _to_fp8(src: str, dst: str) -> Pair:
    """Rounded to nearest even and saturated, infinities too, as `base.minifloat` has it."""

    def pair(k: Kernel, low: V, high: V) -> Sequence[V]:
        f = k.f
        if src == "f16":
            code = f.call(f"llvm.nvvm.f16x2.to.{_FP8[dst]}.rn", I16, (f.vector([low, high]),))
        else:
            args = [casts.to_working_float(f, x, src) for x in (high, low)]
            code = f.call(f"llvm.nvvm.ff.to.{_FP8[dst]}.rn", I16, args)
        return f.elements(f.cast("bitcast", code, I8.vec(2)))

    return pair


def _from_fp8(src: str, dst: str) -> Pair:
    """To half, and from there to the result: every value of an 8-bit type is one of both."""

    def pair(k: Kernel, low: V, high: V) -> Sequence[V]:
        f = k.f
        code = f.cast("bitcast", f.vector([low, high]), I16)
        halves = f.elements(f.call(f"llvm.nvvm.{_FP8[src]}.to.f16x2.rn", F16.vec(2), (code,)))
        if dst == "f16":
            return halves
        return [casts.convert(f, "fp_to_fp", half, "f16", dst) for half in halves]

    return pair


# --- single values --------------------------------------------------------------------------------------------


def _one(k: Kernel, name: str, x: V, src: str, dst: str, rounding: str) -> V:
    f = k.f
    if src == "f8E5M2" and name in ("fp_to_fp", "extf") and dst not in _FP8:  # the upper byte of a half
        half = f.cast("bitcast", f.shl(f.cast("zext", x, I16), 8), F16)
        return casts.convert(f, name, half, "f16", dst)
    if name in ("fptosi", "fptoui") and src == "f32" and dst == "i32":  # saturates, and takes NaN to 0
        return f.call(f"llvm.nvvm.f2{'' if name == 'fptosi' else 'u'}i.rz", I32, (x,))
    if name in ("sitofp", "uitofp") and x.type.bits >= 32:
        if dst == "f16":
            return f.cast(name, x, F16)
        if dst == "bf16":
            return _integer_to_bfloat(k, x, unsigned=name == "uitofp")
    return casts.convert(f, name, x, src, dst, rounding=rounding)


def _integer_to_bfloat(k: Kernel, x: V, *, unsigned: bool) -> V:
    """Cut to float and made odd where that lost anything, so that rounding to bfloat is the only one.

    S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums", 2008.
    """
    f, t = k.f, x.type
    kind = ("u" if unsigned else "") + ("i" if t is I32 else "ll")
    cut = f.call(f"llvm.nvvm.{kind}2f.rz", F32, (x,))
    back = f.call(f"llvm.nvvm.f2{kind}.rz", t, (cut,))
    lost = f.cast("zext", f.icmp("ne", back, x), I32)
    odd = f.cast("bitcast", f.or_(f.cast("bitcast", cut, I32), lost), F32)
    return casts.from_working_float(f, odd, "bf16")


__all__ = ["convert"]
