"""The `tl.core` namespace: types, values and built-in functions of the language, under the names that tools look up."""

from __future__ import annotations

from builtins import slice

from tilewright.base.dtypes import BlockType as block_type
from tilewright.base.dtypes import PointerType as pointer_type
from tilewright.base.dtypes import Type as base_type
from tilewright.base.dtypes import (
    bfloat16,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.language.aggregate import aggregate as _aggregate  # noqa: F401  (as programs of Triton find it here)
from tilewright.language.aggregate import aggregate_replace, must_use_result
from tilewright.language.extern import builtin, extern
from tilewright.language.extra.symbols import extern_elementwise
from tilewright.language.library import constexpr_function
from tilewright.language.mapping import map_elementwise
from tilewright.language.polling import atomic_poll
from tilewright.ops import families
from tilewright.ops.builtin import BUILTINS, Builtin
from tilewright.ops.control import condition, range, static_range
from tilewright.ops.math import PropagateNan
from tilewright.ops.tensor_descriptor import tensor_descriptor
from tilewright.ops.value_types import base_value, constexpr_type, str_to_ty, tensor_descriptor_type, tuple_type
from tilewright.ops.values import const, constexpr, tensor, tuple, unwrap

assert families  # importing it defines every built-in function
pi32_t = pointer_type(int32)
CONSTEXPR_0 = constexpr(0)
_unwrap_if_constexpr = unwrap


@constexpr_function
def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """The integer type of `bitwidth` bits (1, 8, 16, 32 or 64); one bit is always int1.

    Raises:
        ValueError: no such type.
    """
    return dtype(f"{'' if signed or bitwidth == 1 else 'u'}int{bitwidth}")


def is_builtin(function: object) -> bool:
    """Whether `function` is a built-in function of the language."""
    return isinstance(function, Builtin)


globals().update(BUILTINS)
__all__ = [
    "CONSTEXPR_0",
    "PropagateNan",
    "aggregate_replace",
    "atomic_poll",
    "base_type",
    "base_value",
    "bfloat16",
    "block_type",
    "builtin",
    "condition",
    "const",
    "constexpr",
    "constexpr_function",
    "constexpr_type",
    "dtype",
    "extern",
    "extern_elementwise",
    "float8e4b8",
    "float8e4b15",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "float16",
    "float32",
    "float64",
    "get_int_dtype",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_builtin",
    "map_elementwise",
    "must_use_result",
    "pi32_t",
    "pointer_type",
    "range",
    "slice",
    "static_range",
    "str_to_ty",
    "tensor",
    "tensor_descriptor",
    "tensor_descriptor_type",
    "tuple",
    "tuple_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "void",
]
__all__ += list(BUILTINS)
