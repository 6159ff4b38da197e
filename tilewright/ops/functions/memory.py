"""`tl.load` and `tl.store`: checks, broadcasting of mask and value, and the byte form of int1 in memory.

A block pointer becomes pointers and a mask first (`block_pointer.py`), and then is accessed like any tile of them.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import PointerType, with_shape_of
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ops.broadcast import broadcast_tensors, broadcast_to_shape, expand_axis
from tilewright.ops.builtin import Emitter, builtin, to_tensor
from tilewright.ops.casts import bitcast_to, cast_to
from tilewright.ops.functions.block_pointer import block_pointer, pointers_and_mask
from tilewright.ops.memory import CachePolicy, LoadOp, StoreOp
from tilewright.ops.values import Word, tensor, unwrap

_LOAD_MODIFIERS = ("ca", "cg", "cs", "cv")
_STORE_MODIFIERS = ("wb", "cg", "cs", "wt")
_EVICTIONS = ("evict_normal", "evict_first", "evict_last")


# --- pieces used by atomics as well ----------------------------------------------------------------------------


def checked_pointer(b: Emitter, pointer: Any, what: str) -> tensor:
    """`pointer` if it is a pointer or a tile of pointers."""
    value = unwrap(pointer)
    if not isinstance(value, tensor) or not isinstance(value.dtype, PointerType):
        shown = value.type if isinstance(value, tensor) else repr(value)
        raise LanguageTypeError(
            f"Unsupported ptr type {shown} in `{what}`",
            hint="add an offset to a pointer argument: ptr + offsets",
        )
    return value


def shaped_like(b: Emitter, value: Any, pointer: tensor, role: str) -> tensor:
    """`value` as a tensor of the pointer's shape.

    Args:
        value: tensor or number.
        pointer: scalar pointer, which takes scalars only, or tile of pointers.
        role: "Mask", "Other" or "Value", for the messages.
    """
    made = to_tensor(b, value)
    if not pointer.block_shape:
        if made.block_shape:
            raise ShapeError(
                f"{role} argument cannot be block type if pointer argument is not a block: "
                f"the pointer is {pointer.type}, the {role.lower()} is {made.type}",
                hint="make a tile of pointers: ptr + tl.arange(0, BLOCK)",
            )
        return made
    shape = pointer.block_shape
    if len(made.block_shape) > len(shape) or any(
        have not in (1, want) for have, want in zip(made.block_shape[::-1], shape[::-1], strict=False)
    ):
        raise ShapeError(
            f"Expected pointer argument to have shape {list(made.block_shape)} but got {list(shape)}: "
            f"the {role.lower()} does not broadcast to the shape of the pointer",
            hint="broadcast the pointer itself first, e.g. ptr + rows[:, None] + columns[None, :]",
        )
    while made.block_shape and len(made.block_shape) < len(shape):
        made = expand_axis(b, made, 0)
    return broadcast_to_shape(b, made, shape)


def checked_mask(b: Emitter, mask: Any, pointer: tensor) -> tensor | None:
    """The mask in the pointer's shape, or `None`."""
    if unwrap(mask) is None:
        return None
    made = shaped_like(b, mask, pointer, "Mask")
    if made.dtype != dtypes.int1:
        raise DTypeError(
            f"Mask must have boolean scalar type, got {made.type}", hint="compare it with something: mask != 0"
        )
    return made


def memory_pointer(b: Emitter, pointer: tensor) -> tensor:
    """`pointer` as a pointer to what stands in memory: an int1 takes a whole byte."""
    if pointer.dtype.element_ty != dtypes.int1:
        return pointer
    return bitcast_to(b, pointer, PointerType(dtypes.int8, pointer.dtype.const))


def _policy(cache_modifier: Word, eviction_policy: Word, allowed: tuple[str, ...]) -> CachePolicy | None:
    modifier, eviction = unwrap(cache_modifier), unwrap(eviction_policy)
    word = modifier[1:] if isinstance(modifier, str) and modifier.startswith(".") else modifier
    if word not in ("", None, *allowed):
        raise LanguageValueError(
            f"Unsupported cache modifier {modifier!r}", hint="one of " + ", ".join(f'".{m}"' for m in allowed)
        )
    if eviction not in ("", None, *_EVICTIONS):
        raise LanguageValueError(f"Unsupported eviction policy {eviction!r}", hint=f"one of {', '.join(_EVICTIONS)}")
    if not word and not eviction:
        return None
    return CachePolicy(word or "none", eviction or "evict_normal")


def _no_mask(mask: Any, other: Any) -> None:
    if unwrap(mask) is not None or unwrap(other) is not None:
        raise LanguageValueError(
            "`mask` and `other` arguments cannot be specified for a block pointer",
            hint='name the dimensions to check, e.g. boundary_check=(0, 1), padding_option="zero"',
        )


def _no_boundary_check(boundary_check: Any, padding_option: Any) -> None:
    if unwrap(boundary_check) not in ((), [], None) or unwrap(padding_option):
        raise LanguageValueError(
            "`padding_option` or `boundary_check` argument is not supported for a tensor of pointers",
            hint="give a mask, or make a block pointer with tl.make_block_ptr",
        )


# --- user functions -------------------------------------------------------------------------------------------------


@builtin(method=True)
def load(
    b: Emitter,
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Word = "",
    eviction_policy: Word = "",
    volatile: Any = False,
) -> tensor:
    """Read memory.

    Args:
        pointer: a pointer, a tile of pointers, or a block pointer.
        mask: where to read (int1); other lanes touch no memory. Broadcast to the pointer's shape.
        other: value of the lanes that are not read, cast to the element type; undefined without it.
        boundary_check: of a block pointer, the dimensions along which the block may leave the tensor.
        padding_option: of a block pointer, "zero" or "nan": what is read outside of the tensor.
        cache_modifier: hint ".ca", ".cg", ".cs" or ".cv".
        eviction_policy: hint "evict_normal", "evict_first" or "evict_last".
        volatile: every execution reads memory.

    Returns:
        A tensor of the pointer's shape with its element type.

    Raises:
        LanguageTypeError: `pointer` is not one. DTypeError: the mask is not int1.
        LanguageValueError: `other` without `mask`, an unknown hint, a mask for a block pointer, or a boundary check
            without one.
    """
    if isinstance(pointer, block_pointer):
        _no_mask(mask, other)
        pointer, mask, other = pointers_and_mask(b, pointer, boundary_check, padding_option)
    else:
        _no_boundary_check(boundary_check, padding_option)
    at = checked_pointer(b, pointer, "tl.load")
    if at.block_shape and unwrap(mask) is not None:
        at, mask = broadcast_tensors(b, at, to_tensor(b, mask))
    policy = _policy(cache_modifier, eviction_policy, _LOAD_MODIFIERS)
    if unwrap(mask) is None and unwrap(other) is not None:
        hint = "say which elements exist, mask=offsets < n, or leave `other` out"
        raise LanguageValueError("`other` cannot be provided without `mask`", hint=hint)
    lanes = checked_mask(b, mask, at)
    target = memory_pointer(b, at)
    element = target.dtype.element_ty
    rest = None
    if unwrap(other) is not None:
        rest = cast_to(b, shaped_like(b, other, at, "Other"), element)
    result = b.emit(
        LoadOp,
        with_shape_of(at.type, element),
        target,
        lanes,
        rest,
        cachePolicy=policy,
        isVolatile=bool(unwrap(volatile)),
    )
    return cast_to(b, result, dtypes.int1) if at.dtype.element_ty == dtypes.int1 else result


@builtin(method=True)
def store(
    b: Emitter,
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Word = "",
    eviction_policy: Word = "",
) -> None:
    """Write memory.

    Args:
        pointer: a pointer, a tile of pointers that has the full shape, or a block pointer.
        value: what to write; broadcast to the pointer's shape and cast to its element type.
        mask: where to write (int1); other lanes touch no memory.
        boundary_check: of a block pointer, the dimensions along which the block may leave the tensor; elements outside
            are not written.
        cache_modifier: hint ".wb", ".cg", ".cs" or ".wt".
        eviction_policy: hint "evict_normal", "evict_first" or "evict_last".

    Raises:
        LanguageTypeError: `pointer` is not one, or points to constant memory.
        ShapeError: value or mask do not broadcast to the pointer's shape. DTypeError: the mask is not int1.
        LanguageValueError: an unknown hint, a mask for a block pointer, or a boundary check without one.
    """
    if isinstance(pointer, block_pointer):
        _no_mask(mask, None)
        pointer, mask, _ = pointers_and_mask(b, pointer, boundary_check)
    else:
        _no_boundary_check(boundary_check, "")
    at = checked_pointer(b, pointer, "tl.store")
    if at.dtype.const:
        raise LanguageTypeError("Cannot store to a constant pointer")
    policy = _policy(cache_modifier, eviction_policy, _STORE_MODIFIERS)
    made = shaped_like(b, value, at, "Value")
    lanes = checked_mask(b, mask, at)
    target = memory_pointer(b, at)
    made = cast_to(b, made, at.dtype.element_ty)
    if at.dtype.element_ty == dtypes.int1:
        made = cast_to(b, made, dtypes.int8)
    b.emit_void(StoreOp, target, made, lanes, cachePolicy=policy)


setattr(block_pointer, "load", load)  # noqa: B010
setattr(block_pointer, "store", store)  # noqa: B010
