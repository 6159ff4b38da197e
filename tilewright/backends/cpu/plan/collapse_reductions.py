"""Collapsed reductions: a reduction of a reduction is one reduction over both dims.

    %a = tt.reduce (axis = 2, addf) %v[16, 8, 128]         %w = tt.reshape %v -> [16, 1024]
    %b = tt.reduce (axis = 1, addf) %a[16, 8]        ->    %b = tt.reduce (axis = 1, addf) %w

Each reduction by itself ends in folding the lanes of every row, and passes its results through scratch. That pays where
the elements of both dims lie side by side, so that one loop goes over them as over those of one dim. Elements are
combined in another order, as reductions do anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form
from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.elements import is_ragged, operand_indices
from tilewright.analysis.index import Coord, Index, identity, keeps_bits, reshape, whole
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import cost_of, is_lazy
from tilewright.backends.cpu.plan.subjects import COLLAPSED
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.attrs import I32
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import element_type, is_pointer, shape_of, tile_type
from tilewright.ir.values import defining_op, is_tile, property_int
from tilewright.ir.walk import walk
from tilewright.ops.broadcast import ExpandDimsOp, SplatOp
from tilewright.ops.control import FuncOp
from tilewright.ops.elementwise import CmpIOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import ReshapeOp, TransOp
from tilewright.ops.spec import spec_of
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.rewriting import replace, value_before


@dataclass(slots=True)
class _Both:
    """Two reductions, one after the other.

    Args:
        outer, inner: the second, and the first.
        source: what the first one reduces.
        dims: of the source that are reduced.
    """

    outer: ReduceOp
    inner: ReduceOp
    source: SSAValue
    dims: tuple[int, int]


def collapse_reductions(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such reductions of a function; says whether anything changed."""
    changed, facts = False, ElementFacts(function)
    for op in [op for op in walk(function) if isinstance(op, ReduceOp)]:
        found = _recognise(op)
        if found is not None and (dims := decisions.note(COLLAPSED, op, _side_by_side(found, facts))) is not None:
            replace(op, [_in_shape(reduced_over(op, found.source, dims, op), op.results[0])])
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _recognise(op: ReduceOp) -> _Both | None:
    """The reduction whose result alone another one reduces in the same way."""
    kind = single_operation(op.regions[0].block)
    if kind is None or spec_of(kind).monoid is None:
        return None
    value, expanded = op.operands[0], list[int]()
    while isinstance(view := defining_op(value), ExpandDimsOp) and value.has_one_use():
        axis = property_int(view, "axis")
        expanded.append(axis if axis >= 0 else len(shape_of(value.type)) + axis)
        value = view.operands[0]
    inner = defining_op(value)
    if not isinstance(inner, ReduceOp) or inner.parent is not op.parent or not value.has_one_use():
        return None
    same = single_operation(inner.regions[0].block)
    if same is None or type(same) is not type(kind) or same.properties != kind.properties:
        return None
    source, first = inner.operands[0], property_int(inner, "axis")
    dims: list[int] = [dim for dim in range(len(shape_of(source.type))) if dim != first]
    for axis in reversed(expanded):
        dims.insert(axis, -1)
    second = dims[property_int(op, "axis")]
    return _Both(op, inner, source, (first, second)) if second >= 0 else None


def _side_by_side(found: _Both, facts: ElementFacts) -> Answer[tuple[int, int]]:
    """The dims in the order in which one loop can go over both, if it can and should."""
    shape = shape_of(found.source.type)
    low, high = sorted(found.dims)
    for dims in ((low, high), (high, low)):
        if not goes_as_one(shape, dims):
            continue
        extent = shape[low] * shape[high]
        answer = _evenly(found, _source_index(shape, dims), low, extent, facts)
        if isinstance(answer, Yes):
            return Yes(dims, f"dims {dims[0]} and {dims[1]} are one loop")
    return No("the elements of both dims do not lie side by side")


def goes_as_one(shape: Sequence[int], dims: tuple[int, int]) -> bool:
    """Whether coordinates along two dims are bits of one along both, the first of `dims` changing least often."""
    order, merged = _merged(shape, dims)
    return keeps_bits(tuple(shape[dim] for dim in order), merged)


def _merged(shape: Sequence[int], dims: tuple[int, int]) -> tuple[list[int], tuple[int, ...]]:
    """The order of dims that puts two beside each other, at the place of the first; and the shape with them as one."""
    at, rest = min(dims), [dim for dim in range(len(shape)) if dim not in dims]
    order = [*rest[:at], *dims, *rest[at:]]
    sizes = [shape[dim] for dim in rest]
    return order, (*sizes[:at], shape[dims[0]] * shape[dims[1]], *sizes[at:])


def _source_index(shape: Sequence[int], dims: tuple[int, int]) -> Index:
    """Where in a tile an element is of the one whose two dims are one."""
    order, merged = _merged(shape, dims)
    turned = reshape(identity(merged), tuple(shape[dim] for dim in order), merged)
    return tuple(turned[order.index(dim)] for dim in range(len(shape)))


def _evenly(found: _Both, index: Index, axis: int, extent: int, facts: ElementFacts) -> Answer[None]:
    """Whether all that is read for both dims changes along them as along one."""
    analysis, along = AffineAnalysis(lambda value: False, facts), whole(axis, extent)
    computed = dict.fromkeys(cone(found.source, index))
    values = {value for value, _ in computed}
    for value, at in computed:
        op = defining_op(value)
        if op is None or not is_lazy(op) or is_ragged(op) or isinstance(op, GatherOp):
            if not _is_even(at, axis, along):
                return No("a tile is read in parts")
        elif isinstance(op, LoadOp):
            form = analysis.pointer(*operand_indices(value, at)[0])
            if form.base is None or not _is_even_form(form.offset, axis, along):
                return No("addresses do not go on from one part to the next", op)
        elif isinstance(op, CmpIOp):
            if not all(_is_even_form(analysis.integer(*part), axis, along) for part in operand_indices(value, at)):
                return No("what is compared does not go on from one part to the next", op)
        elif cost_of(op) > tuning.SHARED_COST and not _stays_in(value, values, found):
            return No("what it costs much to compute is wanted in its own shape, too", op)
    return Yes(None)


def cone(value: SSAValue, index: Index) -> Iterator[tuple[SSAValue, Index]]:
    """All tiles that are computed for a value at an index, but addresses."""
    seen: set[tuple[SSAValue, Index]] = set()
    stack = [(value, index)]
    while stack:
        key = stack.pop()
        if key in seen or not is_tile(key[0]) or is_pointer(element_type(key[0].type)):
            continue
        seen.add(key)
        yield key
        op = defining_op(key[0])
        if op is not None and is_lazy(op) and not is_ragged(op):
            stack += operand_indices(*key)


def _is_even(index: Index, axis: int, along: Coord) -> bool:
    """Whether a dim is in an index as a whole, if it is."""
    return all(coord == along for coord in index if any(field.src == axis for field in coord))


def _is_even_form(form: Form, axis: int, along: Coord) -> bool:
    parts = [tuple(form.coords), *(at for _, at, _ in form.residual)]
    return all(_is_even(part, axis, along) for part in parts)


def _stays_in(value: SSAValue, values: set[SSAValue], found: _Both) -> bool:
    """Whether nothing but the reduction needs a value."""
    users = [use.operation for use in value.uses]
    return all(user is found.inner or any(result in values for result in user.results) for user in users)


# --- writing --------------------------------------------------------------------------------------------------


def reduced_over(like: ReduceOp, source: SSAValue, dims: tuple[int, int], anchor: Operation) -> SSAValue:
    """A tile reduced over two dims as `like` reduces, in front of `anchor`; the first of `dims` changes least often."""
    shape, element = shape_of(source.type), element_type(source.type)
    order, merged = _merged(shape, dims)
    if order != sorted(order):
        turned = tile_type(tuple(shape[dim] for dim in order), element)
        numbers = {"order": DenseArrayBase.from_list(i32, order)}
        source = value_before(TransOp.create(operands=[source], result_types=[turned], properties=numbers), anchor)
    source = value_before(ReshapeOp.create(operands=[source], result_types=[tile_type(merged, element)]), anchor)
    axis = min(dims)
    rest = (*merged[:axis], *merged[axis + 1 :])
    made = ReduceOp.create(
        operands=[source],
        result_types=[tile_type(rest, element)],
        properties={"axis": I32.encode(axis)},  # type: ignore[dict-item]
        regions=[like.regions[0].clone()],
    )
    return value_before(made, anchor)


def _in_shape(value: SSAValue, result: SSAValue) -> SSAValue:
    """A value in the shape of a result that has dims of one element more, in front of the operation that makes it."""
    if value.type == result.type:
        return value
    op = defining_op(result)
    assert op is not None
    assert prod(shape_of(value.type)) == prod(shape_of(result.type))
    kind = ReshapeOp if is_tile(value) else SplatOp
    return value_before(kind.create(operands=[value], result_types=[result.type]), op)
