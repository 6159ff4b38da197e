"""The kernels of `examples/`, each for types and blocks that its program would give it."""

from __future__ import annotations

from tests.decisions.harness import Spelling
from tilewright.tools import examples
from tilewright.tools.aot import kernel_of

_SIZES = "i32:16, i32:16, i32:16, i32:16, 1, i32:16, 1, i32:16, 1"  # and strides
_ATTENTION = "*{T}:16, *{T}:16, *{T}:16, *{T}:16, " + ", ".join(["i32:16"] * 8) + ", i32:16, fp32, 64, 64, 64"
_BACK = ", *fp32:16, *fp32:16, i32:16, i32:16, i32, fp32, fp32, 64, 64, 64"
_SIGNATURES = {
    "attention:attention_kernel": (f"{_ATTENTION}, False, True", f"{_ATTENTION}, True, False"),
    "attention_backward:forward_kernel": (
        "*{T}:16, *{T}:16, *{T}:16, *{T}:16, *fp32:16, i32:16, i32:16, i32, fp32, 64, 64, 64, True",
    ),
    "attention_backward:delta_kernel": ("*{T}:16, *{T}:16, *fp32:16, i32, 64, 64",),
    "attention_backward:keys_kernel": ("*{T}:16, *{T}:16, *{T}:16, *{T}:16, *{T}:16, *{T}:16" + _BACK + ", True",),
    "attention_backward:queries_kernel": ("*{T}:16, *{T}:16, *{T}:16, *{T}:16, *{T}:16" + _BACK + ", True",),
    "dropout:dropout_kernel": ("*fp32:16, *fp32:16, i32, fp32, i32, 1024",),
    "extern_functions:asin_kernel": ("*fp32:16, *fp32:16, i32, 1024",),
    "grouped_gemm:grouped_matmul_kernel": (
        "*i64:16, *i64:16, *i64:16, *i32:16, *i32:16, i32, 16, 64, 64, 32, tl.float16",
    ),
    "layer_norm:layer_norm_kernel": ("*fp32:16, *fp32:16, *fp32:16, *fp32:16, i32:16, i32, fp32, 1024",),
    "layer_norm_backward:forward_kernel": (
        "*fp32:16, *fp32:16, *fp32:16, *fp32:16, *fp32:16, *fp32:16, i32:16, i32, fp32, 1024",
    ),
    "layer_norm_backward:backward_rows_kernel": ("*fp32:16, " * 8 + "*i32:16, i32:16, i32, 64, 1024",),
    "layer_norm_backward:backward_columns_kernel": ("*fp32:16, *fp32:16, *fp32:16, *fp32:16, i32:16, i32, 32, 128",),
    "matmul:matmul_kernel": (
        f"*{{T}}:16, *{{T}}:16, *{{T}}:16, {_SIZES}, 64, 128, 64, 8, tl.float32, 'ieee', False",
        f"*i8:16, *i8:16, *i32:16, {_SIZES}, 64, 128, 64, 8, tl.int32, 'ieee', True",
    ),
    "matmul_autotuned:matmul_kernel": (f"*{{T}}:16, *{{T}}:16, *{{T}}:16, {_SIZES}, 64, 128, 32, 8, 'leaky_relu'",),
    "softmax:softmax_kernel": ("*fp32:16, *fp32:16, i32:16, i32:16, i32, 1024",),
    "softmax:softmax_rows_kernel": ("*fp32:16, *fp32:16, i32:16, i32:16, i32, i32, 1024",),
    "softmax_persistent:softmax_kernel": ("*fp32:16, *fp32:16, i32:16, i32:16, i32, i32, 1024, 4",),
    "vector_add:add_kernel": ("*fp32:16, *fp32:16, *fp32:16, i32, 1024",),
    "vector_add_autotuned:add_kernel": ("*fp32:16, *fp32:16, *fp32:16, i32, 1024",),
}


def example_kernels() -> list[Spelling]:
    """Every kernel of the examples, some with several signatures."""
    made = []
    for place, signatures in _SIGNATURES.items():
        stem, _, name = place.partition(":")
        kernel = kernel_of(examples.load(stem), name)
        made += [Spelling(kernel, signature, {}) for signature in signatures]
    return made


def stems() -> set[str]:
    """Files of which kernels are here."""
    return {place.partition(":")[0] for place in _SIGNATURES}
