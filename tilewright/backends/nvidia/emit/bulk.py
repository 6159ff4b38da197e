"""Copies by the copy engine (TMA), and the barriers in shared memory that tell when they have arrived.

One thread starts a copy; all threads wait for its barrier, each counting the phases that it has seen:

    @thread 0   mbarrier.arrive.expect_tx [barrier], bytes
    @thread 0   cp.async.bulk.tensor.2d.shared::cta.global [buffer], [map, {column, row}], [barrier]     for every box
    ...
    wait:       mbarrier.try_wait.parity [barrier], parity;  not yet? -> wait
                parity ^= 1

Source: PTX ISA, "Data Movement and Conversion Instructions: Tensor copy", "mbarrier", "Async proxy".
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.backends.llvm.types import I1, I32, I64, VOID, V, const
from tilewright.backends.nvidia.emit.context import Buffer, Kernel, emits
from tilewright.backends.nvidia.emit.memory import policy_of
from tilewright.backends.nvidia.emit.shared import store_own
from tilewright.backends.nvidia.plan.allocate import scratch
from tilewright.backends.nvidia.plan.tma import CopyPlan, made_plan, slices_of
from tilewright.backends.nvidia.tgir.ops import InitBarrierOp, TmaLoadOp, TmaStoreOp, TmaStoreSlicesOp, WaitBarrierOp
from tilewright.backends.nvidia.tgir.types import layout_of, memdesc_count
from tilewright.ir.types import element_type
from tilewright.ir.walk import contains, enclosing
from tilewright.layouts.shared import SWIZZLE_ALIGNMENT
from tilewright.ops.control import LoopOp
from tilewright.ops.debug import BarrierOp
from tilewright.ops.descriptor import MakeTensorDescOp

_TENSOR, _GROUPS = "llvm.nvvm.cp.async.bulk.tensor", "llvm.nvvm.cp.async.bulk"
_NO_HINT = (const(I64, 0), const(I1, 0))  # of a cache policy


@emits(MakeTensorDescOp)
def emit_descriptor(k: Kernel, op: Operation) -> None:
    """Nothing: the launch passes a tensor map."""
    assert op.results[0] in k.values


# --- barriers -----------------------------------------------------------------------------------------


@emits(InitBarrierOp)
def emit_init_barrier(k: Kernel, op: InitBarrierOp) -> None:
    """One thread makes the barriers; every thread waits for phase 0 of each first."""
    f, buffer = k.f, k.buffer(op.src)
    with f.if_(k.first_thread()):
        for stage in range(memdesc_count(op.src.type)):
            place = f.shared_at(buffer.base, stage * buffer.stride)
            f.call("llvm.nvvm.mbarrier.init.shared", VOID, (place, const(I32, int(op.attr_values()["count"]))))
        f.call("llvm.nvvm.fence.proxy.async.shared_cta", VOID, ())
    phases = f.alloca(I32, align=4)
    f.store(const(I32, 0), phases, align=4)
    k.set(op.result, Buffer(buffer.base, layout_of(op.src), buffer.element, buffer.stride, phases))


@emits(WaitBarrierOp)
def emit_wait_barrier(k: Kernel, op: WaitBarrierOp) -> None:
    """Wait for the phase of a stage that is next for this thread."""
    f, barrier, stage = k.f, k.buffer(op.barrier), k.scalar(op.stage)
    assert barrier.phases is not None
    seen = f.load(I32, barrier.phases, align=4)
    parity = f.and_(f.lshr(seen, stage), 1)
    place = stage_of(k, barrier, stage)

    def under_way(_: list[V]) -> V:
        ended = f.call("llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta", I1, (place, parity))
        return f.not_(ended)

    f.while_([], under_way, lambda values: values)
    f.ptx("", "~{memory}", [])  # LLVM takes the test to concern the barrier alone: no access may move before it
    f.store(f.xor(seen, f.shl(const(I32, 1), stage)), barrier.phases, align=4)


def stage_of(k: Kernel, barrier: Buffer, stage: V) -> V:
    """Address of a stage of a barrier."""
    return k.f.shared_at(barrier.base, k.f.mul(stage, barrier.stride, "nuw nsw"))


# --- copies -------------------------------------------------------------------------------------------


@emits(TmaLoadOp)
def emit_load(k: Kernel, op: TmaLoadOp) -> None:
    """Start the copies of a block to a buffer."""
    f, plan = k.f, made_plan(op.desc.type)
    with f.if_(f.and_(k.first_thread(), k.scalar(op.pred))):
        place = stage_of(k, k.buffer(op.barrier), k.scalar(op.stage))
        size = const(I32, plan.boxes * plan.box_bytes)
        f.call("llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta", I64, (place, size))
        name = f"{_TENSOR}.g2s.cta.tile.{len(op.indices)}d"
        policy = policy_of(k, op.attr_values()["cachePolicy"])
        hint = _NO_HINT if policy is None else (policy, const(I1, 1))
        for target, corner in _boxes(k, plan, k.buffer(op.dst), op.indices):
            f.call(name, VOID, (target, place, k.scalar(op.desc), *corner, *hint))


@emits(TmaStoreOp)
def emit_store(k: Kernel, op: TmaStoreOp) -> None:
    """Copy a buffer to a block, and wait until it is there."""
    f, plan = k.f, made_plan(op.desc.type)
    with f.if_(k.first_thread()):
        name = f"{_TENSOR}.s2g.tile.{len(plan.box)}d"
        for source, corner in _boxes(k, plan, k.buffer(op.src), op.indices):
            f.call(name, VOID, (source, k.scalar(op.desc), *corner, *_NO_HINT))
        f.call("llvm.nvvm.cp.async.bulk.commit.group", VOID, ())
        f.call("llvm.nvvm.cp.async.bulk.wait.group", VOID, (const(I32, 0),))


# --- slices of a warp ---------------------------------------------------------------------------------

_SLICES = 2  # of a warp: one is copied while the next is written


def _slice_bytes(op: TmaStoreSlicesOp) -> int:
    return made_plan(op.desc.type).box_bytes


@scratch(TmaStoreSlicesOp, waits=lambda op: False, alignment=SWIZZLE_ALIGNMENT[128])
def slices_scratch(op: TmaStoreSlicesOp) -> int:
    """Bytes of the slices of all warps."""
    return _SLICES * _slice_bytes(op) * layout_of(op.operands[1]).in_sizes["warp"]


@emits(TmaStoreSlicesOp)
def emit_store_slices(k: Kernel, op: TmaStoreSlicesOp) -> None:
    """Write and copy a slice after the other; what a lane copies, the others of its warp have written.

    In a loop the last ones are under way when the warp goes on, and are waited for where it comes back (`_goes_on`).
    """
    f, plan, size = k.f, made_plan(op.desc.type), _slice_bytes(op)
    slices = slices_of(layout_of(op.src), plan)
    assert slices is not None
    first_lane, element = f.icmp("eq", k.lane, 0), element_type(op.src.type)
    room = f.shared_at(k.scratch(op), f.mul(k.warp, _SLICES * size, "nuw nsw"))
    starts = [
        f.add(k.scalar(index), k.linear({"warp": [place[dim] for place in slices.warps]}))
        for dim, index in enumerate(op.indices)
    ]
    tile, goes_on = k.tile(op.src), _goes_on(k, op)
    for number, (registers, place) in enumerate(zip(slices.registers, slices.places, strict=True)):
        buffer = Buffer(f.shared_at(room, number % _SLICES * size), plan.layout, element)
        if number >= _SLICES or goes_on:
            _await_slices(k, _since(number, len(slices.places)))
            f.warp_barrier()
        store_own(k, [tile[register] for register in registers], slices.slice, buffer)
        f.ptx("fence.proxy.async.shared::cta;", "~{memory}", [])
        f.warp_barrier()
        with f.if_(first_lane):
            corner = [f.add(start, offset) for start, offset in zip(starts, place, strict=True)]
            arguments = (buffer.base, k.scalar(op.desc), *reversed(corner), *_NO_HINT)
            f.call(f"{_TENSOR}.s2g.tile.{len(plan.box)}d", VOID, arguments)
            f.call(f"{_GROUPS}.commit.group", VOID, ())
    if goes_on:
        k.slices_under_way = True
    else:
        _await_slices(k, 0)
        f.warp_barrier()


def _goes_on(k: Kernel, op: TmaStoreSlicesOp) -> bool:
    """Whether a warp need not wait for its slices before it comes back: nobody else ever uses their memory.

    Nothing is gained where the warps of a loop wait for each other in between.
    """
    loop = enclosing(op, LoopOp)
    return op in k.alone and loop is not None and not contains(loop, BarrierOp)


def _since(number: int, count: int) -> int:
    """How many slices of a warp have been copied since the one that lay where slice `number` of `count` will."""
    before = range(number % _SLICES, count, _SLICES)[-1] - count  # of the last time
    return number - 1 - (number - _SLICES if number >= _SLICES else before)


def _await_slices(k: Kernel, left: int) -> None:
    """The first lane of each warp waits until all of its slices but so many have been read."""
    with k.f.if_(k.f.icmp("eq", k.lane, 0)):
        k.f.call(f"{_GROUPS}.wait.group.read", VOID, (const(I32, left),))


def leave(k: Kernel) -> None:
    """Wait until all slices have been read: shared memory ends with the block."""
    if k.slices_under_way:
        _await_slices(k, 0)


def _boxes(k: Kernel, plan: CopyPlan, buffer: Buffer, indices: Sequence[SSAValue]) -> list[tuple[V, list[V]]]:
    """Of every box its place in shared memory and its first element, coordinates from the contiguous one on."""
    *outer, column = map(k.scalar, indices)
    found = []
    for number in range(plan.boxes):
        place = k.f.shared_at(buffer.base, number * plan.box_bytes)
        found.append((place, [k.f.add(column, number * plan.box[-1]), *reversed(outer)]))
    return found
