"""Descriptors of the host on targets with a copy engine (TMA): which ones it serves, and loads and stores by it.

Others are taken apart into pointers and masks. A load that no loop copies ahead becomes:

    %buffer = local_alloc
    async_tma_copy_global_to_local %desc[%i, %j], %buffer, %barrier
    ...                                                                    what does not need the tile
    wait_barrier %barrier, %buffer
    %tile = local_load %buffer                                             or a product reads the buffer

The engine does not take part in the order of ordinary accesses to global memory: a tensor that the kernel also writes
with those is left to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tilewright.backends.nvidia.anchors import bases_of
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.prefetch import block_prefetch
from tilewright.backends.nvidia.relations import ACCESSES
from tilewright.backends.nvidia.staging import Builder, make_barrier, read_load
from tilewright.backends.nvidia.tgir import memdesc_bytes
from tilewright.backends.nvidia.tgir_ops import FenceAsyncSharedOp, LocalAllocOp, TmaLoadOp, TmaStoreOp, WaitBarrierOp
from tilewright.backends.nvidia.tma import buffer_type, is_movable
from tilewright.ir.types import i1
from tilewright.ops.descriptor import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.decompose import decompose, is_from_host
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.rewriting import erase, replace

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
    written = _written(function) if arch.has_tma else None
    room = arch.shared_limit // _SHARE
    for base, makers in tensors.items():
        if written is None or base in written or not all(is_from_host(m) and is_movable(m) for m in makers):
            continue
        size = sum(block_bytes(use.operation) for maker in makers for use in maker.result.uses)
        if size <= room:
            room -= size
            yield from makers


def _written(function: FuncOp) -> set[SSAValue] | None:
    """The arguments through which ordinary accesses write; None if they are not known."""
    found: set[SSAValue] = set()
    for op in function.walk():
        if op.name in ACCESSES and op.name != LoadOp.name:
            bases = bases_of(op.operands[0])
            if bases is None:
                return None
            found |= bases
    return found


def block_bytes(op: Operation) -> int:
    """Bytes of shared memory that a load or store through a descriptor takes; 0 for other operations."""
    return memdesc_bytes(buffer_type(op.desc.type)) if isinstance(op, DescriptorLoadOp | DescriptorStoreOp) else 0


# --- copies -------------------------------------------------------------------------------------------


def copy_blocks(module: ModuleOp) -> None:
    """Let the copy engine do the loads and stores through descriptors of a laid-out module that are left, in place."""
    for function in module.ops:
        if isinstance(function, FuncOp):
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
    _move_before(op, _first_need(op))
    b.effect(WaitBarrierOp, [barrier, stage, buffer])
    if prefetch.alloc is not None:
        replace(prefetch.alloc, [buffer])
    read_load(b, prefetch, buffer)
    erase(op)


def _move_before(op: Operation, following: Operation) -> None:
    block = op.parent_block()
    assert block is not None
    op.detach()  # type: ignore[no-untyped-call]
    block.insert_op_before(op, following)


def _first_need(load: DescriptorLoadOp) -> Operation:
    """The operation before which the tile must be there; at the latest one that may change what is loaded."""
    op = load.next_op
    while op is not None and op.next_op is not None:
        if op.regions or not is_removable(op) or load.result in op.operands:
            break
        op = op.next_op
    assert op is not None, "a block ends with a terminator"
    return op


def _store(op: DescriptorStoreOp) -> None:
    b = Builder(op)
    buffer = b.make(LocalAllocOp, [op.src], buffer_type(op.desc.type))
    b.effect(FenceAsyncSharedOp)
    b.effect(TmaStoreOp, [op.desc, buffer, *op.indices])
    erase(op)


__all__ = ["block_bytes", "choose_descriptors", "copy_blocks"]
