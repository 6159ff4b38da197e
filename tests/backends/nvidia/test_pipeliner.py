"""Software pipelining: what is copied ahead, and that pipelined kernels compute what they did, on the simulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.nvidia import product_kernels as kernels
from tests.backends.nvidia.laying import ops
from tests.backends.nvidia.whole import Whole, whole
from tests.sample_kernels import from_memory, to_memory
from tilewright.backends.nvidia.plan import pipeliner
from tilewright.backends.nvidia.tgir.types import memdesc_count
from tilewright.base import dtypes
from tilewright.base.minifloat import round_to
from tilewright.ir.types import dtype_of, scalar_type

Array = np.ndarray[Any, Any]
_IR = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp8e4nv": "f8E4M3FN", "fp8e5": "f8E5M2", "i8": "i8"}
_FREE = {"c_ptr": "*fp32!", "N": "i32!", "K": "i32!", "stride_a": "i32!", "stride_b": "i32!", "tiles": "i32"}


def matrices(kind: str, *shapes: tuple[int, int]) -> list[Array]:
    """Random matrices, exact in a type, in memory form."""
    element, rng = scalar_type(_IR[kind]), np.random.default_rng(7)
    if kind == "i8":
        return [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
    made = [round_to(rng.uniform(-1, 1, shape), dtype_of(element)) for shape in shapes]
    if kind == "fp32":  # exact as tf32
        made = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in made]
    return [to_memory(x, element) for x in made]


def numbers(kind: str, memory: Array) -> Array:
    return np.asarray(from_memory(memory, scalar_type(_IR[kind]))).astype(np.float64)


def build(
    fn: Any, kind: str, capability: int, blocks: tuple[int, int, int], warps: int = 4, stages: int = 3, **more: Any
) -> Whole:
    constants = dict(zip(("M_BLOCK", "N_BLOCK", "K_BLOCK"), blocks), **more)
    types = {**_FREE, "a_ptr": f"*{kind}!", "b_ptr": f"*{kind}!"}
    if kind == "i8" and "CAST" not in more:
        types["c_ptr"], constants["ACC"] = "*i32!", dtypes.int32
    if "CAST" in more:
        types["b_ptr"] = "*fp16!"
    return whole(fn, types, constants, capability, num_warps=warps, num_stages=stages)


def check_matmul(made: Whole, kind: str, size: tuple[int, int, int], blocks: tuple[int, int, int], **more: Any) -> Any:
    """Run a product of two matrices and compare."""
    m, n, k = size
    turned = more.get("TRANS_A", False), more.get("TRANS_B", False)
    a, b = matrices(kind, (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n))
    wanted_b = b
    if "CAST" in more:
        (b,) = matrices("fp16", b.shape)
        wanted_b = b.astype(np.float64)
    left, right = numbers(kind, a), wanted_b if "CAST" in more else numbers(kind, b)
    want = (left.T if turned[0] else left) @ (right.T if turned[1] else right)
    c = np.zeros((m, n), np.int32 if kind == "i8" and "CAST" not in more else np.float32)
    ran = made.run((-(-m // blocks[0]), -(-n // blocks[1])), a, b, c, n, k, a.shape[1], b.shape[1])
    bound = np.abs(left).max(initial=0) * np.abs(right).max(initial=0) * k * 1e-6
    assert np.abs(c - want).max() <= bound
    return ran


def rings(made: Whole) -> list[int]:
    """Numbers of buffers of the rings."""
    counts = [memdesc_count(op.results[0].type) for op in ops(made.module, "ttg.local_alloc")]
    return [count for count in counts if count > 1]


MATMULS = [
    # kind, capability, blocks, warps, stages, options
    ("fp16", 80, (32, 32, 16), 1, 3, {}),
    ("bf16", 80, (64, 64, 32), 4, 4, {"TRANS_B": True}),
    ("fp16", 80, (32, 64, 32), 2, 2, {"TRANS_A": True}),
    ("fp8e5", 89, (32, 32, 64), 2, 3, {"TRANS_B": True}),
    ("i8", 80, (32, 32, 64), 2, 3, {}),
    ("fp32", 80, (32, 32, 32), 2, 3, {}),
    ("fp16", 90, (64, 64, 32), 4, 3, {}),
    ("bf16", 90, (128, 64, 32), 8, 4, {"TRANS_B": True, "EVEN": True}),
    ("fp16", 90, (64, 128, 32), 4, 2, {"TRANS_A": True}),
    ("fp8e4nv", 90, (64, 32, 64), 4, 3, {"TRANS_B": True}),
    ("fp8e4nv", 90, (64, 32, 64), 4, 3, {}),
    ("i8", 90, (64, 32, 64), 4, 3, {"TRANS_B": True}),
    ("fp32", 90, (64, 32, 32), 4, 3, {}),
    ("fp32", 90, (64, 32, 32), 4, 3, {"TRANS_B": True}),
    ("i8", 90, (64, 64, 32), 4, 3, {"CAST": dtypes.float16}),
    ("i8", 80, (32, 32, 32), 2, 3, {"CAST": dtypes.float16}),
    ("fp32", 80, (16, 16, 16), 1, 2, {"PRECISION": "ieee"}),
    ("fp32", 80, (32, 32, 32), 1, 2, {"PRECISION": "ieee"}),  # a loop over K
    ("fp32", 90, (32, 64, 64), 2, 2, {"PRECISION": "ieee", "TRANS_A": True, "TRANS_B": True}),
    ("fp16", 80, (48, 24, 48), 2, 3, {"TRANS_B": True}),
    ("fp16", 90, (72, 24, 48), 4, 2, {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "capability", "blocks", "warps", "stages", "more"), MATMULS)
def test_matmul(kind: str, capability: int, blocks: Any, warps: int, stages: int, more: dict[str, Any]) -> None:
    made = build(kernels.matmul, kind, capability, blocks, warps, stages, **more)
    # The tensor cores take no fp8 with K across the rows: that operand is turned in registers.
    turned = kind == "fp8e4nv" and "TRANS_B" not in more
    assert rings(made) == [stages] * (3 if turned else 2)
    check_matmul(
        made, kind, (blocks[0], 2 * blocks[1], 4 * blocks[2] + (0 if more.get("EVEN") else 16)), blocks, **more
    )


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_fewer_iterations_than_buffers(capability: int, iterations: int) -> None:
    made = build(kernels.matmul, "fp16", capability, (64, 32, 32), stages=4)
    check_matmul(made, "fp16", (64, 32, 32 * iterations), (64, 32, 32))


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("fn", [kernels.matmul_by_index, kernels.persistent])
def test_other_loops(fn: Any, capability: int) -> None:
    made = build(fn, "fp16", capability, (64, 32, 32))
    assert rings(made) == [3, 3]
    a, b = matrices("fp16", (128, 160), (160, 64))
    c = np.zeros((128, 64), np.float32)
    grid, more = ((2, 2), ()) if fn is kernels.matmul_by_index else ((2, 1), (2,))
    made.run(grid, a, b, c, 64, 160, 160, 64, *more)
    assert np.abs(c - numbers("fp16", a) @ numbers("fp16", b)).max() < 1e-4


@pytest.mark.parametrize("capability", [80, 90])
def test_two_products_of_one_tile(capability: int) -> None:
    made = build(kernels.gated, "fp16", capability, (64, 32, 32))
    assert rings(made) == [3, 3, 3]
    a, b = matrices("fp16", (64, 160), (160, 64))
    c = np.zeros((64, 32), np.float32)
    made.run((1, 1), a, b, c, 32, 160, 160, 64)
    both = numbers("fp16", a) @ numbers("fp16", b)
    assert np.abs(c - both[:, :32] * both[:, 32:]).max() < 1e-3


@pytest.mark.parametrize(
    ("capability", "warps", "turned"), [(80, 4, False), (80, 2, True), (90, 4, False), (90, 4, True)]
)
def test_attention(capability: int, warps: int, turned: bool) -> None:
    made = attention_of(capability, warps, 64, 32, 32, TRANS=turned)
    assert rings(made) == [3, 3]
    q, k, v = matrices("fp16", *[(128, 32)] * 3)
    out = np.zeros((128, 32), np.float32)
    ran = made.run((2,), q, k, v, out, 128, 0.5)
    scores = np.exp2(numbers("fp16", q) @ numbers("fp16", k).T * 0.5)
    want = scores / scores.sum(1, keepdims=True) @ numbers("fp16", v)
    assert np.abs(out - want).max() < 1e-3
    # Of shared memory only Q, K and V go through: probabilities stay where they are.
    assert not ops(made.module, "ttg.convert_layout", "scf.for") or capability == 80
    assert ran.counts["llvm.nvvm.barrier.cta.sync.aligned.all"] <= 2 * (128 // 32 + 4)


def attention_of(capability: int, warps: int, rows: int, cols: int, depth: int, stages: int = 3, **more: Any) -> Whole:
    types = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), "*fp16!") | {
        "out_ptr": "*fp32!",
        "context": "i32!",
        "scale": "fp32",
    }
    constants = {"M_BLOCK": rows, "N_BLOCK": cols, "DEPTH": depth, **more}
    return whole(kernels.attention, types, constants, capability, num_warps=warps, num_stages=stages)


def test_addresses_that_are_loaded() -> None:
    types = {**_FREE, "a_ptr": "*fp16!", "b_ptr": "*fp16!", "index_ptr": "*i32!"}
    blocks = {"M_BLOCK": 32, "N_BLOCK": 32, "K_BLOCK": 32}
    made = whole(kernels.gathered, types, blocks, 80, num_warps=2, num_stages=3)
    assert len(rings(made)) == 1
    a, b = matrices("fp16", (32, 96), (96, 32))
    index = np.random.default_rng(1).permutation(96).astype(np.int32)
    c = np.zeros((32, 32), np.float32)
    made.run((1,), a, index, b, c, 32, 96)
    assert np.abs(c - numbers("fp16", a)[:, index] @ numbers("fp16", b)).max() < 1e-4


def test_loads_of_what_the_loop_stores_stay_in_order() -> None:
    made = whole(
        kernels.squared, {"x_ptr": "*fp16!", "n": "i32"}, {"SIZE": 16, "TIMES": 3}, 80, num_warps=1, num_stages=3
    )
    assert not rings(made)
    (x,) = matrices("fp16", (16, 16))
    want = x.astype(np.float64)
    made.run((1,), x, 2)
    for _ in range(2):
        want = (want @ want).astype(np.float16).astype(np.float64)
    assert np.abs(x - want).max() < 0.05


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_operands_that_are_computed_have_a_ring(stages: int, iterations: int) -> None:
    """They are stored while the product of the iteration before reads its own."""
    types = {**_FREE, "a_ptr": "*fp16!", "b_ptr": "*i8!"}
    blocks = {"M_BLOCK": 64, "N_BLOCK": 32, "K_BLOCK": 32}
    made = whole(kernels.converted, types, blocks, 90, num_warps=4, num_stages=stages)
    assert rings(made) == [stages] * 3
    assert [op.isAsync is not None for op in ops(made.module, "ttng.warp_group_dot")] == [True]
    depth = 32 * iterations
    (a,), (b,) = matrices("fp16", (64, depth)), matrices("i8", (depth, 64))
    c = np.zeros((64, 64), np.float32)
    made.run((1, 2), a, b, c, 64, depth, depth, 64)
    assert np.abs(c - numbers("fp16", a) @ numbers("i8", b)).max() < 1e-2


def test_computed_operands_without_room_for_a_ring_are_waited_for() -> None:
    types = {**_FREE, "a_ptr": "*fp16!", "b_ptr": "*i8!"}
    blocks = {"M_BLOCK": 128, "N_BLOCK": 256, "K_BLOCK": 128}
    made = whole(kernels.converted, types, blocks, 90, num_warps=8, num_stages=3)
    assert rings(made) == [2, 2]
    assert [int(op.pendings.value.data) for op in ops(made.module, "ttng.warp_group_dot_wait")] == [0]


@pytest.mark.parametrize("iterations", [1, 3, 5])
def test_copies_are_started_behind_the_fence_of_a_computed_operand(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence waits for copies; while the product runs, nobody waits for them."""
    monkeypatch.setattr(pipeliner, "computed_operands", lambda loop, prefetches: [])
    types = {**_FREE, "a_ptr": "*fp16!", "b_ptr": "*i8!"}
    blocks = {"M_BLOCK": 64, "N_BLOCK": 32, "K_BLOCK": 32}
    made = whole(kernels.converted, types, blocks, 90, num_warps=4, num_stages=3)
    (loop,) = ops(made.module, "scf.for")
    wanted = ("fence_async_shared", "warp_group_dot", "async_copy_global_to_local", "warp_group_dot_wait")
    order = [name for op in loop.body.block.ops if (name := op.name.split(".")[1]) in wanted]
    assert order == ["fence_async_shared", "warp_group_dot", *["async_copy_global_to_local"] * 2, "warp_group_dot_wait"]
    depth = 32 * iterations
    (a,), (b,) = matrices("fp16", (64, depth)), matrices("i8", (depth, 64))
    c = np.zeros((64, 64), np.float32)
    made.run((1, 2), a, b, c, 64, depth, depth, 64)
    assert np.abs(c - numbers("fp16", a) @ numbers("i8", b)).max() < 1e-2


def test_one_stage_means_no_pipeline() -> None:
    assert not rings(build(kernels.matmul, "fp16", 90, (64, 32, 32), stages=1))


def test_rings_that_do_not_fit_get_fewer_buffers() -> None:
    made = build(kernels.matmul, "fp16", 86, (128, 128, 64), stages=4)
    assert rings(made) == [3, 3]
