"""The level spec of laid-out tile IR ("tgir"): what every operation promises about shapes, types and layouts.

A tile's layout covers its padded shape from (register, lane, warp, block); operations are those of tile IR, typed as
there, plus those of `tgir_ops.py`; and the layouts of an operation fit together as `relations.py` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.backends.nvidia.plan.relations import follows_result, is_ragged, operand_layouts, result_layout
from tilewright.backends.nvidia.plan.tma import plan_of, slices_of
from tilewright.backends.nvidia.tgir.ops import (
    OPS,
    ArriveBarrierOp,
    AsyncCopyOp,
    ConvertLayoutOp,
    EnterRoleOp,
    InitBarrierOp,
    LocalAllocOp,
    LocalLoadOp,
    LocalStoreOp,
    MemDescIndexOp,
    TmaLoadOp,
    TmaStoreOp,
    TmaStoreSlicesOp,
    WaitPhaseOp,
    WarpGroupDotOp,
    WarpGroupDotWaitOp,
)
from tilewright.backends.nvidia.tgir.types import (
    LayoutAttr,
    MemDescType,
    layout_of,
    memdesc_count,
    memdesc_shape,
    with_layout,
)
from tilewright.base.decision import Yes
from tilewright.base.errors import VerificationError
from tilewright.ir.levels import Level, tile_type_rule
from tilewright.ir.levels import verify as verify_level
from tilewright.ir.op import TileOp
from tilewright.ir.traits import is_collective
from tilewright.ir.types import element_type, shape_of
from tilewright.layouts.conversion import POSITION
from tilewright.layouts.distributed import WARP_SIZE, dim_names
from tilewright.layouts.padding import padded_shape
from tilewright.layouts.tile import transpose_tile
from tilewright.ops.dot import DotOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.levels import type_rule
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.scan import ScanOp
from tilewright.ops.shape import CatOp, JoinOp, SplitOp
from tilewright.ops.spec import REGISTRY, Call, spec_of


def verify(module: ModuleOp, num_warps: int, blocks: int = 1) -> None:
    """Check that `module` is legal laid-out tile IR for a number of warps, and of blocks of a cluster.

    Raises:
        VerificationError: with the operation's text and its place in the user's source.
    """
    verify_level(module, tgir(num_warps, blocks))


def tgir(num_warps: int, blocks: int = 1) -> Level:
    """Laid-out tile IR for programs of `blocks` blocks of `num_warps` warps."""
    names = frozenset({*REGISTRY, *(op.name for op in OPS)})
    return Level("tgir", names, lambda type_: _type_rule(type_, num_warps, blocks), _check)


# --- types --------------------------------------------------------------------------------------------


def _type_rule(type_: Attribute, num_warps: int, blocks: int) -> str | None:
    if isinstance(type_, MemDescType):
        return _buffer_rule(type_)
    if not isinstance(type_, TensorType):
        return type_rule(type_)
    if not isinstance(type_.encoding, LayoutAttr):
        return f"{type_} has no layout"
    layout, shape = layout_of(type_), padded_shape(shape_of(type_))
    sizes = layout.in_sizes
    if tuple(sizes) != POSITION:
        return f"the layout of {type_} maps {tuple(sizes)}, not {POSITION}"
    if layout.out_sizes != dict(zip(dim_names(len(shape)), shape, strict=True)):
        return f"the layout of {type_} covers {tuple(layout.out_sizes.values())}, not the padded shape {shape}"
    if (sizes["lane"], sizes["warp"], sizes["block"]) != (WARP_SIZE, num_warps, blocks):
        return f"the layout of {type_} is for {sizes['lane']} lanes, {sizes['warp']} warps, {sizes['block']} blocks"
    if not layout.is_surjective():
        return f"the layout of {type_} leaves elements out"
    return tile_type_rule(with_layout(type_, None))


def _buffer_rule(type_: MemDescType) -> str | None:
    layout, shape = layout_of(type_), padded_shape(memdesc_shape(type_))
    if tuple(layout.out_sizes.values()) != shape or not layout.is_surjective():
        return f"the layout of {type_} does not cover the padded shape {shape}"
    if next(iter(layout.in_sizes)) != "offset":
        return f"the layout of {type_} maps {tuple(layout.in_sizes)}, not offsets"
    return tile_type_rule(with_layout(type_.tile, None))


# --- operations ---------------------------------------------------------------------------------------


def _check(op: Operation) -> None:
    """Raise unless types and layouts of an operation fit together."""
    if not isinstance(op, TileOp):
        raise VerificationError(f"{op.name} is not an operation of tile IR")
    if op.name in REGISTRY:
        _check_meaning(op)
        _check_layouts(op)
    else:
        _check_movement(op)


def _check_meaning(op: TileOp) -> None:
    """The operation without layouts is one of tile IR."""
    operands, results = ([with_layout(value.type, None) for value in values] for values in (op.operands, op.results))
    wanted = list(spec_of(op).infer(Call(op.attr_values(), tuple(operands), tuple(results))))
    if results != wanted:
        raise VerificationError(f"{op.name} has results of type {results} where {wanted} follows from its operands")


def _check_layouts(op: TileOp) -> None:
    tiles = [operand for operand in op.operands if shape_of(operand.type)]
    if not op.regions:
        results = [layout_of(result) for result in op.results if shape_of(result.type)]
        given = results[0] if results else layout_of(tiles[0]) if tiles else None
        if given is not None and follows_result(op):
            found = [layout_of(operand) if shape_of(operand.type) else None for operand in op.operands]
            _require(op, found == list(operand_layouts(op, given)) and all(layout == given for layout in results))
            return
    if isinstance(op, GatherOp):
        _require(op, layout_of(op.indices) == layout_of(op.result))
    elif isinstance(op, DotOp):
        _require(op, layout_of(op.c) == layout_of(op.d))
    elif isinstance(op, _FORWARD) and tiles and not is_ragged(op):
        wanted = result_layout(op, layout_of(tiles[0]))
        _require(op, all(layout_of(tile) == layout_of(tiles[0]) for tile in tiles))
        _require(op, all(layout_of(result) == wanted for result in op.results if shape_of(result.type)))
    elif is_collective(op):
        _require(op, len({layout_of(tile) for tile in tiles}) == 1)


_FORWARD = (ReduceOp, ScanOp, JoinOp, SplitOp, CatOp)


def _check_movement(op: TileOp) -> None:
    """Operations that move whole tiles or buffers: the elements on both sides are the same."""
    rule = _MOVEMENTS.get(type(op))
    _require(op, rule is None or rule(op))
    num = op.properties.get("num") or op.properties.get("pendings")
    _require(op, not isinstance(num, IntegerAttr) or num.value.data >= 0)


def _is_kept(op: LocalAllocOp) -> bool:
    return isinstance(op.result.type, MemDescType) and (not op.src or _are_same(op.src[0], op.result))


def _is_stage(op: MemDescIndexOp) -> bool:
    if layout_of(op.src) == layout_of(op.result):
        return memdesc_count(op.result.type) == 1 and _are_same(op.src, op.result)
    turned = transpose_tile(layout_of(op.src), (1, 0)) == layout_of(op.result)
    return memdesc_count(op.result.type) == 1 and turned and _extent(op.src)[::-1] == _extent(op.result)


def _is_copied(op: AsyncCopyOp) -> bool:
    return _extent(op.ptr) == _extent(op.dst) and all(layout_of(tile) == layout_of(op.ptr) for tile in op.masked)


def _is_product(op: WarpGroupDotOp) -> bool:
    (m, k), (rows, n) = _extent(op.a), _extent(op.b)
    return k == rows and _extent(op.c) == _extent(op.d) == (m, n) and layout_of(op.c) == layout_of(op.d)


def _is_block(desc: SSAValue, buffer: SSAValue) -> bool:
    plan = plan_of(desc.type)
    return isinstance(plan, Yes) and sorted(_extent(buffer)) == sorted(plan.plan.shape)


def _is_sliced(op: TmaStoreSlicesOp) -> bool:
    plan = plan_of(op.desc.type)
    return isinstance(plan, Yes) and slices_of(layout_of(op.src), plan.plan) is not None


def _is_role(op: EnterRoleOp) -> bool:
    attrs = op.attr_values()
    return not any(int(attrs[name]) % 4 for name in ("first_warp", "num_warps")) and bool(attrs["registers"] <= 256)


def _is_on_barrier(op: WaitPhaseOp | ArriveBarrierOp) -> bool:
    return isinstance(op.barrier.owner, InitBarrierOp)


def _extent(value: SSAValue) -> tuple[int, ...]:
    return memdesc_shape(value.type) if isinstance(value.type, MemDescType) else shape_of(value.type)


def _are_same(first: SSAValue, second: SSAValue) -> bool:
    """Whether two tiles or buffers have the same elements."""
    elements = [element_type(v.type.tile if isinstance(v.type, MemDescType) else v.type) for v in (first, second)]
    return _extent(first) == _extent(second) and elements[0] == elements[1] and math.prod(_extent(first)) > 0


def _require(op: TileOp, holds: bool) -> None:
    if not holds:
        raise VerificationError(f"the layouts or types of {op.name} do not fit together")


_MOVEMENTS: dict[type[Operation], Callable[[Any], bool]] = {
    ConvertLayoutOp: lambda op: _are_same(op.src, op.result),
    LocalLoadOp: lambda op: _are_same(op.src, op.result),
    LocalAllocOp: _is_kept,
    LocalStoreOp: lambda op: _are_same(op.value, op.dst),
    MemDescIndexOp: _is_stage,
    AsyncCopyOp: _is_copied,
    WarpGroupDotOp: _is_product,
    WarpGroupDotWaitOp: lambda op: list(op.operand_types) == list(op.result_types),
    InitBarrierOp: lambda op: bool(op.result.type == op.src.type),
    TmaLoadOp: lambda op: _is_block(op.desc, op.dst),
    TmaStoreOp: lambda op: _is_block(op.desc, op.src),
    TmaStoreSlicesOp: _is_sliced,
    WaitPhaseOp: _is_on_barrier,
    ArriveBarrierOp: _is_on_barrier,
    EnterRoleOp: _is_role,
}
