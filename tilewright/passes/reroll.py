"""Rerolling: dots one after the other, and loops of dots in a loop, are one loop of dots.

    %1 = tt.dot A(0), B(0), %0           for t = 0 .. n: iter_args(%s = %0)
    %2 = tt.dot A(1), B(1), %1    ->       yield tt.dot A(t), B(t), %s

    for o = .. { for i = .. { yield tt.dot A(o, i), B(o, i), %s } }    ->    for t = .. { yield tt.dot A(t), B(t), %s }

The addresses of all these operands are polynomials (`placed_loads.py`). They must grow from product to product by the
same, over the end of the inner loop too. Planners of products look at one loop, whose iterations they join
(`k_strip_mining.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.analysis.affine import Poly, expanded
from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit, way_of
from tilewright.analysis.matrices import MemoryOperand, strip_views
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import i64, shape_of
from tilewright.ir.values import defining_op, is_made_inside, is_tile, operands_of
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddIOp, DivSIOp, MaxSIOp, MinSIOp, MulIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.placed_loads import first_write, load_at, placed
from tilewright.passes.rewriting import insert_before, transposed
from tilewright.passes.subjects import REROLLED
from tilewright.passes.trip_count import Preheader


@dataclass(slots=True)
class _Operand:
    """An operand of the first of several products, and what its polynomials gain from one to the next.

    Args:
        load: whose form it has.
        is_transposed: whether the load is transposed.
        firsts, gains: offset, and the bounds of both dims.
    """

    load: MemoryOperand
    is_transposed: bool
    firsts: list[Poly]
    gains: list[Poly]


@dataclass(slots=True)
class _Rerolled:
    """Products as a loop.

    Args:
        operands: A and B.
        first: what they add to.
        count: of the products, in an iteration of the outer loop if there is one.
    """

    operands: list[_Operand]
    first: SSAValue
    count: int


def reroll_dots(
    function: FuncOp, decisions: Decisions, wanted: Callable[[Sequence[DotOp]], bool] = lambda chain: True
) -> bool:
    """Rewrite all such products of a function; says whether anything changed.

    Args:
        function: tile IR whose loops carry no tiles of pointers.
        decisions: what is found is kept there.
        wanted: says of products one after the other whether they shall be a loop.
    """
    changed = False
    for dot in [op for op in walk(function) if isinstance(op, DotOp)]:
        chain = _chain(dot)
        if len(chain) > 1 and wanted(chain):
            rolled = decisions.note(REROLLED, dot, _as_loop(chain))
            if rolled is not None:
                _rewrite(dot, dot, rolled, Preheader(dot, i64).known(rolled.count), dot.d)
                changed = True
    if changed:
        eliminate_dead_code(function)
    for loop in reversed([op for op in walk(function) if isinstance(op, ForOp)]):
        nest = _nest(loop)
        if nest is not None:
            rolled = decisions.note(REROLLED, nest[1], _as_one_loop(loop, *nest))
            if rolled is not None:
                _rewrite(loop, nest[1], rolled, _iterations(loop, rolled.count), loop.results[0])
                eliminate_dead_code(function)
                changed = True
    return changed


def _polys(operand: MemoryOperand) -> list[Poly]:
    return [operand.offset, *(bound for bounds in operand.bounds for bound in bounds)]


def _loads(dot: DotOp) -> Answer[list[tuple[MemoryOperand, bool]]]:
    """Both operands as loads, and whether they are transposed."""
    found = []
    for value in (dot.a, dot.b):
        source, is_transposed = strip_views(value)
        load = defining_op(source)
        if not isinstance(load, LoadOp) or load.parent is not dot.parent:
            return No("an operand is not loaded beside the dot", load)
        answer = placed(load)
        if isinstance(answer, No):
            return answer
        found.append((answer.plan, is_transposed))
    return Yes(found)


# --- products one after the other -------------------------------------------------------------------------------


def _chain(last: DotOp) -> list[DotOp]:
    """Products that each add to the one before, and nobody else reads those between; none unless `last` ends them."""
    users = [use.operation for use in last.d.uses]
    if len(shape_of(last.d.type)) != 2 or (len(users) == 1 and isinstance(users[0], DotOp) and users[0].c is last.d):
        return []
    chain = [last]
    while isinstance(before := chain[0].c.owner, DotOp) and before.parent is last.parent and before.d.has_one_use():
        if before.properties != last.properties or before.a.type != last.a.type or before.b.type != last.b.type:
            break
        chain.insert(0, before)
    return chain


def _as_loop(chain: list[DotOp]) -> Answer[_Rerolled]:
    """A chain as a loop."""
    sides: list[list[tuple[MemoryOperand, bool]]] = []
    for dot in chain:
        answer = _loads(dot)
        if isinstance(answer, No):
            return answer
        sides.append(answer.plan)
    early = min((load.load for side in sides for load, _ in side), key=lambda op: op.parent.get_operation_index(op))  # type: ignore[union-attr]
    written = first_write(early, chain[-1])
    if written is not None:
        return No("memory may change between the dots", written)
    operands = []
    for number in (0, 1):
        forms = [side[number] for side in sides]
        (first, is_transposed), polys = forms[0], [[expanded(p) for p in _polys(form)] for form, _ in forms]
        alike = all(
            form.base is first.base
            and form.strides == first.strides
            and flipped == is_transposed
            and len(p) == len(polys[0])
            for (form, flipped), p in zip(forms, polys, strict=True)
        )
        gains = [after + -before for before, after in zip(polys[0], polys[1], strict=False)]
        if not alike or any([y + -x for x, y in zip(*pair, strict=True)] != gains for pair in pairwise(polys)):
            return No("the operands of the dots do not lie evenly", chain[-1])
        operands.append(_Operand(first, is_transposed, polys[0], gains))
    return Yes(_Rerolled(operands, chain[0].c, len(chain)), f"{len(chain)} dots as a loop")


# --- loops in loops ---------------------------------------------------------------------------------------------


def _nest(outer: ForOp) -> tuple[ForOp, DotOp] | None:
    """The loop of products that is all that a loop does, and its product; both only sum."""
    loops = [op for op in outer.body.block.ops if op.regions]
    if len(loops) != 1 or not isinstance(inner := loops[0], ForOp):
        return None
    dots = [op for op in inner.body.block.ops if isinstance(op, DotOp)]
    if len(outer.results) != 1 or len(inner.results) != 1 or len(dots) != 1:
        return None
    (dot,), ends = dots, [loop.body.block.last_op for loop in (outer, inner)]
    assert ends[0] is not None and ends[1] is not None
    sums = inner.iter_args[0] is outer.carried[0] and ends[0].operands[0] is inner.results[0]
    sums &= dot.c is inner.carried[0] and ends[1].operands[0] is dot.d
    once = all(value.has_one_use() for value in (outer.carried[0], inner.carried[0], inner.results[0], dot.d))
    other = [op for loop in (outer, inner) for op in loop.body.block.ops if op not in (inner, dot, *ends)]
    return (inner, dot) if sums and once and is_tile(dot.d) and all(is_removable(op) for op in other) else None


def _as_one_loop(outer: ForOp, inner: ForOp, dot: DotOp) -> Answer[_Rerolled]:
    """A nest as a loop."""
    count = _inner_iterations(outer, inner)
    if count is None:
        return No("the inner loop does not run equally often", inner)
    answer = _loads(dot)
    if isinstance(answer, No):
        return answer
    within, around = ScalarEvolution(inner), ScalarEvolution(outer)
    operands = []
    for load, is_transposed in answer.plan:
        firsts, gains = [], []
        for poly in _polys(load):
            gain = within.gain(poly)
            start = within.expanded(poly)
            first = None if start is None else within.at_first(start)
            more = None if first is None else around.gain(first)
            if gain is None or first is None or more is None or more != gain * Poly.of(count):
                return No("the operands do not lie evenly over the end of the inner loop", load.load)
            whole = around.expanded(first)
            assert whole is not None
            firsts.append(around.at_first(whole))
            gains.append(gain)
        if is_made_inside(load.base, outer):
            return No("it begins elsewhere in each iteration", load.load)
        if any(within.gain(s) != Poly({}) or around.gain(s) != Poly({}) for s in load.strides):
            return No("a stride changes from iteration to iteration", load.load)
        operands.append(_Operand(load, is_transposed, firsts, gains))
    return Yes(_Rerolled(operands, outer.iter_args[0], count), "both loops as one")


def _inner_iterations(outer: ForOp, inner: ForOp) -> int | None:
    """How often an inner loop runs in every iteration of the outer one but the last, which may end early with that."""
    if not (is_unit(outer) and is_unit(inner)):
        return None
    known = constant_of(inner.ub)
    if isinstance(known, int):
        return known if known > 0 else None
    way, around = way_of(inner), way_of(outer)
    left, size, by = around.left(outer), around.step.constant, way.step.constant
    for end in [atom for atom in way.distance.atoms() if isinstance(defining_op(atom), MinSIOp)]:
        rest = way.distance + -Poly.atom(end)
        first, second = (expanded(Poly.atom(side)) + rest for side in operands_of(end.owner))  # type: ignore[arg-type]
        if size and by and size % by == 0 and {first, second} == {left, Poly.of(size)}:
            return size // by
    return None


def _iterations(outer: ForOp, inner: int) -> SSAValue:
    """Products of a nest."""
    preheader = Preheader(outer, i64)
    nested = next(op for op in outer.body.block.ops if isinstance(op, ForOp))
    if constant_of(nested.ub) is not None:
        return preheader.apply(MulIOp, preheader.apply(MaxSIOp, preheader.converted(outer.ub), 0), inner)
    by = int(way_of(nested).step.constant or 1)  # the last iteration may have fewer
    room = preheader.apply(MaxSIOp, preheader.sum(way_of(outer).distance), 0)
    return preheader.apply(DivSIOp, preheader.apply(AddIOp, room, by - 1), by)


# --- rewriting --------------------------------------------------------------------------------------------------


def _rewrite(place: Operation, dot: DotOp, rolled: _Rerolled, count: SSAValue, result: SSAValue) -> None:
    """Put the loop in front of `place`; its sum stands for `result`."""
    preheader = Preheader(place, i64)
    kind = rolled.first.type
    body = Block(arg_types=[i64, kind])
    end = YieldOp.create(operands=[body.args[1]])
    body.add_op(end)
    loop = ForOp.create(
        operands=[preheader.known(0), count, preheader.known(1), rolled.first],
        result_types=[kind],
        regions=[Region(body)],
    )
    insert_before(loop, place)
    operands = []
    for operand in rolled.operands:
        here = [p + gain * Poly.atom(body.args[0]) for p, gain in zip(operand.firsts, operand.gains, strict=True)]
        rows = 1 + len(operand.load.bounds[0])
        loaded = load_at(operand.load, here[0], [here[1:rows], here[rows:]], end)
        operands.append(transposed(loaded, end) if operand.is_transposed else loaded)
    made = DotOp.create(operands=[*operands, body.args[1]], result_types=[kind], properties=dot.properties)
    insert_before(made, end)
    made.location = dot.location
    end.operands = [made.d]
    result.replace_all_uses_with(loop.results[0])
