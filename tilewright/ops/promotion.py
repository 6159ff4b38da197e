"""Types of mixed operands: which type two or three operands are computed in, and how they get there.

The rules are Triton's (its semantics document and code), in the order in which they apply; `RULES` in the
tests lists them as a table. A "number" is a Python number or compile-time constant; it yields to the tensor beside it
when its kind (bool < int < float) does not exceed the tensor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType, Kind, PointerType, Type
from tilewright.base.errors import DTypeError, LanguageValueError
from tilewright.ir.op import TileOp
from tilewright.ops.broadcast import broadcast_tensors, common_shape
from tilewright.ops.builtin import Emitter, literal_dtype, to_tensor, unwrap
from tilewright.ops.casts import cast_to
from tilewright.ops.values import Operand, tensor

Number = bool | int | float


def incompatible(a: Type, b: Type, *, hint: str | None = None) -> DTypeError:
    """The error of two types that no operation takes together."""
    return DTypeError(f"invalid operands of type {a} and {b}", hint=hint)


# --- two scalar types to one ----------------------------------------------------------------------------------


def promote_integers(a: dtypes.dtype, b: dtypes.dtype) -> dtypes.dtype:
    """Usual arithmetic conversions of C, without widening to int; int1 is a one-bit unsigned integer."""
    if a.int_signedness == b.int_signedness:
        return a if a.int_bitwidth > b.int_bitwidth else b
    unsigned, signed = (a, b) if a.is_int_unsigned() else (b, a)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def _promote_floats(a: dtypes.dtype, b: dtypes.dtype, div_or_mod: bool) -> dtypes.dtype:
    """Type of an operation with at least one float operand."""
    if dtypes.float64 in (a, b):
        return dtypes.float64
    if div_or_mod or dtypes.float32 in (a, b):
        return dtypes.float32
    if dtypes.float16 in (a, b):
        return dtypes.float16
    if dtypes.bfloat16 in (a, b):
        return dtypes.bfloat16 if a == b else dtypes.float32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else dtypes.float16
    raise DTypeError(f"unexpected type {a} and {b}", hint="convert the 8-bit float first: x.to(tl.float32)")


def computation_type(
    a: dtypes.dtype, b: dtypes.dtype, *, a_number: bool = False, b_number: bool = False, div_or_mod: bool = False
) -> dtypes.dtype:
    """The type in which ``a op b`` is computed.

    Args:
        a, b: element types; of a number, its literal type.
        a_number, b_number: whether the operand is a Python number.
        div_or_mod: the operation is ``/``, ``//`` or ``%``.

    Raises:
        DTypeError: an 8-bit float with an integer; different signedness in a division.
    """
    if a_number != b_number:
        number, other = (a, b) if a_number else (b, a)
        if number.kind <= other.kind:
            a = b = other
    if a.is_floating() or b.is_floating():
        return _promote_floats(a, b, div_or_mod)
    if div_or_mod and a.int_signedness != b.int_signedness:
        raise DTypeError(
            f"Cannot use /, #, or % with {a} and {b} because they have different signedness;"
            "this is unlikely to result in a useful answer. Cast them to the same signedness.",
            hint=f"convert one of them, for instance x.to(tl.{(a if a.is_int_signed() else b).name})",
        )
    return promote_integers(a, b)


def check_number(value: Number, type_: dtypes.dtype) -> None:
    """Raise `LanguageValueError` unless the number `value` can be an element of `type_`."""
    if type_.is_int_unsigned() and value < 0:
        raise LanguageValueError(
            "Cannot perform a binary operation between an unsigned tensor and a negative scalar. "
            "Perform a explicit cast on one of them.",
            hint=f"the scalar is {value} and the tensor has type {type_}",
        )
    if type_.is_int() and not type_.get_int_min_value() <= value <= type_.get_int_max_value():
        raise LanguageValueError(
            f"Scalar {value} is out of range for type {type_}",
            hint=f"{type_} holds {type_.get_int_min_value()} to {type_.get_int_max_value()}; convert the tensor first",
        )


def number_like(b: Emitter, value: Number, type_: dtypes.dtype, shape: Sequence[int]) -> tensor:
    """The number as a constant of `type_`: a tile of `shape`, or a scalar for the empty shape.

    Raises:
        LanguageValueError: `type_` cannot hold it.
    """
    check_number(value, type_)
    held = float(value) if type_.is_floating() else int(value)
    return b.constant(held, BlockType(type_, tuple(shape)) if shape else type_)


# --- operands ----------------------------------------------------------------------------------------------------


_Scalar = dtypes.dtype | PointerType


def _check_pointers(lhs: _Scalar, rhs: _Scalar, allow_lhs: bool, allow_rhs: bool) -> None:
    """Pointers meet only what the operation allows: integers, or pointers of the same type."""
    for one, other, allowed in ((lhs, rhs, allow_lhs), (rhs, lhs, allow_rhs)):
        if not one.is_ptr():
            continue
        same_pointers = not other.is_ptr() or one == other
        if not allowed or not same_pointers or (isinstance(other, dtypes.dtype) and other.is_floating()):
            hint = "a pointer takes only + and - with an integer offset"
            if not other.is_ptr():
                hint += "; for the number that it points to write tl.load(pointer), or pass x.item() instead of x"
            raise incompatible(lhs, rhs, hint=hint)


def promote_binary(
    b: Emitter,
    lhs: Operand,
    rhs: Operand,
    *,
    div_or_mod: bool = False,
    allow_lhs_ptr: bool = False,
    allow_rhs_ptr: bool = False,
) -> tuple[tensor, tensor]:
    """Both operands in one element type and one shape.

    Args:
        b: emitter.
        lhs, rhs: tensors or numbers.
        div_or_mod: the operation is ``/``, ``//`` or ``%``.
        allow_lhs_ptr, allow_rhs_ptr: whether that operand may be a pointer, which is then left as it is.

    Returns:
        The two tensors; with a pointer among them, only their shapes are made equal.

    Raises:
        DTypeError: the types do not go together.
        LanguageValueError: a number is out of range for the type of the tensor beside it.
        ShapeError: the shapes do not broadcast.
    """
    x: Any = unwrap(lhs)
    y: Any = unwrap(rhs)
    x_number, y_number = isinstance(x, Number), isinstance(y, Number)
    x, y = x if x_number else to_tensor(b, x), y if y_number else to_tensor(b, y)
    x_type: Any = literal_dtype(x) if x_number else x.dtype
    y_type: Any = literal_dtype(y) if y_number else y.dtype
    _check_pointers(x_type, y_type, allow_lhs_ptr, allow_rhs_ptr)
    if not x_type.is_ptr() and not y_type.is_ptr():
        x_type = y_type = computation_type(x_type, y_type, a_number=x_number, b_number=y_number, div_or_mod=div_or_mod)
    # A number becomes a constant of the shape beside it at once: no splat, no broadcast.
    x_shape, y_shape = () if x_number else x.block_shape, () if y_number else y.block_shape
    x = number_like(b, x, x_type, y_shape) if x_number else cast_to(b, x, x_type)
    y = number_like(b, y, y_type, x_shape) if y_number else cast_to(b, y, y_type)
    return _broadcast_pair(b, x, y)


def _broadcast_pair(b: Emitter, x: tensor, y: tensor) -> tuple[tensor, tensor]:
    if x.block_shape == y.block_shape:
        return x, y
    x, y = broadcast_tensors(b, x, y)
    return x, y


def promote_many(b: Emitter, *operands: Any) -> tuple[tensor, ...]:
    """Three or more operands in one element type and shape; numbers yield to tensors as in :func:`promote_binary`."""
    values = [unwrap(operand) for operand in operands]
    numbers = [isinstance(value, Number) for value in values]
    values = [value if number else to_tensor(b, value) for value, number in zip(values, numbers, strict=True)]
    types = [literal_dtype(value) if number else value.dtype for value, number in zip(values, numbers, strict=True)]
    type_, all_numbers = types[0], numbers[0]
    for other, number in zip(types[1:], numbers[1:], strict=True):
        if type_.is_ptr() or other.is_ptr():
            raise incompatible(type_, other)
        type_ = computation_type(type_, other, a_number=all_numbers, b_number=number)
        all_numbers = all_numbers and number
    shape: tuple[int, ...] = ()
    for value, number in zip(values, numbers, strict=True):
        shape = shape if number else common_shape(shape, value.block_shape)
    return broadcast_tensors(
        b,
        *[
            number_like(b, value, type_, shape) if number else cast_to(b, value, type_)
            for value, number in zip(values, numbers, strict=True)
        ],
    )


def is_integer_kind(value: tensor) -> bool:
    """Whether `value` holds integers or bools."""
    return not value.dtype.is_ptr() and value.dtype.kind in (Kind.BOOLEAN, Kind.INTEGRAL)


# --- 8-bit floats ------------------------------------------------------------------------------------------------


def emit_float(b: Emitter, cls: type[TileOp], *values: tensor, **attributes: Any) -> tensor:
    """The result of an operation whose float operands and result have one type.

    No machine computes with 8-bit floats: such operands are widened to float32, and the result is rounded.
    """
    kind = values[0].dtype
    values = tuple(widened(b, value) for value in values)
    return cast_to(b, b.emit(cls, values[0].type, *values, **attributes), kind)


def widened(b: Emitter, x: tensor) -> tensor:
    """`x` in a type that can be computed with: float32 for 8-bit floats."""
    return cast_to(b, x, dtypes.float32) if x.dtype.is_fp8() else x
