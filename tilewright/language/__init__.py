"""The block language: what kernels import as `tl`.

Types, constants and annotations are here at once. Functions come with the operations that they make (`names.py`), at
the first use of one of them: a program that is imported, or finds its kernels on disk, needs none. The names are
Triton's.
"""

from __future__ import annotations

from builtins import slice
from typing import TYPE_CHECKING, Any

from tilewright.base.dtypes import BlockType as block_type
from tilewright.base.dtypes import PointerType as pointer_type
from tilewright.base.dtypes import dtype, void
from tilewright.base.lazy import lazy_module, rest_on_first_use
from tilewright.language.aggregate import aggregate, aggregate_replace, must_use_result
from tilewright.language.annotations import (
    bfloat16,
    const,
    constexpr,
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
    tuple,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilewright.language.host_maps import _experimental_descriptor_load as _experimental_descriptor_load
from tilewright.language.host_maps import _experimental_descriptor_store as _experimental_descriptor_store
from tilewright.language.library import constexpr_function

pi32_t = pointer_type(int32)
_casts = lazy_module("tilewright.ops.casts")


def _cast(self: dtype, value: Any) -> Any:
    """``tl.float32(x)`` where a kernel runs as Python; the front end knows the call itself."""
    return _casts.cast(value, self)


setattr(dtype, "__call__", _cast)  # noqa: B010

__all__ = [
    "aggregate",
    "aggregate_replace",
    "bfloat16",
    "block_type",
    "const",
    "constexpr",
    "constexpr_function",
    "dtype",
    "float8e4b8",
    "float8e4b15",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "float16",
    "float32",
    "float64",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "must_use_result",
    "pi32_t",
    "pointer_type",
    "slice",
    "tuple",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "void",
]

if TYPE_CHECKING:
    from tilewright.language.names import *  # noqa: F403  (its __all__ is the list of names)
else:
    __getattr__, __dir__ = rest_on_first_use(globals(), "tilewright.language.names")
