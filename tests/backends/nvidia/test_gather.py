"""Gathers and histograms on a GPU: through shared memory, inside of a warp, and with flipped positions."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block, SSAValue

from tests.backends.nvidia.bodies import mixed_layout, op_kernel, run_op, some_layouts
from tests.backends.nvidia.op_kernels import OpKernel, Ran
from tests.backends.nvidia.simt import Result
from tilewright.backends.nvidia import ptx
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.emit.gather import flipped_position
from tilewright.backends.nvidia.plan.allocate import scratch_bytes
from tilewright.backends.nvidia.tgir.types import with_layout
from tilewright.ir.types import bf16, f32, f64, i1, i8, i32, i64, tile_type
from tilewright.layouts.distributed import blocked, default_blocked, sliced
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.tile import narrow_tile
from tilewright.ops.gather import GatherOp, HistogramOp
from tilewright.ops.spec import REGISTRY

CAPABILITIES = (80, 86, 89, 90, 100, 120)
BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"
SHUFFLE = "llvm.nvvm.shfl.sync.idx.i32"
FLIP = "llvm.nvvm.shfl.sync.bfly.i32"
Array = np.ndarray[Any, Any]


def gathered(
    x: Array, index: Array, source: LinearLayout, layout: LinearLayout, axis: int, element: Any = f32, kind: Any = i32
) -> tuple[Ran, Result]:
    types = [tile_type(x.shape, element), tile_type(index.shape, kind)]
    results = [with_layout(tile_type(index.shape, element), layout)]
    (ran,), result = run_op(GatherOp, [x, index], types, [source, layout], results, {"axis": axis})
    return ran, result


def taken(x: Array, index: Array, axis: int) -> Array:
    return np.take_along_axis(x, np.clip(index.astype(np.int64), 0, x.shape[axis] - 1), axis)


@pytest.mark.parametrize(("shape", "size"), (((64,), 64), ((5, 7), 12), ((16, 32), 8), ((96,), 200)), ids=str)
def test_gathers_of_any_layout(shape: tuple[int, ...], size: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape).astype(np.float32)
    for axis in range(len(shape)):
        wanted = (*shape[:axis], size, *shape[axis + 1 :])
        pairs = zip(some_layouts(shape, 4, random.Random(1)), some_layouts(wanted, 4, random.Random(2)), strict=True)
        for source, layout in pairs:
            index = rng.integers(-2, shape[axis] + 2, wanted).astype(np.int32)
            ran, _ = gathered(x, index, source, layout, axis)
            ran.check(taken(x, index, axis), what=f"{source} by {layout} along {axis}")


@pytest.mark.parametrize("kind", (i8, i64), ids=str)
@pytest.mark.parametrize("element", (i1, i8, bf16, f64), ids=str)
def test_types_of_elements_and_indices(element: Any, kind: Any) -> None:
    rng = np.random.default_rng(3)
    dtype = {i1: bool, i8: np.int8, bf16: np.float32, f64: np.float64}[element]
    x = rng.integers(0, 2, 300).astype(dtype)
    index = rng.integers(-128, 128, 64).astype(np.int8 if kind is i8 else np.int64) * (1 if kind is i8 else 2**40)
    ran, _ = gathered(x, index, default_blocked((300,), 2), default_blocked((64,), 2), 0, element, kind)
    ran.check(taken(x, index, 0))


def test_inside_of_a_warp_there_is_no_barrier() -> None:
    rng = np.random.default_rng(3)
    x, index = rng.standard_normal((8, 64)).astype(np.float32), rng.integers(0, 64, (8, 64)).astype(np.int32)
    layout = default_blocked((8, 64), 4, vector=2)
    ran, result = gathered(x, index, layout, layout, 1)
    ran.check(taken(x, index, 1))
    assert not result.counts[BARRIER]
    assert result.counts[SHUFFLE] == 1 + 2 * 4  # the warp's index; of each of 4 registers both candidates


def test_inside_of_a_thread_there_is_no_shuffle() -> None:
    rng = np.random.default_rng(3)
    x, index = rng.standard_normal((128, 4)).astype(np.float32), rng.integers(0, 4, (128, 2)).astype(np.int32)
    source, layout = (blocked([1, n], [32, 1], [4, 1], [1, 0], (128, n)) for n in (4, 2))
    ran, result = gathered(x, index, source, layout, 1)
    ran.check(taken(x, index, 1))
    assert not result.counts[BARRIER] and result.counts[SHUFFLE] == 1


# --- flipped positions --------------------------------------------------------------------------------


def flipped_index(kernel: OpKernel, shape: tuple[int, ...], axis: int, mask: int, layout: LinearLayout) -> SSAValue:
    """Positions along `axis`, exclusive-or `mask`, of a tile of one or two dims, built as the language does."""

    def make(
        name: str, operands: list[SSAValue], sizes: tuple[int, ...], where: LinearLayout, **attrs: Any
    ) -> SSAValue:
        result: SSAValue = kernel.build(
            REGISTRY[name].op, operands, [with_layout(tile_type(sizes, i32), where)], attrs
        ).results[0]
        return result

    size, other = shape[axis], 1 - axis
    value = make("tt.make_range", [], (size,), layout if len(shape) == 1 else sliced(layout, other), start=0, end=size)
    if len(shape) > 1:
        sizes = (1, size) if other == 0 else (size, 1)
        value = make("tt.expand_dims", [value], sizes, narrow_tile(layout, other), axis=other)
        value = make("tt.broadcast", [value], shape, layout)
    constant = make("arith.constant", [], shape, layout, value=mask)
    return make("arith.xori", [value, constant], shape, layout)


@pytest.mark.parametrize(("shape", "num_warps"), (((256,), 1), ((256,), 4), ((8, 16), 2)), ids=str)
def test_flipped_positions(shape: tuple[int, ...], num_warps: int) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    layout = default_blocked(shape, num_warps, vector=2)
    for axis in range(len(shape)):
        for mask in (1, 2, 5, shape[axis] // 2, shape[axis] - 1):
            kernel = OpKernel(num_warps=num_warps, scratch=2048)
            source = kernel.operand(tile_type(shape, f32), x, layout)
            index = flipped_index(kernel, shape, axis, mask, layout)
            assert flipped_position(index, axis) == mask
            op = kernel.build(GatherOp, [source, index], [with_layout(tile_type(shape, f32), layout)], {"axis": axis})
            kernel.result(op.results[0])
            (ran,), result = kernel.run()
            ran.check(x.take(np.arange(shape[axis]) ^ mask, axis), what=f"{axis} {mask}")
            assert (scratch_bytes(op) == 0) == (result.counts[BARRIER] == 0)
            if num_warps == 1:
                assert result.counts[BARRIER] == 0
                if mask == 1:
                    assert result.counts[FLIP] == 0


def test_what_is_no_flipped_position() -> None:
    kernel = OpKernel()
    layout = default_blocked((64,), 1)
    t = with_layout(tile_type((64,), i32), layout)
    (unknown,) = Block(arg_types=[t]).args
    later = kernel.build(REGISTRY["tt.make_range"].op, [], [t], {"start": 1, "end": 65}).results[0]
    index = flipped_index(kernel, (64,), 0, 3, layout)
    minus = kernel.build(REGISTRY["arith.subi"].op, [index, index], [t]).results[0]
    for value in (unknown, later, minus):
        assert flipped_position(value, 0) is None


def test_a_reversed_row_is_one_shuffle() -> None:
    kernel = OpKernel()
    layout = default_blocked((32,), 1)
    t = with_layout(tile_type((32,), i32), layout)
    x = np.arange(32, dtype=np.int32)
    source = kernel.operand(tile_type((32,), i32), x, layout)
    index = flipped_index(kernel, (32,), 0, 0, layout)
    last = kernel.build(REGISTRY["arith.constant"].op, [], [t], {"value": 31}).results[0]
    mirrored = kernel.build(REGISTRY["arith.subi"].op, [last, index], [t]).results[0]
    kernel.result(kernel.build(GatherOp, [source, mirrored], [t], {"axis": 0}).results[0])
    (ran,), result = kernel.run()
    ran.check(x[::-1])
    assert result.counts[FLIP] == 1


# --- histogram ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", (False, True))
@pytest.mark.parametrize(("size", "bins"), ((64, 16), (100, 5), (1000, 300), (8, 2)))
def test_histograms(size: int, bins: int, masked: bool) -> None:
    rng = np.random.default_rng(5)
    for num_warps in (1, 4):
        for layout in (
            default_blocked((size,), num_warps, vector=2),
            mixed_layout((size,), num_warps, random.Random(3)),
        ):
            x, mask = rng.integers(-3, bins + 3, size), rng.random(size) < 0.5
            element = rng.choice([i32, i64])
            arrays, types = [x.astype(np.int32 if element is i32 else np.int64)], [tile_type((size,), element)]
            if masked:
                arrays, types = [*arrays, mask], [*types, tile_type((size,), i1)]
            result = with_layout(tile_type((bins,), i32), default_blocked((bins,), num_warps))
            (ran,), _ = run_op(HistogramOp, arrays, types, [layout] * len(types), [result])
            counted = x[(x >= 0) & (x < bins) & (mask if masked else True)]
            ran.check(np.bincount(counted, minlength=bins), what=str(layout))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_they_assemble(capability: int) -> None:
    arch = arch_of(capability)
    layout = default_blocked((256,), 4)
    types = [tile_type((256,), bf16), tile_type((256,), i32)]
    arrays = [np.zeros(256, np.float32), np.zeros(256, np.int32)]
    results = [with_layout(types[0], layout)]
    kernels = [op_kernel(GatherOp, arrays, types, [layout] * 2, results, {"axis": 0}, None, capability)]
    result = [with_layout(tile_type((40,), i32), default_blocked((40,), 4))]
    kernels.append(op_kernel(HistogramOp, arrays[1:], types[1:], [layout], result, {}, None, capability))
    for kernel in kernels:
        assemble(ptx.compile_ptx(kernel.text(), arch), arch, kernel="gather")
