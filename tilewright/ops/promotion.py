"""Types of mixed operands: which type two or three operands are computed in, and how they get there.

The rules are Triton's (its semantics document and code), in the order in which they apply; `RULES` in the
tests lists them as a table. A "number" is a Python number or compile-time constant; it yields to the tensor beside it
when its kind (bool < int < float) does not exceed the tensor's.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import Kind
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError
from tilewright.ops.broadcast import broadcast_tensors
from tilewright.ops.builtin import Emitter, is_number, to_tensor, unwrap
from tilewright.ops.casts import cast_to
from tilewright.ops.values import tensor

Number = bool | int | float


def incompatible(a: Any, b: Any, *, hint: str | None = None) -> DTypeError:
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


def number_as(b: Emitter, value: Number, type_: dtypes.dtype) -> tensor:
    """The number as a scalar constant of `type_`."""
    check_number(value, type_)
    return b.constant(float(value) if type_.is_floating() else int(value), type_)


# --- operands ----------------------------------------------------------------------------------------------------


def _check_pointers(lhs: tensor, rhs: tensor, allow_lhs: bool, allow_rhs: bool) -> None:
    """Pointers meet only what the operation allows: integers, or pointers of the same type."""
    for one, other, allowed in ((lhs, rhs, allow_lhs), (rhs, lhs, allow_rhs)):
        if not one.dtype.is_ptr():
            continue
        same_pointers = not other.dtype.is_ptr() or one.dtype == other.dtype
        if not allowed or not same_pointers or (not other.dtype.is_ptr() and other.dtype.is_floating()):
            raise incompatible(lhs.dtype, rhs.dtype, hint="a pointer takes only + and - with an integer offset")


def promote_binary(
    b: Emitter,
    lhs: Any,
    rhs: Any,
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
    numbers = is_number(lhs), is_number(rhs)
    raw = unwrap(lhs), unwrap(rhs)
    x, y = to_tensor(b, raw[0]), to_tensor(b, raw[1])
    _check_pointers(x, y, allow_lhs_ptr, allow_rhs_ptr)
    if not x.dtype.is_ptr() and not y.dtype.is_ptr():
        type_ = computation_type(x.dtype, y.dtype, a_number=numbers[0], b_number=numbers[1], div_or_mod=div_or_mod)
        x = number_as(b, raw[0], type_) if numbers[0] else cast_to(b, x, type_)
        y = number_as(b, raw[1], type_) if numbers[1] else cast_to(b, y, type_)
    return _broadcast_pair(b, x, y)


def _broadcast_pair(b: Emitter, x: tensor, y: tensor) -> tuple[tensor, tensor]:
    if x.block_shape == y.block_shape:
        return x, y
    x, y = broadcast_tensors(b, x, y)
    return x, y


def promote_many(b: Emitter, *operands: Any) -> tuple[tensor, ...]:
    """Three or more operands in one element type and shape; numbers yield to tensors as in :func:`promote_binary`."""
    raw = [unwrap(operand) for operand in operands]
    tensors = [(to_tensor(b, value), is_number(value)) for value in raw]
    for value, _ in tensors:
        if value.dtype.is_ptr():
            raise incompatible(tensors[0][0].dtype, value.dtype)
    type_, number = tensors[0][0].dtype, tensors[0][1]
    for value, other_number in tensors[1:]:
        type_ = computation_type(type_, value.dtype, a_number=number, b_number=other_number)
        number = number and other_number
    out = [
        number_as(b, value, type_) if is_num else cast_to(b, made, type_)
        for value, (made, is_num) in zip(raw, tensors, strict=True)
    ]
    return broadcast_tensors(b, *out)


def is_integer_kind(value: tensor) -> bool:
    """Whether `value` holds integers or bools."""
    return not value.dtype.is_ptr() and value.dtype.kind in (Kind.BOOLEAN, Kind.INTEGRAL)


def expect_tensor(value: Any, name: str) -> tensor:
    """`value` if it is a tensor, else a `LanguageTypeError` that names the function."""
    if isinstance(value, tensor):
        return value
    raise LanguageTypeError(f"tl.{name} takes a tensor, not {value!r}")
