"""Vector instructions in software, so that code planned for any CPU is tested on every machine; tile instructions too.

`soften` leaves vectors to LLVM, which cuts them to what the machine has, and replaces the instructions that code names
(and masked loads and stores, which LLVM gets wrong without AVX-512) by functions that go lane by lane: a masked lane
that is off is never touched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from tests.backends.cpu import soft_amx
from tilewright.backends.llvm.features import CpuFeatures
from tilewright.backends.llvm.module import _ROUND_TO_BFLOAT, Function, Module
from tilewright.backends.llvm.types import F32, F64, I1, I8, I16, I32, I64, PTR, VOID, T, V, const, zero

_ELEMS = {"f16": "half", "f32": "float", "f64": "double", "p0": "ptr"}
_CALLED = re.compile(
    r"call .*?@llvm\.(masked\.(?:load|store)\.v\d+\w+\.p0|x86\.(?:avx|sse)[\w.]+|aarch64\.neon\.[\w.]+)\("
)
# Features that decide what is emitted, or what LLVM may make of it.
_DECIDING = ("avx", "fma", "f16c", "amx", "sse", "neon", "dotprod", "fullfp16", "bf16", "i8mm", "sve")


def needed(isa: CpuFeatures, machine: CpuFeatures) -> bool:
    """Whether code for `isa` runs on `machine` only after `soften`."""
    lacking = isa.available - machine.available
    return isa.arch != machine.arch or any(name.startswith(_DECIDING) for name in lacking)


def soften(text: str, machine: CpuFeatures) -> str:
    """The module, made for any CPU, as one for `machine`."""
    module = Module(machine)
    for name in sorted(set(_CALLED.findall(text))):
        _define(module, name)
        text = text.replace(f"@llvm.{name}(", f"@soft.{name}(")
    text = soft_amx.soften(f"{text}\n{module.render()}", machine).replace(_ROUND_TO_BFLOAT, "") + _ROUND_TO_BFLOAT
    return "\n".join(_without_repeats(text.splitlines()))


def _without_repeats(lines: list[str]) -> Iterator[str]:
    """Lines without declarations of what is declared before, or defined."""
    declared: set[str] = set()
    for line in lines:
        if not line.startswith("declare"):
            yield line
        elif line not in declared and "@soft." not in line:
            declared.add(line)
            yield line


def _define(module: Module, name: str) -> None:
    masked = re.fullmatch(r"masked\.(load|store)\.v(\d+)(\w+)\.p0", name)
    if masked:
        t = T(_ELEMS.get(masked[3], masked[3]), int(masked[2]))
        (_load if masked[1] == "load" else _store)(module, f"soft.{name}", t)
        return
    define = next(function for start, function in _INSTRUCTIONS.items() if name.startswith(start))
    define(module, name)


# --- masked memory ------------------------------------------------------------------------------------


def _each_lane(f: Function, t: T, mask: V, body: Callable[[V], None]) -> None:
    """`body(lane)` for each lane that is on."""
    on = f.alloca(I8.vec(t.lanes))
    f.store(f.cast("zext", mask, I8), on)
    with f.loop(0, t.lanes) as loop, f.if_(f.icmp("ne", f.load(I8, f.gep(on, loop.index)), 0)):
        body(f.mul(loop.index, t.bits // 8))


def _load(module: Module, name: str, t: T) -> None:
    f = module.function(name, t, (PTR, I1.vec(t.lanes), t))
    source, mask, other = f.args
    result = f.alloca(t)
    f.store(other, result)
    _each_lane(f, t, mask, lambda at: f.store(f.load(t.scalar, f.gep(source, at)), f.gep(result, at)))
    f.ret(f.load(t, result))


def _store(module: Module, name: str, t: T) -> None:
    f = module.function(name, VOID, (t, PTR, I1.vec(t.lanes)))
    value, target, mask = f.args
    kept = f.alloca(t)
    f.store(value, kept)
    _each_lane(f, t, mask, lambda at: f.store(f.load(t.scalar, f.gep(kept, at)), f.gep(target, at)))
    f.ret()


# --- instructions ---------------------------------------------------------------------------------------


def _scalef(module: Module, name: str) -> None:
    """`a * 2^b` with an integral or infinite b, through double. Not a NaN where b is infinite (VSCALEF, table of
    special cases in the Intel 64 Architecture Software Developer's Manual, volume 2)."""
    t = T("float", 16) if ".ps." in name else T("double", 8)
    f = module.function(f"soft.{name}", t, (t, t, t, I16 if t.lanes == 16 else I8, I32))
    value, power = (f.cast("fpext", arg, F64) for arg in f.args[:2])
    infinite = f.fcmp("oeq", f.intrinsic("fabs", power), math.inf)
    limit = f.select(f.fcmp("ogt", power, 0.0), const(power.type, math.inf), zero(power.type))
    value = f.select(f.and_(f.fcmp("uno", value, value), infinite), limit, value)
    bound = const(value.type, 2200.0)
    power = f.intrinsic("minnum", f.intrinsic("maxnum", power, f.fneg(bound)), bound)
    left = f.cast("fptosi", power, I64)
    for _ in range(3):  # in three steps, none of which leaves the range of a double
        step = f.intrinsic("smax", f.intrinsic("smin", left, const(left.type, 900)), const(left.type, -900))
        value = f.fmul(value, f.cast("bitcast", f.shl(f.add(step, 1023), 52), value.type))
        left = f.sub(left, step)
    f.ret(f.cast("fptrunc", value, t))


def _subnormal(module: Module, name: str) -> None:
    """`fpclass` for the only class that is asked for."""
    t = T("float", 16)
    f = module.function(f"soft.{name}", I1.vec(16), (t, I32))
    size = f.and_(f.cast("bitcast", f.args[0], t.as_int), 0x7FFFFFFF)
    f.ret(f.and_(f.icmp("ne", size, 0), f.icmp("ult", size, 0x00800000)))


def _pairs(f: Function, unit: int, a: V, b: V, widen: tuple[str, str], acc: V) -> V:
    """`acc + a * b`, summed over `unit` neighbours."""
    for part in range(unit):
        at = range(part, a.type.lanes, unit)
        left, right = (f.cast(how, f.shuffle(v, None, at), acc.type) for how, v in zip(widen, (a, b), strict=True))
        acc = f.fadd(acc, f.fmul(left, right)) if acc.type.is_float else f.add(acc, f.mul(left, right))
    return acc


def _pmadd(module: Module, name: str) -> None:
    t = I32.vec({"x86.sse2": 4, "x86.avx2": 8, "x86.avx5": 16}[name[:8]])
    parts = I16.vec(2 * t.lanes)
    f = module.function(f"soft.{name}", t, (parts, parts))
    f.ret(_pairs(f, 2, *f.args, ("sext", "sext"), zero(t)))


def _dot4(module: Module, name: str) -> None:
    """Sums of four int8 products; VPDPBUSD's first operand is unsigned."""
    acc = I32.vec(4 if "neon" in name else int(name.rpartition(".")[2]) // 32)
    f = module.function(f"soft.{name}", acc, (acc, I8.vec(4 * acc.lanes), I8.vec(4 * acc.lanes)))
    f.ret(_pairs(f, 4, f.args[1], f.args[2], ("zext" if "vpdpbusd" in name else "sext", "sext"), f.args[0]))


def _dpbf16(module: Module, name: str) -> None:
    acc = T("float", int(name.rpartition(".")[2]) // 32)
    parts = T("bfloat", 2 * acc.lanes)
    f = module.function(f"soft.{name}", acc, (acc, parts, parts))
    a, b = (f.cast("bitcast", arg, acc.as_int) for arg in f.args[1:])
    total = f.args[0]
    for shift in (True, False):
        left, right = (f.cast("bitcast", f.shl(v, 16) if shift else f.and_(v, -1 << 16), acc) for v in (a, b))
        total = f.fadd(total, f.fmul(left, right))
    f.ret(total)


def _blocks(module: Module, name: str) -> None:
    """A 2x2 block of products of two rows and two columns of 8 bytes each."""
    acc = (F32 if "bf" in name else I32).vec(4)
    parts = T("bfloat", 8) if acc.is_float else I8.vec(16)
    f = module.function(f"soft.{name}", acc, (acc, parts, parts))
    bits = [f.cast("bitcast", arg, (I16 if acc.is_float else I8).vec(parts.lanes)) for arg in f.args[1:]]
    length, total = parts.lanes // 2, f.args[0]
    for k in range(length):
        picks = [[row * length + k for row in rows] for rows in ((0, 0, 1, 1), (0, 1, 0, 1))]
        left, right = (f.shuffle(value, None, at) for value, at in zip(bits, picks, strict=True))
        if acc.is_float:
            left, right = (f.cast("bitcast", f.shl(f.cast("zext", v, acc.as_int), 16), acc) for v in (left, right))
            total = f.fadd(total, f.fmul(left, right))
        else:
            total = f.add(total, f.mul(f.cast("sext", left, acc), f.cast("sext", right, acc)))
    f.ret(total)


def _by_sign(module: Module, name: str) -> None:
    """AVX's masked loads and stores, which heed the sign of each lane of the mask."""
    bits, words = (64, I64) if ".pd" in name else (32, I32)
    lanes = (256 if name.endswith(".256") else 128) // bits
    t, signs = (F64 if bits == 64 else F32).vec(lanes), words.vec(lanes)
    is_load = "maskload" in name
    f = module.function(f"soft.{name}", t if is_load else VOID, (PTR, signs) if is_load else (PTR, signs, t))
    kept = f.alloca(t)
    f.store(zero(t) if is_load else f.args[2], kept)
    source, target = (f.args[0], kept) if is_load else (kept, f.args[0])

    def move(at: V) -> None:
        f.store(f.load(t.scalar, f.gep(source, at)), f.gep(target, at))

    _each_lane(f, t, f.icmp("slt", f.args[1], 0), move)
    f.ret(*([f.load(t, kept)] if is_load else []))


def _nothing(module: Module, name: str) -> None:
    """A fence: one thread needs none."""
    module.function(f"soft.{name}").ret()


_INSTRUCTIONS: dict[str, Callable[[Module, str], None]] = {
    "x86.avx512.mask.scalef.": _scalef,
    "x86.avx512.fpclass.ps.512": _subnormal,
    "x86.avx512.pmaddw.d.512": _pmadd,
    "x86.avx2.pmadd.wd": _pmadd,
    "x86.sse2.pmadd.wd": _pmadd,
    "x86.avx512.vpdpbusd.": _dot4,
    "x86.avx2.vpdpbssd.": _dot4,
    "aarch64.neon.sdot.": _dot4,
    "aarch64.neon.smmla.": _blocks,
    "aarch64.neon.bfmmla": _blocks,
    "x86.avx512bf16.dpbf16ps.": _dpbf16,
    "x86.avx.mask": _by_sign,
    "x86.sse.sfence": _nothing,
}
