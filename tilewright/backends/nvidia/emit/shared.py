"""Buffers in shared memory: making, writing and reading them, asynchronous copies into them, barriers.

A buffer's layout says which offset holds which element; with the tile's layout that gives the offset of every register
of every thread, and `layouts.access` the widest accesses that fit. Copies from global memory bypass the registers:

    @owner cp.async.cg.shared.global [buffer + offset], [pointer], 16, on ? 16 : 0;      off: zeros
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from tilewright.backends.llvm.types import I32, VOID, T, V, const, zero
from tilewright.backends.nvidia.emit import cluster
from tilewright.backends.nvidia.emit.context import Buffer, Kernel, Tile, emits
from tilewright.backends.nvidia.emit.memory import access_groups, global_load, pack, unpack
from tilewright.backends.nvidia.emit.shared_access import Window, as_integers, from_integers, offsets_in
from tilewright.backends.nvidia.emit.turned import load_turned
from tilewright.backends.nvidia.plan.allocate import buffer_stride
from tilewright.backends.nvidia.tgir.ops import (
    AsyncCommitOp,
    AsyncCopyOp,
    AsyncWaitOp,
    FenceAsyncSharedOp,
    LocalAllocOp,
    LocalLoadOp,
    LocalStoreOp,
    MemDescIndexOp,
)
from tilewright.backends.nvidia.tgir.types import MemDescType, layout_of, memory_bits
from tilewright.ir.types import element_type
from tilewright.layouts import f2
from tilewright.layouts.access import Instruction, SharedAccess, plan_access, unique_registers, vector_wavefronts
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.debug import BarrierOp

_COPY_BYTES = (4, 8, 16)  # what cp.async moves (PTX ISA, cp.async)
_GLOBAL_PTR = T("ptr addrspace(1)")


# --- tiles to and from buffers ------------------------------------------------------------------------


def store_tile(k: Kernel, registers: Tile, layout: LinearLayout, buffer: Buffer) -> None:
    """Write a tile to a buffer; warps that hold nothing but copies stay out of it."""
    unique, table = unique_registers(layout)
    first = {number: register for register, number in reversed(list(enumerate(table)))}
    integers = as_integers(k, [registers[first[number]] for number in range(len(first))])
    plan = plan_access(offsets_in(unique, buffer.layout), integers[0].type.bits, k.arch.has_stmatrix)
    idle = unique.free_masks()["warp"]
    with k.f.if_(k.f.icmp("eq", k.f.and_(k.warp, idle), 0)):
        Window(k, buffer.base, plan).store(integers)


def store_own(k: Kernel, registers: Tile, layout: LinearLayout, buffer: Buffer) -> None:
    """Write to a buffer of each warp what the warp holds; `layout` has registers and lanes alone, and no copies."""
    integers = as_integers(k, registers)
    offsets = offsets_in(layout, buffer.layout)
    Window(k, buffer.base, plan_access(offsets, integers[0].type.bits, k.arch.has_stmatrix)).store(integers)


def load_tile(k: Kernel, layout: LinearLayout, buffer: Buffer, t: T) -> Tile:
    """Read a tile whose elements have the type `t` from a buffer."""
    unique, table = unique_registers(layout)
    turned = load_turned(k, unique, buffer) if memory_bits(buffer.element) == 8 and k.arch.has_ldmatrix else None
    offsets = offsets_in(unique, buffer.layout)
    made = turned or Window(k, buffer.base, plan_access(offsets, max(8, t.bits), k.arch.has_ldmatrix)).load()
    values = from_integers(k, [made[number] for number in range(len(made))], t)
    return [values[number] for number in table]


# --- operations ---------------------------------------------------------------------------------------


@emits(LocalAllocOp)
def emit_local_alloc(k: Kernel, op: LocalAllocOp) -> None:
    """Buffers, the first of them filled if a tile is given."""
    type_ = op.result.type
    assert isinstance(type_, MemDescType)
    buffer = Buffer(k.scratch(op), layout_of(type_), element_type(type_.tile), buffer_stride(type_))
    k.set(op.result, buffer)
    for source in op.src:
        store_tile(k, k.tile(source), layout_of(source), buffer)


@emits(LocalStoreOp)
def emit_local_store(k: Kernel, op: LocalStoreOp) -> None:
    """A tile into a buffer."""
    store_tile(k, k.tile(op.value), layout_of(op.value), k.buffer(op.dst))


@emits(LocalLoadOp)
def emit_local_load(k: Kernel, op: LocalLoadOp) -> None:
    """A tile out of a buffer."""
    k.set(op.result, load_tile(k, layout_of(op.result), k.buffer(op.src), k.element(op.result)))


@emits(MemDescIndexOp)
def emit_memdesc_index(k: Kernel, op: MemDescIndexOp) -> None:
    """One buffer of several."""
    ring = k.buffer(op.src)
    place = k.f.mul(k.scalar(op.index), ring.stride, "nuw nsw")
    k.set(op.result, Buffer(k.f.shared_at(ring.base, place), layout_of(op.result), ring.element))


@emits(BarrierOp)
def emit_barrier(k: Kernel, op: BarrierOp) -> None:
    """All threads of the block wait for each other; for global memory, all of the program."""
    if k.team.blocks > 1 and op.attr_values()["space"] == "global":
        cluster.barrier(k)
    else:
        k.f.barrier()


@emits(FenceAsyncSharedOp)
def emit_fence(k: Kernel, op: Operation) -> None:
    """This thread's stores become visible to wgmma and the copy engine, if there are any (fence.proxy.async)."""
    if k.arch.has_tma:
        k.f.ptx("fence.proxy.async.shared::cta;", "~{memory}", [])


# --- asynchronous copies ------------------------------------------------------------------------------


@emits(AsyncCopyOp)
def emit_async_copy(k: Kernel, op: AsyncCopyOp) -> None:
    """Elements from global memory to a buffer; what cp.async cannot move goes through registers.

    Priorities in caches are for loads and the copy engine: to Hopper `cp.async` with a policy is an illegal
    instruction, as nvJitLink and ptxas of CUDA 13.0 assemble it.
    """
    mask, other = [*op.masked, None, None][:2]
    buffer, layout = k.buffer(op.dst), layout_of(op.ptr)
    pointers, inside = k.tile(op.ptr), k.inside(op.ptr.type)
    masks = k.tile(mask) if mask is not None else None
    t, others = k.element(buffer.element), k.tile(other) if other is not None else None
    offsets = offsets_in(layout, buffer.layout)
    groups = [piece for group in access_groups(k.facts, op.ptr, mask) for piece in contiguous(group, offsets)]
    bits = memory_bits(buffer.element)
    zeros = others is None or all(value.const == 0 for value in others)
    asynchronous = zeros and all(bits * len(group) // 8 in _COPY_BYTES for group in groups)
    with k.f.if_(k.owns(layout)):
        window = Window(k, buffer.base, _plan(groups, offsets, bits))
        for instruction in window.plan.instructions:
            group, head = instruction.registers, instruction.registers[0]
            on = inside[head] if masks is None else k.f.and_(inside[head], masks[head])
            if asynchronous:
                _copy(k, window.address(instruction), pointers[head], bits * len(group) // 8, on)
            else:
                start = [others[r] if others is not None else zero(t) for r in group]
                words = global_load(k, pointers[head], pack(k, start), on)
                loaded = as_integers(k, unpack(k, words, t, len(group)))
                window.store(dict(zip(group, loaded, strict=True)), [instruction])


@emits(AsyncCommitOp)
def emit_commit(k: Kernel, op: Operation) -> None:
    """The copies so far become a group."""
    k.f.call("llvm.nvvm.cp.async.commit.group", VOID, ())


@emits(AsyncWaitOp)
def emit_wait(k: Kernel, op: AsyncWaitOp) -> None:
    """Wait until few enough groups are under way."""
    k.f.call("llvm.nvvm.cp.async.wait.group", VOID, (const(I32, int(op.attr_values()["num"])),))


def contiguous(group: Sequence[int], offsets: LinearLayout) -> list[tuple[int, ...]]:
    """Neighbours in global memory cut into pieces that are neighbours, and aligned, in the buffer."""
    columns = offsets.columns_of("register")
    places = [f2.multiply(columns, register) for register in group]
    taken = 0
    for dim in ("lane", "warp"):
        for column in offsets.columns_of(dim):
            taken |= column
    width = 1
    while 2 * width <= len(group) and not (taken | places[0]) & (2 * width - 1):
        if any(places[i] != places[0] ^ i for i in range(2 * width)):
            break
        width *= 2
    return [tuple(group[i : i + width]) for i in range(0, len(group), width)]


def _plan(groups: Sequence[tuple[int, ...]], offsets: LinearLayout, bits: int) -> SharedAccess:
    """An access to a buffer whose vectors are given."""
    own = offsets.columns_of("register")
    address = offsets.sublayout(["lane", "warp", "block"], ["offset"])
    wavefronts = vector_wavefronts(offsets.columns_of("lane"), len(groups[0]), bits)
    instructions = tuple(Instruction(f2.multiply(own, group[0]), group) for group in groups)
    return SharedAccess("vector", bits, address, instructions, wavefronts)


def _copy(k: Kernel, target: V, pointer: V, size: int, on: V) -> None:
    cache = "cg" if size == 16 else "ca"
    source = k.f.cast("addrspacecast", pointer, _GLOBAL_PTR)
    name = f"llvm.nvvm.cp.async.{cache}.shared.global.{size}"
    if on.const == 1:
        k.f.call(name, VOID, (target, source))
    else:
        k.f.call(f"{name}.s", VOID, (target, source, k.f.select(on, const(I32, size), 0)))


__all__ = ["contiguous", "load_tile", "offsets_in", "store_own", "store_tile"]
