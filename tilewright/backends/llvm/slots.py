"""Numbers from Python as the parameters of a kernel: `struct` formats, and C's conversions for what those refuse."""

from __future__ import annotations

import struct
from typing import Any

_FORMATS = {
    "fp16": "e", "fp32": "f", "fp64": "d", "bf16": "H", "u1": "?", "i1": "?",
    "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
}  # fmt: skip
FLOATS = frozenset({"fp16", "fp32", "fp64", "bf16"})


def natural_format(kind: str) -> str:
    """`struct` format of a parameter of signature type `kind` at its own size; a pointer has 8 bytes, a bool 1."""
    return "Q" if kind.startswith("*") else _FORMATS[kind]


def coerce(value: Any, kind: str, form: str) -> int | float:
    """`value` as `struct` takes it for a parameter: rounded and wrapped as a C cast would.

    Args:
        value: a number.
        kind: signature type of the parameter.
        form: the `struct` format that will take the result.
    """
    if kind in FLOATS:
        number = float(value)
        if kind == "bf16":
            return bf16_bits(number)
        try:
            struct.pack(f"={form}", number)
        except OverflowError:
            return float("inf") if number > 0 else float("-inf")
        return number
    if form == "?":
        return bool(value)
    bits = 8 * struct.calcsize(f"={form}")
    number = int(value) & (1 << bits) - 1
    return number - (1 << bits) if form.islower() and number >> bits - 1 else number


def bf16_bits(value: float) -> int:
    """Bits of `value` rounded once to bfloat16 (nearest, ties to even)."""
    if value != value:
        return 0x7FC0
    bits: int = struct.unpack("=Q", struct.pack("=d", value))[0]
    sign, magnitude = (bits >> 48) & 0x8000, abs(value)
    if magnitude < 2.0**-126:
        return sign | round(magnitude * 2.0**133)  # multiples of the smallest denormal; Python rounds ties to even
    # Keep 7 of the 52 fraction bits; a carry moves into the exponent, as it should.
    kept, rest = divmod(bits & 0x7FFF_FFFF_FFFF_FFFF, 1 << 45)
    kept += rest > 1 << 44 or (rest == 1 << 44 and kept & 1)
    return sign | min(kept - ((1023 - 127) << 7), 0x7F80)
