"""`tl.dot_scaled`: matrix product of block-scaled narrow floats (OCP Microscaling), made of ordinary operations.

Operands are decoded to bfloat16 (to float16 if one of them is), multiplied by their scales, and given to `tl.dot`:

    result[m, n] = sum over k of lhs[m, k] * 2^(lhs_scale[m, k / g] - 127) * rhs[k, n] * 2^(rhs_scale[n, k / g] - 127)
"""

from __future__ import annotations

from typing import Any

from tilewright.base import dtypes
from tilewright.base.dtypes import BlockType
from tilewright.base.errors import DTypeError, LanguageTypeError, LanguageValueError, ShapeError
from tilewright.ops.broadcast import broadcast_to_shape, expand_axis
from tilewright.ops.builtin import Emitter, builtin
from tilewright.ops.casts import bitcast_to, cast_to
from tilewright.ops.dot import dot
from tilewright.ops.functions.operators import add, and_, equal, less_than, lshift, mul, or_, rshift, where
from tilewright.ops.functions.shape import join, permute_to, reshape_to
from tilewright.ops.values import Element, Flag, Operand, Word, tensor, unwrap

FORMATS = {
    "e2m1": (dtypes.uint8,),
    "e4m3": (dtypes.float8e4nv, dtypes.uint8),
    "e5m2": (dtypes.float8e5, dtypes.uint8),
    "bf16": (dtypes.bfloat16, dtypes.uint16),
    "fp16": (dtypes.float16, dtypes.uint16),
}
_SIGNED = {dtypes.int8: dtypes.uint8, dtypes.int16: dtypes.uint16}


def _checked(value: Operand, name: str, format_: Word) -> tensor:
    """An operand as elements of its format (e2m1: as pairs in bytes)."""
    kind = unwrap(format_)
    if kind not in FORMATS:
        raise LanguageValueError(f"NYI: {name}_format {kind!r}", hint=f"one of {', '.join(FORMATS)}")
    if not isinstance(value, tensor) or len(value.block_shape) not in (2, 3):
        raise ShapeError(f"{name} of tl.dot_scaled must be a tile of 2 or 3 dimensions, got {value!r}")
    found = tensor(value.handle, BlockType(_SIGNED.get(value.dtype, value.dtype), value.block_shape))
    if found.dtype not in FORMATS[kind]:
        wanted = " or ".join(str(t) for t in FORMATS[kind])
        raise DTypeError(f"{name} of format {kind} must have elements of type {wanted}, got {value.dtype}")
    return found


def _swap(b: Emitter, x: tensor) -> tensor:
    """The last two dimensions exchanged."""
    rank = len(x.block_shape)
    return permute_to(b, x, [*range(rank - 2), rank - 1, rank - 2])


def _decode_e2m1(b: Emitter, packed: tensor) -> tensor:
    """Bytes [..., n] as bfloat16 [..., 2n], low nibble first."""
    low, high = and_.fn(b, packed, 15), rshift.fn(b, packed, 4)
    pairs: tensor = join.fn(b, low, high)
    codes = cast_to(b, reshape_to(b, pairs, (*packed.block_shape[:-1], 2 * packed.block_shape[-1])), dtypes.uint16)
    magnitude = and_.fn(b, codes, 7)
    # 0, 0.5, then 1, 1.5, 2, 3, 4, 6: exponent and mantissa of bfloat16 count on from there.
    normal = lshift.fn(b, add.fn(b, magnitude, 252, sanitize_overflow=False), 6)
    small = where.fn(b, equal.fn(b, magnitude, 0), 0, 0x3F00)
    bits = where.fn(b, less_than.fn(b, magnitude, 2), cast_to(b, small, dtypes.uint16), normal)
    sign = lshift.fn(b, rshift.fn(b, codes, 3), 15)
    return bitcast_to(b, or_.fn(b, bits, sign), dtypes.bfloat16)


def _decode(b: Emitter, value: tensor, kind: str, packed_last: bool, target: dtypes.dtype) -> tensor:
    """An operand as `target`; `packed_last` tells along which of the last two dimensions e2m1 is packed."""
    if kind == "e2m1":
        made = _decode_e2m1(b, value) if packed_last else _swap(b, _decode_e2m1(b, _swap(b, value)))
    else:
        made = bitcast_to(b, value, FORMATS[kind][0])
    return cast_to(b, made, target)


def _scale_factors(b: Emitter, scale: tensor) -> tensor:
    """e8m0 exponents as bfloat16 powers of two; 255 is NaN. Scales that are floats are converted."""
    if scale.dtype.is_fp8():
        return cast_to(b, scale, dtypes.bfloat16)
    codes = cast_to(b, tensor(scale.handle, BlockType(dtypes.uint8, scale.block_shape)), dtypes.uint16)
    bits = lshift.fn(b, codes, 7)
    subnormal = where.fn(b, equal.fn(b, codes, 0), 0x40, bits)  # 2^-127 has no normal form
    nan = where.fn(b, equal.fn(b, codes, 255), 0x7FC0, subnormal)
    return bitcast_to(b, cast_to(b, nan, dtypes.uint16), dtypes.bfloat16)


def _scaled(b: Emitter, value: tensor, scale: tensor, group: int) -> tensor:
    """`value` [..., rows, k] times `scale` [..., rows, k / group]."""
    factors = cast_to(b, _scale_factors(b, scale), value.dtype)
    shape = factors.block_shape
    wide = broadcast_to_shape(b, expand_axis(b, factors, len(shape)), (*shape, group))
    made: tensor = mul.fn(b, value, reshape_to(b, wide, value.block_shape))
    return made


def _group(value: tensor, scale: Operand, name: str) -> int:
    """How many elements of `value` [..., rows, k] share one scale."""
    if not isinstance(scale, tensor):
        raise LanguageTypeError(f"{name}_scale of tl.dot_scaled must be a tile or None, got {scale!r}")
    if scale.dtype not in (dtypes.uint8, dtypes.int8, dtypes.float8e4nv):
        raise DTypeError(f"{name}_scale must have elements of type uint8 (e8m0) or fp8e4nv, got {scale.dtype}")
    *outer, depth = value.block_shape
    group = depth // scale.block_shape[-1] if scale.block_shape else 0
    if list(scale.block_shape[:-1]) != outer or group not in (16, 32) or group * scale.block_shape[-1] != depth:
        raise ShapeError(
            f"{name}_scale has shape {list(scale.block_shape)} where {[*outer, depth // 32]} (or / 16) is needed",
            hint="one scale per row and 16 or 32 elements along K; rhs_scale is [N, K / 32], not transposed",
        )
    return group


@builtin
def dot_scaled(
    b: Emitter,
    lhs: Operand,
    lhs_scale: Any,
    lhs_format: Word,
    rhs: Operand,
    rhs_scale: Any,
    rhs_format: Word,
    acc: Any = None,
    fast_math: Flag = False,
    lhs_k_pack: Flag = True,
    rhs_k_pack: Flag = True,
    out_dtype: Element = dtypes.float32,
) -> tensor:
    """Matrix product of two tiles of narrow floats with a scale per row and group of elements.

    Args:
        lhs: tile [M, K] or [B, M, K]; of format "e2m1", [M, K / 2] bytes that hold two elements each, low nibble first.
        lhs_scale: uint8 tile [M, K / 32] of exponents (2 to the power s - 127, 255 is NaN), [M, K / 16] exponents or
            8-bit floats, or None.
        lhs_format: "e2m1", "e4m3", "e5m2", "bf16" or "fp16".
        rhs: tile [K, N] or [B, K, N]; of format "e2m1", [K / 2, N].
        rhs_scale: as `lhs_scale`, [N, K / 32].
        rhs_format: as `lhs_format`.
        acc: float32 accumulator [M, N].
        fast_math: a GPU need not look for NaN scales.
        lhs_k_pack, rhs_k_pack: False if e2m1 elements are packed along M (N) instead of K.
        out_dtype: float32.

    Returns:
        float32 tile [M, N] or [B, M, N].

    Raises:
        ShapeError: the shapes of operands and scales do not fit. DTypeError: elements are not those of the format.
        LanguageValueError: an unknown format or result type.
    """
    if unwrap(out_dtype) != dtypes.float32:
        raise LanguageValueError(f"out_dtype of tl.dot_scaled is float32 only, got {unwrap(out_dtype)}")
    for packed, kind, name in ((lhs_k_pack, lhs_format, "lhs"), (rhs_k_pack, rhs_format, "rhs")):
        if not unwrap(packed) and unwrap(kind) != "e2m1":
            raise LanguageValueError(f"only mxfp4 inputs can be packed along a dimension different than K: {name}")
    left, right = _checked(lhs, "lhs", lhs_format), _checked(rhs, "rhs", rhs_format)
    target = dtypes.float16 if "fp16" in (unwrap(lhs_format), unwrap(rhs_format)) else dtypes.bfloat16
    left = _decode(b, left, unwrap(lhs_format), bool(unwrap(lhs_k_pack)), target)
    columns = _swap(b, _decode(b, right, unwrap(rhs_format), not unwrap(rhs_k_pack), target))
    scales = (unwrap(lhs_scale), unwrap(rhs_scale))
    operands = zip((left, columns), scales, ("lhs", "rhs"), strict=True)
    groups = [None if scale is None else _group(value, scale, name) for value, scale, name in operands]
    if None not in groups and groups[0] != groups[1]:
        raise ShapeError(f"Operands must have the same scale factor; (lhs: {groups[0]} vs rhs: {groups[1]})")
    if groups[0] is not None:
        left = _scaled(b, left, scales[0], groups[0])
    if groups[1] is not None:
        columns = _scaled(b, columns, scales[1], groups[1])
    result: tensor = dot.fn(b, left, _swap(b, columns), acc, out_dtype=dtypes.float32)
    return result
