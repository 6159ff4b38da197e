"""Operators on tensors: ``x + y``, ``x < y``, ``-x``, ``tl.where``, and the tables by which the front end finds them.

Integers wrap, ``//`` and ``%`` are C's, ``/`` of integers gives float32, comparisons give int1. `BINARY`, `COMPARE` and
`UNARY` are keyed by the classes of `ast`; the same functions are the Python operators of `tensor`
for the interpreter. Mixed operands follow `promotion.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import with_shape_of
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError
from tilewright.ir.op import TileOp
from tilewright.ops import elementwise as ew
from tilewright.ops.broadcast import broadcast_tensors
from tilewright.ops.builtin import Builtin, Emitter, builtin, is_number, python_number, to_tensor, unwrap
from tilewright.ops.casts import bitcast_to, cast_to
from tilewright.ops.debug import AssertOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.promotion import (
    emit_float,
    incompatible,
    is_integer_kind,
    promote_binary,
    promote_integers,
    widened,
)
from tilewright.ops.values import Flag, Operand, tensor

# --- arithmetic ---------------------------------------------------------------------------------------------


def _assert_no_overflow(b: Emitter, x: tensor, y: tensor, cls: type[TileOp], name: str) -> None:
    """In debug builds, assert that the exact result, computed in 64 bits, fits the type."""
    type_ = x.dtype
    if not (b.options.debug and b.options.sanitize_overflow) or type_.int_bitwidth >= 64 or type_.is_bool():
        return
    wide = with_shape_of(x.type, dtypes.int64)
    exact = b.emit(cls, wide, cast_to(b, x, dtypes.int64), cast_to(b, y, dtypes.int64))
    flag = with_shape_of(x.type, dtypes.int1)
    below = b.emit(ew.CmpIOp, flag, exact, b.constant(type_.get_int_max_value(), wide), predicate="sle")
    above = b.emit(ew.CmpIOp, flag, exact, b.constant(type_.get_int_min_value(), wide), predicate="sge")
    both = b.emit(ew.AndIOp, flag, below, above)
    b.emit_void(AssertOp, both, message=f"{type_} overflow detected for operation {name}")


def _arithmetic(
    b: Emitter, x: tensor, y: tensor, ops: tuple[type[TileOp], type[TileOp]], name: str, sanitize: Flag
) -> tensor:
    """Apply the float or the integer op of `ops` to promoted operands."""
    if x.dtype.is_floating():
        return emit_float(b, ops[0], x, y)
    if unwrap(sanitize):
        _assert_no_overflow(b, x, y, ops[1], name)
    return b.emit(ops[1], x.type, x, y)


def _offset(b: Emitter, pointer: tensor, offset: tensor) -> tensor:
    """``pointer + offset``: the IR reads offsets as signed, so unsigned ones are widened first."""
    if offset.dtype.is_int_unsigned() and offset.dtype.int_bitwidth < 64:
        offset = cast_to(b, offset, dtypes.int64)
    return b.emit(AddPtrOp, pointer.type, pointer, offset)


@builtin
def add(b: Emitter, x: Operand, y: Operand, sanitize_overflow: Flag = True) -> tensor:
    """``x + y``: sum of numbers, or a pointer moved by a number of elements.

    Args:
        x, y: tensors or numbers, promoted and broadcast together; one may be a pointer if the other is an integer.
        sanitize_overflow: in debug builds, assert that integers do not overflow.

    Returns:
        Tensor of the promoted or pointer type; integers wrap.

    Raises:
        TypeError: pointers on both sides, or a pointer and a float.

    Example:
        >>> tl.add(2, 3)
        5
    """
    lhs, rhs = promote_binary(b, x, y, allow_lhs_ptr=True, allow_rhs_ptr=True)
    if lhs.dtype.is_ptr() and rhs.dtype.is_ptr():
        raise LanguageTypeError("cannot add pointers together", hint="add an integer offset to one pointer")
    if lhs.dtype.is_ptr():
        return _offset(b, lhs, rhs)
    if rhs.dtype.is_ptr():
        return _offset(b, rhs, lhs)
    return _arithmetic(b, lhs, rhs, (ew.AddFOp, ew.AddIOp), "add", sanitize_overflow)


@builtin
def sub(b: Emitter, x: Operand, y: Operand, sanitize_overflow: Flag = True) -> tensor:
    """``x - y``: difference of numbers, or a pointer moved back by a number of elements.

    Args:
        x, y: tensors or numbers, promoted and broadcast together; `x` may be a pointer if `y` is an integer.
        sanitize_overflow: in debug builds, assert that integers do not overflow.

    Returns:
        Tensor of the promoted or pointer type; integers wrap.

    Raises:
        TypeError: `y` is a pointer, or a pointer less a float.

    Example:
        >>> tl.sub(2, 3)
        -1
    """
    lhs, rhs = promote_binary(b, x, y, allow_lhs_ptr=True)
    if lhs.dtype.is_ptr():
        return _offset(b, lhs, minus.fn(b, _signed_offset(b, rhs)))
    return _arithmetic(b, lhs, rhs, (ew.SubFOp, ew.SubIOp), "sub", sanitize_overflow)


def _signed_offset(b: Emitter, offset: tensor) -> tensor:
    """An offset that can be negated: unsigned ones become int64 first."""
    return cast_to(b, offset, dtypes.int64) if offset.dtype.is_int_unsigned() else offset


@builtin
def mul(b: Emitter, x: Operand, y: Operand, sanitize_overflow: Flag = True) -> tensor:
    """``x * y``: product; integers wrap.

    Args:
        x, y: tensors or numbers, promoted and broadcast together.
        sanitize_overflow: in debug builds, assert that integers do not overflow.

    Returns:
        Tensor of the promoted type; integers wrap.

    Raises:
        TypeError: an operand is a pointer.

    Example:
        >>> tl.mul(2, 3)
        6
    """
    lhs, rhs = promote_binary(b, x, y)
    return _arithmetic(b, lhs, rhs, (ew.MulFOp, ew.MulIOp), "mul", sanitize_overflow)


@builtin(export=False)
def truediv(b: Emitter, x: Operand, y: Operand) -> tensor:
    """``x / y``: quotient; integers are divided as float32."""
    lhs, rhs = promote_binary(b, x, y, div_or_mod=True)
    if not lhs.dtype.is_floating():
        lhs, rhs = cast_to(b, lhs, dtypes.float32), cast_to(b, rhs, dtypes.float32)
    return b.emit(ew.DivFOp, lhs.type, lhs, rhs)


@builtin(export=False)
def floordiv(b: Emitter, x: Operand, y: Operand) -> tensor:
    """``x // y``: quotient of integers, cut toward zero as in C."""
    lhs, rhs = promote_binary(b, x, y, div_or_mod=True)
    if not lhs.dtype.is_int():
        raise DTypeError(f"unexpected type {lhs.dtype}", hint="// is for integers; write tl.floor(x / y) for floats")
    return b.emit(ew.DivSIOp if lhs.dtype.is_int_signed() else ew.DivUIOp, lhs.type, lhs, rhs)


@builtin(export=False)
def mod(b: Emitter, x: Operand, y: Operand) -> tensor:
    """``x % y``: remainder with the sign of `x`, as in C."""
    lhs, rhs = promote_binary(b, x, y, div_or_mod=True)
    if lhs.dtype.is_floating():
        return b.emit(ew.RemFOp, lhs.type, lhs, rhs)
    return b.emit(ew.RemSIOp if lhs.dtype.is_int_signed() else ew.RemUIOp, lhs.type, lhs, rhs)


# --- bits ---------------------------------------------------------------------------------------------------


def _promote_bits(b: Emitter, x: Operand, y: Operand) -> tuple[tensor, tensor]:
    """Operands of a bitwise operation: integers only."""
    lhs, rhs = promote_binary(b, x, y)
    if not is_integer_kind(lhs) or not is_integer_kind(rhs):
        given = [v.dtype if isinstance(v, tensor) else unwrap(v) for v in (x, y)]
        raise incompatible(*given, hint="bitwise operators take integers; x.to(tl.int32, bitcast=True) gives the bits")
    type_ = promote_integers(lhs.dtype, rhs.dtype)
    return cast_to(b, lhs, type_), cast_to(b, rhs, type_)


def _bitwise(name: str, doc: str, cls: type[TileOp]) -> Builtin:
    def function(b: Emitter, x: Operand, y: Operand) -> tensor:
        lhs, rhs = _promote_bits(b, x, y)
        return b.emit(cls, lhs.type, lhs, rhs)

    function.__name__, function.__doc__ = name, doc
    made: Builtin = builtin(function, export=False)
    return made


and_ = _bitwise("and_", "``x & y``: bitwise and of integers.", ew.AndIOp)
or_ = _bitwise("or_", "``x | y``: bitwise or of integers.", ew.OrIOp)
xor = _bitwise("xor", "``x ^ y``: bitwise exclusive or of integers.", ew.XOrIOp)


def _warn_of_width(b: Emitter, x: Operand, y: Operand) -> None:
    amount = unwrap(y)
    kind = x.dtype if isinstance(x, tensor) and not x.dtype.is_ptr() else None
    bits = None if kind is None else kind.primitive_bitwidth
    if bits is not None and is_number(amount) and amount >= bits:
        b.warn(f"Value {amount} exceeds the maximum bitwidth ({bits}) for type '{kind}'. The result is 0 or the sign.")


@builtin(export=False)
def lshift(b: Emitter, x: Operand, y: Operand) -> tensor:
    """``x << y``: shift of integers; bits past the width are lost."""
    _warn_of_width(b, x, y)
    lhs, rhs = _promote_bits(b, x, y)
    return b.emit(ew.ShLIOp, lhs.type, lhs, rhs)


@builtin(export=False)
def rshift(b: Emitter, x: Operand, y: Operand) -> tensor:
    """``x >> y``: shift of integers; copies the sign if `x` (or `y`, where `x` is a number) is signed."""
    _warn_of_width(b, x, y)
    decides = x if isinstance(x, tensor) else to_tensor(b, y)
    signed = not decides.dtype.is_ptr() and decides.dtype.is_int_signed()
    lhs, rhs = _promote_bits(b, x, y)
    return b.emit(ew.ShRSIOp if signed else ew.ShRUIOp, lhs.type, lhs, rhs)


@builtin(export=False)
def minus(b: Emitter, x: Operand) -> tensor:
    """``-x``: negation; integers wrap."""
    value = to_tensor(b, x)
    if value.dtype.is_ptr():
        raise LanguageValueError(f"wrong type argument to unary minus ({value.dtype})")
    if value.dtype.is_floating():
        return b.emit(ew.NegFOp, value.type, value)
    zero = b.constant(False if value.dtype.is_bool() else 0, value.type)
    return _arithmetic(b, zero, value, (ew.SubFOp, ew.SubIOp), "sub", True)


@builtin(export=False)
def invert(b: Emitter, x: Operand) -> tensor:
    """``~x``: all bits of an integer flipped."""
    value = to_tensor(b, x)
    if not is_integer_kind(value):
        raise LanguageValueError(f"wrong type argument to unary invert ({value.dtype})")
    ones = b.constant(True if value.dtype.is_bool() else -1, value.type)
    return b.emit(ew.XOrIOp, value.type, value, ones)


# --- comparisons --------------------------------------------------------------------------------------------


def _comparison(name: str, sign: str, meaning: str, float_predicate: str, signed: str, unsigned: str) -> Builtin:
    def function(b: Emitter, x: Operand, y: Operand) -> tensor:
        lhs, rhs = promote_binary(b, x, y)
        result = with_shape_of(lhs.type, dtypes.int1)
        if lhs.dtype.is_floating():
            return b.emit(ew.CmpFOp, result, widened(b, lhs), widened(b, rhs), predicate=float_predicate)
        return b.emit(ew.CmpIOp, result, lhs, rhs, predicate=signed if lhs.dtype.is_int_signed() else unsigned)

    function.__name__, function.__doc__ = name, f"``x {sign} y``: {meaning}, an int1."
    made: Builtin = builtin(function, export=False)
    return made


less_than = _comparison("less_than", "<", "less", "olt", "slt", "ult")
less_equal = _comparison("less_equal", "<=", "less or equal", "ole", "sle", "ule")
greater_than = _comparison("greater_than", ">", "greater", "ogt", "sgt", "ugt")
greater_equal = _comparison("greater_equal", ">=", "greater or equal", "oge", "sge", "uge")
equal = _comparison("equal", "==", "equal", "oeq", "eq", "eq")
not_equal = _comparison("not_equal", "!=", "different (also where one is NaN)", "une", "ne", "ne")


# --- logic --------------------------------------------------------------------------------------------------


def _as_flag(b: Emitter, x: Operand) -> tensor:
    """An operand of `and`, `or`, `not`: int1, by bitcast as Triton has it."""
    value = to_tensor(b, x)
    if not value.dtype.is_ptr() and value.dtype.is_bool():
        return value
    if value.dtype.primitive_bitwidth != 1:
        raise LanguageValueError(
            f"Cannot bitcast data-type of size {value.dtype.primitive_bitwidth} to data-type of size 1",
            hint="compare it with zero: x != 0, or x == 0 for `not x`",
        )
    return bitcast_to(b, value, dtypes.int1)


@builtin(method=True)
def logical_and(b: Emitter, x: Operand, y: Operand) -> tensor:
    """``x and y`` of int1 values, element by element; both sides are evaluated.

    Args:
        x, y: int1 tensors or bools, broadcast together.

    Returns:
        int1 tensor.

    Raises:
        ValueError: an operand is not a one-bit value.

    Example:
        >>> tl.logical_and(True, False)
        False
    """
    made: tensor = and_.fn(b, _as_flag(b, x), _as_flag(b, y))
    return made


@builtin(method=True)
def logical_or(b: Emitter, x: Operand, y: Operand) -> tensor:
    """``x or y`` of int1 values, element by element; both sides are evaluated.

    Args:
        x, y: int1 tensors or bools, broadcast together.

    Returns:
        int1 tensor.

    Raises:
        ValueError: an operand is not a one-bit value.

    Example:
        >>> tl.logical_or(True, False)
        True
    """
    made: tensor = or_.fn(b, _as_flag(b, x), _as_flag(b, y))
    return made


@builtin(export=False)
def not_(b: Emitter, x: Operand) -> tensor:
    """``not x``: negation of an int1."""
    made: tensor = invert.fn(b, _as_flag(b, x))
    return made


@builtin
def where(b: Emitter, condition: Operand, x: Operand, y: Operand) -> tensor:
    """Elements of `x` where the condition holds, of `y` elsewhere; both are evaluated.

    Args:
        condition: int1 tensor or bool; other integers count as "not zero".
        x, y: tensors or numbers, promoted together; pointers of one type are allowed.

    Returns:
        Tensor of the promoted type and the common shape of all three.

    Raises:
        TypeError: the types of `x` and `y` do not go together.
        ValueError: the shapes do not broadcast.

    Example:
        >>> tl.where(tl.arange(0, 4) < 2, 1, 0)
        [1 1 0 0]
    """
    flag = to_tensor(b, condition)
    if flag.dtype.is_ptr() or not flag.dtype.is_bool():
        b.warn(f"tl.where with a condition of type {flag.dtype} is deprecated; compare with zero instead")
    flag = cast_to(b, flag, dtypes.int1)
    lhs, rhs = promote_binary(b, x, y, allow_lhs_ptr=True, allow_rhs_ptr=True)
    if lhs.dtype != rhs.dtype:
        raise incompatible(lhs.dtype, rhs.dtype)
    if flag.block_shape or lhs.block_shape:
        flag, lhs, rhs = broadcast_tensors(b, flag, lhs, rhs)
    return b.emit(ew.SelectOp, lhs.type, flag, lhs, rhs)


# --- tables -------------------------------------------------------------------------------------------------

BINARY: dict[type[ast.AST], Builtin] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv, ast.FloorDiv: floordiv, ast.Mod: mod,
    ast.LShift: lshift, ast.RShift: rshift, ast.BitAnd: and_, ast.BitOr: or_, ast.BitXor: xor,
}  # fmt: skip
COMPARE: dict[type[ast.AST], Builtin] = {
    ast.Lt: less_than, ast.LtE: less_equal, ast.Gt: greater_than, ast.GtE: greater_equal,
    ast.Eq: equal, ast.NotEq: not_equal,
}  # fmt: skip
UNARY: dict[type[ast.AST], Builtin] = {ast.USub: minus, ast.Invert: invert, ast.Not: not_}

_STEMS: dict[str, Builtin] = {
    "add": add, "sub": sub, "mul": mul, "truediv": truediv, "floordiv": floordiv, "mod": mod, "lshift": lshift,
    "rshift": rshift, "and": and_, "or": or_, "xor": xor,
}  # fmt: skip
_RELATIONS: dict[str, Builtin] = {
    "lt": less_than, "le": less_equal, "gt": greater_than, "ge": greater_equal, "eq": equal, "ne": not_equal,
}  # fmt: skip


def _method(function: Builtin, *, reflected: bool = False) -> Callable[..., Any]:
    """A Python operator of `tensor`, which runs on the emitter of the interpreter."""
    if function in (minus, invert):
        return lambda self: function(self)

    def method(self: tensor, other: Operand) -> Any:
        other = python_number(other)
        if not isinstance(other, tensor) and not is_number(other):
            return NotImplemented
        return function(other, self) if reflected else function(self, other)

    return method


for _stem, _function in _STEMS.items():
    setattr(tensor, f"__{_stem}__", _method(_function))
    setattr(tensor, f"__r{_stem}__", _method(_function, reflected=True))
for _stem, _function in _RELATIONS.items():
    setattr(tensor, f"__{_stem}__", _method(_function))
setattr(tensor, "__neg__", _method(minus))  # noqa: B010
setattr(tensor, "__pos__", lambda self: self)  # noqa: B010
setattr(tensor, "__invert__", _method(invert))  # noqa: B010
