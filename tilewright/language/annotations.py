"""What parameters, fields and variables of kernels are annotated with.

A parameter `BLOCK: tl.constexpr` takes a plain 64 at a launch and takes part in arithmetic of tiles in the kernel. The
stub beside this file says so to type checkers: there each of these names stands for any value.
"""

from __future__ import annotations

from tilewright.base.dtypes import (
    bfloat16,
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
)
from tilewright.ops.values import const, constexpr, tensor, tuple

__all__ = [
    "bfloat16",
    "const",
    "constexpr",
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
    "tensor",
    "tuple",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
