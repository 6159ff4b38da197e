"""PTX instructions that compute with registers alone, as operations of the language.

An instruction is a function of its words, its element type and its operands. What a GPU approximates (`ex2.approx`) is
computed as the language does. Types of two halves (`f16x2`) are computed half by half. Instructions that read memory,
branch, or ask who runs them have no meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import dtype
from tilewright.language.extra import libdevice_functions as lib
from tilewright.ops.builtin import Emitter
from tilewright.ops.casts import bitcast_to, cast_to
from tilewright.ops.functions import operators as op
from tilewright.ops.math import OPS, abs, div_rn, fma, maximum, minimum
from tilewright.ops.values import tensor

Words = frozenset[str]
Compute = Callable[..., tensor]

TYPES: dict[str, dtype] = {
    **{f"{letter}{bits}": getattr(dtypes, f"{name}{bits}") for bits in (8, 16, 32, 64)
       for letter, name in (("s", "int"), ("u", "uint"), ("b", "uint"))},
    "f16": dtypes.float16, "bf16": dtypes.bfloat16, "f32": dtypes.float32, "f64": dtypes.float64,
    "tf32": dtypes.float32, "pred": dtypes.int1,
}  # fmt: skip
PAIRS: dict[str, dtype] = {"f16x2": dtypes.float16, "bf16x2": dtypes.bfloat16}
NARROW_PAIRS: dict[str, dtype] = {"e4m3x2": dtypes.float8e4nv, "e5m2x2": dtypes.float8e5}
# Words that choose between ways to round or to approximate what is computed alike here, or that have no effect.
ROUNDING: Words = frozenset({"rn", "approx", "full", "lo"})


def _unary(name: str) -> Compute:
    return lambda b, x: b.emit(OPS[name], x.type, x)


def _shift_left(b: Emitter, x: tensor, by: tensor) -> Any:
    """Shifts by the width and more leave nothing."""
    count = bitcast_to(b, by, dtypes.uint32)
    near = cast_to(b, minimum.fn(b, count, x.dtype.primitive_bitwidth - 1), x.dtype)
    return op.where.fn(b, op.less_than.fn(b, count, x.dtype.primitive_bitwidth), op.lshift.fn(b, x, near), 0)


def _shift_right(b: Emitter, x: tensor, by: tensor) -> Any:
    count = bitcast_to(b, by, dtypes.uint32)
    near = cast_to(b, minimum.fn(b, count, x.dtype.primitive_bitwidth - 1), x.dtype)
    shifted = op.rshift.fn(b, x, near)
    if x.dtype.is_int_signed():
        return shifted
    return op.where.fn(b, op.less_than.fn(b, count, x.dtype.primitive_bitwidth), shifted, 0)


def logic(b: Emitter, x: tensor, y: tensor, z: tensor, table: int) -> Any:
    """`lop3`: any function of three bits, as bit `4 x + 2 y + z` of `table` says."""
    result: tensor = b.constant(0, x.type)
    for row in range(8):
        if table >> row & 1:
            term: tensor = b.constant(-1 % (1 << 32), x.type)
            for bit, value in ((4, x), (2, y), (1, z)):
                term = op.and_.fn(b, term, value if row & bit else op.invert.fn(b, value))
            result = op.or_.fn(b, result, term)
    return result


def _permute(b: Emitter, x: tensor, y: tensor, selector: tensor) -> Any:
    """`prmt`: byte `n` is the one of (x, y) that nibble `n` names; its top bit asks for copies of the sign."""
    picked: tensor = bitcast_to(b, b.call(lib.byte_perm, [x, y, selector]), dtypes.uint32)
    tops = op.and_.fn(b, op.rshift.fn(b, picked, 7), 0x01010101)
    signs = op.mul.fn(b, tops, 255)
    asked: tensor = b.constant(0, x.type)
    for byte in range(4):
        bit = op.and_.fn(b, op.rshift.fn(b, selector, 4 * byte + 3), 1)
        asked = op.or_.fn(b, asked, op.lshift.fn(b, op.mul.fn(b, bit, 255), 8 * byte))
    kept = op.and_.fn(b, picked, op.invert.fn(b, asked))
    return op.or_.fn(b, kept, op.and_.fn(b, signs, asked))


def funnel_shift(b: Emitter, low: tensor, high: tensor, by: tensor, *, left: bool, wraps: bool) -> Any:
    """`shf`: 32 bits of (high, low), shifted together."""
    count = op.and_.fn(b, by, 31) if wraps else minimum.fn(b, by, 32)
    wide = partial(cast_to, b, target=dtypes.uint64)
    both = op.or_.fn(b, op.lshift.fn(b, wide(high), 32), wide(low))
    moved = op.sub.fn(b, 32, count) if left else count
    return cast_to(b, op.rshift.fn(b, both, wide(moved)), dtypes.uint32)


def _field(b: Emitter, x: tensor, start: tensor, length: tensor) -> Any:
    """`bfe`: a field of bits, with its sign if the type has one; above the register lie zeros or copies of the sign."""
    first, count = (minimum.fn(b, op.and_.fn(b, value, 255), 32) for value in (start, length))
    wide = cast_to(b, x, dtypes.int64 if x.dtype.is_int_signed() else dtypes.uint64)
    above = minimum.fn(b, op.sub.fn(b, 64, count), 63)
    taken = op.rshift.fn(b, op.lshift.fn(b, op.rshift.fn(b, wide, first), above), above)
    return op.where.fn(b, op.equal.fn(b, count, 0), 0, cast_to(b, taken, x.dtype))


def _nth_set(b: Emitter, mask: tensor, base: tensor, number: tensor) -> Any:
    """`fns`: the place of a set bit, `number` set bits from `base` on; all ones where there is none.

    Halves of the mask are counted: in which of them the bit lies tells five bits of its place.
    """
    forward = op.greater_equal.fn(b, number, 0)
    above = op.lshift.fn(b, 0xFFFFFFFF, base)
    below = op.rshift.fn(b, 0xFFFFFFFF, op.sub.fn(b, 31, base))
    given = op.and_.fn(b, mask, op.where.fn(b, forward, above, below))
    given = op.where.fn(b, forward, given, bitcast_to(b, b.call(lib.brev, [given]), dtypes.uint32))
    at_base = op.and_.fn(b, op.rshift.fn(b, mask, base), 1)
    wanted: tensor = cast_to(b, op.where.fn(b, forward, number, op.minus.fn(b, number)), dtypes.uint32)
    place: tensor = b.constant(0, mask.type)
    left = wanted
    for half in (16, 8, 4, 2, 1):
        part = op.and_.fn(b, op.rshift.fn(b, given, place), (1 << half) - 1)
        count = bitcast_to(b, b.call(lib.popc, [part]), dtypes.uint32)
        later = op.less_than.fn(b, count, left)
        left = op.sub.fn(b, left, op.where.fn(b, later, count, 0))
        place = op.add.fn(b, place, op.where.fn(b, later, half, 0))
    there = op.less_equal.fn(b, wanted, bitcast_to(b, b.call(lib.popc, [given]), dtypes.uint32))
    place = op.where.fn(b, forward, place, op.sub.fn(b, 31, place))
    none = b.constant(0xFFFFFFFF, mask.type)
    found = op.where.fn(b, there, place, none)
    return op.where.fn(b, op.equal.fn(b, number, 0), op.where.fn(b, op.not_equal.fn(b, at_base, 0), base, none), found)


COMPUTED: dict[str, Compute] = {
    "add": op.add.fn, "sub": op.sub.fn, "mul": op.mul.fn, "min": minimum.fn, "max": maximum.fn,
    "and": op.and_.fn, "or": op.or_.fn, "xor": op.xor.fn, "not": op.invert.fn, "shl": _shift_left, "shr": _shift_right,
    "neg": op.minus.fn, "abs": abs.fn, "fma": fma.fn, "rem": op.mod.fn, "mov": lambda b, x: x,
    "mad": lambda b, x, y, z: op.add.fn(b, op.mul.fn(b, x, y), z),
    "rcp": lambda b, x: div_rn.fn(b, 1.0, x), "sqrt": _unary("sqrt"), "rsqrt": _unary("rsqrt"),
    "ex2": _unary("exp2"), "lg2": _unary("log2"), "sin": _unary("sin"),
    "cos": _unary("cos"), "tanh": _unary("tanh"),
    "copysign": lambda b, sign, size: b.emit(OPS["copysign"], size.type, size, sign),
    "popc": lambda b, x: b.call(lib.popc, [x]), "clz": lambda b, x: b.call(lib.clz, [x]),
    "brev": lambda b, x: b.call(lib.brev, [x]), "prmt": _permute, "bfe": _field, "fns": _nth_set,
    "sad": lambda b, x, y, z: op.add.fn(b, op.sub.fn(b, maximum.fn(b, x, y), minimum.fn(b, x, y)), z),
}  # fmt: skip
# Types of operands where they are not the instruction's: its own ("") or one by name.
OPERANDS: dict[str, Sequence[str]] = {
    "shl": ("", "u32"), "shr": ("", "u32"), "bfe": ("", "u32", "u32"), "fns": ("b32", "u32", "s32"),
}  # fmt: skip
COMPARISONS: dict[str, Any] = {
    "eq": op.equal, "ne": op.not_equal, "lt": op.less_than, "le": op.less_equal, "gt": op.greater_than,
    "ge": op.greater_equal, "lo": op.less_than, "ls": op.less_equal, "hi": op.greater_than, "hs": op.greater_equal,
}  # fmt: skip
_INTEGRAL: dict[str, str] = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def divide(b: Emitter, x: tensor, y: tensor) -> Any:
    """`div`: rounded to nearest, integers toward zero."""
    return op.floordiv.fn(b, x, y) if x.dtype.is_int() else div_rn.fn(b, x, y)


def multiply_wide(b: Emitter, x: tensor, y: tensor) -> Any:
    """`mul.wide`: all bits of a product of 16 or 32 bits."""
    wide = dtype(f"{'' if x.dtype.is_int_signed() else 'u'}int{2 * x.dtype.primitive_bitwidth}")
    return op.mul.fn(b, cast_to(b, x, wide), cast_to(b, y, wide))


def multiply_high(b: Emitter, x: tensor, y: tensor) -> tensor:
    """`mul.hi`: the upper half of a product."""
    if x.dtype.primitive_bitwidth == 64:
        high: tensor = b.call(lib.mulhi, [x, y])
        return high
    half = x.dtype.primitive_bitwidth
    return cast_to(b, op.rshift.fn(b, multiply_wide(b, x, y), half), x.dtype)


def flushed(b: Emitter, x: tensor) -> Any:
    """`.ftz`: numbers below the normal ones are zeros with their sign."""
    tiny = op.less_than.fn(b, abs.fn(b, x), 2.0**-126)
    return op.where.fn(b, tiny, b.emit(OPS["copysign"], x.type, b.constant(0.0, x.type), x), x)


def saturated(b: Emitter, x: tensor) -> Any:
    """`.sat` of floats: into [0, 1], NaN is 0."""
    return minimum.fn(b, maximum.fn(b, x, 0.0), 1.0)


# --- conversions ------------------------------------------------------------------------------------------------


def convert(b: Emitter, x: tensor, target: dtype, words: Words) -> Any:
    """`cvt` between single numbers; None if it rounds in a way that is not there."""
    integral = [_INTEGRAL[word] for word in words if word in _INTEGRAL]
    rest = words - _INTEGRAL.keys() - {"rn", "rz", "sat", "satfinite"}
    if rest or ("rz" in words and not (target.is_floating() and x.dtype.is_floating())):
        return None
    if integral:
        x = b.emit(OPS[integral[0]], x.type, x) if x.dtype.is_floating() else x
    if x.dtype.is_int() and target.is_int() and "sat" in words:
        return cast_to(b, _clamped(b, x, target), target)
    narrows = x.dtype.is_floating() and target.primitive_bitwidth < x.dtype.primitive_bitwidth
    made = cast_to(b, x, target, "rtz" if "rz" in words and narrows else None)
    return saturated(b, made) if "sat" in words and target.is_floating() else made


def to_tf32(b: Emitter, x: tensor, words: Words) -> Any:
    """`cvt.rna.tf32.f32`: ten bits behind the point, ties away from zero; `rn`: ties to even."""
    if not words <= {"rna", "rn", "satfinite"} or "satfinite" in words:
        return None
    bits: tensor = bitcast_to(b, x, dtypes.uint32)
    half: Any = 0x1000
    if "rn" in words:
        half = op.add.fn(b, op.and_.fn(b, op.rshift.fn(b, bits, 13), 1), 0xFFF)
    rounded = op.and_.fn(b, op.add.fn(b, bits, half), 0xFFFFE000)
    finite = op.less_than.fn(b, op.and_.fn(b, bits, 0x7FFFFFFF), 0x7F800000)
    return bitcast_to(b, op.where.fn(b, finite, rounded, bits), dtypes.float32)


def convert_pair(b: Emitter, high: tensor, low: tensor, name: str, words: Words) -> Any:
    """`cvt.rn.bf16x2.f32 d, high, low` and its kind: two numbers side by side in one register."""
    if not words <= {"rn", "rz", "satfinite"} or ("rz" in words and name not in PAIRS):
        return None
    if name == "e2m1x2":
        return _side_by_side(b, _to_e2m1(b, high), _to_e2m1(b, low), 4, dtypes.uint8)
    target = PAIRS.get(name) or NARROW_PAIRS.get(name)
    if target is None:
        return None
    bits = target.primitive_bitwidth
    halves = [
        bitcast_to(b, cast_to(b, x, target, "rtz" if "rz" in words else None), dtype(f"uint{bits}"))
        for x in (high, low)
    ]
    return _side_by_side(b, halves[0], halves[1], bits, dtype(f"uint{2 * bits}"))


def halves_of(b: Emitter, x: tensor, name: str) -> list[tensor]:
    """The lower and the upper number of a register that holds two."""
    target = PAIRS.get(name) or NARROW_PAIRS[name]
    bits = target.primitive_bitwidth
    parts = (x, op.rshift.fn(b, x, bits))
    return [bitcast_to(b, cast_to(b, part, dtype(f"uint{bits}")), target) for part in parts]


def pair_of(b: Emitter, low: tensor, high: tensor) -> Any:
    """A register with two numbers of 16 bits."""
    upper, lower = (bitcast_to(b, part, dtypes.uint16) for part in (high, low))
    return _side_by_side(b, upper, lower, 16, dtypes.uint32)


def pack_saturated(b: Emitter, high: tensor, low: tensor, below: tensor | None, target: dtype) -> Any:
    """`cvt.pack.sat.u8.s32.b32 d, high, low, below`: two numbers, and what is moved up for them."""
    bits = target.primitive_bitwidth
    raw = dtype(f"uint{bits}")
    upper, lower = (bitcast_to(b, cast_to(b, _clamped(b, x, target), target), raw) for x in (high, low))
    both = _side_by_side(b, upper, lower, bits, dtypes.uint32)
    if below is None:
        return both
    return op.or_.fn(b, both, op.lshift.fn(b, below, 2 * bits))


def _side_by_side(b: Emitter, high: tensor, low: tensor, bits: int, whole: dtype) -> Any:
    return op.or_.fn(b, op.lshift.fn(b, cast_to(b, high, whole), bits), cast_to(b, low, whole))


def _clamped(b: Emitter, x: tensor, target: dtype) -> tensor:
    """Integers as near as `target` has them."""
    least, most = (target.get_int_min_value(), target.get_int_max_value())
    own_least, own_most = (x.dtype.get_int_min_value(), x.dtype.get_int_max_value())
    x = maximum.fn(b, x, least) if least > own_least else x
    return minimum.fn(b, x, most) if most < own_most else x


def _to_e2m1(b: Emitter, x: tensor) -> tensor:
    """Four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign; the nearest, ties to the even code, NaN is 6."""
    wide = cast_to(b, x, dtypes.float32)
    size: tensor = abs.fn(b, wide)
    code: tensor = b.constant(0, bitcast_to(b, size, dtypes.uint32).type)
    for number, bound in enumerate((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)):
        beyond = op.greater_equal if number % 2 else op.greater_than
        code = op.add.fn(b, code, cast_to(b, beyond.fn(b, size, bound), dtypes.uint32))
    sign = op.lshift.fn(b, op.rshift.fn(b, bitcast_to(b, wide, dtypes.uint32), 31), 3)
    code = op.where.fn(b, op.equal.fn(b, wide, wide), op.or_.fn(b, code, sign), 7)
    return cast_to(b, code, dtypes.uint8)
