"""The kernels of `examples/` compile to the operations that one counts in their source."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright.language as tl
from tests.frontend.helpers import F32, TARGET, build, f32, i32, jit, ops
from tilewright.base.options import Options
from tilewright.frontend.entry import ParamSpec, build_module
from tilewright.ops.text import parse_module, print_module

EXAMPLES = Path(__file__).parents[2] / "examples"
BF16 = tl.pointer_type(tl.bfloat16)
STRIDES = (i32, tl.constexpr(1)) * 3


def _kernels(name: str) -> dict[str, Any]:
    """The block functions of an example, without running the rest of the file."""
    path = EXAMPLES / f"{name}.py"
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    namespace: dict[str, Any] = {"tl": tl, "triton": SimpleNamespace(jit=jit), "__name__": name}
    exec(compile(tree, str(path), "exec"), namespace)
    return namespace


def _matmul(pointer: Any, precision: str, even: bool) -> tuple[Any, ...]:
    tail = (128, 128, 64, 8, tl.constexpr(tl.float32), precision, even)
    return (pointer,) * 3 + (i32,) * 3 + STRIDES + tail


def _attention(pointer: Any, causal: bool) -> tuple[Any, ...]:
    return (pointer,) * 4 + (i32,) * 8 + (i32, f32, 64, 64, 64, causal, True)


# file, kernel, parameters, operations that must occur so often
CASES: list[tuple[str, str, tuple[Any, ...], dict[str, int]]] = [
    ("vector_add", "add_kernel", (F32,) * 3 + (i32, 1024),
     {"tt.load": 2, "arith.addf": 1, "tt.store": 1, "tt.splat": 5}),
    ("softmax", "softmax_kernel", (F32,) * 2 + (i32,) * 3 + (1024,),
     {"tt.reduce": 2, "math.exp": 1, "arith.divf": 1, "arith.maxnumf": 1, "scf.for": 0}),
    ("softmax", "softmax_rows_kernel", (F32,) * 2 + (i32,) * 4 + (1024,),
     {"scf.for": 1, "scf.yield": 1, "tt.reduce": 2}),
    ("layer_norm", "layer_norm_kernel", (F32,) * 4 + (i32, i32, f32, 1024),
     {"tt.load": 3, "tt.reduce": 2, "math.sqrt": 1, "arith.select": 1, "arith.extf": 0}),
    ("layer_norm", "layer_norm_kernel", (BF16,) * 4 + (i32, i32, f32, 1024),
     {"arith.extf": 3, "arith.truncf": 2}),  # the result, and the constant given to the masked load
    # ten rounds of two products and their upper halves; the low words of the last round are not needed by tl.rand
    ("dropout", "dropout_kernel", (F32,) * 2 + (i32, f32, i32, 1024), {"tt.mulhiui": 20, "arith.xori": 41}),
    ("matmul", "matmul_kernel", _matmul(F32, "ieee", True), {"tt.dot": 1, "tt.load": 2, "scf.for": 1, "scf.yield": 1}),
    ("matmul", "matmul_kernel", _matmul(BF16, "ieee", False), {"tt.dot": 1, "arith.truncf": 1, "arith.cmpi": 4}),
    ("attention", "attention_kernel", _attention(F32, False),
     {"scf.for": 1, "tt.dot": 2, "math.exp2": 2, "tt.reduce": 2}),
    ("attention", "attention_kernel", _attention(BF16, True), {"scf.for": 2, "tt.dot": 4, "arith.select": 1}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "name", "values", "expected"), CASES, ids=[f"{c[1]}-{n}" for n, c in enumerate(CASES)]
)
def test_example(file: str, name: str, values: tuple[Any, ...], expected: dict[str, int]) -> None:
    module = build(_kernels(file)[name], *values).module
    found = ops(module)
    assert {op: found[op] for op in expected} == expected
    assert found["tt.func"] == 1 and found["tt.call"] == found["ub.poison"] == 0
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed


def test_a_kernel_compiles_in_milliseconds() -> None:
    """A wide margin over what is measured (attention: 6 ms), to catch a change of order."""
    kernel = _kernels("attention")["attention_kernel"]
    values = _attention(F32, True)
    names = list(kernel.signature.parameters)
    specs = [ParamSpec(n, v if not isinstance(v, (int, bool)) else tl.constexpr(v)) for n, v in zip(names, values)]
    times = []
    for _ in range(5):
        start = time.thread_time()
        build_module(kernel, specs, Options(), TARGET)
        times.append(time.thread_time() - start)
    assert min(times) < 0.1
