"""The block language: what kernels import as `tl`.

Operations are re-exported from `ops`; library functions are written in the language itself. The names are Triton's.
"""

from __future__ import annotations

from builtins import slice

from tilewright.language import core, math, random, sorting, standard
from tilewright.language.core import (
    PropagateNan,
    bfloat16,
    block_type,
    condition,
    const,
    constexpr,
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
    pi32_t,
    pointer_type,
    range,
    static_range,
    tensor,
    tuple,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.language.library import constexpr_function
from tilewright.language.random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from tilewright.language.sorting import bitonic_merge, sort, topk
from tilewright.language.standard import (
    argmax,
    argmin,
    cdiv,
    cumprod,
    cumsum,
    flip,
    max,
    min,
    reduce_or,
    sigmoid,
    softmax,
    sum,
    swizzle2d,
    xor_sum,
)
from tilewright.ops.atomic_functions import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_poll,
    atomic_store,
    atomic_xchg,
    atomic_xor,
)
from tilewright.ops.casts import cast
from tilewright.ops.creation import arange, full, to_tensor, zeros, zeros_like
from tilewright.ops.debug_functions import (
    debug_barrier,
    device_assert,
    device_print,
    expect_zero,
    inline_asm_elementwise,
    map_elementwise,
    static_assert,
    static_print,
)
from tilewright.ops.dot import dot
from tilewright.ops.gather import gather, histogram
from tilewright.ops.math import (
    abs,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)
from tilewright.ops.memory_functions import load, make_block_ptr, make_tensor_descriptor, store
from tilewright.ops.operators import add, logical_and, logical_or, mul, sub, where
from tilewright.ops.program import assume, max_constancy, max_contiguous, multiple_of, num_programs, program_id
from tilewright.ops.reduce import reduce
from tilewright.ops.scan import associative_scan
from tilewright.ops.shape_functions import (
    broadcast,
    broadcast_to,
    cat,
    expand_dims,
    interleave,
    item,
    join,
    permute,
    ravel,
    reshape,
    split,
    squeeze,
    trans,
    unsqueeze,
    view,
)

__all__ = [
    "PropagateNan", "abs", "add", "arange", "argmax", "argmin", "associative_scan", "assume", "atomic_add",
    "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_poll",
    "atomic_store", "atomic_xchg", "atomic_xor", "bfloat16", "bitonic_merge", "block_type", "broadcast",
    "broadcast_to", "cast", "cat", "cdiv", "ceil", "clamp", "condition", "const", "constexpr", "constexpr_function",
    "core", "cos", "cumprod", "cumsum", "debug_barrier", "device_assert", "device_print", "div_rn", "dot", "dtype",
    "erf", "exp", "exp2", "expand_dims", "expect_zero", "fdiv", "flip", "float16", "float32", "float64",
    "float8e4b15", "float8e4b8", "float8e4nv", "float8e5", "float8e5b16", "floor", "fma", "full", "gather",
    "histogram", "inline_asm_elementwise", "int1", "int16", "int32", "int64", "int8", "interleave", "item", "join",
    "load", "log", "log2", "logical_and", "logical_or", "make_block_ptr", "make_tensor_descriptor",
    "map_elementwise", "math", "max", "max_constancy", "max_contiguous", "maximum", "min", "minimum", "mul",
    "multiple_of", "num_programs", "pair_uniform_to_normal", "permute", "philox", "philox_impl", "pi32_t",
    "pointer_type", "program_id", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "random", "range",
    "ravel", "reduce", "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "slice", "softmax", "sort", "sorting",
    "split", "sqrt", "sqrt_rn", "squeeze", "standard", "static_assert", "static_print", "static_range", "store",
    "sub", "sum", "swizzle2d", "tensor", "to_tensor", "topk", "trans", "tuple", "uint16", "uint32", "uint64",
    "uint8", "uint_to_uniform_float", "umulhi", "unsqueeze", "view", "void", "where", "xor_sum", "zeros",
    "zeros_like",
]  # fmt: skip
