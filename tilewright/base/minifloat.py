"""Rounding and coding of bfloat16 and the 8-bit floats, which numpy does not have.

Their *working form* is float32 whose value is exactly one of the type; their *memory form* is the unsigned integer
of the same width. Encoding rounds once, straight from float64, so f64 -> bf16 has no double rounding. Layouts:
Micikevicius et al., "FP8 Formats for Deep Learning" (2022) for E4M3FN and E5M2, Noune et al. (2022) for FNUZ.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.dtypes import dtype

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """How a small float is laid out.

    Args:
        bits: width of the code.
        mantissa: stored mantissa bits.
        bias: exponent bias.
        max_code: code of the largest finite value, sign bit clear.
        inf_code: code of +inf, or ``None``: overflow saturates to `max_code`.
        nan_code: code of NaN, or ``None``: NaN becomes `max_code`.
        unsigned_zero: there is no negative zero (its code is NaN).
        saturate: conversions clamp to the largest finite value even though the type has an infinity.
    """

    bits: int
    mantissa: int
    bias: int
    max_code: int
    inf_code: int | None
    nan_code: int | None
    unsigned_zero: bool = False
    saturate: bool = True

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number, shared by the subnormals."""
        return 1 - self.bias


FORMATS: dict[str, Format] = {
    "bf16": Format(16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, saturate=False),
    "fp8e4nv": Format(8, 3, 7, 0x7E, None, 0x7F),
    "fp8e5": Format(8, 2, 15, 0x7B, 0x7C, 0x7F),
    # 0x7f and 0xff read as +-1.75, the value below them: the type has neither infinity nor NaN.
    "fp8e4b15": Format(8, 3, 15, 0x7E, None, None),
    "fp8e4b8": Format(8, 3, 8, 0x7F, None, 0x80, unsigned_zero=True),
    "fp8e5b16": Format(8, 2, 16, 0x7F, None, 0x80, unsigned_zero=True),
}


def is_small(type_: dtype) -> bool:
    """Whether numpy lacks `type_`, so that its working form is float32."""
    return type_.name in FORMATS


def encode(values: Any, type_: dtype, *, rounding: str = "rtne", saturate: bool = True) -> Array:
    """Memory form of `values`, rounded to `type_`.

    Args:
        values: floats (or integers exact in float64) of any shape.
        type_: bf16 or an 8-bit float.
        rounding: "rtne" (nearest, ties to even) or "rtz" (toward zero).
        saturate: take infinities to the largest finite value where the type's conversions do.

    Returns:
        uint16 or uint8 codes of the same shape.
    """
    fmt = FORMATS[type_.name]
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
        wide = np.asarray(values, dtype=np.float64)
    negative = np.signbit(wide)
    magnitude = np.abs(wide)
    finite = np.isfinite(magnitude)
    safe = np.where(finite, magnitude, 0.0)
    # frexp gives zero the exponent of 1/2.
    exponent = np.where(safe > 0, np.maximum(np.frexp(safe)[1] - 1, fmt.min_exponent), fmt.min_exponent)
    # A unit in the last place is 2**(exponent - mantissa); a carry out of the mantissa steps into the next binade.
    steps = np.ldexp(safe, fmt.mantissa - exponent)
    steps = np.rint(steps) if rounding == "rtne" else np.floor(steps)
    code = ((exponent - fmt.min_exponent).astype(np.int64) << fmt.mantissa) + steps.astype(np.int64)
    overflow = fmt.max_code if fmt.inf_code is None or fmt.saturate or rounding == "rtz" else fmt.inf_code
    code = np.where(code > fmt.max_code, overflow, code)
    infinite = fmt.max_code if fmt.inf_code is None or (fmt.saturate and saturate) else fmt.inf_code
    code = np.where(np.isinf(magnitude), infinite, code)
    code = np.where(negative & ~(fmt.unsigned_zero & (code == 0)), code | fmt.sign, code)
    if fmt.nan_code is not None:
        code = np.where(np.isnan(wide), fmt.nan_code, code)
    else:
        code = np.where(np.isnan(wide), fmt.max_code | (negative * fmt.sign), code)
    return code.astype(type_.memory_dtype)


@functools.cache
def _decode_table(name: str) -> Array:
    """Values of all 256 codes of an 8-bit type."""
    fmt = FORMATS[name]
    code = np.arange(256)
    body = code & (fmt.sign - 1)
    field, fraction = body >> fmt.mantissa, body & ((1 << fmt.mantissa) - 1)
    significand = fraction + np.where(field > 0, 1 << fmt.mantissa, 0)
    value = np.ldexp(significand.astype(np.float64), np.maximum(field, 1) - fmt.bias - fmt.mantissa)
    value = np.where(body > fmt.max_code, np.nan, value)
    if fmt.inf_code is not None:
        value = np.where(body == fmt.inf_code, np.inf, value)
    if name == "fp8e4b15":
        value = np.where(body == 0x7F, 1.75, value)
    value = np.where(code & fmt.sign, -value, value)
    if fmt.unsigned_zero:
        value[fmt.sign] = np.nan
    table = value.astype(np.float32)
    table.flags.writeable = False
    return table


def decode(codes: Array, type_: dtype) -> Array:
    """Working form (float32) of memory-form `codes` of bf16 or an 8-bit float."""
    if type_.name == "bf16":
        return (np.asarray(codes).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(_decode_table(type_.name)[codes])


def _round_bf16(values: Array) -> Array:
    """float32 to the nearest bf16 by integer arithmetic on the bits; the hot case of the reference."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).reshape(values.shape)
    with np.errstate(over="ignore"):
        rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(values), bits | np.uint32(0x00400000), rounded) & np.uint32(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32)


def round_to(values: Any, type_: dtype, *, rounding: str = "rtne") -> Array:
    """`values` rounded to `type_`, in its working form; standard types round through numpy.

    Args:
        values: floats of any shape and width.
        type_: any floating type.
        rounding: "rtne" or "rtz".
    """
    array = np.asarray(values)
    if is_small(type_):
        if type_.name == "bf16" and rounding == "rtne" and array.dtype == np.float32:
            return _round_bf16(array)
        return decode(encode(array, type_, rounding=rounding), type_)
    with np.errstate(all="ignore"):
        nearest = array.astype(type_.work_dtype)
        if rounding == "rtne" or array.dtype == nearest.dtype:
            return nearest
        # Nearest went past the value: step back one representable number toward zero.
        too_far = np.abs(nearest.astype(array.dtype)) > np.abs(array)
        return np.where(too_far, np.nextafter(nearest, nearest.dtype.type(0)), nearest)


def to_memory(values: Array, type_: dtype) -> Array:
    """Memory form of an array in the working form of `type_`."""
    return encode(values, type_, saturate=False) if is_small(type_) else np.asarray(values).astype(type_.memory_dtype)


def from_memory(values: Array, type_: dtype) -> Array:
    """Working form of an array in the memory form of `type_`; a bool is any non-zero byte."""
    if is_small(type_):
        return decode(values, type_)
    return np.asarray(values != 0) if type_.is_bool() else np.asarray(values).astype(type_.work_dtype)
