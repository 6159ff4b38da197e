"""Conversions and buffers, thread by thread on the simulator (which finds races), and what their code looks like."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import TensorType

from tests.backends.nvidia.bodies import mixed_layout, some_layouts
from tests.backends.nvidia.op_kernels import OpKernel
from tests.sample_kernels import to_memory
from tilewright.backends.nvidia import ptx, tuning
from tilewright.backends.nvidia.arch import arch_of
from tilewright.backends.nvidia.cubin import assemble
from tilewright.backends.nvidia.emit import shared
from tilewright.backends.nvidia.plan.allocate import scratch_bytes
from tilewright.backends.nvidia.tgir.ops import (
    AsyncCommitOp,
    AsyncCopyOp,
    AsyncWaitOp,
    ConvertLayoutOp,
    FenceAsyncSharedOp,
    LocalAllocOp,
    LocalLoadOp,
    LocalStoreOp,
    MemDescIndexOp,
)
from tilewright.backends.nvidia.tgir.types import memdesc_bytes, memdesc_type, with_layout
from tilewright.ir.types import bf16, bit_width, f16, f32, i1, i8, i16, i32, i64, pointer_type, tile_type
from tilewright.layouts.distributed import (
    blocked,
    default_blocked,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    sliced,
    wgmma_accumulator,
)
from tilewright.layouts.linear import LinearLayout
from tilewright.layouts.shared import hardware_swizzled, row_major, swizzled
from tilewright.ops.debug import BarrierOp
from tilewright.ops.facts import AxisFacts

CAPABILITIES = (80, 86, 89, 90, 100, 120)
Array = np.ndarray[Any, Any]
assert shared.load_tile, "importing it registers the emitters"


def contents(shape: tuple[int, ...], element: Any) -> Array:
    """Different numbers, as far as the type has them."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    if element is i1:
        return numbers % 3 == 0
    if element in (f16, bf16, f32):
        return (numbers % 251).astype(np.float64) - 100
    return (numbers * 0x0123456789ABCD).astype(f"i{max(8, bit_width(element)) // 8}")


def conversion(
    source: LinearLayout, destination: LinearLayout, shape: tuple[int, ...], element: Any, capability: int = 90
) -> tuple[OpKernel, Array]:
    """A kernel of one conversion whose result is kept, and what it must be."""
    want = contents(shape, element)
    plain = TensorType(element, shape)
    blank = OpKernel().operand(plain, to_memory(want, element), source)
    size = scratch_bytes(ConvertLayoutOp.build_op([blank], [with_layout(plain, destination)]))
    kernel = OpKernel(capability, source.in_sizes["warp"], size)
    x = kernel.operand(plain, to_memory(want, element), source)
    kernel.result(kernel.build(ConvertLayoutOp, [x], [with_layout(plain, destination)]).result)
    return kernel, want


def check(source: LinearLayout, destination: LinearLayout, shape: tuple[int, ...], element: Any = i32) -> Any:
    kernel, want = conversion(source, destination, shape, element)
    (made,), ran = kernel.run()
    made.check(want, what=f"{source}\n{destination}")
    return ran


# --- conversions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64,), (5, 7), (16, 32), (4, 3, 16)], ids=str)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_between_layouts_of_all_kinds(shape: tuple[int, ...], num_warps: int) -> None:
    rng = random.Random(7)
    layouts = some_layouts(shape, num_warps, rng)
    for _ in range(8):
        check(*rng.sample(layouts, 2), shape)


@pytest.mark.parametrize("element", [i1, i8, i16, f16, bf16, f32, i64], ids=str)
def test_elements_of_every_size(element: Any) -> None:
    rng, shape = random.Random(11), (16, 32)
    for warps in (1, 2):
        for _ in range(4):
            check(mixed_layout(shape, warps, rng), mixed_layout(shape, warps, rng), shape, element)
    turned = default_blocked(shape, 2, order=(0, 1), vector=4)
    check(turned, default_blocked(shape, 2, vector=4), shape, element)


def test_pointers() -> None:
    shape, rng = (16, 16), random.Random(3)
    source, destination = mixed_layout(shape, 2, rng), mixed_layout(shape, 2, rng)
    data = np.zeros(256, np.int32)
    kernel = OpKernel(90, 2, 16 * 16 * 8)
    t = tile_type(shape, pointer_type(i32))
    p = kernel.pointers(t, data, np.arange(256).reshape(shape), source)
    kernel.result(p)
    kernel.result(kernel.build(ConvertLayoutOp, [p], [with_layout(t, destination)]).result)
    (before, after), _ = kernel.run()
    tile = np.zeros(shape, np.int64)
    places = source.array(register=np.arange(4), lane=np.zeros(4, int), warp=np.zeros(4, int))
    tile[:] = before.raw[0, 0] - 4 * (16 * places["dim0"][0] + places["dim1"][0]) + 4 * np.arange(256).reshape(shape)
    after.check(tile)


def test_large_tiles_go_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (64, 64)
    pair = mma_accumulator((2, 2), shape), default_blocked(shape, 4, vector=4)
    whole = check(*pair, shape, f32)
    monkeypatch.setattr(tuning, "CONVERSION_SLICE_BYTES", 4096)
    kernel, want = conversion(*pair, shape, f32)
    assert kernel.shared_bytes == 4096
    (made,), ran = kernel.run()
    made.check(want)
    barrier = "llvm.nvvm.barrier.cta.sync.aligned.all"
    assert whole.counts[barrier] == 1 and ran.counts[barrier] == 7


def test_warps_that_hold_copies_do_not_store() -> None:
    shape = (64,)
    copies = sliced(default_blocked((64, 8), 4), 1)
    assert copies.free_masks()["warp"] or copies.free_masks()["lane"]
    check(copies, default_blocked(shape, 4), shape)


def test_renamed_registers_emit_nothing() -> None:
    shape = (64, 64)
    kernel, want = conversion(mma_accumulator((4, 1), shape), mma_operand_a((4, 1), shape, 16), shape, f16)
    assert kernel.shared_bytes == 0
    (made,), ran = kernel.run()
    made.check(want)
    # One shuffle tells the compiler that all lanes have one warp number.
    assert {name: n for name, n in ran.counts.items() if "shfl" in name or "barrier" in name} == {
        "llvm.nvvm.shfl.sync.idx.i32": 1
    }


def test_shuffles_where_no_warp_needs_another() -> None:
    turned = blocked((2, 1), (8, 4), (1, 1), (0, 1), (16, 4))
    ran = check(turned, blocked((1, 2), (16, 2), (1, 1), (1, 0), (16, 4)), (16, 4))
    assert ran.counts["llvm.nvvm.shfl.sync.idx.i32"] + ran.counts["llvm.nvvm.shfl.sync.bfly.i32"] == 2
    # Two halves travel in one word.
    kernel, want = conversion(turned, blocked((1, 2), (16, 2), (1, 1), (1, 0), (16, 4)), (16, 4), f16)
    (made,), ran = kernel.run()
    made.check(want)
    assert sum(count for name, count in ran.counts.items() if "shfl" in name) <= 2


def test_operands_of_products_are_read_as_matrices() -> None:
    shape = (64, 64)
    source = default_blocked(shape, 4, vector=8)
    for operand in (mma_operand_a((4, 1), shape, 16), mma_operand_b((2, 2), shape, 16)):
        kernel, want = conversion(source, operand, shape, f16)
        (made,), ran = kernel.run()
        made.check(want)
        matrices = sum(count for name, count in ran.counts.items() if "ldmatrix" in name)
        assert matrices == operand.in_sizes["register"] // 8


def shared_accesses(text: str) -> tuple[list[str], list[str]]:
    """Stores and loads of shared memory in PTX."""
    return re.findall(r"st\.shared\S*", text), re.findall(r"ld\.shared\S*", text)


def test_a_transposition_moves_vectors() -> None:
    shape = (64, 64)
    kernel, _ = conversion(
        default_blocked(shape, 4, order=(0, 1), vector=4), default_blocked(shape, 4, vector=4), shape, f32
    )
    stores, loads = shared_accesses(ptx.compile_ptx(kernel.text(), arch_of(90)))
    assert len(stores) + len(loads) == 8 + 32  # one side in vectors of four, the other by the word: no conflicts
    assert {s.count("v4") for s in stores} | {s.count("v4") for s in loads} == {0, 1}


# --- buffers --------------------------------------------------------------------------------------------

BUFFERS = [
    row_major((64, 64)),
    row_major((64, 64), (0, 1)),
    swizzled((64, 64), 8, 1, 8),
    hardware_swizzled((64, 64), 16, 128),
    hardware_swizzled((64, 64), 16, 64, (0, 1)),
]
TILES = [
    default_blocked((64, 64), 4, vector=8),
    default_blocked((64, 64), 4, order=(0, 1), vector=4),
    mma_accumulator((2, 2), (64, 64)),
    mma_operand_b((2, 2), (64, 64), 16),
    wgmma_accumulator((4, 1), 64, (64, 64)),
]


def through_buffer(
    buffer: LinearLayout, source: LinearLayout, target: LinearLayout, element: Any, capability: int = 90, ring: int = 0
) -> tuple[OpKernel, Array]:
    """A kernel that stores a tile to a buffer (number 1 of a ring) and loads it again."""
    shape = tuple(source.out_sizes.values())
    want = contents(shape, element)
    one = memdesc_type(shape, element, buffer)
    kernel = OpKernel(capability, source.in_sizes["warp"], memdesc_bytes(one) * max(1, ring))
    x = kernel.operand(TensorType(element, shape), to_memory(want, element), source)
    if ring:
        number = kernel.operand(i32, np.array([1], np.int32))
        rings = kernel.build(LocalAllocOp, [[]], [memdesc_type((ring, *shape), element, buffer)])
        place = kernel.build(MemDescIndexOp, [rings.result, number], [one]).result
        kernel.build(LocalStoreOp, [x, place], [])
    else:
        place = kernel.build(LocalAllocOp, [[x]], [one]).result
    kernel.build(BarrierOp, [], [], {"space": "local"})
    loaded = kernel.build(LocalLoadOp, [place], [with_layout(TensorType(element, shape), target)])
    kernel.result(loaded.result)
    return kernel, want


@pytest.mark.parametrize("buffer", BUFFERS, ids=range(len(BUFFERS)))
def test_tiles_go_through_buffers(buffer: LinearLayout) -> None:
    for source, target in zip(TILES, [*TILES[1:], TILES[0]], strict=True):
        for ring in (0, 3):
            kernel, want = through_buffer(buffer, source, target, f16, ring=ring)
            (made,), _ = kernel.run()
            made.check(want)


@pytest.mark.parametrize("element", [i1, i8, f32, i64], ids=str)
def test_buffers_of_every_element(element: Any) -> None:
    kernel, want = through_buffer(BUFFERS[1], TILES[0], TILES[2], element, ring=2)
    (made,), _ = kernel.run()
    made.check(want)


def test_matrices_are_used_where_they_fit() -> None:
    kernel, _ = through_buffer(BUFFERS[3], TILES[4], TILES[3], bf16)
    _, ran = kernel.run()
    counts = {name: count for name, count in ran.counts.items() if "matrix" in name}
    # A warp writes 16 x 64 elements and reads 64 x 32, 256 at a time.
    assert counts == {
        "llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p3": 4,
        "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3": 8,
    }
    text, _ = through_buffer(BUFFERS[3], TILES[4], TILES[3], bf16, 80)
    assert "stmatrix" not in text.text()


def test_constant_offsets_are_immediates() -> None:
    """A blocked tile of 64 x 64 in a swizzled buffer: rows 8 apart differ in bits that no thread sets."""
    kernel, _ = through_buffer(BUFFERS[3], TILES[0], TILES[0], f16)
    text = ptx.compile_ptx(kernel.text(), arch_of(90))
    stores, loads = (re.findall(rf"{op}\.shared\S* .*?\[(\S+)\]", text) for op in ("st", "ld"))
    assert len(stores) == len(loads) == 4
    assert len({place.split("+")[0] for place in stores}) == 1


# --- asynchronous copies --------------------------------------------------------------------------------


def copied(
    layout: LinearLayout, element: Any, contiguous: int, masked: bool, capability: int = 80
) -> tuple[OpKernel, Array]:
    """A kernel that copies a tile of 32 x 64 into a swizzled buffer and loads it from there."""
    shape = (32, 64)
    data = contents(shape, element)
    size = bit_width(element) // 8
    buffer = hardware_swizzled(shape, 8 * size, 64)
    one = memdesc_type(shape, element, buffer)
    kernel = OpKernel(capability, 4, memdesc_bytes(one))
    offsets = np.arange(data.size).reshape(shape)
    array = to_memory(data, element).reshape(-1)
    p = kernel.pointers(tile_type(shape, pointer_type(element)), array, offsets, layout)
    kernel.facts[p] = AxisFacts((1, contiguous), (1, contiguous * size), (1, 1), None)
    want, mask = data, []
    if masked:
        rows = np.arange(32)[:, None] % 3 > 0
        want = np.where(rows, data, np.zeros((), data.dtype))
        m = kernel.operand(TensorType(i1, shape), to_memory(np.broadcast_to(rows, shape), i1), layout)
        kernel.facts[m] = AxisFacts((1, 1), (1, 1), (1, 64), None)
        mask = [m]
    place = kernel.build(LocalAllocOp, [[]], [one]).result
    kernel.build(AsyncCopyOp, [p, place, mask], [])
    kernel.build(AsyncCommitOp, [], [])
    kernel.build(AsyncWaitOp, [], [], {"num": 0})
    kernel.build(BarrierOp, [], [], {"space": "local"})
    kernel.build(FenceAsyncSharedOp, [], [])
    kernel.result(kernel.build(LocalLoadOp, [place], [with_layout(TensorType(element, shape), layout)]).result)
    return kernel, want


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("element", "contiguous", "bytes_"), [(f16, 8, 16), (f32, 2, 8), (f32, 1, 4), (i8, 4, 4)])
def test_copies_in_pieces_of_every_size(element: Any, contiguous: int, bytes_: int, masked: bool) -> None:
    kernel, want = copied(default_blocked((32, 64), 4, vector=8), element, contiguous, masked)
    (made,), ran = kernel.run()
    made.check(want)
    assert any(f"cp.async.c{'g' if bytes_ == 16 else 'a'}.shared.global.{bytes_}" in name for name in ran.counts)


@pytest.mark.parametrize("element", [i8, f16], ids=str)
def test_what_is_too_narrow_goes_through_registers(element: Any) -> None:
    kernel, want = copied(default_blocked((32, 64), 4, vector=8), element, 1, True)
    (made,), ran = kernel.run()
    made.check(want)
    assert not any("shared.global" in name for name in ran.counts) and ran.counts["ptx ld"]


def test_threads_with_copies_stay_out() -> None:
    layout = sliced(default_blocked((32, 64, 8), 4, vector=1), 2)
    assert any(layout.free_masks()[dim] for dim in ("lane", "warp"))
    kernel, want = copied(layout, f32, 1, True)
    (made,), _ = kernel.run()
    made.check(want)


# --- targets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_assembles_for_every_target(capability: int) -> None:
    shape = (64, 64)
    kernels = [
        conversion(TILES[0], TILES[1], shape, f16, capability)[0],
        conversion(TILES[0], TILES[3], shape, f16, capability)[0],
        conversion(TILES[1], TILES[2], shape, i1, capability)[0],
        through_buffer(BUFFERS[3], TILES[4], TILES[3], bf16, capability)[0],
        copied(default_blocked((32, 64), 4, vector=8), f16, 8, True, capability)[0],
    ]
    for kernel in kernels:
        text = ptx.compile_ptx(kernel.text(), arch_of(capability))
        assert assemble(text, arch_of(capability), kernel="ops") is not None
