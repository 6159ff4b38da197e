"""If-conversion: tiles that both sides of a branch make alike are made without the branch.

    %x = scf.if (%i + 64 <= %K) {               %x = tt.load A, (%k < %K - %i)
      yield tt.load A
    } else {                             ->
      yield tt.load A, (%k < %K - %i)
    }

A mask for the last iteration, and none for the others, saves a GPU some comparisons. Here a branch computes its tiles
to scratch, so that no planner sees where they lie. A bound of the one side that the condition for the other implies
does no harm there; loads that then have the same base, offset, strides and bounds (`placed_loads.py`) are one, and so
is what is made of them in the same way: casts, transposes, products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly, expanded
from tilewright.analysis.matrices import MemoryOperand
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import operands_first
from tilewright.ir.decisions import Decisions, describe_op
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, is_made_inside, is_tile, result_number
from tilewright.ir.walk import among, every
from tilewright.ops.control import FuncOp, IfOp
from tilewright.ops.elementwise import CmpIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.masks import INVERSE
from tilewright.passes.placed_loads import load_at, placed
from tilewright.passes.subjects import IF_CONVERTED
from tilewright.passes.trip_count import conjuncts

_Pair = tuple[SSAValue, SSAValue]


@dataclass(slots=True)
class _Alike:
    """What both sides of a branch make.

    Args:
        operation: that makes it on the first side.
        load: if both sides load it in other words, the load whose mask has the bounds of both sides.
        reason: why the sides differ, if they do.
    """

    operation: Operation | None = None
    load: MemoryOperand | None = None
    reason: No | None = None


@dataclass(slots=True)
class _Branch:
    """A branch, what its condition says on either side (sums that are not negative), and what was compared so far."""

    op: IfOp
    facts: tuple[list[Poly], list[Poly]]
    known: dict[_Pair, _Alike] = field(default_factory=dict)


def convert_branches(
    function: FuncOp, decisions: Decisions, wanted: Callable[[IfOp], bool] = lambda branch: True
) -> bool:
    """Rewrite all such branches of a function that are `wanted`, inner ones first; says whether anything changed."""
    changed = False
    for op in reversed(every(function, IfOp)):
        if (
            wanted(op)
            and _chooses_loads(op)
            and (found := decisions.note(IF_CONVERTED, op, _recognise(op))) is not None
        ):
            _rewrite(found)
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _chooses_loads(op: IfOp) -> bool:
    """Whether a branch does nothing but to give values, tiles that it has loaded on both sides among them."""
    sides = [list(region.block.ops) for region in op.regions if region.blocks]
    pure = all(is_removable(inner) for side in sides for inner in side[:-1])
    loads = all(any(is_tile(inner.results[0]) for inner in among(side, LoadOp)) for side in sides)
    return len(sides) == 2 and pure and loads and any(is_tile(result) for result in op.results)


def _recognise(op: IfOp) -> Answer[_Branch]:
    """Whether the sides of a branch make the same values."""
    branch = _Branch(op, (facts_of(op.cond, negated=False), facts_of(op.cond, negated=True)))
    for pair in _results(op):
        for each in operands_first(pair, lambda pair: _parts(op, pair), branch.known):
            branch.known[each] = _compared(branch, each)
        reason = branch.known[pair].reason
        if reason is not None:
            return reason
    return Yes(branch, "made without the branch")


def _results(op: IfOp) -> list[_Pair]:
    ends = [region.block.last_op for region in op.regions]
    return list(zip(*(end.operands for end in ends if end is not None), strict=True))


def _parts(op: IfOp, pair: _Pair) -> list[_Pair]:
    """What two values are made of, if they are made by operations of one kind in the branch."""
    first, second = (defining_op(value) for value in pair)
    if first is None or second is None or not all(is_made_inside(value, op) for value in pair):
        return []
    same = type(first) is type(second) and len(first.operands) == len(second.operands)
    return list(zip(first.operands, second.operands, strict=True)) if same else []


def _compared(branch: _Branch, pair: _Pair) -> _Alike:
    first, second = (defining_op(value) for value in pair)
    if pair[0] is pair[1]:
        return _Alike()
    if first is None or second is None or type(first) is not type(second):
        return _Alike(reason=No("its sides make different values", first or second))
    parts = _parts(branch.op, pair)
    kind = (first.properties == second.properties, first.result_types == second.result_types, not first.regions)
    inside = all(is_made_inside(value, branch.op) for value in pair)
    if not inside or not all(kind) or len(parts) != len(first.operands):
        return _as_loads(branch, first, second)
    reason = next((reason for part in parts if (reason := branch.known[part].reason) is not None), None)
    return _as_loads(branch, first, second) if reason is not None else _Alike(first)


def _as_loads(branch: _Branch, first: Operation, second: Operation) -> _Alike:
    """Two operations whose operands differ, as loads from the same places."""
    if not isinstance(first, LoadOp) or not isinstance(second, LoadOp) or not is_tile(first.results[0]):
        return _Alike(reason=No(f"its sides differ in {describe_op(first)}", first))
    here, there = placed(first), placed(second)
    if isinstance(here, No) or isinstance(there, No):
        return _Alike(reason=here if isinstance(here, No) else there)  # type: ignore[arg-type]
    own, other = here.plan, there.plan
    places = zip((own.offset, *own.strides), (other.offset, *other.strides), strict=True)
    if own.base is not other.base or any(expanded(a) != expanded(b) for a, b in places):
        return _Alike(reason=No("its sides load from different places", second))
    merged: list[list[Poly]] = []
    for dim, extent in enumerate(shape_of(first.results[0].type)):
        bounds = [[expanded(bound) for bound in load.bounds[dim]] for load in (own, other)]
        for number in (0, 1):
            left_out = (bound for bound in bounds[1 - number] if bound not in bounds[number])
            if not all(holds(bound + Poly.of(-extent), branch.facts[number]) for bound in left_out):
                return _Alike(
                    reason=No("a mask of one side leaves out what the other side loads", (first, second)[number])
                )
        merged.append(list(dict.fromkeys(bounds[0] + bounds[1])))
    polys = [expanded(own.offset), *map(expanded, own.strides), *(bound for of_dim in merged for bound in of_dim)]
    if any(
        is_made_inside(value, branch.op) for value in (own.base, *(atom for poly in polys for atom in poly.atoms()))
    ):
        return _Alike(reason=No("its addresses are made of what a side computes", first))
    made = MemoryOperand(own.base, polys[0], own.strides, merged, [], first, own.elem)
    return _Alike(first, made)


# Of comparisons that hold: which side is taken from which, and what the difference is at least.
_LEAST = {"slt": (1, 0, 1), "sle": (1, 0, 0), "sgt": (0, 1, 1), "sge": (0, 1, 0)}


def facts_of(condition: SSAValue, *, negated: bool) -> list[Poly]:
    """Sums of scalars that are not negative where a condition holds, or does not."""
    found = []
    for value, wrong in conjuncts(condition, negated=negated):
        compare = defining_op(value)
        if not isinstance(compare, CmpIOp) or is_tile(compare.operands[0]):
            continue
        predicate = compare.attr_values()["predicate"]
        predicate = INVERSE[predicate] if wrong else predicate
        if predicate in _LEAST:
            more, less, by = _LEAST[predicate]
            sides = [expanded(Poly.atom(side)) for side in compare.operands]
            found.append(sides[more] + -sides[less] + Poly.of(-by))
    return found


def holds(poly: Poly, facts: list[Poly]) -> bool:
    """Whether a sum is never negative, by itself or because one of some others is not."""
    return poly.never_negative or any((poly + -fact).never_negative for fact in facts)


def _rewrite(branch: _Branch) -> None:
    """Make what both sides make in front of the branch."""
    values: dict[_Pair, SSAValue] = {}
    op = branch.op

    def parts(pair: _Pair) -> list[_Pair]:
        alike = branch.known[pair]
        return _parts(op, pair) if alike.operation is not None and alike.load is None else []

    for result, wanted in zip(op.results, _results(op), strict=True):
        for pair in operands_first(wanted, parts, values):
            alike = branch.known[pair]
            if alike.load is not None:
                values[pair] = load_at(alike.load, alike.load.offset, alike.load.bounds, op)
            elif alike.operation is not None:
                mapped = {own: values[part] for own, part in zip(alike.operation.operands, parts(pair), strict=True)}
                made = Builder(op).copy(alike.operation, mapped)
                values[pair] = made.results[result_number(pair[0])]
            else:
                values[pair] = pair[0]
        result.replace_all_uses_with(values[wanted])
