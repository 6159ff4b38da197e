"""The operations that exist only in laid-out tile IR: conversions, shared memory, copies that run on, warp-group dots.

All other operations are those of tile IR, on types that carry layouts. Text is MLIR's generic form. Names and operands
follow the `ttg` and `ttng` dialects of Triton, whose users know them.
"""

from __future__ import annotations

import functools
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure

from tilewright.backends.nvidia.tgir import types as tgir
from tilewright.ir import text
from tilewright.ir.asm import FlatOp
from tilewright.ir.attrs import BOOL, I32
from tilewright.ir.effect_traits import Accesses
from tilewright.ir.traits import View
from tilewright.ops import text as tile_text
from tilewright.ops.memory import CACHE_POLICY
from tilewright.ops.spec import REGISTRY


class LaidOutOp(FlatOp):
    """An operation of this level."""


@irdl_op_definition
class ConvertLayoutOp(LaidOutOp):
    """The same tile in another layout. An exchange through shared memory uses scratch (see `allocate`)."""

    name = "ttg.convert_layout"
    src = operand_def()
    result = result_def()
    traits = traits_def(Pure(), View())


@irdl_op_definition
class LocalAllocOp(LaidOutOp):
    """Buffers in shared memory: uninitialised ones, or one that holds the tile `src`."""

    name = "ttg.local_alloc"
    src = var_operand_def()
    result = result_def()
    traits = traits_def(MemoryWriteEffect())


@irdl_op_definition
class LocalLoadOp(LaidOutOp):
    """A tile read from a buffer."""

    name = "ttg.local_load"
    src = operand_def()
    result = result_def()
    traits = traits_def(MemoryReadEffect())


@irdl_op_definition
class LocalStoreOp(LaidOutOp):
    """A tile written to a buffer."""

    name = "ttg.local_store"
    value = operand_def()
    dst = operand_def()
    traits = traits_def(MemoryWriteEffect())


@irdl_op_definition
class MemDescIndexOp(LaidOutOp):
    """Buffer number `index` (i32) of several; a matrix may be seen with its dims exchanged."""

    name = "ttg.memdesc_index"
    src = operand_def()
    index = operand_def()
    result = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class AsyncCopyOp(LaidOutOp):
    """Elements from global to shared memory by cp.async: pointers, buffer, then optionally a mask and the value for
    elements that are off (absent: zero). Several vectors per thread, in the layout of the pointers."""

    name = "ttg.async_copy_global_to_local"
    ptr = operand_def()
    dst = operand_def()
    masked = var_operand_def()
    traits = traits_def(Accesses(reads=True), MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class AsyncCommitOp(LaidOutOp):
    """The asynchronous copies issued so far by each thread form a group."""

    name = "ttg.async_commit_group"
    traits = traits_def(MemoryWriteEffect())


@irdl_op_definition
class AsyncWaitOp(LaidOutOp):
    """Each thread waits until at most `num` of its groups are in flight. (A barrier must follow before others read.)"""

    name = "ttg.async_wait"
    ATTRS: ClassVar = {"num": I32}
    num = prop_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class WarpGroupDotOp(LaidOutOp):
    """d = a @ b + c by wgmma: b (and a, unless it is a tile in registers) in shared memory.

    With `isAsync` the result may be used only after a `warp_group_dot_wait` on it. `trans_a`/`trans_b`: the buffer's
    fast dim is M (N) rather than K; 16-bit elements only.
    """

    name = "ttng.warp_group_dot"
    ATTRS: ClassVar = {"isAsync": BOOL, "maxNumImpreciseAcc": I32}
    a = operand_def()
    b = operand_def()
    c = operand_def()
    d = result_def()
    isAsync = opt_prop_def()
    maxNumImpreciseAcc = opt_prop_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class WarpGroupDotWaitOp(LaidOutOp):
    """Waits until at most `pendings` groups of wgmma are in flight; the results are the operands, complete."""

    name = "ttng.warp_group_dot_wait"
    ATTRS: ClassVar = {"pendings": I32}
    inputs = var_operand_def()
    outputs = var_result_def()
    pendings = prop_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class FenceAsyncSharedOp(LaidOutOp):
    """Makes ordinary stores to shared memory visible to wgmma and the copy engine (fence.proxy.async)."""

    name = "ttng.fence_async_shared"
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class InitBarrierOp(LaidOutOp):
    """Barriers (mbarrier) in a buffer of i64, one per stage: a phase of each ends when `count` copies have.

    The result is the buffer. At the start of a kernel only: each thread counts the phases of every stage from there.
    """

    name = "ttng.init_barrier"
    ATTRS: ClassVar = {"count": I32}
    src = operand_def()
    result = result_def()
    count = prop_def()
    traits = traits_def(MemoryWriteEffect())


@irdl_op_definition
class TmaLoadOp(LaidOutOp):
    """Start the copy of a block to a buffer by the copy engine, if `pred` holds (i1); operands end with the indices.

    A barrier of as many stages as there are buffers is signalled in stage `stage` (i32) when all of it is there.
    """

    name = "ttng.async_tma_copy_global_to_local"
    ATTRS: ClassVar = {"cachePolicy": CACHE_POLICY}
    desc = operand_def()
    dst = operand_def()
    barrier = operand_def()
    stage = operand_def()
    pred = operand_def()
    indices = var_operand_def()
    cachePolicy = opt_prop_def()
    traits = traits_def(Accesses(reads=True), MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class TmaStoreOp(LaidOutOp):
    """Copy a buffer to a block by the copy engine, and have one thread wait for the end; operands end with the indices.

    The buffer may be written again after a barrier. What was stored to it needs a fence and a barrier before.
    """

    name = "ttng.tma_copy_local_to_global"
    desc = operand_def()
    src = operand_def()
    indices = var_operand_def()
    traits = traits_def(Accesses(writes=True), MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class TmaStoreSlicesOp(LaidOutOp):
    """Copy a tile to a tensor by the copy engine, each warp its own rows, a block of the descriptor after the other.

    Operands end with the indices of the tile. A warp writes a slice to its part of the scratch, and one lane starts the
    copy of it; at the end it waits until all of them have been read.
    """

    name = "ttng.tma_copy_slices_to_global"
    desc = operand_def()
    src = operand_def()
    indices = var_operand_def()
    traits = traits_def(Accesses(writes=True), MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class WaitBarrierOp(LaidOutOp):
    """Each thread waits until stage `stage` (i32) of a barrier has ended another phase: the buffers are filled."""

    name = "ttng.wait_barrier"
    barrier = operand_def()
    stage = operand_def()
    buffers = var_operand_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class WaitPhaseOp(LaidOutOp):
    """Each thread waits until the phase of parity `parity` (i32) of stage `stage` (i32) of a barrier has ended.

    The phase before the first counts as one of parity 1 that has ended: who waits for an empty stage asks for the other
    parity than who waits for a full one, and finds all stages empty at first. `buffers` are there after the wait.
    """

    name = "ttng.wait_phase"
    barrier = operand_def()
    stage = operand_def()
    parity = operand_def()
    buffers = var_operand_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class ArriveBarrierOp(LaidOutOp):
    """Each warp arrives once at stage `stage` (i32) of a barrier, if `pred` holds (i1): it has read the buffers."""

    name = "ttng.arrive_barrier"
    barrier = operand_def()
    stage = operand_def()
    pred = operand_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class WarpIdOp(LaidOutOp):
    """Number of the warp in its block (i32)."""

    name = "ttng.warp_id"
    result = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ElectOp(LaidOutOp):
    """Whether this is the first thread of warp `warp` of the block (i1)."""

    name = "ttng.elect"
    ATTRS: ClassVar = {"warp": I32}
    result = result_def()
    warp = prop_def()
    traits = traits_def(Pure())


@irdl_op_definition
class EnterRoleOp(LaidOutOp):
    """What follows is done by `num_warps` warps from `first_warp` on, and its barriers are for these alone.

    Each of their threads has `registers` registers from here on; 0 leaves that as it is. `barrier` is the number of the
    hardware barrier at which they wait for each other.
    """

    name = "ttng.enter_role"
    ATTRS: ClassVar = {"first_warp": I32, "num_warps": I32, "registers": I32, "barrier": I32}
    first_warp = prop_def()
    num_warps = prop_def()
    registers = prop_def()
    barrier = prop_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class StaggerOp(LaidOutOp):
    """Groups of four warps of a role go on `cycles` of the multiprocessor after each other."""

    name = "ttng.stagger"
    ATTRS: ClassVar = {"cycles": I32}
    cycles = prop_def()
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())


@irdl_op_definition
class ProgramCountOp(LaidOutOp):
    """How many programs a block runs one after the other (i32).

    A kernel that has it is launched with as many blocks as run at a time at most, and is told the grid.
    """

    name = "ttng.program_count"
    result = result_def()
    traits = traits_def(Pure())


@irdl_op_definition
class ProgramPlaceOp(LaidOutOp):
    """Index along `axis` of the grid (i32) of the program that a block runs at a `turn` (i32), counted from 0."""

    name = "ttng.program_place"
    ATTRS: ClassVar = {"axis": I32}
    turn = operand_def()
    result = result_def()
    axis = prop_def()
    traits = traits_def(Pure())


OPS: tuple[type[Operation], ...] = (
    ConvertLayoutOp, LocalAllocOp, LocalLoadOp, LocalStoreOp, MemDescIndexOp, AsyncCopyOp, AsyncCommitOp, AsyncWaitOp,
    WarpGroupDotOp, WarpGroupDotWaitOp, FenceAsyncSharedOp, InitBarrierOp, TmaLoadOp, TmaStoreOp,
    TmaStoreSlicesOp, WaitBarrierOp, WaitPhaseOp, ArriveBarrierOp, WarpIdOp, ElectOp, EnterRoleOp,
    StaggerOp, ProgramCountOp, ProgramPlaceOp,
)  # fmt: skip


@functools.cache
def context() -> Context:
    """The parsing context of laid-out tile IR."""
    ops = [*(spec.op for spec in REGISTRY.values()), *OPS]
    return text.make_context(ops, (*tile_text.ATTRIBUTES, *tgir.ATTRIBUTES))


def parse_module(source: str, name: str = "<tgir>") -> ModuleOp:
    """The module that `source`, text of laid-out tile IR, spells.

    Raises:
        ParseError: with line, column and caret.
    """
    return tgir.parse_module(context(), source, name)


print_module = tgir.print_module
