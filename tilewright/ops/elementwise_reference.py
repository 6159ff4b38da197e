"""numpy meaning of integer and float arithmetic, in the working forms of `base.dtypes`.

Integers wrap and are signless: each function says whether it reads them as signed or not; an i1 is one bit (true is -1
when signed). What hardware leaves undefined is defined, as the back ends compute it: x / 0 and x % 0 are 0, MIN / -1
wraps, a shift by the width or more gives 0 (or copies of the sign), float to integer saturates and takes NaN to 0.
Small floats are computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from xdsl.ir import Attribute

from tilewright.base import minifloat
from tilewright.base.dtypes import dtype
from tilewright.ir.types import bit_width, dtype_of, element_type
from tilewright.ops.spec import Array, Call, Reference

ArrayFn = Callable[..., Array]


def quiet(fn: Reference) -> Reference:
    """`fn` without numpy's warnings: overflow, NaN and division by zero have defined results here."""

    def wrapped(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return fn(*args)

    wrapped.__wrapped__ = fn  # type: ignore[attr-defined]  # for callers that have silenced numpy themselves
    return wrapped


# --- integers -------------------------------------------------------------------------------------------


def signed(values: Array) -> Array:
    """Integers read as signed; an i1 becomes 0 or -1."""
    return np.negative(values.astype(np.int8)) if values.dtype == np.bool_ else values


def unsigned(values: Array) -> Array:
    """Integers read as unsigned; an i1 becomes 0 or 1."""
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    return values.astype(f"uint{values.dtype.itemsize * 8}", copy=False)


def wrap(values: Array, like: Array) -> Array:
    """`values` cut to the width of `like`, in its working form."""
    if like.dtype == np.bool_:
        return np.asarray((values & 1).astype(np.bool_))
    return np.asarray(values.astype(like.dtype))


def integer(fn: ArrayFn, *, view: ArrayFn = signed) -> Reference:
    """Reference of an integer op: `fn` on operands read through `view`, cut to their width."""
    return quiet(lambda _call, *args: wrap(np.asarray(fn(*[view(a) for a in args])), args[0]))


def divide(a: Array, b: Array) -> Array:
    """Quotient toward zero; 0 where `b` is 0."""
    safe = np.where(b == 0, np.ones_like(b), b)
    # floor_divide of MIN by -1 wraps to MIN in numpy; elsewhere move floor to truncation where signs differ.
    quotient = a // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != a)).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(a), quotient)


def remainder(a: Array, b: Array) -> Array:
    """Remainder with the sign of `a`; 0 where `b` is 0."""
    return np.where(b == 0, np.zeros_like(a), a - divide(a, b) * b)


def shift(direction: str) -> ArrayFn:
    """`left`, or `right`; the amount is read as unsigned, and the width or more shifts everything out."""

    def fn(value: Array, amount: Array) -> Array:
        bits = value.dtype.itemsize * 8
        by = unsigned(amount)
        inside = by < bits
        safe = np.where(inside, by, 0).astype(value.dtype)
        moved = value << safe if direction == "left" else value >> safe
        beyond = value >> (bits - 1) if direction == "right" and value.dtype.kind == "i" else np.zeros_like(value)
        return np.where(inside, moved, beyond)

    return fn


def shift_reference(direction: str, *, view: ArrayFn) -> Reference:
    """Reference of a shift; one-bit values shift by 0 or everything out."""
    inner = integer(shift(direction), view=view)

    def reference(call: Call, value: Array, amount: Array) -> Array:
        if value.dtype != np.bool_:
            return np.asarray(inner(call, value, amount))
        keep = value & ~amount
        return np.asarray(value if view is signed and direction == "right" else keep)

    return reference


def multiply_high(a: Array, b: Array) -> Array:
    """High half of the unsigned product."""
    bits = a.dtype.itemsize * 8
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    if bits < 64:
        return ((x * y) >> np.uint64(bits)).astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)  # at most (2^32-1)^2 + 2^32-1: no carry is lost
    return np.asarray(x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half))


_INTEGER_COMPARE: dict[str, tuple[ArrayFn, ArrayFn]] = {
    "eq": (np.equal, signed), "ne": (np.not_equal, signed),
    "slt": (np.less, signed), "sle": (np.less_equal, signed),
    "sgt": (np.greater, signed), "sge": (np.greater_equal, signed),
    "ult": (np.less, unsigned), "ule": (np.less_equal, unsigned),
    "ugt": (np.greater, unsigned), "uge": (np.greater_equal, unsigned),
}  # fmt: skip


def compare_integers(call: Call, a: Array, b: Array) -> Array:
    """`arith.cmpi`."""
    fn, view = _INTEGER_COMPARE[call.attrs["predicate"]]
    return np.asarray(fn(view(a), view(b)))


# --- floats ---------------------------------------------------------------------------------------------


def float_dtype(type_: Attribute | None) -> dtype:
    """Language dtype of the float elements of an IR type."""
    assert type_ is not None
    return dtype_of(element_type(type_))


def floating(fn: ArrayFn) -> Reference:
    """Reference of a float op: `fn` in the working type, rounded to the element type of the first operand."""

    def reference(call: Call, *args: Array) -> Array:
        type_ = float_dtype(call.operand_types[0])
        result = np.asarray(fn(*args))
        return minifloat.round_to(result, type_) if minifloat.is_small(type_) else result.astype(args[0].dtype)

    return quiet(reference)


_ORDERED: dict[str, ArrayFn] = {
    "eq": np.equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def compare_floats(call: Call, a: Array, b: Array) -> Array:
    """`arith.cmpf`: ordered predicates are false and unordered ones true where either operand is NaN."""
    predicate = call.attrs["predicate"]
    nan = np.isnan(a) | np.isnan(b)
    if predicate in ("false", "true"):
        return np.full(nan.shape, predicate == "true")
    if predicate in ("ord", "uno"):
        return nan if predicate == "uno" else ~nan
    relation = predicate[1:]
    holds = ~nan & (a != b) if relation == "ne" else _ORDERED[relation](a, b)
    return np.asarray(holds | nan if predicate[0] == "u" else holds)


def pick_number(fn: ArrayFn) -> ArrayFn:
    """`fn`, minimum or maximum, in which a NaN loses to a number; -0 and +0 are equal, so either may come out."""
    return np.fmin if fn is np.minimum else np.fmax


def clamp(call: Call, x: Array, low: Array, high: Array) -> Array:
    """`tt.clampf`: min(max(x, low), high) with the NaN rule of the attribute."""
    if call.attrs["propagateNan"] == "all":
        return np.asarray(np.minimum(np.maximum(x, low), high))
    return np.asarray(pick_number(np.minimum)(pick_number(np.maximum)(x, low), high))


# --- fused multiply-add: one rounding ---------------------------------------------------------------------


def _sum_and_error(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and what it lacks (Knuth)."""
    total = a + b
    shifted = total - a
    return total, (a - (total - shifted)) + (b - shifted)


def add_round_to_odd(a: Array, b: Array) -> Array:
    """float64 sum rounded to odd: a later rounding to a narrower float is the only one (Boldo and Melquiond, 2008)."""
    total, error = _sum_and_error(a, b)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even & np.isfinite(total), np.nextafter(total, toward), total)


def _exact_fma(x: float, y: float, z: float) -> float:
    if np.isfinite(x) and np.isfinite(y) and not np.isfinite(z):
        return z  # even where the rounded product is infinite
    plain = x * y + z
    if not (np.isfinite(x) and np.isfinite(y)):
        return plain
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return x * y + z if z != 0 or x * y != 0 else plain
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def _split(x: Array) -> tuple[Array, Array]:
    """A float64 as the sum of two of 26 bits (Veltkamp)."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def _fma_of_doubles(x: Array, y: Array, z: Array) -> Array:
    """The exact product as two numbers (Dekker); what they and z lack of their sum is rounded to odd (as above).

    That holds while no step overflows or falls below the normal numbers; other elements go one by one.
    """
    (x_high, x_low), (y_high, y_low) = _split(x), _split(y)
    product = x * y
    rest = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    inner, low = _sum_and_error(z, rest)
    outer, high = _sum_and_error(product, inner)
    result = np.asarray(outer + add_round_to_odd(low, high))
    sizes = [np.abs(v) for v in (x, y, z, product)]
    plain = np.logical_and.reduce([size < 2.0**480 for size in sizes]) & (sizes[3] > 2.0**-480)
    for k in np.flatnonzero(~plain):
        result[k] = _exact_fma(float(x[k]), float(y[k]), float(z[k]))
    return result


def _fma_of_singles(x: Array, y: Array, z: Array) -> Array:
    """In float64, where the product is exact; rounding the sum again errs only where it lies between two float32."""
    product = x * y
    total = product + z
    doubtful = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == 0x10000000
    doubtful |= (np.abs(total) < 2.0**-126) & (total != 0)
    if doubtful.any():
        total[doubtful] = add_round_to_odd(product[doubtful], z[doubtful])
    return total.astype(np.float32)


def fused_multiply_add(call: Call, x: Array, y: Array, z: Array) -> Array:
    """x * y + z with a single rounding to the element type."""
    type_ = float_dtype(call.operand_types[0])
    shape = np.broadcast_shapes(np.shape(x), np.shape(y), np.shape(z))
    wide = [np.broadcast_to(v, shape).reshape(-1).astype(np.float64) for v in (x, y, z)]
    with np.errstate(all="ignore"):
        if type_.name == "fp64":
            return _fma_of_doubles(*wide).reshape(shape)
        if type_.name == "fp32":
            return _fma_of_singles(*wide).reshape(shape)
        return minifloat.round_to(add_round_to_odd(wide[0] * wide[1], wide[2]), type_).reshape(shape)


# --- conversions --------------------------------------------------------------------------------------------


def to_float64_odd(values: Array) -> Array:
    """Integers as float64; what 53 bits cannot hold is rounded to odd."""
    if values.dtype.itemsize < 8:
        return values.astype(np.float64)
    magnitude = np.asarray(abs(values.astype(object)), dtype=object)  # one number is no array to NumPy
    big = np.asarray(magnitude >= 1 << 53, dtype=bool)
    sticky = (magnitude >> 11 << 11) | (((magnitude & 0x7FF) != 0) * (1 << 11))
    exact = np.where(big, sticky, magnitude) * np.where(np.asarray(values < 0), -1, 1)
    return np.asarray(exact).astype(np.float64)


def integer_to_float(view: ArrayFn) -> Reference:
    """`sitofp`/`uitofp`, rounded once."""

    def reference(call: Call, values: Array) -> Array:
        type_ = float_dtype(call.result_types[0])
        number = view(values)
        if type_.name in ("fp32", "fp64"):
            return number.astype(type_.work_dtype)
        return minifloat.round_to(to_float64_odd(number), type_)

    return quiet(reference)


def float_to_integer(kind: str) -> Reference:
    """`fptosi`/`fptoui`: toward zero, saturating, NaN to 0; to i1 it is "not zero"."""

    def reference(call: Call, values: Array) -> Array:
        element = element_type(call.result_types[0])
        bits = bit_width(element)
        target = dtype_of(element).work_dtype
        if bits == 1:
            return np.asarray(values != 0)
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == "s" else (0, (1 << bits) - 1)
        wide = np.trunc(values.astype(np.float64))
        inside = np.clip(np.nan_to_num(wide, nan=0.0), low, high)
        # float(high) may be high + 1, which does not fit: set the saturated lanes by hand.
        small = np.where(inside >= high, 0.0, inside).astype(np.int64 if kind == "s" else np.uint64)
        full = np.where(inside >= high, np.asarray(high, dtype=small.dtype), small)
        return full.astype(target)

    return quiet(reference)


def extend(view: ArrayFn) -> Reference:
    """`extsi`/`extui`."""
    return lambda call, values: np.asarray(view(values), dtype_of(element_type(call.result_types[0])).work_dtype)


def truncate(call: Call, values: Array) -> Array:
    """`trunci`: the low bits."""
    return wrap(values, np.empty((), dtype_of(element_type(call.result_types[0])).work_dtype))


def convert_float(call: Call, values: Array) -> Array:
    """`extf`, `truncf`, `tt.fp_to_fp`: one rounding, in the direction that the attribute says."""
    rounding = call.attrs.get("rounding") or "rtne"
    return minifloat.round_to(values, float_dtype(call.result_types[0]), rounding=rounding)


def bit_cast(call: Call, values: Array) -> Array:
    """The same bits read as another type of the same width; pointers are their addresses."""
    source, target = element_type(call.operand_types[0]), element_type(call.result_types[0])  # type: ignore[arg-type]
    return from_bits(to_bits(values, source), target)


def to_bits(values: Array, element: Attribute) -> Array:
    """Memory form of the elements as unsigned integers of their width (i1 as 0 or 1 in uint8)."""
    if values.dtype == np.bool_:
        return values.astype(np.uint8)
    memory = minifloat.to_memory(values, float_dtype(element)) if values.dtype.kind == "f" else values
    return np.ascontiguousarray(memory).view(f"uint{memory.dtype.itemsize * 8}").reshape(values.shape)


def from_bits(bits: Array, element: Attribute) -> Array:
    """The reverse of :func:`to_bits`."""
    if bit_width(element) == 1:
        return np.asarray(bits != 0)
    if str(element).startswith("!tt.ptr"):
        return bits.view(np.int64)
    type_ = dtype_of(element)
    return minifloat.from_memory(np.asarray(bits.view(type_.memory_dtype)), type_)
