"""Descriptors of the host through the copy engine: which it serves, what it copies, and the code for that."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import descriptor_kernels as kernels
from tests.backends.nvidia.descriptor_kernels import Described, describe
from tests.backends.nvidia.laying import ops
from tilewright.backends.nvidia.plan.tma import plan_copy
from tilewright.backends.nvidia.tgir.types import memdesc_count
from tilewright.base import dtypes
from tilewright.base.decision import No, Yes
from tilewright.tools.tensor_descriptor import TensorDescriptor

Array = np.ndarray[Any, Any]
LOAD, STORE = "ttng.async_tma_copy_global_to_local", "ttng.tma_copy_local_to_global"


def numbers(*shape: int, kind: Any = np.float32) -> Array:
    rng = np.random.default_rng(5)
    return rng.integers(-100, 100, shape).astype(kind)


SLICES = "ttng.tma_copy_slices_to_global"


def copies(made: Described) -> tuple[int, int]:
    """Numbers of loads and stores by the copy engine."""
    stores = [ops(made.whole.module, name) for name in (STORE, SLICES)]
    return len(ops(made.whole.module, LOAD)), sum(map(len, stores))


# --- plans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "bits", "swizzle", "box", "boxes"),
    [
        ((128, 64), 16, 128, (128, 64), 1),
        ((64, 256), 16, 128, (64, 64), 4),
        ((16, 32), 16, 64, (16, 32), 1),
        ((8, 16), 16, 32, (8, 16), 1),
        ((4, 16, 32), 32, 128, (4, 16, 32), 1),
        ((64, 16), 8, 0, (64, 16), 1),
        ((2, 64), 16, 0, (2, 64), 1),  # too small for the pattern of 128 bytes
        ((1024,), 32, 0, (256,), 4),
        ((1, 512), 16, 0, (1, 256), 2),
        ((16, 16), 64, 128, (16, 16), 1),
    ],
)
def test_plans(shape: tuple[int, ...], bits: int, swizzle: int, box: tuple[int, ...], boxes: int) -> None:
    answer = plan_copy(shape, bits)
    assert isinstance(answer, Yes)
    plan = answer.plan
    assert (plan.swizzle, plan.box, plan.boxes) == (swizzle, box, boxes)
    assert plan.box_bytes * plan.boxes == np.prod(shape) * bits // 8


@pytest.mark.parametrize(
    ("shape", "bits"), [((512, 64), 16), ((4, 4), 32), ((48, 64), 16), ((1 << 14,), 32), ((8, 8), 8)]
)
def test_blocks_that_the_engine_cannot_move(shape: tuple[int, ...], bits: int) -> None:
    answer = plan_copy(shape, bits)
    assert isinstance(answer, No) and answer.reason and answer.instead


# --- values -------------------------------------------------------------------------------------------

BLOCKS = [
    (np.float32, (40, 72), [16, 32]),
    (np.float16, (70, 200), [64, 128]),
    (np.float16, (33, 40), [16, 16]),
    (np.int8, (30, 48), [16, 16]),
    (np.int32, (20, 100), [8, 64]),
    (np.float64, (20, 36), [8, 16]),
    (np.int64, (9, 18), [2, 16]),
    (np.uint16, (5, 40), [1, 64]),
]


@pytest.mark.parametrize(("kind", "shape", "block"), BLOCKS)
def test_blocks_beyond_every_edge(kind: Any, shape: tuple[int, int], block: list[int]) -> None:
    x, out = numbers(*shape, kind=kind), numbers(*shape, kind=kind)
    made = Described(kernels.moved, [describe(x, block), describe(out, block)], SHIFT=16)
    assert copies(made) == (1, 1)
    made.run([-(-n // size) for n, size in zip(shape, block, strict=True)])
    want = np.zeros_like(x)
    want[16:, : shape[1] - 16] = x[: max(0, shape[0] - 16), 16:]
    np.testing.assert_array_equal(out, want)


def test_what_lies_outside_may_be_nan() -> None:
    x, out = numbers(16, 64, kind=np.float16), numbers(16, 64, kind=np.float16)
    source = describe(x, [16, 64], padding="nan")
    made = Described(kernels.moved, [source, describe(out, [16, 64])], SHIFT=8)
    assert copies(made) == (1, 1)
    made.run((1, 1))
    assert np.isnan(out[:8]).all() and np.isnan(out[:, 56:]).all()
    np.testing.assert_array_equal(out[8:, :56], x[:8, 8:])


def test_other_ranks() -> None:
    x, out = numbers(300), np.zeros(300, np.float32)
    Described(kernels.vectors, [describe(x, [128]), describe(out, [128])], N=128).run((3,))
    np.testing.assert_array_equal(out, x + np.append(x[4:], np.zeros(4)))
    x, out = numbers(10, 6, 40, kind=np.float16), np.zeros((10, 6, 40), np.float16)
    made = Described(kernels.cubes, [describe(x, [4, 4, 32]), describe(out, [4, 4, 32])], D=4)
    assert copies(made) == (1, 1)
    made.run((3,))
    np.testing.assert_array_equal(out[:, :4, :32], x[:, 1:5, 8:40])
    assert not out[:, 4:].any() and not out[:, :, 32:].any()


def test_a_tensor_within_a_larger_one() -> None:
    whole, out = numbers(64, 128), np.zeros((32, 32), np.float32)
    part = TensorDescriptor(whole, [20, 24], [256, 1], [16, 32])
    made = Described(kernels.scaled_copy, [part, describe(out, [16, 32]), 1.0], M=16, N=32)
    made.run((2, 1))
    np.testing.assert_array_equal(out[:20, :24], whole[::2][:20, :24])
    assert not out[20:].any() and not out[:, 24:].any()


def test_loops_and_branches() -> None:
    x = numbers(64, 160, kind=np.float16)
    out = np.zeros(64, np.float32)
    made = Described(kernels.row_sums, [describe(x, [64, 32]), out, 160], M=64, N=32, num_warps=8)
    assert copies(made) == (1, 0)
    made.run((1,))
    np.testing.assert_array_equal(out, x.astype(np.float32).sum(1))
    x, out = numbers(24, 40), np.zeros((8, 16), np.float32)
    made = Described(kernels.sometimes, [describe(x, [8, 16]), out, 5], M=8, N=16, num_warps=1)
    assert copies(made) == (2, 0)
    made.run((1,))
    odd = sum(x[i : i + 8, :16] for i in (1, 3))
    np.testing.assert_array_equal(out, odd + sum(x[:8, 4 * i : 4 * i + 16] for i in range(5)))


@pytest.mark.parametrize(("shift", "count"), [(4, 1), (1, 0), (2, 0)])
def test_blocks_that_may_start_between_the_units_of_the_engine_are_left_to_pointers(shift: int, count: int) -> None:
    x, out = numbers(32, 64), numbers(32, 64)
    made = Described(kernels.moved, [describe(x, [16, 32]), describe(out, [16, 32])], SHIFT=shift)
    assert copies(made) == (count, 1)
    made.run((2, 2))
    want = np.zeros_like(x)
    want[shift:, :-shift] = x[:-shift, shift:]
    np.testing.assert_array_equal(out, want)


def test_loads_and_stores_of_one_tensor() -> None:
    x, out = numbers(16, 32), np.zeros(1, np.float32)
    made = Described(kernels.in_place, [describe(x, [16, 32]), out], M=16, N=32)
    want = x + 1
    assert copies(made) == (1, 1)
    made.run((1,))
    np.testing.assert_array_equal(x, want)


# --- products -----------------------------------------------------------------------------------------


Sizes = tuple[int, int, int]


def check_matmul(fn: Any, capability: int, blocks: Sizes, size: Sizes, **more: Any) -> Any:
    """Run a product of descriptors and compare; gives the kernel and what its run did."""
    (m, n, k), turned = size, more.get("TRANS_B", False)
    kind = more.pop("kind", np.float16)
    a = np.random.default_rng(1).integers(-4, 5, (m, k)).astype(kind)
    b = np.random.default_rng(2).integers(-4, 5, (n, k) if turned else (k, n)).astype(kind)
    c = np.zeros((m, n), np.float16)
    rows, columns, depth = blocks
    right: Any = describe(b, [columns, depth] if turned else [depth, columns])
    last: list[Any] = [k]
    if fn is kernels.mixed_matmul:
        right, last = b, [n, k]
    grid = (-(-m // rows), -(-n // columns))
    if fn is kernels.persistent:
        grid, last = (2, 1), [k, -(-m // rows)]
    constants = {"M_BLOCK": rows, "N_BLOCK": columns, "K_BLOCK": depth, **more}
    args = [describe(a, [rows, depth]), right, describe(c, [rows, columns]), *last]
    made = Described(fn, args, capability, **constants)
    ran = made.run(grid)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ (b.T if turned else b).astype(np.float32))
    return made, ran


def rings(made: Described) -> list[int]:
    counts = [memdesc_count(op.results[0].type) for op in ops(made.whole.module, "ttg.local_alloc")]
    return [count for count in counts if count > 1]


@pytest.mark.parametrize(
    ("capability", "blocks", "more"),
    [
        (90, (64, 64, 64), {}),
        (90, (64, 128, 32), {"num_stages": 2}),
        (90, (64, 32, 64), {"TRANS_B": True, "num_stages": 4}),
        (90, (128, 64, 64), {"num_warps": 8}),
        (100, (64, 64, 32), {}),
        (120, (32, 32, 64), {"TRANS_B": True}),
    ],
)
def test_products_read_what_the_engine_brings(
    capability: int, blocks: tuple[int, int, int], more: dict[str, Any]
) -> None:
    m, n, k = blocks
    made, ran = check_matmul(kernels.matmul, capability, blocks, (m + 8, n, 5 * k - 8), **more)
    stages = more.get("num_stages", 3)
    assert rings(made) == [stages] * 3  # barriers, a, b
    assert not ops(made.whole.module, "ttg.async_copy_global_to_local")
    assert copies(made) == (2 * stages, 1)
    # Nothing but products reads the operands, and one barrier of the block serves an iteration.
    assert capability != 90 or not ops(made.whole.module, "ttg.local_load")
    assert len(ops(made.whole.module, "ttg.barrier", "scf.for")) == 1
    programs = -(-(m + 8) // m)
    assert ran.counts["llvm.nvvm.barrier.cta.sync.aligned.all"] <= programs * (5 + 5)


@pytest.mark.parametrize("turned", [False, True])
def test_operands_that_wgmma_takes_in_one_order_only(turned: bool) -> None:
    more = {"kind": np.int8, "TRANS_B": turned, "ACC": dtypes.int32}
    made, _ = check_matmul(kernels.matmul, 90, (64, 32, 32), (64, 32, 96), **more)
    stored = ops(made.whole.module, "ttg.local_store", "scf.for")
    assert len(stored) == (0 if turned else 1)


@pytest.mark.parametrize("capability", [90, 120])
def test_products_without_tensor_cores(capability: int) -> None:
    check_matmul(kernels.matmul, capability, (64, 32, 32), (64, 32, 96), kind=np.float32)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_fewer_iterations_than_buffers(iterations: int) -> None:
    check_matmul(kernels.matmul, 90, (64, 32, 32), (64, 32, 32 * iterations), num_stages=4)


@pytest.mark.parametrize("capability", [90, 100])
def test_rings_that_are_filled_again(capability: int) -> None:
    made, _ = check_matmul(kernels.persistent, capability, (64, 32, 32), (64 * 5, 32, 160))
    assert rings(made) == [3, 3, 3]


@pytest.mark.parametrize("capability", [90, 100])
def test_copies_of_both_kinds(capability: int) -> None:
    made, _ = check_matmul(kernels.mixed_matmul, capability, (64, 64, 32), (72, 64, 144))
    assert rings(made) == [3, 3, 3] and len(ops(made.whole.module, "ttg.async_copy_global_to_local")) == 3


def test_without_a_pipeline() -> None:
    made, _ = check_matmul(kernels.matmul, 90, (64, 64, 64), (64, 64, 192), num_stages=1)
    assert not rings(made) and copies(made) == (2, 1)
    body = [op.name for op in ops(made.whole.module, "scf.for")[0].walk()]
    assert body.count("ttng.wait_barrier") == 2 and body.index("ttng.wait_barrier") > body.index(LOAD) + 1
    assert body[body.index(LOAD) + 1 :].count(LOAD) == 1  # both are under way before one is waited for


# --- choice -------------------------------------------------------------------------------------------


def described(capability: int = 90, shape: Any = (64, 64), block: Any = (16, 32), **more: Any) -> Described:
    x, out = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    args = [describe(x, list(block)), describe(out, list(block)), 2.0]
    return Described(kernels.scaled_copy, args, capability, M=block[0], N=block[1], **more)


def test_only_some_targets_have_the_engine() -> None:
    assert [copies(described(capability)) for capability in (80, 89, 90, 100, 120)] == [(0, 0)] * 2 + [(1, 1)] * 3
    assert not ops(described(80).tile_ir, "tt.make_tensor_descriptor")


def test_blocks_that_fill_shared_memory_are_left_to_threads() -> None:
    assert copies(described(block=(128, 128), num_warps=8)) == (1, 0)  # the second would take what is left
    assert copies(described(block=(256, 128), num_warps=8)) == (0, 0)
    assert copies(described(120, block=(128, 128), num_warps=8)) == (0, 0)


def test_tensors_of_ordinary_accesses_are_left_to_them() -> None:
    x = numbers(16, 32)
    want = x.copy()
    want[0, 0] = 5
    made = Described(kernels.ordinary_writes, [describe(x, [16, 32])], M=16, N=32)
    assert copies(made) == (0, 0) and not ops(made.whole.module, "tt.make_tensor_descriptor")
    made.run((1,))
    np.testing.assert_array_equal(x, want + 1)
    x, out = numbers(16, 32), np.zeros(1, np.float32)
    want = x + 1
    made = Described(kernels.ordinary_reads, [describe(x, [16, 32]), out], M=16, N=32)
    assert copies(made) == (0, 0)
    made.run((1,))
    np.testing.assert_array_equal(x, want)
    assert out[0] == want[0, 0]


def test_strides_that_no_map_has() -> None:
    row = np.arange(32, dtype=np.float32)
    source = TensorDescriptor(row, [16, 32], [0, 1], [16, 32])
    out = np.zeros((16, 32), np.float32)
    made = Described(kernels.scaled_copy, [source, describe(out, [16, 32]), 1.0], M=16, N=32)
    assert copies(made) == (0, 1)
    made.run((1, 1))
    np.testing.assert_array_equal(out, np.broadcast_to(row, (16, 32)))


# --- code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capability", [90, 100, 120])
def test_code(capability: int) -> None:
    ptx, cubin = described(capability).whole.assembled()
    order = [
        r"\.param \.align 64 \.b8 scaled_copy_param_9\[128\]",
        r"mbarrier\.init\.shared\.b64",
        r"bar\.sync",
        r"mbarrier\.arrive\.expect_tx\.\S*shared\S* .*",
        r"cp\.async\.bulk\.tensor\.2d\.shared::cta\.global\.tile\.mbarrier::complete_tx::bytes",
        r"mbarrier\.try_wait\.parity",
        r"ld\.shared\.v4",
        r"st\.shared\.v4",
        r"fence\.proxy\.async\.shared::cta",
        r"bar\.sync",
        r"cp\.async\.bulk\.tensor\.2d\.global\.shared::cta\.tile\.bulk_group",
        r"cp\.async\.bulk\.wait_group\s+0",
    ]
    assert re.search(".*".join(order), ptx, re.DOTALL), ptx
    assert cubin.spill_bytes == 0 and ".local" not in ptx  # phases are counted in registers


def test_code_of_a_product() -> None:
    made, _ = check_matmul(kernels.matmul, 90, (64, 64, 64), (64, 64, 64))
    ptx, cubin = made.whole.assembled()
    assert "wgmma.mma_async" in ptx and "ld.shared" not in ptx and "cp.async.c" not in ptx
    assert cubin.spill_bytes == 0 and ".local" not in ptx
