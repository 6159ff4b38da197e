"""Descriptors of the host on targets with a copy engine (TMA): which ones it serves, and loads and stores by it.

Others are taken apart into pointers and masks. A load that no loop copies ahead becomes:

    %buffer = local_alloc
    async_tma_copy_global_to_local %desc[%i, %j], %buffer, %barrier
    ...                                                                    what does not need the tile
    wait_barrier %barrier, %buffer
    %tile = local_load %buffer                                             or a product reads the buffer

The engine does not take part in the order of ordinary accesses to global memory, nor in their cache: a tensor that the
kernel also writes with those, or reads with those and writes through a descriptor, is left to them. So are blocks of
which it is not known that they start at a multiple of 16 bytes in their row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.axis import axis_facts
from tilewright.analysis.origins import may_meet
from tilewright.analysis.solver import Facts
from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.plan.building import Builder, make_barrier, read_load
from tilewright.backends.nvidia.plan.dots import precision
from tilewright.backends.nvidia.plan.prefetch import block_prefetch
from tilewright.backends.nvidia.plan.relations import is_access
from tilewright.backends.nvidia.plan.subjects import COPY_ENGINE
from tilewright.backends.nvidia.plan.tma import ROUNDED, buffer_type, plan_blocks
from tilewright.backends.nvidia.tgir.ops import FenceAsyncSharedOp, LocalAllocOp, TmaLoadOp, TmaStoreOp, WaitBarrierOp
from tilewright.backends.nvidia.tgir.types import memdesc_bytes, memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.effect_traits import is_plain_read, is_plain_write
from tilewright.ir.types import element_type, i1, ir_name
from tilewright.ir.walk import every, walk
from tilewright.ops.descriptor import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescOp
from tilewright.ops.dot import DotOp
from tilewright.ops.facts import AxisFacts
from tilewright.ops.function import FuncOp
from tilewright.ops.shape import TransOp
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.decompose import decompose, is_from_host
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.rewriting import erase, move_before, replace

_ALIGNMENT = 16  # bytes


# --- choice -------------------------------------------------------------------------------------------


def choose_descriptors(module: ModuleOp, arch: Arch, decisions: Decisions) -> None:
    """Take apart the descriptors of simplified tile IR that the copy engine does not serve, in place."""
    answers = [answer for function in FuncOp.all_of(module) for answer in _served(function, arch)]
    kept = {maker for maker, answer in answers if decisions.note(COPY_ENGINE, maker, answer) is not None}
    for maker in kept:
        if all(isinstance(use.operation, DescriptorLoadOp) for use in maker.result.uses) and is_tf32(
            [result for use in maker.result.uses for result in use.operation.results]
        ):
            maker.attributes[ROUNDED] = UnitAttr()
    if decompose(module, lambda maker: maker in kept):
        for simplify in (canonicalize, eliminate_common_subexpressions, hoist_loop_invariants, eliminate_dead_code):
            simplify(module)


def is_tf32(tiles: Sequence[SSAValue]) -> bool:
    """Whether products of tf32 alone read some tiles: the engine rounds to nearest, where wgmma would cut off."""
    users = [(use.operation, use.index) for tile in tiles for use in tile.uses]
    return bool(users) and all(
        is_tf32(user.results)
        if isinstance(user, TransOp)
        else isinstance(user, DotOp)
        and index < 2
        and ir_name(element_type(user.a.type)) == "f32"
        and precision(user) == "tf32"
        for user, index in users
    )


def _served(function: FuncOp, arch: Arch) -> Iterable[tuple[MakeTensorDescOp, Answer[MakeTensorDescOp]]]:
    """Which descriptors stay; all of a tensor or none."""
    tensors: dict[SSAValue, list[MakeTensorDescOp]] = {}
    for op in every(function, MakeTensorDescOp):
        tensors.setdefault(op.base, []).append(op)
    if not tensors:
        return
    ordinary = [op for op in walk(function) if is_access(op)]
    facts, room = axis_facts(function), arch.shared_limit // tuning.DESCRIPTOR_SHARE
    for base, makers in tensors.items():
        users = [use.operation for maker in makers for use in maker.result.uses]
        no = _unmovable(makers, arch) or is_mixed(base, users, ordinary)
        no = no or _unaligned(users, facts) or _too_large(users, room)
        size = 0 if no else sum(map(block_bytes, users))
        room -= size
        yield from ((maker, no or Yes(maker, f"{size} bytes of shared memory")) for maker in makers)


def _unmovable(makers: Sequence[MakeTensorDescOp], arch: Arch) -> No | None:
    """Why the engine cannot read some descriptors."""
    if not arch.has_tma:
        return No("the target has none")
    for maker in makers:
        if not is_from_host(maker):
            return No(
                "the kernel makes the descriptor", maker, "TensorDescriptor.from_tensor(...) in front of the launch"
            )
        answer = plan_blocks(maker)
        if isinstance(answer, No):
            return answer
    return None


def is_mixed(base: SSAValue, users: Sequence[Operation], ordinary: Sequence[Operation]) -> No | None:
    """Why accesses by the engine could pass ordinary ones of the same tensor."""
    stores = any(map(is_plain_write, users))
    for op in ordinary:
        if (stores or not is_plain_read(op)) and may_meet(op.operands[0], base):
            return No(
                f"{describe_op(op)} by pointers may reach the same tensor", op, "all accesses through descriptors"
            )
    return None


def _unaligned(users: Sequence[Operation], facts: Facts[AxisFacts]) -> No | None:
    """The block that is not known to start at a multiple of 16 bytes in its row; the engine faults on others."""
    for op in users:
        assert isinstance(op, DescriptorLoadOp | DescriptorStoreOp)
        bits = memory_bits(element_type(buffer_type(op.desc.type).tile))
        if facts[op.indices[-1]].divisibility[0] * bits // 8 % _ALIGNMENT:
            return No(
                "a block may start where its address is no multiple of 16 bytes", op, "an offset times the block size"
            )
    return None


def _too_large(users: Sequence[Operation], room: int) -> No | None:
    if sum(map(block_bytes, users)) <= room:
        return None
    return No("the blocks of all descriptors would take more than half of shared memory", instead="smaller blocks")


def block_bytes(op: Operation) -> int:
    """Bytes of shared memory that a load or store through a descriptor takes; 0 for other operations."""
    return memdesc_bytes(buffer_type(op.desc.type)) if isinstance(op, DescriptorLoadOp | DescriptorStoreOp) else 0


# --- copies -------------------------------------------------------------------------------------------


def copy_blocks(function: FuncOp) -> None:
    """Let the copy engine do the loads and stores through descriptors that a laid-out function has left, in place."""
    for op in list(walk(function)):
        if isinstance(op, DescriptorLoadOp):
            _load(function, op)
        elif isinstance(op, DescriptorStoreOp):
            _store(op)


def _load(function: FuncOp, op: DescriptorLoadOp) -> None:
    prefetch, b = block_prefetch(op), Builder(op)
    barrier, stage = make_barrier(function, 1, 1), b.number(0)
    buffer = b.make(LocalAllocOp, prefetch.ring)
    b.effect(FenceAsyncSharedOp)  # whatever lay there before
    b.effect(TmaLoadOp, [op.desc, buffer, barrier, stage, b.number(1, i1), *op.indices], cachePolicy=prefetch.policy)
    if prefetch.alloc is not None:
        replace(prefetch.alloc, [buffer])
    _postpone(op, buffer)
    b.effect(WaitBarrierOp, [barrier, stage, buffer])
    read_load(b, prefetch, buffer)
    erase(op)


def _postpone(load: DescriptorLoadOp, buffer: SSAValue) -> None:
    """Move a load to where its tile or buffer must be there; no further than to what may change what is loaded."""
    op = load.next_op
    while op is not None and op.next_op is not None:
        harmless = not op.regions and (is_removable(op) or isinstance(op, LocalAllocOp))
        if not harmless or load.result in op.operands or buffer in op.operands:
            break
        op = op.next_op
    assert op is not None, "a block ends with a terminator"
    move_before(load, op)


def _store(op: DescriptorStoreOp) -> None:
    b = Builder(op)
    buffer = b.make(LocalAllocOp, buffer_type(op.desc.type), op.src)
    b.effect(FenceAsyncSharedOp)
    b.effect(TmaStoreOp, [op.desc, buffer, *op.indices])
    erase(op)


__all__ = ["block_bytes", "choose_descriptors", "copy_blocks", "is_mixed", "is_tf32"]
