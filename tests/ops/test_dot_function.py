"""`tl.dot`: values, data types, precision, batches, and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.language.kernel_runner import Held, build, run
from tilewright.base.errors import CompilationError
from tilewright.base.options import Options
from tilewright.ops.dot import DotOp

pytestmark = pytest.mark.usefixtures("backend")

RNG = np.random.default_rng(11)
M, N, K = 16, 8, 32


def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TRANS: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    if TRANS:
        right = tl.load(b + n[:, None] * K + k[None, :]).T
    else:
        right = tl.load(b + k[:, None] * N + n[None, :])
    at = c + m[:, None] * N + n[None, :]
    acc = tl.load(at)
    tl.store(at, tl.dot(left, right, acc))


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize(("kind", "out"), [("float32", "float32"), ("float16", "float32"), ("int8", "int32")])
def test_product_plus_accumulator(kind: str, out: str, trans: bool) -> None:
    a, b = RNG.integers(-8, 8, (M, K)).astype(kind), RNG.integers(-8, 8, (K, N)).astype(kind)
    c = RNG.integers(-8, 8, (M, N)).astype(out)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + c
    right = np.ascontiguousarray(b.T) if trans else b
    run(dot_kernel, a, right, c, M=M, N=N, K=K, TRANS=trans)
    np.testing.assert_array_equal(c, wanted)


def test_bfloat16_operands_accumulate_in_float32() -> None:
    a, b = (Held(RNG.standard_normal(s).astype(np.float32), tl.bfloat16) for s in ((M, K), (K, N)))
    c = np.zeros((M, N), np.float32)
    run(dot_kernel, a, b, c, M=M, N=N, K=K, TRANS=False)
    np.testing.assert_allclose(c, a.values.astype(np.float64) @ b.values, rtol=1e-5, atol=1e-6)


def batch_kernel(a, b, c, B: tl.constexpr, M: tl.constexpr):
    z = (tl.arange(0, B)[:, None, None] * M + tl.arange(0, M)[None, :, None]) * M + tl.arange(0, M)[None, None, :]
    tl.store(c + z, tl.dot(tl.load(a + z), tl.load(b + z)))


def test_batches() -> None:
    a, b = RNG.standard_normal((2, 4, 8, 8)).astype(np.float32)
    c = np.zeros((4, 8, 8), np.float32)
    run(batch_kernel, a, b, c, B=4, M=8)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def type_kernel(A: tl.constexpr, OUT: tl.constexpr, ACC: tl.constexpr, ASKED: tl.constexpr):
    x = tl.zeros((4, 4), A)
    if ACC is None:
        y = tl.dot(x, x, out_dtype=ASKED)
    else:
        y = tl.dot(x, x, tl.zeros((4, 4), ACC), out_dtype=ASKED)
    tl.static_assert(y.dtype == OUT)


@pytest.mark.parametrize(
    ("operands", "result", "acc", "asked"),
    [
        ("int8", "int32", None, None),
        ("int8", "int32", None, "fp32"),
        ("fp16", "fp32", None, None),
        ("fp16", "fp16", None, "fp16"),
        ("fp16", "fp16", "fp16", None),
        ("bf16", "fp32", None, None),
        ("fp32", "fp32", None, None),
        ("fp64", "fp64", None, None),
        ("fp8e5", "fp32", None, None),
        ("fp8e4nv", "fp16", "fp16", None),
    ],
)
def test_result_types(operands: str, result: str, acc: str | None, asked: str | None) -> None:
    build(
        type_kernel,
        A=tl.dtype(operands),
        OUT=tl.dtype(result),
        ACC=acc and tl.dtype(acc),
        ASKED=asked and tl.dtype(asked),
    )


def precision_kernel(PRECISION: tl.constexpr, TF32: tl.constexpr):
    x = tl.zeros((4, 4), tl.float32)
    tl.dot(x, x, input_precision=PRECISION, allow_tf32=TF32)


@pytest.mark.parametrize(
    ("precision", "tf32", "default", "found"),
    [
        (None, None, "ieee", "ieee"),
        (None, None, "tf32", "tf32"),
        ("ieee", None, "tf32", "ieee"),
        ("tf32x3", None, "ieee", "tf32x3"),
        ("BF16x3", None, "ieee", "bf16x3"),
        (None, True, "ieee", "tf32"),
        (None, False, "tf32", "ieee"),
    ],
)
def test_precision(precision: str | None, tf32: bool | None, default: str, found: str) -> None:
    options = Options(default_dot_input_precision=default)
    module = build(precision_kernel, PRECISION=precision, TF32=tf32, options=options)
    (dot,) = [op for op in module.walk() if isinstance(op, DotOp)]
    assert dot.attr_values()["inputPrecision"] == found


def inner_sizes(x):
    tl.dot(tl.zeros((4, 8), tl.float32), tl.zeros((4, 8), tl.float32))


def ranks(x):
    tl.dot(tl.zeros((4, 8), tl.float32), tl.zeros((8,), tl.float32))


def batches(x):
    tl.dot(tl.zeros((2, 4, 4), tl.float32), tl.zeros((4, 4, 4), tl.float32))


def operand_types(x):
    tl.dot(tl.zeros((4, 4), tl.float16), tl.zeros((4, 4), tl.float32))


def integers(x):
    tl.dot(tl.zeros((4, 4), tl.int32), tl.zeros((4, 4), tl.int32))


def unsigned(x):
    tl.dot(tl.zeros((4, 4), tl.uint8), tl.zeros((4, 4), tl.uint8))


def accumulator(x):
    tl.dot(tl.zeros((4, 4), tl.float32), tl.zeros((4, 4), tl.float32), tl.zeros((4, 4), tl.float16))


def precision_name(x):
    tl.dot(tl.zeros((4, 4), tl.float32), tl.zeros((4, 4), tl.float32), input_precision="fast")


def two_precisions(x):
    tl.dot(tl.zeros((4, 4), tl.float32), tl.zeros((4, 4), tl.float32), input_precision="ieee", allow_tf32=True)


def imprecise(x):
    tl.dot(tl.zeros((4, 4), tl.float8e5), tl.zeros((4, 4), tl.float8e5), max_num_imprecise_acc=8)


def brain(x):
    tl.dot(tl.zeros((4, 4), tl.bfloat16), tl.zeros((4, 4), tl.bfloat16), out_dtype=tl.bfloat16)


def numbers(x):
    tl.dot(tl.zeros((4, 4), tl.float32), 2.0)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (inner_sizes, "not compatible for matmul"),
        (ranks, "Both inputs must be either 2D or 3D"),
        (batches, "batch dimensions of dot differ"),
        (operand_types, "Both operands must be same dtype. Got fp16 and fp32"),
        (integers, "Unsupported lhs dtype int32"),
        (unsigned, "only int8 supported!"),
        (accumulator, "expected accumulator dtype fp32[4, 4], got fp16[4, 4]"),
        (precision_name, "input_precision must be one of"),
        (two_precisions, "Only one of input_precision and allow_tf32"),
        (imprecise, "max_num_imprecise_acc (8) must be <= K (4)"),
        (brain, "out_dtype=bfloat16 is unsupported"),
        (numbers, "must be a tile, not"),
    ],
)
def test_mistakes(kernel: Any, message: str) -> None:
    with pytest.raises(CompilationError) as error:
        build(kernel, np.zeros(4, np.float32))
    assert message in str(error.value)
