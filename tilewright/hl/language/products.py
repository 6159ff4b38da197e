"""Products of matrices with an accumulator and a type of their own."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.hl.rows import products
from tilewright.hl.trace.state import device_trace


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
