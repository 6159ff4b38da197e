"""What LLVM instructions and target-independent intrinsics mean, on arrays of shape (threads,) or (threads, lanes).

Functions take the type(s) that the instruction names and its operands. Poison comes out as noise, so that a kernel
that lets it reach a result is found out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.backends.nvidia.simt_text import Ty, noise

Array = np.ndarray


def signed(t: Ty, x: Array) -> Array:
    """The bits of `x` as signed numbers."""
    if t.bits == 1:
        return -x.astype(np.int8)
    if x.dtype == object:
        half = 1 << t.bits - 1
        return np.where(x >= half, x - 2 * half, x)
    view = x.view(f"i{x.dtype.itemsize}")
    spare = 8 * x.dtype.itemsize - t.bits
    return view << spare >> spare if spare else view


def wrapped(t: Ty, x: Array) -> Array:
    """Any integers modulo 2**bits, in the representation of `t`."""
    if t.bits == 1:
        return (x & 1).astype(bool)
    if t.dtype == object:
        return x.astype(object) & (1 << t.bits) - 1
    x = x.astype(t.dtype)
    return x if 8 * t.dtype.itemsize == t.bits else x & t.dtype.type((1 << t.bits) - 1)


def widened(t: Ty, x: Array) -> Array:
    """A float in the type that numpy computes it in: bfloat as float32."""
    return (x.astype(np.uint32) << 16).view(np.float32) if t.elem == "bfloat" else x


def rounded(t: Ty, x: Array) -> Array:
    """A computed float in the representation of `t`, rounded to nearest even."""
    if t.elem != "bfloat":
        return x.astype(t.dtype)
    bits = np.ascontiguousarray(x.astype(np.float32)).view(np.uint32)
    near = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, near).astype(np.uint16)


def computed(t: Ty, x: Array) -> Array:
    """A float that arithmetic gives: `rounded`, and every NaN the one that the hardware makes (0x7fff...)."""
    x = rounded(t, x)
    if t.elem not in _NAN:
        return x
    return np.where(np.isnan(x), np.array(_NAN[t.elem]).view(x.dtype), x)


_NAN = {"half": np.uint16(0x7FFF), "float": np.uint32(0x7FFFFFFF)}


# --- arithmetic -------------------------------------------------------------------------------------------


def _integer(function: Callable[[Array, Array], Array]):
    def run(t: Ty, a: Array, b: Array) -> Array:
        if t.bits == 1:
            a, b = a.astype(np.uint8), b.astype(np.uint8)
        return wrapped(t, function(a, b))

    return run


def _float(function: Callable[[Array, Array], Array]):
    return lambda t, a, b: computed(t, function(widened(t, a), widened(t, b)))


def _divide(t: Ty, a: Array, b: Array) -> Array:
    a, b = signed(t, a), signed(t, b)
    size, divisor = _magnitude(a), _magnitude(b)
    quotient = size // np.where(b == 0, divisor.dtype.type(1), divisor)
    return wrapped(t, np.where((a < 0) != (b < 0), np.negative(quotient), quotient))


def _remainder(t: Ty, a: Array, b: Array) -> Array:
    a, b = signed(t, a), signed(t, b)
    size, divisor = _magnitude(a), _magnitude(b)
    left = size % np.where(b == 0, divisor.dtype.type(1), divisor)
    return wrapped(t, np.where(a < 0, np.negative(left), left))


def _magnitude(x: Array) -> Array:
    """Absolute values as unsigned numbers, which hold that of the smallest too."""
    return abs(x) if x.dtype == object else abs(x).view(f"u{x.dtype.itemsize}")


def _shift(function: Callable[[Ty, Array, Array], Array]):
    def run(t: Ty, a: Array, b: Array) -> Array:
        if t.bits == 1:
            return a
        inside = b < t.bits
        return np.where(inside, wrapped(t, function(t, a, np.where(inside, b, b.dtype.type(0)))), noise(Ty(t.elem)))

    return run


BINARY: dict[str, Callable[[Ty, Array, Array], Array]] = {
    "add": _integer(lambda a, b: a + b), "sub": _integer(lambda a, b: a - b), "mul": _integer(lambda a, b: a * b),
    "and": _integer(lambda a, b: a & b), "or": _integer(lambda a, b: a | b), "xor": _integer(lambda a, b: a ^ b),
    "udiv": _integer(lambda a, b: a // np.where(b == 0, b.dtype.type(1), b)),
    "urem": _integer(lambda a, b: a % np.where(b == 0, b.dtype.type(1), b)),
    "sdiv": _divide, "srem": _remainder,
    "shl": _shift(lambda t, a, b: a << b), "lshr": _shift(lambda t, a, b: a >> b),
    "ashr": _shift(lambda t, a, b: signed(t, a) >> b.astype(signed(t, a).dtype)),
    "fadd": _float(np.add), "fsub": _float(np.subtract), "fmul": _float(np.multiply), "fdiv": _float(np.divide),
    "frem": _float(np.fmod),
}  # fmt: skip

_ORDER: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def icmp(predicate: str, t: Ty, a: Array, b: Array) -> Array:
    """Integer or pointer comparison."""
    if predicate[0] == "s":
        a, b = signed(t, a), signed(t, b)
    return _ORDER[predicate if predicate in _ORDER else predicate[1:]](a, b).astype(bool)


def fcmp(predicate: str, t: Ty, a: Array, b: Array) -> Array:
    """Float comparison."""
    a, b = widened(t, a), widened(t, b)
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in ("true", "false"):
        return np.full_like(unordered, predicate == "true")
    if predicate in ("ord", "uno"):
        return unordered == (predicate == "uno")
    result = _ORDER[predicate[1:]](a, b)
    return result | unordered if predicate[0] == "u" else result & ~unordered


# --- conversions ------------------------------------------------------------------------------------------


def bits_of(t: Ty, x: Array) -> Array:
    """Memory image (threads, bytes) of a value."""
    x = np.ascontiguousarray(x.reshape(len(x), -1))
    if x.dtype == object:
        return np.array([[b for v in row for b in int(v).to_bytes(t.bits // 8, "little")] for row in x], np.uint8)
    return x.view(np.uint8).reshape(len(x), -1)


def from_bits(t: Ty, raw: Array) -> Array:
    """The inverse of `bits_of`."""
    raw = np.ascontiguousarray(raw)
    if t.bits == 1:
        value = raw & 1 == 1
    elif t.dtype == object:
        size = t.bits // 8
        value = np.array(
            [[int.from_bytes(row[i : i + size].tobytes(), "little") for i in range(0, len(row), size)] for row in raw],
            object,
        )
    else:
        value = raw.view(t.dtype)
    return value if t.lanes else value[:, 0]


def convert(op: str, source: Ty, to: Ty, x: Array) -> Array:
    """A conversion instruction."""
    if op == "bitcast":
        return from_bits(to, bits_of(source, x)) if source != to else x
    if op in ("trunc", "zext", "ptrtoint", "inttoptr"):
        return wrapped(Ty("i64") if to.elem == "ptr" else to, x)
    if op == "sext":
        return wrapped(to, signed(source, x).astype(object if to.dtype == object else np.int64))
    if op in ("fptrunc", "fpext"):
        return rounded(to, widened(source, x))
    if op in ("sitofp", "uitofp"):
        return rounded(to, signed(source, x) if op == "sitofp" else x.astype(np.uint64))
    assert op in ("fptosi", "fptoui"), op
    value, (low, high) = widened(source, x).astype(np.float64), limits(to, op == "fptosi")
    inside = (np.trunc(value) >= low) & (np.trunc(value) <= high)
    return np.where(inside, wrapped(to, _to_integer(np.where(inside, value, 0))), noise(Ty(to.elem)))


def limits(t: Ty, is_signed: bool) -> tuple[int, int]:
    """Least and greatest integer of a type."""
    return (-(1 << t.bits - 1), (1 << t.bits - 1) - 1) if is_signed else (0, (1 << t.bits) - 1)


def _to_integer(x: Array) -> Array:
    big = x >= 2.0**63
    return np.where(
        big,
        (x - 2.0**63 * big).astype(np.int64).astype(np.uint64) + (big.astype(np.uint64) << 63),
        x.astype(np.int64).astype(np.uint64),
    )


def saturate(source: Ty, to: Ty, is_signed: bool, x: Array) -> Array:
    """Float to integer; out of range gives the nearest integer, NaN zero."""
    value, (low, high) = np.trunc(widened(source, x).astype(np.float64)), limits(to, is_signed)
    result = wrapped(
        to, _to_integer(np.clip(np.nan_to_num(value, nan=0.0), float(low), np.nextafter(float(high) + 1, 0)))
    )
    result = np.where(value >= high, wrapped(to, np.array([high], object).astype(np.uint64)), result)
    return np.where(np.isnan(value), to.dtype.type(0), result)


# --- intrinsics -------------------------------------------------------------------------------------------


def _unary_float(function: Callable[[Array], Array]):
    return lambda t, a: computed(t, function(widened(t, a).astype(np.float64)))


def _minmax(function: Callable[[Array, Array], Array], is_signed: bool):
    def run(t: Ty, a: Array, b: Array) -> Array:
        return wrapped(t, function(signed(t, a), signed(t, b)) if is_signed else function(a, b))

    return run


def _extreme(pick: Callable[[Array, Array], Array], propagate: bool):
    """Minimum or maximum of floats; -0.0 is less than 0.0."""

    def run(t: Ty, a: Array, b: Array) -> Array:
        x, y = widened(t, a), widened(t, b)
        result = pick(x, y)
        first = np.signbit(x) == (pick is np.minimum or pick is np.fmin)
        result = np.where(x == y, np.where(first, x, y), result)
        return rounded(t, np.where(np.isnan(x) | np.isnan(y), np.nan, result) if propagate else result)

    return run


def _fma(t: Ty, a: Array, b: Array, c: Array) -> Array:
    # A product of two floats is exact in double; the sum is then rounded twice, which differs in very rare cases.
    wide = np.longdouble if t.elem == "double" else np.float64
    return computed(t, widened(t, a).astype(wide) * widened(t, b).astype(wide) + widened(t, c).astype(wide))


def _count_bits(t: Ty, x: Array) -> Array:
    raw = np.unpackbits(bits_of(t, x.reshape(-1)), axis=1)
    return wrapped(t, raw.sum(axis=1).reshape(x.shape))


def _leading_zeros(t: Ty, x: Array, *_: Array) -> Array:
    lengths = [t.bits - int(v).bit_length() for v in x.reshape(-1)]
    return wrapped(t, np.array(lengths).reshape(x.shape))


def _trailing_zeros(t: Ty, x: Array, *_: Array) -> Array:
    lowest = [(int(v) & -int(v)).bit_length() - 1 if v else t.bits for v in x.reshape(-1)]
    return wrapped(t, np.array(lowest).reshape(x.shape))


def _funnel(left: bool):
    def run(t: Ty, a: Array, b: Array, amount: Array) -> Array:
        s = amount.astype(object) % t.bits
        both = a.astype(object) << t.bits | b.astype(object)
        return wrapped(t, (both << s >> t.bits if left else both >> s) & (1 << t.bits) - 1)

    return run


INTRINSICS: dict[str, Callable[..., Array]] = {
    "fabs": lambda t, a: rounded(t, np.abs(widened(t, a))),
    "copysign": lambda t, a, b: rounded(t, np.copysign(widened(t, a), widened(t, b))),
    "sqrt": _unary_float(np.sqrt), "floor": _unary_float(np.floor), "ceil": _unary_float(np.ceil),
    "trunc": _unary_float(np.trunc), "rint": _unary_float(np.rint), "nearbyint": _unary_float(np.rint),
    "roundeven": _unary_float(np.rint), "exp2": _unary_float(np.exp2), "exp": _unary_float(np.exp),
    "log2": _unary_float(np.log2), "log": _unary_float(np.log), "sin": _unary_float(np.sin),
    "cos": _unary_float(np.cos), "tanh": _unary_float(np.tanh),
    "round": _unary_float(lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "fma": _fma, "fmuladd": _fma,
    "minnum": _extreme(np.fmin, False), "maxnum": _extreme(np.fmax, False),
    "minimum": _extreme(np.minimum, True), "maximum": _extreme(np.maximum, True),
    "minimumnum": _extreme(np.fmin, False), "maximumnum": _extreme(np.fmax, False),
    "smin": _minmax(np.minimum, True), "smax": _minmax(np.maximum, True),
    "umin": _minmax(np.minimum, False), "umax": _minmax(np.maximum, False),
    "abs": lambda t, a, *_: wrapped(t, np.abs(signed(t, a))),
    "ctpop": _count_bits, "ctlz": _leading_zeros, "cttz": _trailing_zeros,
    "fshl": _funnel(True), "fshr": _funnel(False),
    "bswap": lambda t, a: a.byteswap(),
    "bitreverse": lambda t, a: np.packbits(np.unpackbits(a.byteswap().view(np.uint8))[::-1]).view(t.dtype)[::-1],
}  # fmt: skip


def overflow(kind: str, t: Ty, a: Array, b: Array) -> tuple[Array, Array]:
    """`{s,u}{add,sub,mul}.with.overflow`: the wrapped result and whether it differs from the true one."""
    if kind[0] == "s":
        a, b = signed(t, a), signed(t, b)
    a, b = a.astype(object), b.astype(object)
    true = {"add": a + b, "sub": a - b, "mul": a * b}[kind[1:]]
    low, high = limits(t, kind[0] == "s")
    return wrapped(t, true & (1 << t.bits) - 1), ((true < low) | (true > high)).astype(bool)
