"""Reductions on a GPU: any layout, any body, tiles that are padded, and how little the usual ones emit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia.bodies import (
    Body,
    affine,
    keep_left,
    laid_out,
    larger_first,
    mixed_layout,
    one,
    op_kernel,
    region,
    run_op,
    some_layouts,
)
from tests.backends.nvidia.op_kernels import OpKernel, Ran
from tests.backends.nvidia.simt import Result
from tilewright.backends.nvidia import ptx
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.ir.types import bf16, f16, f32, f64, i1, i8, i32, i64, tile_type
from tilewright.layouts.distributed import default_blocked, sliced
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.spec import REGISTRY

CAPABILITIES = (80, 86, 89, 90, 100, 120)
SHAPES = ((96,), (1,), (512,), (8, 16), (5, 7), (33, 4), (3, 4, 5))
Array = np.ndarray[Any, Any]


def results_of(types: Sequence[Any], shape: tuple[int, ...], layout: LinearLayout, axis: int) -> list[Any]:
    rest = shape[:axis] + shape[axis + 1 :]
    return [laid_out(tile_type(rest, t), sliced(layout, axis)) for t in types]


def reduced(
    arrays: Sequence[Array], elements: Sequence[Any], layout: LinearLayout, axis: int, body: Body, capability: int = 90
) -> tuple[list[Ran], Result]:
    shape = arrays[0].shape
    types = [tile_type(shape, t) for t in elements]
    results = results_of(elements, shape, layout, axis)
    return run_op(ReduceOp, arrays, types, [layout] * len(types), results, {"axis": axis}, body, capability)


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(-1000, 1000, shape).astype(np.int32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_element_counts_once(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    for layout in some_layouts(shape, 1 if shape == (8, 16) else 4, random.Random(7)):
        x = integers(rng, shape)
        for axis in range(len(shape)):
            (ran,), _ = reduced([x], [i32], layout, axis, one("arith.addi"))
            ran.check(x.sum(axis, dtype=np.int32), what=f"{layout} along {axis}")


@pytest.mark.parametrize("shape", ((5, 7), (96,)), ids=str)
def test_pairs_of_values_and_indices(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    for layout in some_layouts(shape, 4, random.Random(8)):
        x = rng.integers(0, 4, shape).astype(np.float32)
        for axis in range(len(shape)):
            index = np.broadcast_to(
                np.expand_dims(np.arange(shape[axis]), [*range(axis), *range(axis + 1, len(shape))]), shape
            )
            values, indices = reduced([x, index.astype(np.int32)], [f32, i32], layout, axis, larger_first)[0]
            values.check(x.max(axis), what=f"{layout} along {axis}")
            indices.check(x.argmax(axis), what=f"{layout} along {axis}")


@pytest.mark.parametrize("shape", ((64,), (5, 7), (8, 16)), ids=str)
def test_copies_agree_where_the_order_of_operands_matters(shape: tuple[int, ...]) -> None:
    for layout in some_layouts(shape, 4, random.Random(9)):
        x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        for axis in range(len(shape)):
            (ran,), _ = reduced([x], [i32], layout, axis, keep_left)
            ran.check(x.take(0, axis), what=f"{layout} along {axis}")


def test_a_blocked_axis_is_joined_in_order() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-9, 9, (4, 128)).astype(np.int32) for _ in range(2))
    layout = default_blocked((4, 128), 1, vector=4)
    slope, start = reduced([a, b], [i32, i32], layout, 1, affine)[0]
    want = np.stack([a[:, 0], b[:, 0]])
    for i in range(1, 128):
        want = np.stack([a[:, i] * want[0], a[:, i] * want[1] + b[:, i]])
    slope.check(want[0])
    start.check(want[1])


CASES = [
    (f32, "arith.addf", np.sum), (f32, "arith.mulf", np.prod), (f32, "arith.maxnumf", np.fmax.reduce),
    (f32, "arith.minimumf", np.min), (f64, "arith.addf", np.sum), (f16, "arith.maxnumf", np.max),
    (bf16, "arith.maxnumf", np.max), (i8, "arith.maxsi", np.max), (i64, "arith.addi", np.sum),
    (i1, "arith.ori", np.any), (i1, "arith.andi", np.all), (i32, "arith.xori", np.bitwise_xor.reduce),
    (i32, "arith.minsi", np.min), (i32, "arith.maxsi", np.max), (i32, "arith.andi", np.bitwise_and.reduce),
    (i32, "arith.ori", np.bitwise_or.reduce),
]  # fmt: skip


@pytest.mark.parametrize(("element", "name", "want"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_bodies_and_types(element: Any, name: str, want: Any) -> None:
    rng = np.random.default_rng(4)
    work = {f32: np.float32, f64: np.float64, f16: np.float16, bf16: np.float32, i8: np.int8, i64: np.int64, i1: bool}
    x = (
        rng.integers(1, 4, (6, 100)).astype(work.get(element, np.int32))
        if element is not i1
        else rng.random((6, 100)) < 0.5
    )
    if name == "arith.maxnumf" and element is f32:
        x[0, 3] = np.nan
    for axis, num_warps in ((1, 4), (0, 2), (1, 1)):
        layout = default_blocked((6, 100), num_warps, vector=2)
        (ran,), _ = reduced([x], [element], layout, axis, one(name))
        ran.check(want(x, axis), ulp=8 if name in ("arith.mulf", "arith.addf") else 0)


@pytest.mark.parametrize("vector", [1, 2])
def test_products_are_rounded_before_they_cross_lanes(vector: int) -> None:
    """Else the lanes of a warp, each with a product of its own still exact, end up with different copies."""
    kernel, shape = OpKernel(), (32 * vector,)
    layout = default_blocked(shape, 1, vector=vector)
    type_ = kernel.laid_out(tile_type(shape, f32), layout)
    a, b = (kernel.operand(type_, np.zeros(shape, np.float32), layout) for _ in range(2))
    product = kernel.build(REGISTRY["arith.mulf"].op, [a, b], [type_]).results[0]
    body = region(ReduceOp.name, [f32], one("arith.addf"))
    kernel.result(kernel.apply(ReduceOp.build_op([product], [f32], {"axis": 0}, [body])).results[0])
    text = ptx.compile_ptx(kernel.text(), arch_of(90))
    assert text.count("add.rn.f32 ") == 5 and text.count("fma.rn.f32 ") == vector - 1


def test_a_row_per_warp_needs_no_shared_memory() -> None:
    x = np.ones((4, 128), np.float32)
    ran = reduced([x], [f32], default_blocked((4, 128), 4, vector=4), 1, one("arith.addf"))[1]
    assert not ran.counts["llvm.nvvm.barrier.cta.sync.aligned.all"]
    assert ran.counts["llvm.nvvm.shfl.sync.bfly.i32"] == 5
    assert ran.counts["fadd"] == 3 + 5


def test_a_row_over_four_warps_takes_one_barrier() -> None:
    x = np.ones(1024, np.float32)
    ran = reduced([x], [f32], default_blocked((1024,), 4, vector=4), 0, one("arith.addf"))[1]
    assert ran.counts["llvm.nvvm.barrier.cta.sync.aligned.all"] == 1
    assert ran.counts["fadd"] == 7 + 5 + 3
    assert not ran.counts["select"]


def test_integers_of_a_warp_take_one_instruction() -> None:
    x = np.arange(256, dtype=np.int32)
    ran = reduced([x], [i32], default_blocked((256,), 1), 0, one("arith.addi"))[1]
    assert ran.counts["llvm.nvvm.redux.sync.add"] == 1
    assert not ran.counts["llvm.nvvm.shfl.sync.bfly.i32"]


def test_copies_are_not_reduced() -> None:
    x = np.arange(8, dtype=np.float32)
    (ran,), result = reduced([x], [f32], default_blocked((8,), 4), 0, one("arith.addf"))
    ran.check(x.sum())
    assert result.counts["llvm.nvvm.shfl.sync.bfly.i32"] == 3
    assert not result.counts["llvm.nvvm.barrier.cta.sync.aligned.all"]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_reductions_assemble(capability: int) -> None:
    layout = mixed_layout((8, 64), 4, random.Random(1))
    for element, body in (
        (f32, one("arith.maxnumf")),
        (bf16, one("arith.addf")),
        (i32, one("arith.addi")),
        (f64, keep_left),
    ):
        types = [tile_type((8, 60), element)]
        results = results_of([element], (8, 60), layout, 1)
        x = np.zeros(
            (8, 60), np.float32 if element is bf16 else {f32: np.float32, f64: np.float64}.get(element, np.int32)
        )
        kernel = op_kernel(ReduceOp, [x], types, [layout], results, {"axis": 1}, body, capability)
        arch = arch_of(capability)
        assemble(ptx.compile_ptx(kernel.text(), arch), arch, kernel="reduce")


def test_partials_of_warps_are_read_at_once() -> None:
    """Their addresses say how far they are aligned: LLVM need not find it out."""
    layout, types = default_blocked((512,), 4, vector=1), [tile_type((512,), f32)]
    x = np.zeros(512, np.float32)
    kernel = op_kernel(
        ReduceOp, [x], types, [layout], results_of([f32], (512,), layout, 0), {"axis": 0}, one("arith.addf"), 90
    )
    assert "align 16" in kernel.text()
    assert "ld.shared.v4.b32" in ptx.compile_ptx(kernel.text(), arch_of(90))
