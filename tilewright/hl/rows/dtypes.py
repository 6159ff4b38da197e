"""Types: the names that `tl` has for PyTorch's, and the type in which eager PyTorch computes."""

from __future__ import annotations

from typing import Any

import torch

NAMES: dict[Any, str] = {
    torch.bool: "tl.int1",
    torch.int8: "tl.int8",
    torch.int16: "tl.int16",
    torch.int32: "tl.int32",
    torch.int64: "tl.int64",
    torch.uint8: "tl.uint8",
    torch.uint16: "tl.uint16",
    torch.uint32: "tl.uint32",
    torch.uint64: "tl.uint64",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.float8_e4m3fn: "tl.float8e4nv",
    torch.float8_e5m2: "tl.float8e5",
}


def held(dtype: torch.dtype) -> torch.dtype:
    """The type as which a tile has the elements of a tensor: pairs of four bits are bytes, which `hl` takes apart."""
    return torch.uint8 if dtype is torch.float4_e2m1fn_x2 else dtype


def opmath(dtype: torch.dtype) -> Any:
    """The type in which PyTorch computes an operation whose result is `dtype`."""
    return torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype


def lowest(dtype: torch.dtype) -> Any:
    """The neutral element of a maximum."""
    if dtype == torch.bool:
        return False
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Any:
    """The neutral element of a minimum."""
    if dtype == torch.bool:
        return True
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


def fitted(value: Any, dtype: Any) -> Any:
    """A number of Python as a tile of integers or booleans holds it: cut to a whole one, and wrapped.

    Args:
        value: a number, or whatever else an operation may have there.
        dtype: of the tile; None for no such thing.
    """
    if type(value) not in (bool, int, float) or dtype is None or dtype.is_floating_point or value - value != 0:
        return value
    if dtype == torch.bool:
        return bool(value)
    bits = torch.iinfo(dtype).bits
    whole = int(value) % (1 << bits)
    return whole - (1 << bits) if dtype.is_signed and whole >> (bits - 1) else whole


def literal(value: Any) -> str:
    """A number of Python as text that reads the same in `tl`."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def promoted(args: tuple[Any, ...]) -> Any:
    """The type in which PyTorch compares or combines tensors and numbers."""
    tensors: list[Any] = [arg for arg in args if isinstance(arg, torch.Tensor | bool | int | float)]
    result = tensors[0]
    if len(tensors) == 1:
        return result.dtype
    found = torch.result_type(tensors[0], tensors[1])
    for other in tensors[2:]:
        found = torch.promote_types(found, torch.result_type(other, other))
    return found
