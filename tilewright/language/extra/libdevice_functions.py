"""Functions of libdevice that are composed of simpler ones, written in the block language.

Arguments have the element types of the tables in `libdevice.py`. Functions with a parameter `mode` round to nearest
("rn"), toward zero ("rz"), down ("rd") or up ("ru"): the result to nearest is moved by one unit where the sign of its
exact error says so.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.language.library import constexpr_function, library
from tilewright.ops import math
from tilewright.ops.builtin import Builtin, Emitter, builtin
from tilewright.ops.control import static_range
from tilewright.ops.functions.operators import where
from tilewright.ops.math import OPS, abs, ceil, floor, maximum, minimum, umulhi
from tilewright.ops.promotion import promote_many
from tilewright.ops.values import Word, constexpr, tensor


def _operation(name: str) -> Builtin:
    """A mathematical operation as a function of the language; operands are promoted together."""

    def function(b: Emitter, *args: Any) -> Any:
        operands = promote_many(b, *args)
        return b.emit(OPS[name], operands[0].type, *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = OPS[name].__doc__
    made: Builtin = builtin(function, export=False)
    return made


_copysign, _exp, _log, _log1p, _pow, _roundeven, _sin, _trunc, _cbrt = map(
    _operation, ("copysign", "exp", "log", "log1p", "powf", "roundeven", "sin", "trunc", "cbrt")
)
_fma = math.fma


@constexpr_function
def _bits_of(element: dtypes.dtype) -> Any:
    """The signed integer type as wide as `element`."""
    return dtypes.dtype(f"int{element.primitive_bitwidth}")


@constexpr_function
def _unsigned_of(element: dtypes.dtype) -> Any:
    """The unsigned integer type as wide as `element`."""
    return dtypes.dtype(f"uint{element.primitive_bitwidth}")


# --- neighbours and rounding ----------------------------------------------------------------------------------------


@library
def _step(x: tensor, up: tensor | bool) -> Any:
    """The next number above `x` where `up` holds, else the next below; infinities and NaN beyond stay."""
    bits = x.to(_bits_of(x.dtype), bitcast=True)
    away = (x > 0) == up
    moved = where(away, bits + 1, bits - 1).to(x.dtype, bitcast=True)
    smallest = (bits * 0 + 1).to(x.dtype, bitcast=True)
    moved = where(x == 0, where(up, smallest, -smallest), moved)
    last = where(up, x == float("inf"), x == float("-inf"))
    return where(last | (x != x), x, moved)


@library
def _directed(x: tensor, error: tensor, mode: Word) -> Any:
    """`x`, which is rounded to nearest, rounded otherwise; the exact value is `x` plus a number signed like `error`."""
    if mode == "rd":
        return where(error < 0, _step(x, False), x)
    if mode == "ru":
        return where(error > 0, _step(x, True), x)
    if mode == "rz":
        inward = where((x > 0) & (error < 0), _step(x, False), x)
        return where((x < 0) & (error > 0), _step(x, True), inward)
    return x


@library
def rounded(x: tensor) -> Any:
    """`x`, which no sum takes in as a product: what a sum loses is computed from its rounded terms."""
    negated = -x
    return -negated


@library
def _sum_error(x: tensor, y: tensor, total: tensor) -> Any:
    """What ``total = x + y`` lost to rounding, exactly."""
    part = total - x
    return (x - (total - part)) + (y - part)


@library
def _narrowed(total: tensor, error: tensor, mode: Word) -> Any:
    """float64 `total` plus a smaller `error` as float32."""
    x = total.to(dtypes.float32)
    lost = total - x.to(dtypes.float64)
    return _directed(x, where(lost != 0, lost, error), mode)


@library
def add(x: tensor, y: tensor, mode: Word) -> Any:
    """x + y."""
    x, y = rounded(x), rounded(y)
    if x.dtype.is_fp32():
        a = x.to(dtypes.float64)
        b = y.to(dtypes.float64)
        total = a + b
        return _narrowed(total, _sum_error(a, b, total), mode)
    result = x + y
    return _directed(result, _sum_error(x, y, result), mode)


@library
def sub(x: tensor, y: tensor, mode: Word) -> Any:
    """x - y."""
    return add(x, -y, mode)


@library
def mul(x: tensor, y: tensor, mode: Word) -> Any:
    """x * y."""
    if x.dtype.is_fp32():
        product = x.to(dtypes.float64) * y.to(dtypes.float64)
        return _narrowed(product, product * 0, mode)
    result = x * y
    return _directed(result, _fma(x, y, -result), mode)


@library
def div(x: tensor, y: tensor, mode: Word) -> Any:
    """x / y."""
    result = x / y
    rest = _fma(-result, y, x)
    return _directed(result, where(y < 0, -rest, rest), mode)


@library
def rcp(x: tensor, mode: Word) -> Any:
    """1 / x."""
    return div(x * 0 + 1, x, mode)


@library
def sqrt(x: tensor, mode: Word) -> Any:
    """Square root."""
    result = math.sqrt(x)
    return _directed(result, _fma(-result, result, x), mode)


@library
def fma(x: tensor, y: tensor, z: tensor, mode: Word = "rn") -> Any:
    """x * y + z, rounded once."""
    if mode == "rn":
        return _fma(x, y, z)
    if x.dtype.is_fp32():
        product = x.to(dtypes.float64) * y.to(dtypes.float64)
        addend = z.to(dtypes.float64)
        total = product + addend
        return _narrowed(total, _sum_error(product, addend, total), mode)
    result = _fma(x, y, z)
    product = rounded(x * y)
    low = _fma(x, y, -product)
    total = product + z
    rest = _sum_error(product, z, total)
    return _directed(result, ((total - result) + rest) + low, mode)


# --- conversions ----------------------------------------------------------------------------------------------------


@library
def _to_integer(x: tensor, mode: Word, target: constexpr) -> Any:
    """A float as an integer; values out of range saturate."""
    if mode == "rn":
        return _roundeven(x).to(target)
    if mode == "rd":
        return floor(x).to(target)
    if mode == "ru":
        return ceil(x).to(target)
    return x.to(target)


float2int = float2uint = float2ll = float2ull = double2int = double2uint = double2ll = double2ull = _to_integer


@library
def _to_float(x: tensor, mode: Word, target: constexpr) -> Any:
    """A number as a float: exactly as one or two float64, then rounded."""
    if mode == "rn" or (x.dtype.primitive_bitwidth == 32 and target.is_fp64()):
        return x.to(target)
    if x.dtype.is_floating() or x.dtype.primitive_bitwidth == 32:
        total = x.to(dtypes.float64)
        return _narrowed(total, total * 0, mode)
    high = (x >> 32).to(dtypes.float64) * 4294967296.0
    low = (x & 0xFFFFFFFF).to(dtypes.float64)
    total = high + low
    error = _sum_error(high, low, total)
    if target.is_fp64():
        return _directed(total, error, mode)
    return _narrowed(total, error, mode)


int2float = uint2float = ll2float = ull2float = int2double = uint2double = ll2double = ull2double = _to_float
double2float = _to_float


@library
def llrint(x: tensor) -> Any:
    """Nearest integer, ties to even, as int64."""
    return _roundeven(x).to(dtypes.int64)


@library
def round(x: tensor) -> Any:
    """Nearest integer, ties away from zero, as a float."""
    whole = _trunc(x)
    return where(abs(x - whole) >= 0.5, whole + _copysign(x * 0 + 1, x), whole)


@library
def llround(x: tensor) -> Any:
    """Nearest integer, ties away from zero, as int64."""
    return round(x).to(dtypes.int64)


@library
def hiloint2double(high: tensor, low: tensor) -> Any:
    """The float64 whose halves are two int32."""
    bits = (high.to(dtypes.int64) << 32) | (low.to(dtypes.int64) & 0xFFFFFFFF)
    return bits.to(dtypes.float64, bitcast=True)


@library
def double2loint(x: tensor) -> Any:
    """Low half of a float64."""
    return x.to(dtypes.int64, bitcast=True).to(dtypes.int32)


@library
def double2hiint(x: tensor) -> Any:
    """High half of a float64."""
    return (x.to(dtypes.int64, bitcast=True) >> 32).to(dtypes.int32)


# --- parts of floats ------------------------------------------------------------------------------------------------


@library
def isnan(x: tensor) -> Any:
    """Whether `x` is not a number."""
    return x != x


@library
def isinf(x: tensor) -> Any:
    """Whether `x` is infinite."""
    return abs(x) == float("inf")


@library
def signbit(x: tensor) -> Any:
    """Whether the sign bit of `x` is set, as int32."""
    return (x.to(_bits_of(x.dtype), bitcast=True) < 0).to(dtypes.int32)


@library
def finitef(x: tensor) -> Any:
    """Whether `x` is neither infinite nor NaN, as int32."""
    return (abs(x) < float("inf")).to(dtypes.int32)


isfinited = finitef


@library
def nextafter(x: tensor, y: tensor) -> Any:
    """The next float from `x` towards `y`."""
    moved = where(x == y, y, _step(x, y > x))
    return where(y != y, y, moved)


@library
def _power_of_two(n: tensor, element: dtypes.dtype) -> Any:
    """2 to the power `n`, an exponent of a normal float64, as float64."""
    return ((n.to(dtypes.int64) + 1023) << 52).to(dtypes.float64, bitcast=True)


@library
def ldexp(x: tensor, n: tensor) -> Any:
    """x times 2 to the power n, rounded once."""
    if x.dtype.is_fp32():
        power = _power_of_two(minimum(maximum(n, -500), 500), x.dtype)
        return (x.to(dtypes.float64) * power).to(dtypes.float32)
    # Steps of 2^-969 leave a mantissa whole until the last one.
    limited = minimum(maximum(n, -2100), 2100)
    first = minimum(maximum(limited, -969), 1023)
    rest = limited - first
    second = minimum(maximum(rest, -969), 1023)
    third = minimum(maximum(rest - second, -969), 1023)
    x = x * _power_of_two(first, x.dtype)
    return x * _power_of_two(second, x.dtype) * _power_of_two(third, x.dtype)


scalbn = ldexp


@library
def _exponent(x: tensor) -> Any:
    """Binary exponent of a finite number that is not zero, as int32."""
    wide = x.to(dtypes.float64)
    small = abs(wide) < 2.2250738585072014e-308
    bits = where(small, wide * 18014398509481984.0, wide).to(dtypes.int64, bitcast=True)
    return ((bits >> 52) & 0x7FF).to(dtypes.int32) - 1023 - where(small, 54, 0)


@library
def logb(x: tensor) -> Any:
    """Binary exponent of `x` as a float."""
    special = where(x == 0, x * 0 - float("inf"), x * x)
    return where((x == 0) | (finitef(x) == 0), special, _exponent(x).to(x.dtype))


@library
def ilogb(x: tensor) -> Any:
    """Binary exponent of `x`; the least int32 for zero and NaN, the greatest for infinity."""
    special = where(isinf(x), 0x7FFFFFFF, -0x7FFFFFFF - 1)
    return where((x == 0) | (finitef(x) == 0), special, _exponent(x))


@library
def saturatef(x: tensor) -> Any:
    """`x` limited to 0 .. 1; NaN gives 0."""
    return where(x > 0, minimum(x, 1.0), 0.0)


@library
def fdim(x: tensor, y: tensor) -> Any:
    """x - y where that is positive, else 0."""
    return where(x <= y, x * 0 * 0, x - y)


@library
def fmod(x: tensor, y: tensor) -> Any:
    """Rest of the division, with the sign of `x`."""
    return x % y


@library
def remainder(x: tensor, y: tensor) -> Any:
    """x less the nearest multiple of y (the even one on ties)."""
    size = abs(y)
    rest = abs(x)
    rest = where(size * 2 < float("inf"), rest % (size * 2), rest)
    half = size * 0.5
    down = rest - size
    twice = down - size
    # rest is below two sizes: subtract one where it passes a half, another where it passes one and a half.
    result = where(rest > half, down, rest)
    result = where((rest > half) & (down >= half), twice, result)
    return where(x < 0, -result, result) + x * 0


# --- roots, exponentials, hyperbolic and trigonometric functions ----------------------------------------------------


@library
def rcbrt(x: tensor) -> Any:
    """One over the cube root."""
    return 1.0 / _cbrt(x)


@library
def exp10(x: tensor) -> Any:
    """10 to the power x."""
    return _pow(x * 0 + 10, x)


fast_exp10f = exp10


@library
def rsqrt_rn(x: tensor) -> Any:
    """One over the square root, rounded to nearest."""
    return (1.0 / math.sqrt(x.to(dtypes.float64))).to(dtypes.float32)


@library
def fast_dividef(x: tensor, y: tensor) -> Any:
    """x / y."""
    return x / y


@library
def _norm(x: tensor, y: tensor, z: tensor, t: tensor) -> Any:
    """Square root of the sum of four squares, without overflow on the way."""
    if x.dtype.is_fp32():
        a, b, c, d = x.to(dtypes.float64), y.to(dtypes.float64), z.to(dtypes.float64), t.to(dtypes.float64)
        return math.sqrt(a * a + b * b + c * c + d * d).to(dtypes.float32)
    largest = maximum(maximum(abs(x), abs(y)), maximum(abs(z), abs(t)))
    scale = where((largest > 0) & (largest < float("inf")), largest, 1.0).to(x.dtype)
    a, b, c, d = x / scale, y / scale, z / scale, t / scale
    result = scale * math.sqrt(a * a + b * b + c * c + d * d)
    return where(isinf(x) | isinf(y) | isinf(z) | isinf(t), largest, result)


@library
def hypot(x: tensor, y: tensor) -> Any:
    """Length of the vector (x, y)."""
    return _norm(x, y, x * 0, x * 0)


@library
def rhypot(x: tensor, y: tensor) -> Any:
    """One over the length of the vector (x, y)."""
    return 1.0 / hypot(x, y)


@library
def norm3d(x: tensor, y: tensor, z: tensor) -> Any:
    """Length of a vector of three parts."""
    return _norm(x, y, z, x * 0)


@library
def rnorm3d(x: tensor, y: tensor, z: tensor) -> Any:
    """One over the length of a vector of three parts."""
    return 1.0 / norm3d(x, y, z)


@library
def norm4d(x: tensor, y: tensor, z: tensor, t: tensor) -> Any:
    """Length of a vector of four parts."""
    return _norm(x, y, z, t)


@library
def rnorm4d(x: tensor, y: tensor, z: tensor, t: tensor) -> Any:
    """One over the length of a vector of four parts."""
    return 1.0 / norm4d(x, y, z, t)


@library
def asinh(x: tensor) -> Any:
    """Inverse hyperbolic sine."""
    size = abs(x)
    near = _log1p(size + size * size / (1 + math.sqrt(size * size + 1)))
    far = _log(size) + 0.6931471805599453
    return _copysign(where(size > 1e9, far, near), x)


@library
def acosh(x: tensor) -> Any:
    """Inverse hyperbolic cosine."""
    above = x - 1
    near = _log1p(above + math.sqrt(2 * above + above * above))
    return where(x > 1e9, _log(x) + 0.6931471805599453, near)


@library
def atanh(x: tensor) -> Any:
    """Inverse hyperbolic tangent."""
    size = abs(x)
    return _copysign(0.5 * _log1p(2 * size / (1 - size)), x)


@library
def _half_turns(x: tensor) -> Any:
    """`x` less an even number, between -1 and 1."""
    return x - 2 * _roundeven(x * 0.5)


@library
def sinpi(x: tensor) -> Any:
    """Sine of x times pi."""
    turn = _half_turns(x)
    folded = where(abs(turn) > 0.5, _copysign(1 - abs(turn), turn), turn)
    return _sin(folded * 3.141592653589793)


@library
def cospi(x: tensor) -> Any:
    """Cosine of x times pi."""
    return _sin((0.5 - abs(_half_turns(x))) * 3.141592653589793)


# --- integers ----------------------------------------------------------------------------------------------------


@library
def popc(x: tensor) -> Any:
    """Number of set bits, as int32."""
    n = x.to(dtypes.uint64) if x.dtype.primitive_bitwidth == 64 else x.to(dtypes.uint32).to(dtypes.uint64)
    n = n - ((n >> 1) & 0x5555555555555555)
    n = (n & 0x3333333333333333) + ((n >> 2) & 0x3333333333333333)
    n = (n + (n >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((n * 0x0101010101010101) >> 56).to(dtypes.int32)


@library
def clz(x: tensor) -> Any:
    """Number of zero bits above the highest set one, as int32."""
    n = x.to(_unsigned_of(x.dtype))
    n = n | (n >> 1)
    n = n | (n >> 2)
    n = n | (n >> 4)
    n = n | (n >> 8)
    n = n | (n >> 16)
    if x.dtype.primitive_bitwidth == 64:
        n = n | (n >> 32)
    return popc((~n).to(x.dtype))


@library
def ffs(x: tensor) -> Any:
    """Position of the lowest set bit, counted from 1; 0 for zero."""
    return where(x == 0, 0, x.dtype.primitive_bitwidth - clz(x & -x))


@library
def brev(x: tensor) -> Any:
    """The bits in reverse order."""
    n = x.to(_unsigned_of(x.dtype))
    n = ((n >> 1) & _mask(x.dtype, 0x55)) | ((n & _mask(x.dtype, 0x55)) << 1)
    n = ((n >> 2) & _mask(x.dtype, 0x33)) | ((n & _mask(x.dtype, 0x33)) << 2)
    n = ((n >> 4) & _mask(x.dtype, 0x0F)) | ((n & _mask(x.dtype, 0x0F)) << 4)
    result = n * 0
    for byte in static_range(x.dtype.itemsize):
        result = (result << 8) | ((n >> (8 * byte)) & 0xFF)
    return result.to(x.dtype)


@constexpr_function
def _mask(element: dtypes.dtype, byte: int) -> Any:
    """`byte` in every byte of an integer type."""
    return int.from_bytes(bytes([byte]) * element.itemsize, "little")


@library
def byte_perm(x: tensor, y: tensor, selector: tensor) -> Any:
    """Four of the eight bytes of (x, y), each picked by three bits of a nibble of `selector`."""
    both = (y.to(dtypes.uint32).to(dtypes.uint64) << 32) | x.to(dtypes.uint32).to(dtypes.uint64)
    result = x.to(dtypes.uint64) * 0
    for byte in static_range(4):
        shift = ((selector >> (4 * byte)) & 7).to(dtypes.uint64) * 8
        result = result | (((both >> shift) & 0xFF) << (8 * byte))
    return result.to(dtypes.int32)


@library
def mulhi(x: tensor, y: tensor) -> Any:
    """High half of the product."""
    high = umulhi(x.to(_unsigned_of(x.dtype)), y.to(_unsigned_of(x.dtype))).to(x.dtype)
    if x.dtype.is_int_signed():
        high = high - where(x < 0, y, 0) - where(y < 0, x, 0)
    return high


@library
def mul24(x: tensor, y: tensor) -> Any:
    """Low 32 bits of the product of the low 24 bits."""
    return ((x << 8) >> 8) * ((y << 8) >> 8)


@library
def sad(x: tensor, y: tensor, z: tensor) -> Any:
    """Absolute difference of `x` and `y`, plus `z`."""
    a, b = x.to(dtypes.int64), y.to(dtypes.int64)
    return (abs(a - b) + z.to(dtypes.int64)).to(x.dtype)


@library
def hadd(x: tensor, y: tensor) -> Any:
    """Half of the sum, rounded down."""
    return ((x.to(dtypes.int64) + y.to(dtypes.int64)) >> 1).to(x.dtype)


@library
def rhadd(x: tensor, y: tensor) -> Any:
    """Half of the sum, rounded up."""
    return ((x.to(dtypes.int64) + y.to(dtypes.int64) + 1) >> 1).to(x.dtype)
