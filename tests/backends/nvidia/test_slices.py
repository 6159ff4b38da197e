"""Results of products leave each warp in slices of its own: layouts, code, and runs on the simulated GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tests.backends.nvidia import descriptor_kernels, simt_tensor
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.simt_memory import SimtError
from tests.backends.nvidia.test_descriptors import check_matmul
from tests.backends.nvidia.whole import Whole, whole
from tilewright.backends.nvidia.cubin import assembler, serial_notes
from tilewright.backends.nvidia.plan.anchors import Access, within_warps
from tilewright.backends.nvidia.plan.tma import plan_copy, slices_of
from tilewright.backends.nvidia.tgir.types import layout_of
from tilewright.base.decision import Yes
from tilewright.layouts.distributed import wgmma_accumulator
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shuffle import stays_in_warp

assert simt_tensor
needs_assembler = pytest.mark.skipif(assembler() is None, reason="nvJitLink is not installed")
SLICES = "ttng.tma_copy_slices_to_global"


@tilewright.jit
def product(a_ptr, b_ptr, c_ptr, N, K, M: tl.constexpr, COLUMNS: tl.constexpr, EDGE: tl.constexpr = False):
    m, n, k = tl.arange(0, M), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, 32)
    acc = tl.zeros((M, COLUMNS), tl.float32)
    for start in range(0, K, 32):
        a = tl.load(a_ptr + m[:, None] * K + (start + k)[None, :])
        acc += tl.dot(a, tl.load(b_ptr + (start + k)[:, None] * N + n[None, :]))
    where = (m < M - 3)[:, None] if EDGE else (m >= 0)[:, None]
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(c_ptr.dtype.element_ty), where)


def made(kind: str, rows: int, columns: int, warps: int, **more: Any) -> Whole:
    types = {"a_ptr": "*fp16!", "b_ptr": "*fp16!", "c_ptr": f"*{kind}!", "N": "i32!", "K": "i32!"}
    return whole(product, types, {"M": rows, "COLUMNS": columns, **more}, 90, num_warps=warps, num_stages=2)


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "warps", "edge"),
    [("fp16", 64, 64, 4, False), ("fp16", 128, 256, 8, False), ("fp16", 128, 64, 4, True), ("fp16", 64, 128, 8, False)],
)  # fmt: skip
def test_stores_by_pointers(kind: str, rows: int, columns: int, warps: int, edge: bool) -> None:
    """No barrier but those of the loop; what is masked is not written."""
    kernel = made(kind, rows, columns, warps, EDGE=edge)
    (conversion,) = ops(kernel.module, "ttg.convert_layout")
    assert stays_in_warp(layout_of(conversion.operands[0]), layout_of(conversion.results[0]))
    assert "tw.apart" in conversion.attributes
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((rows, 64), (64, 2 * columns)))
    c = np.full((rows, 2 * columns), 99, np.float16 if kind == "fp16" else np.float32)
    ran = kernel.run((2,), a, b, c, 2 * columns, 64)
    want = a.astype(np.float32) @ b.astype(np.float32)
    if edge:
        want[-3:] = 99
    np.testing.assert_array_equal(c, want)
    names = [op.name for op in kernel.module.walk()]
    assert "ttg.barrier" not in names[names.index("ttg.convert_layout") - 1 :]
    assert ran.counts["llvm.nvvm.bar.warp.sync"]


@needs_assembler
def test_code_of_stores_by_pointers() -> None:
    ptx, cubin = made("fp16", 128, 256, 8).assembled()
    tail = ptx[ptx.rindex("wgmma.wait_group") :]
    assert len(re.findall(r"stmatrix\.sync\.aligned\.m8n8\.x4", tail)) == 16 and "bar.sync" not in tail
    assert len(re.findall(r"st\.global\.v4", tail)) == 16 and "bar.warp.sync" in tail
    assert not cubin.spill_bytes and not serial_notes(cubin.notes)


def test_rows_of_a_warp_are_taken_whole() -> None:
    held = wgmma_accumulator((8, 1), 256, (128, 256))
    kept = within_warps(held, Access((128, 256), (1, 0), 256, 8, 2, (1, 1)))
    assert kept is not None and stays_in_warp(held, kept) and kept.is_surjective()
    assert kept.bases()["lane"] == [(0, 8), (0, 16), (0, 32), (0, 64), (0, 128)]
    assert within_warps(held, Access((128, 256), (1, 0), 256, 2, 2, (1, 1))) is None  # no vectors
    narrow = wgmma_accumulator((4, 1), 8, (64, 8))
    assert within_warps(narrow, Access((64, 8), (1, 0), 8, 8, 2, (1, 1))) is None  # less than a sector in a row


# --- by the copy engine ---------------------------------------------------------------------------------


def _slices(layout: LinearLayout, box: tuple[int, ...], bits: int) -> Any:
    plan = plan_copy(box, bits)
    assert isinstance(plan, Yes)
    return slices_of(layout, plan.plan)


def test_slices_of_an_accumulator() -> None:
    plan = _slices(wgmma_accumulator((8, 1), 256, (128, 256)), (16, 64), 16)
    assert plan.places == ((0, 0), (0, 64), (0, 128), (0, 192)) and plan.warps == ((16, 0), (32, 0), (64, 0))
    assert sorted(r for slice_ in plan.registers for r in slice_) == list(range(128))
    tall = _slices(wgmma_accumulator((4, 1), 64, (128, 64)), (16, 64), 16)
    assert tall.places == ((0, 0), (64, 0))
    assert _slices(wgmma_accumulator((4, 1), 32, (64, 32)), (16, 64), 16) is None  # narrower than a slice
    assert _slices(wgmma_accumulator((4, 2), 32, (64, 64)), (16, 64), 16) is None  # two warps share the columns


@pytest.mark.parametrize(
    ("blocks", "size", "more"),
    [
        ((64, 64, 32), (64, 64, 96), {}),
        ((128, 128, 32), (136, 200, 64), {"num_warps": 8}),  # blocks that end outside
        ((128, 64, 32), (128, 64, 64), {"num_warps": 4}),
    ],
)
def test_stores_through_descriptors(blocks: Any, size: Any, more: dict[str, Any]) -> None:
    kernel, _ = check_matmul(descriptor_kernels.matmul, 90, blocks, size, **more)
    assert len(ops(kernel.whole.module, SLICES)) == 1
    assert not ops(kernel.whole.module, "ttng.tma_copy_local_to_global")


@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_stores_of_a_loop_over_tiles(tiles: int) -> None:
    """A warp comes back to its slices without a barrier of the block."""
    kernel, _ = check_matmul(descriptor_kernels.persistent, 90, (64, 64, 32), (64 * tiles, 64, 96))
    (store,) = ops(kernel.whole.module, SLICES)
    assert store.prev_op is not None and store.prev_op.name != "ttg.barrier"


@tilewright.jit
def added_in_place(a, b, c, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    acc = tl.dot(a.load([0, 0]), b.load([0, 0]), c.load([0, 0]).to(tl.float32))
    c.store([0, 0], acc.to(c.dtype))


@tilewright.jit
def counted(a, b, c, count, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr):
    c.store([0, 0], tl.dot(a.load([0, 0]), b.load([0, 0])).to(c.dtype))
    tl.atomic_add(count, 1, sem="release")


@pytest.mark.parametrize("fn", [added_in_place, counted])
def test_what_may_be_read_before_the_end_is_waited_for(fn: Any) -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(3))
    want = a.astype(np.float32) @ b.astype(np.float32) + (c if fn is added_in_place else 0)
    args = [descriptor_kernels.describe(x, [64, 64]) for x in (a, b, c)]
    more = [np.zeros(1, np.int32)] if fn is counted else []
    kernel = descriptor_kernels.Described(fn, [*args, *more], 90, M_BLOCK=64, N_BLOCK=64, K_BLOCK=64)
    assert not ops(kernel.whole.module, SLICES) and ops(kernel.whole.module, "ttng.tma_copy_local_to_global")
    kernel.run((1,))
    np.testing.assert_array_equal(c, want)


@needs_assembler
def test_code_of_stores_through_descriptors() -> None:
    kernel, _ = check_matmul(descriptor_kernels.matmul, 90, (128, 128, 32), (128, 128, 32), num_warps=8)
    ptx, cubin = kernel.whole.assembled()
    order = [
        r"wgmma\.wait_group\.sync\.aligned\s+0", r"stmatrix\.sync\.aligned\.m8n8\.x4",
        r"fence\.proxy\.async\.shared::cta", r"bar\.warp\.sync",
        r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta\.tile\.bulk_group", r"cp\.async\.bulk\.commit_group",
        r"stmatrix", r"fence\.proxy\.async\.shared::cta", r"bar\.warp\.sync", r"cp\.async\.bulk\.tensor\.2d\.global",
        r"cp\.async\.bulk\.wait_group\.read\s+0",
    ]  # fmt: skip
    assert re.search(".*".join(order), ptx, re.DOTALL), ptx
    assert ptx.count("stmatrix") == 8 and not cubin.spill_bytes and not serial_notes(cubin.notes)
    assert ".param .align 64" in ptx and len(kernel.whole.lowered().tensor_maps) == 3  # none of the whole block


@pytest.mark.parametrize(
    "left_out", ["llvm.nvvm.cp.async.bulk.wait.group.read(i32 1)", "llvm.nvvm.cp.async.bulk.wait.group.read(i32 0)",
                 "llvm.nvvm.bar.warp.sync"],
)  # fmt: skip
def test_every_wait_is_needed(monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    """The simulated GPU objects where one is left out."""
    blocks = (64, 256, 32)
    check_matmul(descriptor_kernels.matmul, 90, blocks, blocks)
    whole_text = Whole.lowered

    def lowered(kernel: Whole) -> Any:
        made = whole_text(kernel)
        lines = made.llvm.splitlines()
        kept = [line for line in lines if left_out not in line or line.startswith("declare")]
        assert len(kept) < len(lines)
        return replace(made, llvm="\n".join(kept))

    monkeypatch.setattr(Whole, "lowered", lowered)
    with pytest.raises(SimtError):
        check_matmul(descriptor_kernels.matmul, 90, blocks, blocks)
