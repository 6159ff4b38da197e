"""Elementary functions: the `math` ops and the language functions on top of them (``tl.exp``, ``tl.sqrt``, ...).

An op is one row of `_UNARY` or `_BINARY`: MLIR name, numpy function, domain of its samples and the error allowed to a
back end. The reference computes in float64 and rounds once, so it is the correctly rounded result for f32.
`fma`, `div_rn`, `fdiv`, `abs`, `umulhi`, `minimum`, `maximum`, `clamp` build ops of `elementwise.py`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tilewright.base import dtypes, minifloat
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError
from tilewright.ir.op import TileOp
from tilewright.ir.types import is_float
from tilewright.ops import elementwise as ew
from tilewright.ops import vjps
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.elementwise import same_type_op
from tilewright.ops.elementwise_base import BinaryOp, SameTypeOp, UnaryOp
from tilewright.ops.elementwise_reference import float_dtype, quiet
from tilewright.ops.elementwise_samples import WIDE_FLOATS, floats, same_type_samples
from tilewright.ops.promotion import emit_float, promote_binary, promote_many
from tilewright.ops.spec import Array, Call, Reference
from tilewright.ops.values import Flag, Operand, constexpr, tensor, unwrap

if TYPE_CHECKING:
    from tilewright.ops.builtin import OneOperand

ArrayFn = Callable[..., Any]


# --- ops -----------------------------------------------------------------------------------------------------


def _rounded(fn: ArrayFn) -> Reference:
    """`fn` in float64 (for f64 in the widest float of the machine), rounded to the element type."""

    def reference(call: Call, *args: Array) -> Array:
        type_ = float_dtype(call.operand_types[0])
        work = np.longdouble if type_.name == "fp64" else np.float64
        result = np.asarray(fn(*[a.astype(work) for a in args]))
        return minifloat.round_to(result.astype(np.float64), type_)

    return quiet(reference)


def _scalar(fn: Callable[..., float]) -> ArrayFn:
    """`fn` of the math module element by element."""
    each = np.frompyfunc(fn, 1, 1)
    return lambda x: np.asarray(each(x.astype(np.float64)), dtype=np.float64)


def _moderate(rng: np.random.Generator, name: str) -> Array:
    """Values for functions whose accuracy is stated for ordinary arguments, with the special ones."""
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    spread = rng.standard_normal(57) * np.exp(rng.uniform(-4, 3, 57))
    return minifloat.round_to(np.concatenate([special, spread]), ew_dtype(name))


def ew_dtype(name: str) -> dtypes.dtype:
    """Language dtype of the IR float `name`."""
    return next(d for d in dtypes.ALL_DTYPES if d.is_floating() and d.ir_name == name)


_SIGN_OF: dict[str, str] = {"sin": "Sine.", "cos": "Cosine.", "tan": "Tangent."}
# name: (numpy function, one line, allowed error of a back end in units in the last place)
_UNARY: dict[str, tuple[ArrayFn, str, float]] = {
    "exp": (np.exp, "e to the power x.", 2),
    "exp2": (np.exp2, "2 to the power x.", 2),
    "expm1": (np.expm1, "e to the power x, less one.", 3),
    "log": (np.log, "Natural logarithm.", 2),
    "log2": (np.log2, "Binary logarithm.", 2),
    "log10": (np.log10, "Decimal logarithm.", 3),
    "log1p": (np.log1p, "Natural logarithm of one plus x.", 3),
    "sin": (np.sin, _SIGN_OF["sin"], 2),
    "cos": (np.cos, _SIGN_OF["cos"], 2),
    "tan": (np.tan, _SIGN_OF["tan"], 4),
    "asin": (np.arcsin, "Inverse sine.", 4),
    "acos": (np.arccos, "Inverse cosine.", 4),
    "atan": (np.arctan, "Inverse tangent.", 4),
    "sinh": (np.sinh, "Hyperbolic sine.", 4),
    "cosh": (np.cosh, "Hyperbolic cosine.", 4),
    "tanh": (np.tanh, "Hyperbolic tangent.", 4),
    "erf": (_scalar(math.erf), "Error function.", 4),
    "cbrt": (np.cbrt, "Cube root.", 2),
    "sqrt": (np.sqrt, "Square root.", 1),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "One over the square root.", 2),
    "floor": (np.floor, "Largest integer not above x.", 0),
    "ceil": (np.ceil, "Smallest integer not below x.", 0),
    "trunc": (np.trunc, "x cut to an integer toward zero.", 0),
    "roundeven": (np.rint, "Nearest integer, ties to even.", 0),
}
_BINARY: dict[str, tuple[ArrayFn, str, float]] = {
    "powf": (np.power, "x to the power y.", 4),
    "atan2": (np.arctan2, "Angle of the point (y, x).", 4),
    "copysign": (np.copysign, "Magnitude of the first with the sign of the second.", 0),
}
OPS: dict[str, type[SameTypeOp]] = {}


def _always(ulp: float) -> Callable[[str], float]:
    return lambda _name: ulp


def _define(base: type[SameTypeOp], arity: int, rows: dict[str, tuple[ArrayFn, str, float]]) -> None:
    for name, (fn, doc, ulp) in rows.items():
        draw = _moderate if ulp else floats
        samples = same_type_samples(arity, WIDE_FLOATS, draw=draw, ulp=_always(ulp), wrong="i32")
        OPS[name] = same_type_op(
            base, f"math.{name}", doc, _rounded(fn), samples, check=is_float, vjp=vjps.FUNCTIONS.get(name)
        )


_define(UnaryOp, 1, _UNARY)
_define(BinaryOp, 2, _BINARY)


# --- language: one operand ---------------------------------------------------------------------------------------


def check_dtype(name: str, x: tensor, allowed: tuple[str, ...]) -> None:
    """Raise `LanguageValueError` unless the element type of `x` is one of `allowed`."""
    if x.dtype.name not in allowed:
        raise LanguageValueError(
            f"Expected dtype {list(allowed)} but got {x.dtype}",
            hint=f"tl.{name} takes {' or '.join(allowed)}; convert with x.to(tl.float32)",
        )


_DOC = """{line}

    Args:
        x: float32 or float64 tensor, or a number.

    Returns:
        Tensor of the type and shape of `x`.

    Raises:
        ValueError: another element type.

    Example:
        >>> {example}
    """


def _unary(name: str, line: str, example: str, op: type[TileOp] | None = None) -> OneOperand:
    """The language function of a one-operand op on fp32 and fp64."""
    cls = op or OPS[name]
    allowed = ("fp32", "fp64") if name != "sqrt_rn" else ("fp32",)

    def function(b: Emitter, x: Operand) -> tensor:
        value = to_tensor(b, x)
        check_dtype(name, value, allowed)
        return b.emit(cls, value.type, value)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _DOC.format(line=line, example=example)
    return cast("OneOperand", builtin(function, method=True))


exp = _unary("exp", "e to the power `x`.", "tl.exp(0.0)\n        1.0")
exp2 = _unary("exp2", "2 to the power `x`.", "tl.exp2(3.0)\n        8.0")
log = _unary("log", "Natural logarithm of `x`.", "tl.log(1.0)\n        0.0")
log2 = _unary("log2", "Binary logarithm of `x`.", "tl.log2(8.0)\n        3.0")
sin = _unary("sin", "Sine of `x`, in radians.", "tl.sin(0.0)\n        0.0")
cos = _unary("cos", "Cosine of `x`, in radians.", "tl.cos(0.0)\n        1.0")
sqrt = _unary("sqrt", "Square root of `x`; a GPU may round it approximately.", "tl.sqrt(9.0)\n        3.0")
sqrt_rn = _unary("sqrt_rn", "Square root of `x`, correctly rounded.", "tl.sqrt_rn(9.0)\n        3.0", ew.PreciseSqrtOp)
rsqrt = _unary("rsqrt", "One over the square root of `x`.", "tl.rsqrt(4.0)\n        0.5")
erf = _unary("erf", "Error function of `x`.", "tl.erf(0.0)\n        0.0")
floor = _unary("floor", "Largest integer not above `x`, as a float.", "tl.floor(2.7)\n        2.0")
ceil = _unary("ceil", "Smallest integer not below `x`, as a float.", "tl.ceil(2.1)\n        3.0")


@builtin(method=True)
def abs(b: Emitter, x: Operand) -> tensor:
    """Absolute value of each element; the most negative integer stays as it is.

    Args:
        x: tensor of numbers, or a number; unsigned integers are returned unchanged.

    Returns:
        Tensor of the type and shape of `x`.

    Example:
        >>> tl.abs(-2.5)
        2.5
    """
    value = to_tensor(b, x)
    if value.dtype.is_ptr():
        raise LanguageTypeError(f"Unexpected dtype {value.dtype}", hint="tl.abs takes numbers")
    if value.dtype.is_floating():
        return b.emit(ew.AbsFOp, value.type, value)
    return b.emit(ew.AbsIOp, value.type, value) if value.dtype.is_int_signed() else value


# --- language: more operands ---------------------------------------------------------------------------------------


@builtin
def fma(b: Emitter, x: Operand, y: Operand, z: Operand) -> tensor:
    """``x * y + z`` with a single rounding.

    Args:
        x, y, z: float tensors or numbers; promoted and broadcast together.

    Returns:
        Tensor of the promoted type.

    Raises:
        TypeError: the promoted type is not a float.

    Example:
        >>> tl.fma(2.0, 3.0, 1.0)
        7.0
    """
    values = promote_many(b, x, y, z)
    if not values[0].dtype.is_floating():
        raise DTypeError(f"fma takes floating-point operands, not {values[0].dtype}", hint="use x * y + z for integers")
    return emit_float(b, ew.FmaOp, *values)


@builtin
def fdiv(b: Emitter, x: Operand, y: Operand, ieee_rounding: Flag = False, approx: Flag = False) -> tensor:
    """Float division.

    Args:
        x, y: float tensors or numbers; promoted and broadcast together.
        ieee_rounding: correctly rounded on every target.
        approx: allow a fast approximation (float32 only); a CPU divides exactly.

    Returns:
        Tensor of the promoted type.

    Raises:
        TypeError: neither operand is a float.

    Example:
        >>> tl.fdiv(1.0, 4.0)
        0.25
    """
    lhs, rhs = promote_binary(b, x, y, div_or_mod=True)
    if not lhs.dtype.is_floating():
        raise LanguageTypeError(
            "both operands of fdiv must have floating scalar type", hint="use / for integers, which gives float32"
        )
    if unwrap(approx) and not lhs.dtype.is_fp32():
        raise LanguageValueError(f"approximate division is for float32, not {lhs.dtype}")
    precise = unwrap(ieee_rounding) and lhs.dtype.is_fp32()
    return b.emit(ew.PreciseDivFOp if precise else ew.DivFOp, lhs.type, lhs, rhs)


@builtin
def div_rn(b: Emitter, x: Operand, y: Operand) -> tensor:
    """Division of float32, correctly rounded (IEEE) on every target.

    Args:
        x, y: float32 tensors or numbers, broadcast together.

    Returns:
        float32 tensor.

    Raises:
        ValueError: another element type.

    Example:
        >>> tl.div_rn(1.0, 8.0)
        0.125
    """
    lhs, rhs = promote_binary(b, x, y)
    check_dtype("div_rn", lhs, ("fp32",))
    return b.emit(ew.PreciseDivFOp, lhs.type, lhs, rhs)


@builtin
def umulhi(b: Emitter, x: Operand, y: Operand) -> tensor:
    """High half of the unsigned product of two integers.

    Args:
        x, y: tensors of 32- or 64-bit integers, or numbers; promoted and broadcast together.

    Returns:
        Tensor of the promoted type.

    Raises:
        ValueError: another element type.

    Example:
        >>> tl.umulhi(tl.full((), 2**31, tl.uint32), 4)
        2
    """
    lhs, rhs = promote_binary(b, x, y)
    check_dtype("umulhi", lhs, ("int32", "int64", "uint32", "uint64"))
    return b.emit(ew.MulHiUIOp, lhs.type, lhs, rhs)


class PropagateNan(enum.Enum):
    """What `minimum`, `maximum` and `clamp` make of NaN."""

    NONE = "none"
    ALL = "all"


def _nan_rule(value: PropagateNan | constexpr) -> PropagateNan:
    rule = unwrap(value)
    if not isinstance(rule, PropagateNan):
        raise LanguageValueError(f"Unexpected propagate_nan {rule!r}", hint="it is tl.PropagateNan.NONE or .ALL")
    return rule


def _extremum(b: Emitter, x: Operand, y: Operand, rule: PropagateNan, which: str) -> tensor:
    lhs, rhs = promote_binary(b, x, y)
    if lhs.dtype.is_ptr():
        raise LanguageTypeError(f"Unexpected dtype {lhs.dtype}")
    kind = "f" if lhs.dtype.is_floating() else "si" if lhs.dtype.is_int_signed() else "ui"
    cls = _EXTREMA[which, kind, rule if kind == "f" else PropagateNan.NONE]
    return emit_float(b, cls, lhs, rhs) if kind == "f" else b.emit(cls, lhs.type, lhs, rhs)


_EXTREMA: dict[tuple[str, str, PropagateNan], type[TileOp]] = {
    ("min", "f", PropagateNan.NONE): ew.MinNumFOp,
    ("min", "f", PropagateNan.ALL): ew.MinimumFOp,
    ("min", "si", PropagateNan.NONE): ew.MinSIOp,
    ("min", "ui", PropagateNan.NONE): ew.MinUIOp,
    ("max", "f", PropagateNan.NONE): ew.MaxNumFOp,
    ("max", "f", PropagateNan.ALL): ew.MaximumFOp,
    ("max", "si", PropagateNan.NONE): ew.MaxSIOp,
    ("max", "ui", PropagateNan.NONE): ew.MaxUIOp,
}


@builtin
def minimum(b: Emitter, x: Operand, y: Operand, propagate_nan: PropagateNan | constexpr = PropagateNan.NONE) -> tensor:
    """Smaller of two values, element by element.

    Args:
        x, y: tensors or numbers; promoted and broadcast together.
        propagate_nan: `PropagateNan.NONE`: a number wins over NaN; `PropagateNan.ALL`: NaN wins.

    Returns:
        Tensor of the promoted type.

    Example:
        >>> tl.minimum(2.0, 3.0)
        2.0
    """
    return _extremum(b, x, y, _nan_rule(propagate_nan), "min")


@builtin
def maximum(b: Emitter, x: Operand, y: Operand, propagate_nan: PropagateNan | constexpr = PropagateNan.NONE) -> tensor:
    """Larger of two values, element by element.

    Args:
        x, y: tensors or numbers; promoted and broadcast together.
        propagate_nan: `PropagateNan.NONE`: a number wins over NaN; `PropagateNan.ALL`: NaN wins.

    Returns:
        Tensor of the promoted type.

    Example:
        >>> tl.maximum(2.0, 3.0)
        3.0
    """
    return _extremum(b, x, y, _nan_rule(propagate_nan), "max")


@builtin
def clamp(
    b: Emitter, x: Operand, min: Operand, max: Operand, propagate_nan: PropagateNan | constexpr = PropagateNan.NONE
) -> tensor:
    """``minimum(maximum(x, min), max)``; undefined where `min` is above `max` or one of them is NaN.

    Args:
        x: tensor or number.
        min, max: limits; promoted and broadcast with `x`.
        propagate_nan: what a NaN in `x` becomes: the lower limit (`NONE`) or NaN (`ALL`).

    Returns:
        Tensor of the promoted type.

    Example:
        >>> tl.clamp(7.0, 0.0, 1.0)
        1.0
    """
    rule = _nan_rule(propagate_nan)
    value, low, high = promote_many(b, x, min, max)
    if value.dtype.is_floating():
        return emit_float(b, ew.ClampFOp, value, low, high, propagateNan=rule.value)
    return _extremum(b, _extremum(b, value, low, rule, "max"), high, rule, "min")
