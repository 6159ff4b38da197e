"""Types and values of emitted LLVM IR.

A type is an interned `T(elem, lanes)`: `T("float")` is a scalar, `T("float", 16)` prints as `<16 x float>`. A value
is `V(type, ref, const)`: its text as an operand, and its Python value when it is a scalar constant or the splat of
one. Nothing here knows a function or a module; `const` is the only constructor of literals that the emitters need.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, final

_BITS = {
    "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128,
    "half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64,
}  # fmt: skip
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}
_FLOATS = frozenset({"half", "bfloat", "float", "double"})


@final
class T:
    """A scalar (`lanes == 0`) or fixed vector type; interned, so `is` compares types.

    Fields: `elem` LLVM scalar type text, `lanes`, `text` as printed, `bits` of one lane (0 for other types such as
    `void`), `is_float`, `is_int`, and `suffix` as used in overloaded intrinsic names (`v16f32`).
    """

    __slots__ = ("bits", "elem", "is_float", "is_int", "lanes", "suffix", "text")
    elem: str
    lanes: int
    text: str
    bits: int
    is_float: bool
    is_int: bool
    suffix: str
    _interned: dict[tuple[str, int], T] = {}  # noqa: RUF012  (a class-wide table on purpose)

    def __new__(cls, elem: str, lanes: int = 0) -> T:
        found = cls._interned.get((elem, lanes))
        if found is not None:
            return found
        self = object.__new__(cls)
        self.elem, self.lanes = elem, lanes
        self.text = f"<{lanes} x {elem}>" if lanes else elem
        self.bits = _BITS.get(elem, 0)
        self.is_float = elem in _FLOATS
        self.is_int = elem[0] == "i" and self.bits > 0
        self.suffix = (f"v{lanes}" if lanes else "") + _SUFFIX.get(elem, elem)
        return cls._interned.setdefault((elem, lanes), self)

    def __reduce__(self) -> tuple[type[T], tuple[str, int]]:
        return T, (self.elem, self.lanes)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"T({self.text})"

    @property
    def scalar(self) -> T:
        """The type of one lane."""
        return T(self.elem)

    @property
    def bytes(self) -> int:
        """Size in memory of the packed lanes (an `i1` lane counts as one byte)."""
        return max(self.lanes, 1) * ((self.bits + 7) // 8)

    def vec(self, lanes: int) -> T:
        """The same element with another number of lanes (0 = scalar)."""
        return T(self.elem, lanes)

    def with_elem(self, elem: str) -> T:
        """The same number of lanes of another element."""
        return T(elem, self.lanes)

    @property
    def as_int(self) -> T:
        """The integer type of the same width and number of lanes."""
        return T(f"i{self.bits}", self.lanes)


class V(NamedTuple):
    """An SSA value or literal: `ref` is its operand text; `const` the value of a scalar or splat literal, else None."""

    type: T
    ref: str
    const: int | float | None = None

    @property
    def typed(self) -> str:
        """`<type> <ref>`, as in a call's argument list."""
        return f"{self.type.text} {self.ref}"


VOID = T("void")
I1 = T("i1")
I8 = T("i8")
I16 = T("i16")
I32 = T("i32")
I64 = T("i64")
F16 = T("half")
BF16 = T("bfloat")
F32 = T("float")
F64 = T("double")
PTR = T("ptr")
NULL = V(PTR, "null")


def wrap_int(value: int, bits: int) -> int:
    """`value` modulo 2**bits as a signed number (`i1` gives 0 or 1)."""
    value &= (1 << bits) - 1
    if bits > 1 and value >> (bits - 1):
        value -= 1 << bits
    return value


def float_bits(value: float, elem: str) -> int:
    """Bit pattern of `value` rounded to nearest even in `elem` (`half`, `bfloat`, `float`, `double`)."""
    if elem == "double":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if elem == "half":
        try:
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
        except OverflowError:
            return 0x7C00 | (0x8000 if value < 0 else 0)
    single = int(struct.unpack("<I", _pack_single(value))[0])
    if elem == "float":
        return single
    if single & 0x7FFFFFFF > 0x7F800000:
        return (single >> 16) | 0x40
    return (single + 0x7FFF + ((single >> 16) & 1)) >> 16


def _pack_single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def float_text(value: float, elem: str) -> str:
    """Literal text of `value` in the float type `elem`: hexadecimal, exact for every value, infinity and NaN."""
    if elem == "half":
        return f"0xH{float_bits(value, elem):04X}"
    if elem == "bfloat":
        return f"0xR{float_bits(value, elem):04X}"
    if elem == "float":  # printed as the double of the same value
        rounded = struct.unpack("<f", _pack_single(value))[0]
        return f"0x{float_bits(rounded, 'double'):016X}"
    return f"0x{float_bits(value, 'double'):016X}"


_ZEROS = frozenset({"0", "false", "null", "0x0000000000000000", "0xH0000", "0xR0000"})
_CONSTS: dict[tuple[Any, ...], V] = {}


def const(t: T, value: int | float) -> V:
    """The literal `value` of type `t` (a splat for vectors). Integers wrap to the width, floats round to nearest."""
    # The sign of zero and the class of the number distinguish keys that compare equal.
    key = (t, value, isinstance(value, float) and str(value))
    found = _CONSTS.get(key)
    if found is not None:
        return found
    if t.is_float:
        text, number = float_text(float(value), t.elem), float(value)
    elif t.elem == "ptr":
        text, number = ("null" if value == 0 else f"inttoptr (i64 {int(value)} to ptr)"), int(value)
    else:
        number = wrap_int(int(value), t.bits)
        text = ("true" if number else "false") if t.bits == 1 else str(number)
    if t.lanes:
        text = "zeroinitializer" if text in _ZEROS else f"splat ({t.elem} {text})"
    if len(_CONSTS) > 20000:  # literals of one-off offsets must not pile up in a long-lived process
        _CONSTS.clear()
    return _CONSTS.setdefault(key, V(t, text, number))


def const_vector(t: T, values: list[int] | list[float]) -> V:
    """A literal of the vector type `t` with one Python value per lane."""
    if len(set(values)) == 1 and (not t.is_float or values[0] != 0):
        return const(t, values[0])
    one = t.scalar
    return V(t, "<" + ", ".join([const(one, value).typed for value in values]) + ">")


def iota(t: T, start: int = 0, step: int = 1) -> V:
    """The integer vector literal `start, start + step, ...` of type `t`; for a scalar type just `start`."""
    if not t.lanes:
        return const(t, start)
    return const_vector(t, [start + step * lane for lane in range(t.lanes)])


def zero(t: T) -> V:
    """All bits zero in any type."""
    if t.is_float or t.is_int or t.elem == "ptr":
        return const(t, 0)
    return V(t, "zeroinitializer")


def poison(t: T) -> V:
    """A value that nothing may depend on (an unused shuffle operand, a start of an insert chain)."""
    return V(t, "poison")
