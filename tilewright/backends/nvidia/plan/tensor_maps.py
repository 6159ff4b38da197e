"""Loads through pointers that read boxes of tensors become loads through descriptors, which the copy engine makes.

    %t = tt.load (%base + rows * %stride + columns), mask

    %d = tt.make_tensor_descriptor %base, [%M, %K], [%stride, 1]
    %t = tt.descriptor_load %d[%row, %column]

Only loads that loops copy ahead for products of wgmma are rewritten (`boxes.py` says which of them read boxes): there
threads that issue copies, and compute an address and a mask for each, take time from those that multiply. The launch
makes the tensor map of what it is given; where the values suit none it launches the kernel that is compiled without
(`CudaOptions.tensor_maps`), so that what is proved here need not hold for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import DenseArrayBase, ModuleOp, UnitAttr
from xdsl.dialects.builtin import i32 as builtin_i32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.nvidia import tuning
from tilewright.backends.nvidia.arch import Arch
from tilewright.backends.nvidia.options import CudaOptions
from tilewright.backends.nvidia.plan.boxes import Box, Boxes, Side
from tilewright.backends.nvidia.plan.descriptors import block_bytes, is_mixed, is_tf32
from tilewright.backends.nvidia.plan.dots import is_wgmma
from tilewright.backends.nvidia.plan.prefetch import inverse_order, loads_ahead
from tilewright.backends.nvidia.plan.relations import is_access
from tilewright.backends.nvidia.plan.subjects import COPY_ENGINE
from tilewright.backends.nvidia.plan.tma import FARTHEST, FROM_POINTERS, ROUNDED
from tilewright.backends.nvidia.tgir.types import memory_bits
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, i32, i64, shape_of, tile_type
from tilewright.ir.values import uses_behind
from tilewright.ir.walk import every, walk
from tilewright.ops.casts import ExtSIOp, TruncIOp
from tilewright.ops.control import ForOp
from tilewright.ops.descriptor import DescriptorLoadOp, MakeTensorDescOp, TensorDescType
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import MinSIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.shape import TransOp
from tilewright.passes.building import Builder
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.licm import hoist_loop_invariants
from tilewright.passes.rewriting import replace
from tilewright.passes.trip_count import Preheader

_OUTSIDE = FARTHEST - 512
"""A place behind all tensors that still fits 32 bits at the far side of a box."""


def load_boxes(module: ModuleOp, options: CudaOptions, arch: Arch, decisions: Decisions) -> bool:
    """Rewrite the loads of boxes of simplified tile IR, in place; says whether there were any.

    Args:
        module: tile IR, its descriptors chosen.
        options: of the compilation.
        arch: of the target.
        decisions: what is answered is kept there.
    """
    if not (options.tensor_maps and arch.has_tma and arch.has_wgmma):
        return False
    changed = False
    for function in FuncOp.all_of(module):
        if function.is_kernel:
            first = function.body.block.first_op
            assert first is not None
            for load, answer in _answers(function, options, arch):
                box = decisions.note(COPY_ENGINE, load, answer)
                if box is not None:
                    _rewrite(load, box, first)
                    changed = True
    if changed:
        _round(module)
        for simplify in (canonicalize, eliminate_common_subexpressions, hoist_loop_invariants, eliminate_dead_code):
            simplify(module)
    return changed


def _answers(function: FuncOp, options: CudaOptions, arch: Arch) -> list[tuple[LoadOp, Answer[Box]]]:
    """What each load that a loop copies ahead for wgmma reads, as long as there is room."""
    loops = every(function, ForOp)
    loads = [row for loop in loops for row in loads_ahead(loop)]
    loads = [(load, no) for load, no in loads if _is_for_wgmma(load, options.block_warps, arch)]
    if not loads:
        return []
    boxes, ordinary = Boxes(function), [op for op in walk(function) if is_access(op)]
    taken = sum(map(block_bytes, walk(function)))
    # Loops that copy ahead hold no others, so that one's buffers are free when another runs.
    room = dict.fromkeys(loops, arch.shared_limit // tuning.DESCRIPTOR_SHARE - taken)
    found: list[tuple[LoadOp, Answer[Box]]] = []
    for load, no in loads:
        answer = no or boxes.of(load)
        if isinstance(answer, Yes):
            answer = is_mixed(answer.plan.base, (), ordinary) or answer
        size, loop = _bytes(load), load.parent_op()
        assert isinstance(loop, ForOp)
        if isinstance(answer, Yes) and size > room[loop]:
            answer = No(
                "the blocks of the loop's loads would take more than half of shared memory", instead="smaller blocks"
            )
        if isinstance(answer, Yes):
            room[loop] -= size
            answer = Yes(answer.plan, f"a box of the tensor, {size} bytes, by a map that the launch makes")
        found.append((load, answer))
    return found


def _bytes(load: LoadOp) -> int:
    count = 1
    for size in shape_of(load.result.type):
        count *= size
    return count * memory_bits(element_type(load.result.type)) // 8


def _is_for_wgmma(load: LoadOp, warps: int, arch: Arch) -> bool:
    """Whether wgmma makes a product that a tile gets to, computed or not, or to which a row of numbers is added."""
    operands = 3 if len(shape_of(load.result.type)) == 1 else 2
    uses = uses_behind([load.result], lambda op: not isinstance(op, DotOp) and op.parent is load.parent)
    users = (use.operation for use in uses if use.index < operands)
    return any(isinstance(user, DotOp) and is_wgmma(user, warps, arch) for user in users)


# --- rewriting ------------------------------------------------------------------------------------------


def _rewrite(load: LoadOp, box: Box, first: Operation) -> None:
    """Load a box through a descriptor that is made in front of the first operation of the kernel."""
    shape, element = shape_of(load.result.type), element_type(load.result.type)
    block = tile_type(tuple(shape[dim] for dim in box.order), element)
    maker = MakeTensorDescOp.create(
        operands=[
            box.base,
            *(_number(FARTHEST if side.bound is None else side.bound, i32, first) for side in box.sides),
            *(_number(side.stride, i64, first) for side in box.sides),
        ],
        result_types=[TensorDescType(block)],
        attributes={FROM_POINTERS: DenseArrayBase.from_list(builtin_i32, sorted(p.index for p in box.natural))},
    )
    desc = Builder(first).put(maker)
    places = [_place(load, side, wide=box.wide) for side in box.sides]
    hints = {name: value for name, value in load.properties.items() if name == "cachePolicy"}
    read = DescriptorLoadOp.create(operands=[desc, *places], result_types=[block], properties=hints)
    tile = Builder(load).put(read)
    if box.order != tuple(range(len(shape))):
        tile = Builder(load).make(TransOp, load.result.type, tile, order=inverse_order(box.order))
    replace(load, [tile])


def _number(value: SSAValue | int, type_: Attribute, anchor: Operation) -> SSAValue:
    """A parameter or a number as an integer of a type."""
    if isinstance(value, int):
        return Builder(anchor).number(value, type_)
    if value.type == type_:
        return value
    kind = ExtSIOp if type_ == i64 else TruncIOp
    return Builder(anchor).cast(kind, value, type_)


def _place(load: LoadOp, side: Side, *, wide: bool) -> SSAValue:
    """Where a box begins along a side, in 32 bits; what is behind all tensors stays there."""
    if not wide:
        return Preheader(load, i32).sum(side.place)
    far = Preheader(load, i64)
    return Preheader(load, i32).converted(far.apply(MinSIOp, far.sum(side.place), _OUTSIDE))


def _round(module: ModuleOp) -> None:
    """Have blocks that products of tf32 alone read rounded on the way."""
    makers = (op for op in every(module, MakeTensorDescOp) if FROM_POINTERS in op.attributes)
    for maker in makers:
        if is_tf32(_loaded(maker)):
            maker.attributes[ROUNDED] = UnitAttr()


def _loaded(maker: MakeTensorDescOp) -> Sequence[SSAValue]:
    users: Iterable[Operation] = (use.operation for use in maker.result.uses)
    return [result for user in users for result in user.results]


__all__ = ["load_boxes"]
