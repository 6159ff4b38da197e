"""Plans of products, and their emission run on the simulated GPU against numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block

from tests.backends.nvidia import simt_tensor
from tests.backends.nvidia.op_kernels import OpKernel, positions
from tests.sample_kernels import from_memory, to_memory
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.emit import dot as emit_dot
from tilewright.backends.nvidia.plan.dots import plan_dot
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.minifloat import round_to
from tilewright.ir.types import dtype_of, is_float, scalar_type, tile_type
from tilewright.ops.dot import DotOp

assert simt_tensor and emit_dot  # importing them registers instructions and emitters
Shape = tuple[int, ...]


def dot_op(a: str, c: str, shape: Sequence[int], b: str = "", precision: str = "ieee", **attrs: Any) -> DotOp:
    """A product of arguments, [batch,] m, n, k."""
    *batch, m, n, k = shape
    types = [
        tile_type(s, scalar_type(t)) for s, t in (((*batch, m, k), a), ((*batch, k, n), b or a), ((*batch, m, n), c))
    ]
    block = Block(arg_types=types)
    op = DotOp.build_op(block.args, [types[2]], {"inputPrecision": precision, **attrs})
    block.add_op(op)
    return op


def tiles(op: DotOp, seed: int = 0) -> list[np.ndarray]:
    """Operands of both signs, exact in their types."""
    rng = np.random.default_rng(seed)
    made = []
    for value in op.operands:
        element, shape = value.type.element_type, value.type.get_shape()
        if is_float(element):
            made.append(round_to(rng.uniform(-2, 2, shape), dtype_of(element)))
        else:
            made.append(rng.integers(-128, 128, shape).astype(dtype_of(element).work_dtype))
    return made


def run(op: DotOp, arrays: Sequence[np.ndarray], num_warps: int, capability: int) -> tuple[Any, Any]:
    """The product by registers, on the simulated GPU: the result, and what ran."""
    plan = plan_dot(op, num_warps, arch_of(capability))
    kernel = OpKernel(capability, num_warps)
    layouts = (plan.a, plan.b, plan.accumulator)
    operands = [
        kernel.operand(value.type, to_memory(array, value.type.element_type), layout)
        for value, array, layout in zip(op.operands, arrays, layouts)
    ]
    made = DotOp.create(operands=operands, result_types=[operands[2].type], properties=dict(op.properties))
    kernel.apply(made)
    kernel.result(made.d)
    (found,), ran = kernel.run()
    return found, ran


def expected(arrays: Sequence[np.ndarray]) -> np.ndarray:
    a, b, c = (x.astype(np.float64) for x in arrays)
    return np.matmul(a, b) + c


def check(op: DotOp, num_warps: int, capability: int = 80, tolerance: float = 2e-6) -> Any:
    """Run and compare with float64, relative to the sum of the magnitudes."""
    arrays = tiles(op)
    found, ran = run(op, arrays, num_warps, capability)
    want = expected(arrays)
    element = found.type.element_type
    if is_float(element):
        bound = expected([abs(x) for x in arrays])
        scale = bound.max() * tolerance
        found.check(round_to(want, dtype_of(element)), ulp=np.inf, what="not a number")
        wrong = largest_error(found, want)
        assert wrong <= scale, f"{wrong} is more than {scale}"
    else:
        found.check(want.astype(np.int64).astype(np.int32))
    return ran


def largest_error(found: Any, want: np.ndarray) -> float:
    places = positions(layout_of(found.type), found.raw.shape)
    inside = np.all([p < size for p, size in zip(places, want.shape)], axis=0)
    wanted = want[tuple(np.where(inside, p, 0) for p in places)]
    got = from_memory(found.raw, found.type.element_type).astype(np.float64)
    return float(np.abs(np.where(inside, got - wanted, 0)).max())


MMA = [
    ("f16", "f32", (16, 8, 16), 1), ("f16", "f32", (64, 64, 32), 4), ("bf16", "f32", (32, 32, 64), 2),
    ("f16", "f16", (32, 16, 16), 2), ("f16", "f32", (8, 4, 16), 1), ("f16", "f32", (1, 64, 32), 4),
    ("f16", "f32", (16, 16, 8), 1), ("bf16", "f32", (5, 7, 24), 2), ("f16", "f32", (48, 96, 40), 4),
    ("i8", "i32", (32, 32, 64), 4), ("i8", "i32", (16, 8, 16), 1), ("i8", "i32", (20, 24, 48), 2),
    ("f16", "f32", (4, 16, 16, 16), 4), ("bf16", "f32", (3, 16, 8, 16), 2), ("i8", "i32", (2, 16, 16, 32), 4),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "accumulator", "shape", "warps"), MMA)
def test_mma_sync(operand: str, accumulator: str, shape: Shape, warps: int) -> None:
    op = dot_op(operand, accumulator, shape)
    assert plan_dot(op, warps, arch_of(80)).kind == "mma"
    ran = check(op, warps, tolerance=1e-3 if accumulator == "f16" else 2e-6)
    assert any("mma" in name for name in ran.counts)


@pytest.mark.parametrize(
    ("capability", "kind"), [(80, "m16n8k16.row.col.f32.f32"), (89, "m16n8k32.row.col.f32.e4m3.e5m2.f32")]
)
def test_fp8_as_it_is_or_as_f16(capability: int, kind: str) -> None:
    op = dot_op("f8E4M3FN", "f32", (16, 16, 32), "f8E5M2")
    ran = check(op, 2, capability)
    assert ran.counts[f"llvm.nvvm.mma.{kind}"]


@pytest.mark.parametrize("operand", ["f8E4M3FNUZ", "f8E5M2FNUZ"])
def test_fp8_that_no_tensor_core_takes(operand: str) -> None:
    ran = check(dot_op(operand, "f32", (16, 16, 16)), 1, 90)
    assert ran.counts["llvm.nvvm.mma.m16n8k16.row.col.f32.f32"]


@pytest.mark.parametrize(
    ("precision", "tolerance", "products"),
    [("tf32", 1e-3, 1), ("tf32x3", 1e-6, 3), ("bf16x3", 3e-5, 3), ("bf16x6", 1e-6, 6)],
)
def test_f32_in_parts(precision: str, tolerance: float, products: int) -> None:
    op = dot_op("f32", "f32", (16, 8, 16), precision=precision)
    ran = check(op, 1, tolerance=tolerance)
    steps = 2 if precision.startswith("tf32") else 1
    assert sum(n for name, n in ran.counts.items() if "mma" in name) == products * steps


def test_infinities_do_not_become_nan_in_parts() -> None:
    op = dot_op("f32", "f32", (16, 8, 16), precision="tf32x3")
    arrays = [np.abs(x) + np.float32(0.5) for x in tiles(op)]
    arrays[0][3, 5] = np.inf
    found, _ = run(op, arrays, 1, 80)
    assert np.isinf(found.raw).sum() == 8 and not np.isnan(found.raw).any()


FMA = [
    ("f32", "f32", (16, 16, 16), 1), ("f32", "f32", (64, 32, 8), 4), ("f64", "f64", (8, 32, 4), 2),
    ("f32", "f32", (1, 16, 32), 4), ("f32", "f32", (5, 7, 3), 1),
    ("f16", "f32", (16, 16, 4), 2), ("i8", "i32", (8, 8, 4), 1),
    ("f32", "f32", (3, 8, 4, 5), 2), ("f16", "f16", (4, 4, 2), 4), ("f8E5M2", "f32", (8, 8, 4), 1),
    ("f32", "f32", (1, 1, 1), 2),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "accumulator", "shape", "warps"), FMA)
def test_multiply_adds(operand: str, accumulator: str, shape: Shape, warps: int) -> None:
    op = dot_op(operand, accumulator, shape)
    assert plan_dot(op, warps, arch_of(90)).kind == "fma"
    check(op, warps, 90, tolerance=1e-3 if accumulator == "f16" else 1e-6)
