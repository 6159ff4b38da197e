"""Unrolled reductions: a reduction over a dim of a few elements combines slices, element by element.

    %s = tt.reduce(%v : 1024x8) axis 1         ->      %0, %1, .. = slices of %v along dim 1 : 1024
                                                       %s = %0 + %1 + ..

A reduction keeps its results in scratch, and its loop goes over the dim inside of every chunk of lanes. Slices are
views: whoever wants the sums computes them in its own pass, in registers. Windows and small filters are written like
this, with the next power of two for their width; of a sum, slices that a mask makes zeros are left out.
"""

from __future__ import annotations

import math

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.elements import At, operand_indices, side_bit, tiles_behind
from tilewright.analysis.index import CONST, Index, identity, is_power_of_two
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import cost_of, is_lazy, readers_of
from tilewright.backends.cpu.plan.subjects import UNROLLED_REDUCTION
from tilewright.backends.cpu.plan.zero_terms import first_zero
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import element_type, is_pointer, pointee_bytes, shape_of, tile_type
from tilewright.ir.values import defining_op, property_int
from tilewright.ir.walk import among, every
from tilewright.ops.broadcast import BroadcastOp
from tilewright.ops.elementwise import AddFOp, AddIOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, is_volatile
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp
from tilewright.ops.spec import spec_of
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import insert_before, replace


def unroll_reductions(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such reductions of a function; says whether there were any."""
    reductions = [op for op in every(function, ReduceOp) if _is_private(op)]
    if not reductions:
        return False
    analysis, changed = AffineAnalysis(facts=ElementFacts(function)), False
    for op in reductions if every(function, JoinOp, CatOp) else ():
        while (bit := _joined_bit(op, analysis)) is not None:
            _combine_sides(op, bit)
            changed = True
    for op in filter(_is_short, reductions):
        count = decisions.note(UNROLLED_REDUCTION, op, _slices(op, analysis))
        if count is not None:
            _rewrite(op, count)
            changed = True
    return changed


def _is_short(op: ReduceOp) -> bool:
    """Whether a reduction combines a few elements, many times."""
    shape = shape_of(op.operands[0].type)
    extent = shape[property_int(op, "axis")]
    few = 1 < extent <= tuning.UNROLLED_ITERATIONS and is_power_of_two(extent)
    return few and math.prod(shape) // extent >= tuning.UNROLLED_ROWS


def _is_private(op: ReduceOp) -> bool:
    """Whether a reduction combines elements of one tile, that nobody else wants, by one operation."""
    return len(op.operands) == 1 and op.operands[0].has_one_use() and _combined(op) is not None


def _combined(op: ReduceOp) -> Operation | None:
    """The one operation by which elements are combined, if it may be done in any order."""
    body = single_operation(op.regions[0].block)
    return body if body is not None and spec_of(body).monoid is not None else None


def _slices(op: ReduceOp, analysis: AffineAnalysis) -> Answer[int]:
    """How many slices are combined, if each is as good to compute as the whole."""
    value, axis = op.operands[0], property_int(op, "axis")
    extent = shape_of(value.type)[axis]
    tiles, loads, costly = 0, 0, 0.0
    for part, at in tiles_behind([(value, identity(shape_of(value.type)))], _beside_addresses):
        maker = defining_op(part)
        if maker is None or not is_lazy(maker) or is_volatile(maker):
            return No(
                f"it needs {describe_op(maker)} as a whole" if maker is not None else "a loop carries what it needs"
            )
        tiles, loads, costly = tiles + 1, loads + isinstance(maker, LoadOp), max(costly, cost_of(maker))
        if isinstance(maker, LoadOp) and not _along_others(*operand_indices(part, at)[0], axis, analysis):
            return No("what it loads lies along the dim that is reduced", maker)
    if not loads:
        return No("it loads nothing")
    if tiles * extent > tuning.UNROLLED_OPERATIONS:
        return No(f"that would be more than {tuning.UNROLLED_OPERATIONS} operations")
    if costly > tuning.SHARED_COST and _is_broadcast(op.results[0]):
        return No("every row would compute it again")
    sums = isinstance(_combined(op), AddFOp | AddIOp)
    end = max(1, first_zero(value, axis, analysis)) if sums else extent
    return Yes(end, f"{end} slices, element by element")


# --- sides of joins ---------------------------------------------------------------------------------------------------


def _joined_bit(op: ReduceOp, analysis: AffineAnalysis) -> int | None:
    """The bit of the place along the dim that tells sides of a join apart, if each load is as good for half of them."""
    value, axis = op.operands[0], property_int(op, "axis")
    found = None
    for part, at in tiles_behind([(value, identity(shape_of(value.type)))], _beside_addresses):
        maker = defining_op(part)
        if isinstance(maker, LoadOp) and not _along_others(*operand_indices(part, at)[0], axis, analysis):
            return None
        if isinstance(maker, JoinOp | CatOp):
            (bit,) = side_bit(maker, part, at)
            if [field.src for field in bit] == [axis]:
                found = bit[0].lo
    return found


def _beside_addresses(value: SSAValue, index: Index) -> list[At]:
    """What an element is computed from where it is wanted, without addresses."""
    maker = defining_op(value)
    if maker is None or not is_lazy(maker):
        return []
    return [part for part in operand_indices(value, index) if not is_pointer(element_type(part[0].type))]


def _combine_sides(op: ReduceOp, bit: int) -> None:
    """Let a reduction take what elements are combined to whose places along the dim differ in one bit."""
    value, axis = op.operands[0], property_int(op, "axis")
    shape, element = list(shape_of(value.type)), element_type(value.type)
    parts = [*shape[:axis], shape[axis] >> bit + 1, 2, 1 << bit, *shape[axis + 1 :]]
    order = [*(dim for dim in range(len(parts)) if dim != axis + 1), axis + 1]
    halved = [*shape[:axis], shape[axis] // 2, *shape[axis + 1 :]]
    kinds = [tile_type(tuple(parts[dim] for dim in order[:n]), element) for n in (len(order), len(order) - 1)]
    b, kind, body = Builder(op), tile_type(tuple(halved), element), _combined(op)
    assert body is not None
    apart = b.viewed(value, tile_type(tuple(parts), element))
    split = SplitOp.build_op([b.make(TransOp, kinds[0], apart, order=tuple(order))], kinds[1:] * 2)
    insert_before(split, op)
    sides = [b.make(ReshapeOp, kind, side) for side in split.results]
    op.operands[0] = b.again(body, kind, *sides)


def _is_broadcast(value: SSAValue) -> bool:
    """Whether somebody who computes a value in its own pass wants an element of it several times."""
    return any(among(readers_of(value), BroadcastOp))


def _along_others(pointer: SSAValue, index: Index, axis: int, analysis: AffineAnalysis) -> bool:
    """Whether what a load reads lies side by side along another dim than `axis`, or is the same along the others."""
    form, size = analysis.pointer(pointer, index), pointee_bytes(pointer.type)
    if form.base is None or form.offset.residual:
        return False
    steps = [
        stride.constant << field.pos if stride.constant is not None else None
        for coord, stride in form.offset.coords.items()
        for field in coord
        if field.src not in (axis, CONST) and not field.lo
    ]
    return not steps or size in steps


def _rewrite(op: ReduceOp, count: int) -> None:
    body, result, b = _combined(op), op.results[0], Builder(op)
    assert body is not None
    value, axis = op.operands[0], property_int(op, "axis")
    shape, element = shape_of(value.type), element_type(value.type)
    order = [dim for dim in range(len(shape)) if dim != axis] + [axis]
    if order[axis] != axis:
        value = b.make(TransOp, tile_type(tuple(shape[dim] for dim in order), element), value, order=order)
    first, *rest = _sliced(value, op)[:count]
    for part in rest:
        first = b.again(body, result.type, first, part)
    replace(op, [first])


def _sliced(value: SSAValue, anchor: Operation) -> list[SSAValue]:
    """The slices of a tile along its last dim, in their order."""
    *rest, extent = shape_of(value.type)
    if extent == 1:
        kind = tile_type(tuple(rest), element_type(value.type))
        return [Builder(anchor).make(ReshapeOp, kind, value)]
    pairs = tile_type((*rest, extent // 2, 2), element_type(value.type))
    half = tile_type((*rest, extent // 2), element_type(value.type))
    split = SplitOp.build_op([Builder(anchor).make(ReshapeOp, pairs, value)], [half, half])
    insert_before(split, anchor)
    even, odd = (_sliced(part, anchor) for part in split.results)
    return [part for pair in zip(even, odd, strict=True) for part in pair]
