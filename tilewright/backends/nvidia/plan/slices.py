"""Results of products leave each warp on its own: in slices through shared memory that nobody else uses.

A tile in the layout of an accumulator is stored in lines of memory. Where every warp keeps its rows on the way
(`anchors.within_warps`), a slice after the other passes through shared memory, and only the lanes of a warp
wait for each other:

    rings of the loop | slice of warp 0 | slice of warp 1 | ...

Stores through descriptors have each slice copied by the engine, one while the next is written:

    ttng.tma_copy_slices_to_global %desc of 16x64, %tile of 128x256

That memory lies beside the rings, so that a warp need not wait until others have read these, unless fewer blocks would
then share a multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Operation

from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.plan.allocate import APART, allocate, scratch_bytes, waits_between
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.backends.nvidia.plan.subjects import OWN_SLICES
from tilewright.backends.nvidia.plan.tma import plan_of, slices_of
from tilewright.backends.nvidia.tgir.ops import ConvertLayoutOp, EnterRoleOp, TmaStoreSlicesOp, WarpGroupDotOp
from tilewright.backends.nvidia.tgir.types import layout_of, memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.effect_traits import is_atomic
from tilewright.ir.types import element_type, shape_of, tile_type
from tilewright.ir.values import users_of
from tilewright.ir.walk import among, every, walk
from tilewright.layouts.linear import LinearLayout
from tilewright.ops.descriptor import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescOp, TensorDescType
from tilewright.ops.dot import DotOp
from tilewright.ops.function import FuncOp
from tilewright.passes.rewriting import erase

_REGISTERS = 128  # of a thread of a product, at least: two blocks of 8 warps share a multiprocessor then
_ROWS, _ROW_BYTES = 16, 128  # of a slice: what a warp holds of an accumulator, and a swizzle


def store_in_slices(module: ModuleOp, decisions: Decisions) -> None:
    """Have the stores through descriptors of laid-out tile IR be made by warps where they hold whole slices, in place.

    Args:
        module: laid-out tile IR, whose descriptors the copy engine serves.
        decisions: of the compilation.
    """
    for function in FuncOp.all_of(module):
        accumulators = set(_accumulators(function))
        shared = _is_shared(function)
        for op in every(function, DescriptorStoreOp):
            if layout_of(op.src) in accumulators:
                plan = decisions.note(OWN_SLICES, op, _sliced(op, shared))
                if plan is not None:
                    _store(op, plan)


def _accumulators(function: FuncOp) -> Iterator[LinearLayout]:
    return (layout_of(op.d) for op in every(function, WarpGroupDotOp, DotOp))


def _is_shared(function: FuncOp) -> bool:
    """Whether programs may tell each other what they have stored: then it must be there, not just have been read."""
    return any(is_atomic(op) for op in walk(function))


def _is_read(maker: MakeTensorDescOp) -> bool:
    """Whether blocks of the tensor are loaded, too."""
    makers = among(users_of(maker.base), MakeTensorDescOp)
    return any(isinstance(use.operation, DescriptorLoadOp) for maker in makers for use in maker.result.uses)


def _sliced(op: DescriptorStoreOp, shared: bool) -> Answer[TensorDescType]:
    """The descriptor type of a slice of a store, which is not waited for but at the end of the kernel."""
    maker = op.desc.owner
    assert isinstance(maker, MakeTensorDescOp)
    if shared or _is_read(maker):
        return No("what is stored may be read before the kernel ends")
    element, rank = element_type(op.src.type), len(shape_of(op.src.type))
    bits = memory_bits(element)
    if bits not in (16, 32):
        return No(f"stmatrix has no elements of {bits} bits")
    type_ = TensorDescType(tile_type((*[1] * (rank - 2), _ROWS, _ROW_BYTES * 8 // bits), element))
    plan = plan_of(type_)
    if not isinstance(plan, Yes) or slices_of(layout_of(op.src), plan.plan) is None:
        return No(f"no warp has blocks of {_ROWS} rows of {_ROW_BYTES} bytes to itself")
    return Yes(type_, f"slices of {_ROWS * _ROW_BYTES} bytes a warp, two under way by the copy engine")


def _store(op: DescriptorStoreOp, type_: TensorDescType) -> None:
    maker = op.desc.owner
    assert isinstance(maker, MakeTensorDescOp)
    following = maker.next_op
    assert following is not None
    described = MakeTensorDescOp.create(
        operands=maker.operands,
        result_types=[type_],
        properties=dict(maker.properties),
        attributes=dict(maker.attributes),
    )
    Builder(following).insert(described)
    Builder(op).effect(TmaStoreSlicesOp, [described.results[0], op.src, *op.indices])
    erase(op)
    if maker.result.first_use is None:
        erase(maker)


def keep_slices_apart(module: ModuleOp, warps: int, arch: Arch, decisions: Decisions) -> None:
    """Mark the conversions of a laid-out module whose scratch lies beside all buffers, in place.

    Args:
        module: laid-out tile IR with its pipelines.
        warps: that hold tiles.
        arch: the target.
        decisions: of the compilation.
    """
    for function in FuncOp.all_of(module):
        ops = list(walk(function))
        if not any(among(ops, WarpGroupDotOp)):
            continue
        before = allocate(function).total
        for op in ops:
            if isinstance(op, ConvertLayoutOp | TmaStoreSlicesOp) and scratch_bytes(op) and not waits_between(op):
                before = _decide(function, op, before, warps, arch, decisions)


def _decide(function: FuncOp, op: Operation, before: int, warps: int, arch: Arch, decisions: Decisions) -> int:
    """Mark one conversion, or not; gives the bytes of shared memory that the function needs then."""
    op.attributes[APART] = UnitAttr()
    after = allocate(function).total
    roles = [role.attr_values() for role in every(function, EnterRoleOp)]
    block = max([warps, *(int(role["first_warp"]) + int(role["num_warps"]) for role in roles)])
    if decisions.note(OWN_SLICES, op, _answer(op, before, after, warps, block, arch)) is not None:
        return after
    del op.attributes[APART]
    return before


def _answer(op: Operation, before: int, after: int, warps: int, block: int, arch: Arch) -> Answer[int]:
    """Whether blocks of `block` warps, of which `warps` store, keep their number on a multiprocessor."""
    blocks = [arch.blocks_per_multiprocessor(block, _REGISTERS, size) for size in (before, after)]
    if blocks[1] < blocks[0]:
        return No(f"{after - before} bytes more of shared memory would take a block off a multiprocessor")
    return Yes(after, f"slices of {scratch_bytes(op) // warps} bytes a warp, beside the buffers of the loop")


__all__ = ["keep_slices_apart", "store_in_slices"]
