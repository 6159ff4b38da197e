"""Operands that wgmma does not read as they lie: fragments by threads, products turned over."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.backends.nvidia import descriptor_kernels, product_kernels
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.whole import Whole, whole
from tilewright.backends.nvidia.cubin import serial_notes
from tilewright.backends.nvidia.emit.operand import slice_layout
from tilewright.backends.nvidia.emit.shared import offsets_in
from tilewright.backends.nvidia.plan.dots import SharedOperand
from tilewright.backends.nvidia.plan.fragments import fragment_layouts, parts_of
from tilewright.backends.nvidia.plan.operands import fragments_read
from tilewright.backends.nvidia.tgir.ops import LocalLoadOp, WarpGroupDotOp
from tilewright.base import dtypes, minifloat
from tilewright.ir.walk import walk
from tilewright.layouts.access import unique_registers, vector_access

FLOATS = {"fp8e4nv": dtypes.float8e4nv, "fp8e5": dtypes.float8e5}
Shape = tuple[int, int, int]
TF32 = 3e-4  # of the sum of magnitudes: one operand rounded to nearest, one cut off


def product(kind: str, shape: Shape, warps: int = 4, fn: Any = product_kernels.matmul, **more: Any) -> Whole:
    """A product of rows of A and rows of B, unless `more` has them the other way round."""
    m, n, k = shape
    options = {name: more.pop(name) for name in ("num_stages",) if name in more}
    types = {"a_ptr": f"*{kind}!", "b_ptr": f"*{kind}!", "c_ptr": "*i32!" if kind == "i8" else "*fp32!"}
    types |= dict.fromkeys(("N", "K", "stride_a", "stride_b"), "i32!")
    if fn is product_kernels.matmul:
        more = {"EVEN": True, "ACC": tl.int32 if kind == "i8" else tl.float32, **more}
    constants = {"M_BLOCK": m, "N_BLOCK": n, "K_BLOCK": k, **more}
    return whole(fn, types, constants, 90, num_warps=warps, **options)


def operands(kind: str, m: int, n: int, depth: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A and B as they lie in memory, and as numbers."""
    rng = np.random.default_rng(m + n + depth)
    shapes = ((m, depth), (depth, n))
    if kind == "fp32":
        raw = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    elif kind == "i8":
        raw = [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
    else:
        numbers = [rng.integers(-8, 9, shape).astype(np.float32) / 4 for shape in shapes]
        raw = [minifloat.encode(x, FLOATS[kind]).astype(np.uint8) for x in numbers]
        return raw, [minifloat.decode(x, FLOATS[kind]).astype(np.float64) for x in raw]
    return raw, [x.astype(np.float64) for x in raw]


def check(made: Whole, kind: str, shape: Shape, depth: int, ta: bool = False, tb: bool = False) -> Any:
    """Run a product of one block; gives what the run did."""
    m, n, _ = shape
    raw, (a, b) = operands(kind, m, n, depth)
    memory = [np.ascontiguousarray(x.T if turned else x) for x, turned in zip(raw, (ta, tb), strict=True)]
    c = np.zeros((m, n), np.int32 if kind == "i8" else np.float32)
    ran = made.run((1, 1, 1), *memory, c, n, depth, m if ta else depth, depth if tb else n)
    if kind == "fp32":
        assert np.abs(c - a @ b).max() <= TF32 * (np.abs(a) @ np.abs(b)).max()
    else:
        np.testing.assert_array_equal(c, a @ b)
    return ran


def reads(made: Whole) -> list[int | None]:
    """Which operand of each wgmma product the threads read."""
    return [fragments_read(op) for op in walk(made.module) if isinstance(op, WarpGroupDotOp)]


# --- layouts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "warps"), [(64, (4, 1)), (128, (4, 1)), (128, (8, 1)), (256, (8, 1)), (64, (4, 2))])
def test_words_of_32_bits_are_read_without_conflicts(rows: int, warps: tuple[int, int]) -> None:
    _, found = fragment_layouts(1, (rows, 64), 32, warps, 64, 32)
    buffer = SharedOperand((32, rows), 32, 0, by_threads=True).layout_for(found.layout)
    step = slice_layout(found.layout, 0, 8)
    plan = vector_access(offsets_in(unique_registers(step)[0], buffer), 32)
    assert plan.wavefronts == 1


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("index", [0, 1])
def test_accumulators_have_the_rows_of_fragments(index: int, bits: int) -> None:
    accumulator, found = fragment_layouts(index, (128, 32), 64, (4, 1), 32, bits)
    assert accumulator.is_surjective() and found.layout.is_surjective()
    rows = [basis[index] for basis in accumulator.bases()["warp"]]
    assert rows == [basis[1 if index else 0] for basis in found.layout.bases()["warp"]] and all(rows)


@pytest.mark.parametrize(("depth", "parts"), [(8, 1), (16, 2), (32, 2), (64, 2), (128, 4)])
def test_parts_cover_the_steps_once_and_in_order(depth: int, parts: int) -> None:
    _, found = fragment_layouts(1, (64, 64), depth, (4, 1), 64, 32)
    made = parts_of(found.layout, depth // 8, 32)
    assert [step for part in made for step in part] == list(range(depth // 8)) and len(made) == parts


# --- products -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "shape", "warps", "depth", "stages"),
    [
        ("fp32", (64, 64, 32), 4, 96, 3), ("fp32", (128, 128, 32), 8, 64, 3), ("fp32", (64, 128, 8), 4, 40, 4),
        ("fp32", (64, 64, 16), 8, 16, 1), ("fp32", (64, 256, 16), 4, 96, 2), ("i8", (64, 64, 64), 4, 192, 3),
        ("i8", (64, 128, 32), 8, 96, 2), ("fp8e4nv", (64, 64, 128), 4, 256, 3), ("fp8e5", (64, 256, 32), 8, 64, 1),
    ],
)  # fmt: skip
def test_right_operands_by_rows(kind: str, shape: Shape, warps: int, depth: int, stages: int) -> None:
    made = product(kind, shape, warps, num_stages=stages)
    assert reads(made) == [1]
    ran = check(made, kind, shape, depth)
    assert ran.counts["ptx wgmma"]
    assert kind == "fp32" or ran.counts["llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3"]


@pytest.mark.parametrize(("kind", "shape"), [("fp32", (64, 32, 32)), ("i8", (128, 64, 64))])
@pytest.mark.parametrize("tb", [False, True])
def test_left_operands_by_columns(kind: str, shape: Shape, tb: bool) -> None:
    made = product(kind, shape, TRANS_A=True, TRANS_B=tb)
    assert reads(made) == [0]
    check(made, kind, shape, shape[2] * 3, True, tb)


def test_of_two_the_larger_is_read() -> None:
    assert reads(product("fp32", (64, 128, 32), TRANS_A=True)) == [1]
    made = product("fp32", (64, 128, 32), TRANS_A=True)
    check(made, "fp32", (64, 128, 32), 96, True)


def test_masked_depth() -> None:
    check(product("fp32", (64, 64, 32), EVEN=False), "fp32", (64, 64, 32), 48)


def test_added_to_a_sum_in_the_loop() -> None:
    made = product("fp32", (64, 64, 32), fn=product_kernels.matmul_by_index)
    assert reads(made) == [1]
    check(made, "fp32", (64, 64, 32), 64)


def test_two_products_in_flight() -> None:
    made = product("fp32", (64, 64, 16), fn=product_kernels.gated)
    raw, (a, b) = operands("fp32", 64, 128, 48)
    c = np.zeros((64, 128), np.float32)
    ran = made.run((1, 1, 1), *raw, c, 64, 48, 48, 128)
    want = (a @ b[:, :64]) * (a @ b[:, 64:])
    size = (np.abs(a) @ np.abs(b[:, :64])) * (np.abs(a) @ np.abs(b[:, 64:]))
    assert reads(made) == [1, 1] and ran.counts["ptx wgmma"]
    assert np.abs(c.reshape(-1)[: 64 * 64].reshape(64, 64) - want).max() <= 3 * TF32 * size.max()


@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_blocks_by_the_copy_engine_are_read_where_they_are(kind: Any) -> None:
    k = 96 if kind is np.float32 else 256
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype(kind) for shape in ((64, k), (k, 128)))
    c, depth = np.zeros((64, 128), np.float16), 32 if kind is np.float32 else 128
    args = [describe(a, [64, depth]), describe(b, [depth, 128]), describe(c, [64, 128]), k]
    acc = dtypes.int32 if kind is np.int8 else dtypes.float32
    made = Described(descriptor_kernels.matmul, args, 90, M_BLOCK=64, N_BLOCK=128, K_BLOCK=depth, ACC=acc)
    made.run((1, 1))
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))
    assert not any(isinstance(op, LocalLoadOp) for op in walk(made.whole.module))


def test_blocks_for_tf32_are_rounded_by_the_copy_engine() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((64, 96)).astype(np.float32), rng.standard_normal((96, 64)).astype(np.float32)
    c = np.zeros((64, 64), np.float32)
    args = [describe(a, [64, 32]), describe(b, [32, 64]), describe(c, [64, 64]), 96]
    made = Described(descriptor_kernels.matmul, args, 90, M_BLOCK=64, N_BLOCK=64, K_BLOCK=32)
    made.run((1, 1))
    assert [recipe["round_to_tf32"] for recipe in made.whole.lowered().tensor_maps] == [True, True, False]
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.sqrt(np.mean((c - want) ** 2)) <= 3.2e-4 * np.sqrt(np.mean(want**2))


# --- choice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "shape", "more"),
    [
        ("fp32", (64, 64, 32), {"TRANS_B": True}),  # along K
        ("bf16", (64, 64, 32), {}),  # wgmma reads either order
        ("fp32", (64, 32, 32), {}),  # too few columns to be the rows of an instruction
    ],
)
def test_other_operands_stay_in_shared_memory(kind: str, shape: Shape, more: dict[str, Any]) -> None:
    assert reads(product(kind, shape, **more)) == [None]


# --- machine code -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "shape", "warps"),
    [("fp32", (256, 128, 32), 8), ("fp32", (128, 256, 32), 8), ("fp8e4nv", (128, 128, 128), 4)],
)
def test_assembles_without_spills_or_serial_products(kind: str, shape: Shape, warps: int) -> None:
    ptx, cubin = product(kind, shape, warps).assembled()
    assert not serial_notes(cubin.notes) and not cubin.spill_bytes
    body = ptx[: ptx.index("wgmma.commit_group")]
    # The first part waits for all but the newest group, loads, and starts; nothing is stored in between.
    order = re.findall(r"wgmma\.(wait_group|fence|mma_async)|(ld\.shared\.b32|ldmatrix)|(st\.shared)", body)
    names = [next(filter(None, found)) for found in order]
    loads = names.index("ld.shared.b32" if kind == "fp32" else "ldmatrix")
    assert names[loads - 1] == "wait_group" and "st.shared" not in names
    assert names.index("fence") < names.index("mma_async") and names.index("fence") > loads
