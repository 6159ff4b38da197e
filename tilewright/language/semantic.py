"""The `tl.semantic` namespace: rules of types under the names that programs written for Triton import.

What Triton calls a semantic object, `_semantic` in its functions, is an `Emitter` here.
"""

from __future__ import annotations

from tilewright.base.dtypes import dtype
from tilewright.ops.builtin import Emitter, to_tensor
from tilewright.ops.promotion import computation_type, promote_integers

TritonSemantic = Emitter
integer_promote_impl = promote_integers


def computation_type_impl(a_ty: dtype, a_is_scalar: bool, b_ty: dtype, b_is_scalar: bool, div_or_mod: bool) -> dtype:
    """The type in which an operation on `a_ty` and `b_ty` computes; a scalar is a Python number."""
    return computation_type(a_ty, b_ty, a_number=a_is_scalar, b_number=b_is_scalar, div_or_mod=div_or_mod)


__all__ = ["TritonSemantic", "computation_type_impl", "integer_promote_impl", "to_tensor"]
