"""User functions for atomic access: `atomic_add` and its family, `atomic_cas`, `atomic_load`, `atomic_store`.

Float `max` and `min` have no instruction of their own: the bits of a float without sign order like signed
integers, those of a float with sign in reverse, so each lane does one of two integer operations.
"""

from __future__ import annotations

from typing import TypeAlias

from tilewright.base import dtypes
from tilewright.base.dtypes import PointerType, Type, with_shape_of
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError
from tilewright.ops.atomic import SCOPES, SEMANTICS, AtomicCASOp, AtomicLoadOp, AtomicRMWOp, AtomicStoreOp
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.casts import bitcast_to, cast_to
from tilewright.ops.elementwise import AndIOp, CmpIOp, SelectOp, ShRUIOp, XOrIOp
from tilewright.ops.functions.memory import checked_mask, checked_pointer, shaped_like
from tilewright.ops.values import Operand, Word, tensor, unwrap

Order: TypeAlias = Word | None  # the name of a memory order, or of a scope
_HALVES = (dtypes.float16, dtypes.bfloat16)
_SMALL = (dtypes.int1, dtypes.int8, dtypes.int16, dtypes.uint8, dtypes.uint16, *_HALVES)


def _order(sem: Order, scope: Order, default: str = "acq_rel", allowed: tuple[str, ...] = SEMANTICS) -> dict[str, str]:
    """Memory order and scope as attributes."""
    order, where = unwrap(sem), unwrap(scope)
    order, where = order or default, where or "gpu"
    if order not in allowed:
        raise LanguageValueError(f"Memory semantic {order} not supported", hint=f"one of {', '.join(allowed)}")
    if where not in SCOPES:
        raise LanguageValueError(f"Memory semantic {where} not supported", hint=f"one of {', '.join(SCOPES)}")
    return {"sem": order, "scope": where}


def _prepare(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None, op: str
) -> tuple[tensor, tensor, tensor]:
    """Checked pointer, value of its element type, and mask (true where none is given)."""
    at = checked_pointer(b, pointer, f"tl.atomic_{op}")
    if at.dtype.const:
        raise LanguageTypeError("Cannot store to a constant pointer")
    element = at.dtype.element_ty
    known = isinstance(element, dtypes.dtype) and not element.is_fp8()
    if not known or (element in _SMALL and not (element in _HALVES and op in ("add", "max", "min"))):
        raise DTypeError(f"atomic_{op} does not support {element}", hint="use a buffer of 32-bit or 64-bit elements")
    made = cast_to(b, shaped_like(b, val, at, "Value"), element)
    lanes = checked_mask(b, mask, at)
    if lanes is None:
        lanes = b.constant(True, with_shape_of(at.type, dtypes.int1))
    return at, made, lanes


def _rmw(b: Emitter, kind: str, at: tensor, val: tensor, lanes: tensor, order: dict[str, str]) -> tensor:
    return b.emit(AtomicRMWOp, val.type, at, val, lanes, atomic_rmw_op=kind, **order)


def _integers_only(at: tensor, op: str) -> None:
    if not at.dtype.element_ty.is_int():
        raise DTypeError(f"atomic_{op} does not support {at.dtype.element_ty}", hint="bitcast the pointer to integers")


def _extremum(
    b: Emitter, op: str, pointer: Operand, val: Operand, mask: Operand | None, sem: Order, scope: Order
) -> tensor:
    """max or min; floats by sign, as the module's head says."""
    order = _order(sem, scope)
    at, made, lanes = _prepare(b, pointer, val, mask, op)
    element = at.dtype.element_ty
    if element.is_int():
        return _rmw(b, op if element.is_int_signed() else f"u{op}", at, made, lanes, order)
    width = element.primitive_bitwidth
    signed, unsigned = dtypes.dtype(f"int{width}"), dtypes.dtype(f"uint{width}")
    bits = bitcast_to(b, made, signed)
    as_signed, as_unsigned = bitcast_to(b, at, PointerType(signed)), bitcast_to(b, at, PointerType(unsigned))
    flags = with_shape_of(made.type, dtypes.int1)
    sign = b.emit(ShRUIOp, bits.type, bits, b.constant(width - 1, bits.type))
    negative = b.emit(CmpIOp, flags, sign, b.constant(0, bits.type), predicate="ne")
    positive = b.emit(XOrIOp, flags, negative, b.constant(True, flags))
    opposite = "umin" if op == "max" else "umax"
    upper = _rmw(b, op, as_signed, bits, b.emit(AndIOp, flags, lanes, positive), order)
    lower = _rmw(b, opposite, as_unsigned, bits, b.emit(AndIOp, flags, lanes, negative), order)
    chosen = b.emit(SelectOp, bits.type, positive, upper, lower)
    return bitcast_to(b, chosen, element)


@builtin(method=True)
def atomic_add(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Add to memory, each lane atomically.

    Args:
        pointer: pointer or tile of pointers to 32-bit or 64-bit integers, or to floats other than 8-bit ones.
        val: what to add; broadcast and cast.
        mask: lanes that take part.
        sem: "acq_rel" (default), "acquire", "release" or "relaxed".
        scope: "gpu" (default), "cta" or "sys".

    Returns:
        The old values; undefined where the mask is false.
    """
    order = _order(sem, scope)
    at, made, lanes = _prepare(b, pointer, val, mask, "add")
    return _rmw(b, "fadd" if made.dtype.is_floating() else "add", at, made, lanes, order)


@builtin(method=True)
def atomic_max(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Maximum of memory and `val`, stored atomically; floats by sign, halves too. Else as in :func:`atomic_add`."""
    return _extremum(b, "max", pointer, val, mask, sem, scope)


@builtin(method=True)
def atomic_min(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Minimum of memory and `val`, stored atomically; floats by sign, halves too. Else as in :func:`atomic_add`."""
    return _extremum(b, "min", pointer, val, mask, sem, scope)


def _bitwise(
    b: Emitter, kind: str, pointer: Operand, val: Operand, mask: Operand | None, sem: Order, scope: Order
) -> tensor:
    order = _order(sem, scope)
    at, made, lanes = _prepare(b, pointer, val, mask, kind)
    _integers_only(at, kind)
    return _rmw(b, kind, at, made, lanes, order)


@builtin(method=True)
def atomic_and(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Bitwise and of memory and `val`, stored atomically; integers only, else as :func:`atomic_add`."""
    return _bitwise(b, "and", pointer, val, mask, sem, scope)


@builtin(method=True)
def atomic_or(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Bitwise or of memory and `val`, stored atomically; integers only, else as :func:`atomic_add`."""
    return _bitwise(b, "or", pointer, val, mask, sem, scope)


@builtin(method=True)
def atomic_xor(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Exclusive or of memory and `val`, stored atomically; integers only, else as :func:`atomic_add`."""
    return _bitwise(b, "xor", pointer, val, mask, sem, scope)


@builtin(method=True)
def atomic_xchg(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Store `val` and return what was there, atomically; arguments as in :func:`atomic_add`."""
    order = _order(sem, scope)
    at, made, lanes = _prepare(b, pointer, val, mask, "xchg")
    return _rmw(b, "exch", at, made, lanes, order)


@builtin(method=True)
def atomic_cas(
    b: Emitter, pointer: Operand, cmp: Operand, val: Operand, sem: Order = None, scope: Order = None
) -> tensor:
    """Store `val` where memory holds `cmp`, and return what was there.

    Args:
        pointer: pointer or tile of pointers to elements of 16, 32 or 64 bits.
        cmp, val: of the pointer's shape and element type, or integers of the width of integer elements, whose bits are
            taken as they are; numbers become elements. Nothing else is cast or broadcast.
        sem, scope: as in :func:`atomic_add`.
    """
    order = _order(sem, scope)
    at = checked_pointer(b, pointer, "tl.atomic_cas")
    element = at.dtype.element_ty
    if not isinstance(element, dtypes.dtype) or element.primitive_bitwidth not in (16, 32, 64):
        raise DTypeError(f"atomic_cas only supports elements with width {{16, 32, 64}}, not {element}")
    wanted = with_shape_of(at.type, element)
    values = [_swapped(b, role, value, wanted) for role, value in (("cmp", cmp), ("val", val))]
    return b.emit(AtomicCASOp, wanted, at, *values, **order)


def _swapped(b: Emitter, role: str, value: Operand, wanted: Type) -> tensor:
    """An operand of a compare-and-swap as its elements: numbers converted, integers of their width read as they are."""
    element, number = wanted.scalar, unwrap(value)
    if isinstance(number, int) and element.is_int():
        width = element.primitive_bitwidth
        if not -(1 << (width - 1)) <= number < 1 << width:
            raise DTypeError(f"{role} of atomic_cas is {number}, which does not fit in {width} bits")
        low, span = (0 if element.is_int_unsigned() else -(1 << (width - 1))), 1 << width
        return b.constant((number - low) % span + low, wanted)
    if isinstance(number, (int, float)) and element.is_floating():
        return b.constant(float(number), wanted)
    made = to_tensor(b, value)
    have = made.dtype
    both = not have.is_ptr() and have.is_int() and element.is_int()
    if both and have.primitive_bitwidth == element.primitive_bitwidth:
        made = bitcast_to(b, made, element)
    if made.type != wanted:
        raise DTypeError(
            f"{role} of atomic_cas has type {made.type} where {wanted} is needed",
            hint=f"cast it with .to(tl.{element})",
        )
    return made


@builtin(method=True)
def atomic_load(
    b: Emitter, pointer: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> tensor:
    """Read memory atomically with order "acquire" (default) or "relaxed"; masked-off lanes are undefined."""
    order = _order(sem, scope, "acquire", ("acquire", "relaxed"))
    at = checked_pointer(b, pointer, "tl.atomic_load")
    lanes = checked_mask(b, mask, at)
    if lanes is None:
        lanes = b.constant(True, with_shape_of(at.type, dtypes.int1))
    return b.emit(AtomicLoadOp, with_shape_of(at.type, at.dtype.element_ty), at, lanes, **order)


@builtin(method=True)
def atomic_store(
    b: Emitter, pointer: Operand, val: Operand, mask: Operand | None = None, sem: Order = None, scope: Order = None
) -> None:
    """Write memory atomically with order "release" (default) or "relaxed"."""
    order = _order(sem, scope, "release", ("release", "relaxed"))
    at = checked_pointer(b, pointer, "tl.atomic_store")
    made = cast_to(b, shaped_like(b, val, at, "Value"), at.dtype.element_ty)
    lanes = checked_mask(b, mask, at)
    if lanes is None:
        lanes = b.constant(True, with_shape_of(at.type, dtypes.int1))
    b.emit_void(AtomicStoreOp, at, made, lanes, **order)
