"""Scans on a GPU: both directions, any layout, bodies that do not commute, tiles that are padded."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia.bodies import Body, affine, mixed_layout, one, op_kernel, run_op, some_layouts
from tests.backends.nvidia.op_kernels import Ran
from tests.backends.nvidia.simt import Result
from tilewright.backends.nvidia import ptx
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.emit.scan import Level, plan_scan
from tilewright.backends.nvidia.tgir.types import with_layout
from tilewright.ir.types import bf16, f16, f32, i1, i8, i16, i32, i64, tile_type
from tilewright.layouts.distributed import default_blocked, mma_accumulator
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.tile import reshape_tile
from tilewright.ops.scan import ScanOp

CAPABILITIES = (80, 86, 89, 90, 100, 120)
SHAPES = ((96,), (1,), (512,), (8, 16), (5, 7), (3, 4, 5))
Array = np.ndarray[Any, Any]


def scanned(
    arrays: Sequence[Array], elements: Sequence[Any], layout: LinearLayout, axis: int, body: Body, reverse: bool = False
) -> tuple[list[Ran], Result]:
    types = [tile_type(arrays[0].shape, t) for t in elements]
    results = [with_layout(t, layout) for t in types]
    attrs = {"axis": axis, "reverse": reverse}
    return run_op(ScanOp, arrays, types, [layout] * len(types), results, attrs, body)


def running_sum(x: Array, axis: int, reverse: bool) -> Array:
    turned = np.flip(x, axis) if reverse else x
    total = turned.cumsum(axis, dtype=x.dtype)
    return np.flip(total, axis) if reverse else total


def running_map(a: Array, b: Array, axis: int, reverse: bool) -> tuple[Array, Array]:
    """The body `affine`, one element after the other."""
    a, b = (np.moveaxis(v[()], axis, 0)[:: -1 if reverse else 1].copy() for v in (a, b))
    for i in range(1, len(a)):
        with np.errstate(over="ignore"):
            a[i], b[i] = a[i] * a[i - 1], a[i] * b[i - 1] + b[i]
    a, b = (np.moveaxis(v[:: -1 if reverse else 1], 0, axis) for v in (a, b))
    return a, b


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reverse", (False, True), ids=("forward", "reverse"))
def test_running_sums(shape: tuple[int, ...], reverse: bool) -> None:
    rng = np.random.default_rng(5)
    for layout in some_layouts(shape, 1 if shape == (8, 16) else 4, random.Random(7)):
        x = rng.integers(-1000, 1000, shape).astype(np.int32)
        for axis in range(len(shape)):
            (ran,), _ = scanned([x], [i32], layout, axis, one("arith.addi"), reverse)
            ran.check(running_sum(x, axis, reverse), what=f"{layout} along {axis}")


@pytest.mark.parametrize("shape", ((96,), (5, 7)), ids=str)
@pytest.mark.parametrize("reverse", (False, True), ids=("forward", "reverse"))
def test_the_order_of_operands_is_kept(shape: tuple[int, ...], reverse: bool) -> None:
    rng = np.random.default_rng(6)
    for layout in some_layouts(shape, 4, random.Random(8)):
        a, b = (rng.integers(-9, 9, shape).astype(np.int32) | 1 for _ in range(2))
        for axis in range(len(shape)):
            found = scanned([a, b], [i32, i32], layout, axis, affine, reverse)[0]
            for ran, want in zip(found, running_map(a, b, axis, reverse), strict=True):
                ran.check(want, what=f"{layout} along {axis}")


def test_element_types() -> None:
    rng = np.random.default_rng(2)
    whole = rng.integers(0, 3, (4, 100))
    for element, dtype, name in (
        (f32, np.float32, "arith.addf"), (f16, np.float16, "arith.addf"), (bf16, np.float32, "arith.maxnumf"),
        (i64, np.int64, "arith.addi"), (i1, bool, "arith.ori"),
        (i8, np.int8, "arith.addi"), (i16, np.int16, "arith.addi"),
    ):  # fmt: skip
        x = whole.astype(dtype)
        ufunc = {"arith.addf": np.add, "arith.addi": np.add, "arith.maxnumf": np.maximum, "arith.ori": np.logical_or}[
            name
        ]
        for reverse in (False, True):
            turned = x[:, :: -1 if reverse else 1]
            want = ufunc.accumulate(turned, axis=1)[:, :: -1 if reverse else 1]
            (ran,), _ = scanned([x], [element], default_blocked((4, 100), 8, vector=4), 1, one(name), reverse)
            ran.check(want, what=f"{element} {reverse}")


def test_levels_of_the_usual_layouts() -> None:
    one_row = default_blocked((4096,), 4, vector=4)
    assert plan_scan(one_row, 0) == (
        Level("register", (1, 2), 0),
        Level("lane", (1, 2, 4, 8, 16), 2),
        Level("warp", (1, 2), 7),
        Level("register", (4, 8, 16), 9),
    )
    fragment = plan_scan(mma_accumulator((4, 1), (64, 32)), 1)
    assert fragment is not None and [level.kind for level in fragment] == ["register", "lane", "register"]


def test_lanes_in_another_order() -> None:
    layout = reshape_tile(default_blocked((8, 4), 1, (0, 1)), (32,))
    levels = plan_scan(layout, 0)
    assert levels is not None and any(list(level.bits) != sorted(level.bits) for level in levels)
    x = np.arange(32, dtype=np.int32)
    for reverse in (False, True):
        (ran,), _ = scanned([x], [i32], layout, 0, one("arith.addi"), reverse)
        ran.check(running_sum(x, 0, reverse))


def test_what_a_row_over_four_warps_costs() -> None:
    x = np.ones(1024, np.float32)
    ran = scanned([x], [f32], default_blocked((1024,), 4, vector=8), 0, one("arith.addf"))[1]
    assert ran.counts["llvm.nvvm.barrier.cta.sync.aligned.all"] == 1
    assert ran.counts["llvm.nvvm.shfl.sync.idx.i32"] - 1 == 5 + 2  # the first tells the warp's index


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_scans_assemble(capability: int) -> None:
    arch = arch_of(capability)
    for layout in (mixed_layout((8, 64), 4, random.Random(1)), default_blocked((8, 60), 4, (0, 1))):
        types = [tile_type((8, 60), t) for t in (f32, i32)]
        arrays = [np.zeros((8, 60), np.float32), np.zeros((8, 60), np.int32)]
        results = [with_layout(t, layout) for t in types]
        attrs = {"axis": 1, "reverse": True}
        kernel = op_kernel(ScanOp, arrays, types, [layout] * 2, results, attrs, lambda make, a, b: a, capability)
        assemble(ptx.compile_ptx(kernel.text(), arch), arch, kernel="scan")
