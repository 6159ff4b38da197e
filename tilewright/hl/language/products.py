"""Products of matrices with an accumulator and a type of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilewright import lazy_module
from tilewright.hl import exc
from tilewright.hl.trace.state import device_trace

if TYPE_CHECKING:
    from tilewright.hl.rows import products
else:
    products = lazy_module("tilewright.hl.rows.products")


def dot(mat1: Any, mat2: Any, acc: Any = None, out_dtype: Any = None) -> Any:
    """`mat1 @ mat2 + acc`.

    Args:
        mat1: tile [m, k] or [batch, m, k] of floats or int8.
        mat2: tile [k, n] or [batch, k, n].
        acc: tile of the result's shape that the product is added to.
        out_dtype: type of the result; `acc`'s, else float32 (int32 for int8).
    """
    device_trace("hl.dot")
    default = torch.float32 if mat1.dtype.is_floating_point else torch.int32
    if mat1.dtype == torch.float64:
        default = torch.float64
    dtype = out_dtype or (acc.dtype if acc is not None else default)
    with torch._C.DisableTorchFunction():
        return products.dot(mat1, mat2, acc, dtype)


_FORMATS = {"e2m1": torch.uint8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
_WIDE = {"bf16": torch.bfloat16, "fp16": torch.float16}


def dot_scaled(
    mat1: Any,
    mat1_scale: Any,
    mat1_format: str,
    mat2: Any,
    mat2_scale: Any,
    mat2_format: str,
    acc: Any = None,
    out_dtype: Any = None,
) -> Any:
    """Product of matrices of small floats with a scale for every 32 elements of the inner dimension.

    Args:
        mat1: tile [m, k]; of "e2m1" uint8 [m, k / 2] with two numbers in a byte.
        mat1_scale: exponents, uint8 [m, k / 32], or None.
        mat1_format: "e2m1", "e4m3", "e5m2", "bf16" or "fp16".
        mat2: tile [k, n]; of "e2m1" uint8 [k / 2, n].
        mat2_scale: exponents, uint8 [n, k / 32], or None.
        mat2_format: as `mat1_format`.
        acc: float32 tile [m, n] that the product is added to.
        out_dtype: type of the result; None for float32.
    """
    device_trace("hl.dot_scaled")
    for operand, kind in ((mat1, mat1_format), (mat2, mat2_format)):
        expected = {**_FORMATS, **_WIDE}.get(kind)
        if expected is None:
            raise exc.InvalidAPIUsage(
                f"hl.dot_scaled of the format {kind!r}", hint=f"formats are {', '.join({**_FORMATS, **_WIDE})}"
            )
        if operand.dtype not in (expected, torch.uint8) or operand.dim() != 2:
            raise exc.InvalidAPIUsage(
                f"hl.dot_scaled of the format {kind!r} with a tile of {operand.dtype} and {operand.dim()} dimensions",
                hint=f"give a tile of two dimensions and type {expected}",
            )
    with torch._C.DisableTorchFunction():
        formats = mat1_format, mat2_format
        return products.scaled(mat1, mat1_scale, mat2, mat2_scale, acc, formats, out_dtype or torch.float32)
