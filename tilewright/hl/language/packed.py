"""Small floats of which a byte or a group of bytes holds several: taken apart, and converted.

A tile of `torch.float4_e2m1fn_x2` is one of its bytes, `torch.uint8`: PyTorch gives that type no arithmetic. E2M1 has a
sign, two bits of exponent with bias 1, and one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4 and 6 (OCP Microscaling Formats).
"""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl import exc
from tilewright.hl.language import memory, reference
from tilewright.hl.rows.dtypes import held

_load = reference.either("load", memory.load, reference.FUNCTIONS["load"])
_GROUP = 16  # values that one call loads


def float4_e2m1fn_x2_to_float32(value: Any) -> tuple[Any, Any]:
    """The two values of each byte: (that of the low four bits, that of the high four), float32.

    Args:
        value: a tile of a `torch.float4_e2m1fn_x2` tensor, or of its bytes as `torch.uint8`.

    Raises:
        InvalidAPIUsage: it is of another type.
    """
    if held(value.dtype) != torch.uint8:
        raise exc.InvalidAPIUsage(
            f"hl.float4_e2m1fn_x2_to_float32 of {value.dtype}",
            hint="give it a tile of torch.float4_e2m1fn_x2 or torch.uint8",
        )
    bits = value.to(torch.int32)
    return _e2m1(bits & 15), _e2m1(bits >> 4)


def _e2m1(bits: Any) -> Any:
    """Values of four bits each."""
    code = bits & 7
    twice = torch.where(code < 2, code, (code & 1) + 2) << torch.clamp((code >> 1) - 1, min=0)
    size = twice.to(torch.float32) * 0.5
    return torch.where(bits >= 8, -size, size)


def load_float4_e2m1fn_x16_to_float16(storage: Any, group_offsets: Any, extra_mask: Any = None) -> tuple[Any, ...]:
    """Sixteen values of E2M1 for each group of eight bytes, float16, in the order of memory.

    Args:
        storage: a tensor of the host of one dimension, of `torch.uint8` or `torch.float4_e2m1fn_x2`.
        group_offsets: tile of numbers of groups: group 1 begins at byte 8.
        extra_mask: booleans that fit the shape of the offsets; where false, nothing is read and 0 returned.

    Raises:
        InvalidAPIUsage: the tensor has another type, or more dimensions.
    """
    _check(storage, "hl.load_float4_e2m1fn_x16_to_float16", torch.uint8)
    first = group_offsets * (_GROUP // 2)
    pairs = [_load(storage, first + at, extra_mask) for at in range(_GROUP // 2)]
    return tuple(half.to(torch.float16) for pair in pairs for half in float4_e2m1fn_x2_to_float32(pair))


def load_bfloat16_x16_to_float16(storage: Any, group_offsets: Any, extra_mask: Any = None) -> tuple[Any, ...]:
    """Sixteen neighbouring values of bfloat16 for each group, as float16.

    Args:
        storage: a tensor of the host of one dimension, of `torch.bfloat16`.
        group_offsets: tile of numbers of groups: group 1 begins at element 16.
        extra_mask: booleans that fit the shape of the offsets; where false, nothing is read and 0 returned.

    Raises:
        InvalidAPIUsage: the tensor has another type, or more dimensions.
    """
    _check(storage, "hl.load_bfloat16_x16_to_float16", torch.bfloat16)
    first = group_offsets * _GROUP
    return tuple(_load(storage, first + at, extra_mask).to(torch.float16) for at in range(_GROUP))


def _check(storage: Any, name: str, dtype: torch.dtype) -> None:
    if held(storage.dtype) != dtype or storage.dim() != 1:
        raise exc.InvalidAPIUsage(
            f"{name} of {storage.dtype} with {storage.dim()} dimensions",
            hint=f"give it a view of one dimension of {dtype}, x.view(-1), made before the loop",
        )


FUNCTIONS = {
    function.__name__: function
    for function in (float4_e2m1fn_x2_to_float32, load_bfloat16_x16_to_float16, load_float4_e2m1fn_x16_to_float16)
}
