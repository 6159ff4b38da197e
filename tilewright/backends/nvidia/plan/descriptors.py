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

from collections.abc import Iterable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.axis import axis_facts
from tilewright.analysis.solver import Facts
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.plan.anchors import bases_of
from tilewright.backends.nvidia.plan.building import Builder, make_barrier, read_load
from tilewright.backends.nvidia.plan.prefetch import block_prefetch
from tilewright.backends.nvidia.plan.relations import ACCESSES
from tilewright.backends.nvidia.plan.tma import buffer_type, is_movable
from tilewright.backends.nvidia.tgir.ops import FenceAsyncSharedOp, LocalAllocOp, TmaLoadOp, TmaStoreOp, WaitBarrierOp
from tilewright.backends.nvidia.tgir.types import memdesc_bytes, memory_bits
from tilewright.ir.types import element_type, i1
from tilewright.ops.descriptor import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescOp
from tilewright.ops.facts import AxisFacts
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.decompose import decompose, is_from_host
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.rewriting import erase, replace

_ALIGNMENT = 16  # bytes
_SHARE = 2  # blocks of all accesses together take at most one of so many parts of shared memory


# --- choice -------------------------------------------------------------------------------------------


def choose_descriptors(module: ModuleOp, arch: Arch) -> None:
    """Take apart the descriptors of simplified tile IR that the copy engine does not serve, in place."""
    kept = {maker for op in module.ops if isinstance(op, FuncOp) for maker in _served(op, arch)}
    if decompose(module, lambda maker: maker in kept):
        for simplify in (canonicalize, eliminate_common_subexpressions, hoist_loop_invariants, eliminate_dead_code):
            simplify(module)


def _served(function: FuncOp, arch: Arch) -> Iterable[MakeTensorDescOp]:
    """The descriptors that stay; all of a tensor or none."""
    tensors: dict[SSAValue, list[MakeTensorDescOp]] = {}
    for op in function.walk():
        if isinstance(op, MakeTensorDescOp):
            tensors.setdefault(op.base, []).append(op)
    ordinary = [op for op in function.walk() if op.name in ACCESSES]
    read, written = (_bases(op for op in ordinary if (op.name == LoadOp.name) == loads) for loads in (True, False))
    if not (tensors and arch.has_tma):
        return
    room, facts = arch.shared_limit // _SHARE, axis_facts(function)
    for base, makers in tensors.items():
        users = [use.operation for maker in makers for use in maker.result.uses]
        stores = any(isinstance(op, DescriptorStoreOp) for op in users)
        mixed = _may_have(written, base) or (stores and _may_have(read, base))
        if mixed or not all(is_from_host(maker) and is_movable(maker) for maker in makers):
            continue
        size = sum(map(block_bytes, users))
        if size <= room and all(_starts_aligned(op, facts) for op in users):
            room -= size
            yield from makers


def _starts_aligned(op: Operation, facts: Facts[AxisFacts]) -> bool:
    """Whether a block is known to start at a multiple of 16 bytes in its row; the engine faults on others."""
    assert isinstance(op, DescriptorLoadOp | DescriptorStoreOp)
    bits = memory_bits(element_type(buffer_type(op.desc.type).tile))
    return facts[op.indices[-1]].divisibility[0] * bits // 8 % _ALIGNMENT == 0


def _bases(accesses: Iterable[Operation]) -> set[SSAValue] | None:
    """The arguments from which the addresses of some accesses come; None if they are not known."""
    found: set[SSAValue] = set()
    for op in accesses:
        bases = bases_of(op.operands[0])
        if bases is None:
            return None
        found |= bases
    return found


def _may_have(bases: set[SSAValue] | None, base: SSAValue) -> bool:
    return bases is None or base in bases


def block_bytes(op: Operation) -> int:
    """Bytes of shared memory that a load or store through a descriptor takes; 0 for other operations."""
    return memdesc_bytes(buffer_type(op.desc.type)) if isinstance(op, DescriptorLoadOp | DescriptorStoreOp) else 0


# --- copies -------------------------------------------------------------------------------------------


def copy_blocks(function: FuncOp) -> None:
    """Let the copy engine do the loads and stores through descriptors that a laid-out function has left, in place."""
    for op in list(function.walk()):
        if isinstance(op, DescriptorLoadOp):
            _load(function, op)
        elif isinstance(op, DescriptorStoreOp):
            _store(op)


def _load(function: FuncOp, op: DescriptorLoadOp) -> None:
    prefetch, b = block_prefetch(op), Builder(op)
    barrier, stage = make_barrier(function, 1, 1), b.number(0)
    buffer = b.make(LocalAllocOp, [], prefetch.ring)
    b.effect(FenceAsyncSharedOp)  # whatever lay there before
    b.effect(TmaLoadOp, [op.desc, buffer, barrier, stage, b.number(1, i1), *op.indices])
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
    block = load.parent_block()
    assert op is not None and block is not None, "a block ends with a terminator"
    load.detach()  # type: ignore[no-untyped-call]
    block.insert_op_before(load, op)


def _store(op: DescriptorStoreOp) -> None:
    b = Builder(op)
    buffer = b.make(LocalAllocOp, [op.src], buffer_type(op.desc.type))
    b.effect(FenceAsyncSharedOp)
    b.effect(TmaStoreOp, [op.desc, buffer, *op.indices])
    erase(op)


__all__ = ["block_bytes", "choose_descriptors", "copy_blocks"]
