"""Conversions between element types on a GPU: two neighbouring registers at a time where PTX converts pairs.

    f32, f32 --cvt.rn.bf16x2.f32--> one register          f32, f32 --cvt.rn.satfinite.e4m3x2.f32--> 16 bits
    one register of bf16 --shl, and--> f32, f32
    two bytes --cvt.rn.f16x2.e4m3x2--> two halves
    four integers of a byte --prmt, sub--> four floats, in twos where they have 16 bits

Pairs cost one instruction and come out packed, as stores and tensor cores want them. The rest is the shared code of
`backends/llvm/casts`, with single instructions where PTX rounds or saturates as tile IR does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.backends.llvm import casts
from tilewright.backends.llvm.types import BF16, F16, F32, I8, I16, I32, V, const
from tilewright.backends.nvidia.emit.context import Kernel, Tile
from tilewright.backends.nvidia.tgir.ops import LocalLoadOp
from tilewright.ir.op import TileOp
from tilewright.ir.types import element_type, ir_name
from tilewright.ops.casts import TruncFOp
from tilewright.ops.memory import LoadOp

Pair = Callable[[Kernel, V, V], Sequence[V]]
_FP8 = {"f8E4M3FN": "e4m3x2", "f8E5M2": "e5m2x2"}
_SIXTEEN = {"f16": F16, "bf16": BF16}


def convert(k: Kernel, op: TileOp, name: str, registers: Tile) -> Tile:
    """Apply conversion `name` (see `llvm.casts.convert`) to all registers of the operand of `op`."""
    src, dst = (ir_name(element_type(v.type)) for v in (op.operands[0], op.results[0]))
    rounding = str(op.attr_values().get("rounding") or "rtne")
    if name in ("sitofp", "uitofp") and src == "i8" and _goes_by_words(op, dst, len(registers)):
        words = [registers[i : i + 4] for i in range(0, len(registers), 4)]
        return [value for word in words for value in _FROM_BYTES[dst](k, word, name == "sitofp")]
    pair = _pair(k, src, dst, rounding) if name in ("truncf", "extf", "fp_to_fp") else None
    if (src, dst) == ("bf16", "f32") and name in ("extf", "fp_to_fp") and _come_in_pairs(op.operands[0]):
        pair = _widened
    if pair is None:
        return [_one(k, name, x, src, dst, rounding) for x in registers]
    made: Tile = []
    for i in range(0, len(registers), 2):
        low = registers[i]
        made += pair(k, low, registers[i + 1] if i + 1 < len(registers) else low)
    return made[: len(registers)]


# --- tf32 -----------------------------------------------------------------------------------------------------


def to_tf32(k: Kernel, value: V) -> V:
    """The nearest tf32 of an f32, in its 32 bits: of two the even one, before Hopper the one further from zero."""
    return k.f.call(f"llvm.nvvm.f2tf32.{'rn' if k.arch.has_tf32_conversion else 'rna'}", I32, (value,))


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


def _come_in_pairs(value: SSAValue) -> bool:
    """Whether two neighbours of 16 bits share a register: they were loaded or made of floats so."""
    owner = value.owner
    if isinstance(owner, TruncFOp):
        return ir_name(element_type(owner.operands[0].type)) == "f32"
    return isinstance(owner, (LoadOp, LocalLoadOp))


def _widened(k: Kernel, low: V, high: V) -> Sequence[V]:
    """An instruction each: taking the upper half out of the register by itself would be one more."""
    word = k.f.cast("bitcast", k.f.vector([low, high]), I32)
    bits = k.f.shl(word, 16), k.f.and_(word, const(I32, 0xFFFF0000))
    return [k.f.cast("bitcast", half, F32) for half in bits]


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


# --- bytes ----------------------------------------------------------------------------------------------------

# The conversion instruction runs at a quarter of the speed of others or less (CUDA C++ Programming Guide, "Throughput
# of Native Arithmetic Instructions"). Below a constant exponent the bits of an integer are those of 2**e + integer.


def _goes_by_words(op: Operation, dst: str, count: int) -> bool:
    """Whether bytes are converted four at a time: where memory has them so, or where two results share a register."""
    read = isinstance(op.operands[0].owner, (LoadOp, LocalLoadOp))
    return dst in _FROM_BYTES and count % 4 == 0 and (read or dst != "f32")


def _word(k: Kernel, four: Tile, signed: bool) -> V:
    """Four bytes as one word; of signed ones, each 128 more."""
    word = k.f.cast("bitcast", k.f.vector(four), I32)
    return k.f.xor(word, const(I32, 0x80808080)) if signed else word


def _picked(k: Kernel, word: V, others: int, places: int) -> V:
    """Bytes of a word (0 to 3) and of a constant (4 to 7), the lowest place first."""
    return k.f.call("llvm.nvvm.prmt", I32, (word, const(I32, others), const(I32, places)))


def _bytes_to_floats(k: Kernel, four: Tile, signed: bool) -> Tile:
    """Bits of 2**23 + byte."""
    word, zero = _word(k, four, signed), float((1 << 23) + 128 * signed)
    return [k.f.fsub(k.f.cast("bitcast", _picked(k, word, 0x4B000000, 0x7440 + i), F32), zero) for i in range(4)]


def _bytes_to_halves(k: Kernel, four: Tile, signed: bool) -> Tile:
    """Bits of 2**10 + byte."""
    word, zero, made = _word(k, four, signed), float((1 << 10) + 128 * signed), []
    for places in (0x4140, 0x4342):
        pair = k.f.cast("bitcast", _picked(k, word, 0x64646464, places), F16.vec(2))
        made += k.f.elements(k.f.fsub(pair, const(pair.type, zero)))
    return made


def _bytes_to_bfloats(k: Kernel, four: Tile, signed: bool) -> Tile:
    """Eight bits are one more than a bfloat has below its exponent: they are read as byte * 2**-133, which is exact."""
    word, made, t = _word(k, four, signed), [], BF16.vec(2)
    for places in (0x4140, 0x4342):
        tiny = k.f.cast("bitcast", _picked(k, word, 0, places), t)
        scaled = k.f.fmul(tiny, const(t, 2.0**127))
        made += k.f.elements(k.f.fma(scaled, const(t, 2.0**6), const(t, -128.0 * signed)))
    return made


_FROM_BYTES: dict[str, Callable[[Kernel, Tile, bool], Tile]] = {
    "f32": _bytes_to_floats, "f16": _bytes_to_halves, "bf16": _bytes_to_bfloats,
}  # fmt: skip

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


__all__ = ["convert", "to_tf32"]
