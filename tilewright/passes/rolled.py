"""Products one after the other, and loops of products in a loop, are one loop of products.

    %1 = tt.dot A(0), B(0), %0           for t = 0 .. n: iter_args(%s = %0)
    %2 = tt.dot A(1), B(1), %1    ->       yield tt.dot A(t), B(t), %s

    for o = .. { for i = .. { yield tt.dot A(o, i), B(o, i), %s } }    ->    for t = .. { yield tt.dot A(t), B(t), %s }

The addresses of all these operands are polynomials (`placed_loads.py`). They must grow from product to product by the
same, over the end of the inner loop too. Planners of products look at one loop, whose trips they join (`coalesce.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.analysis.affine import Poly, expanded
from tilewright.analysis.constants import constant_of
from tilewright.analysis.matrices import MemoryOperand, strip_views
from tilewright.analysis.trips import Trip
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import i64, shape_of
from tilewright.ir.values import is_made_inside, is_tile, owner_of
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, FuncOp, YieldOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddIOp, DivSIOp, MaxSIOp, MinSIOp, MulIOp, SubIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.counting import Ahead
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.placed_loads import first_write, load_at, placed
from tilewright.passes.rewriting import insert_before, transposed
from tilewright.passes.subjects import ROLLED


@dataclass(slots=True)
class _Operand:
    """An operand of the first of several products, and what its polynomials gain from one to the next.

    Args:
        load: whose form it has.
        turned: whether the load is transposed.
        firsts, gains: offset, and the bounds of both dims.
    """

    load: MemoryOperand
    turned: bool
    firsts: list[Poly]
    gains: list[Poly]


@dataclass(slots=True)
class _Rolled:
    """Products as a loop.

    Args:
        operands: A and B.
        first: what they add to.
        count: of the products, in a trip of the outer loop if there is one.
    """

    operands: list[_Operand]
    first: SSAValue
    count: int


def roll_products(
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
            rolled = decisions.note(ROLLED, dot, _as_loop(chain))
            if rolled is not None:
                _rewrite(dot, dot, rolled, Ahead(dot, i64).known(rolled.count), dot.d)
                changed = True
    if changed:
        eliminate_dead_code(function)
    for loop in reversed([op for op in walk(function) if isinstance(op, ForOp)]):
        nest = _nest(loop)
        if nest is not None:
            rolled = decisions.note(ROLLED, nest[1], _as_one_loop(loop, *nest))
            if rolled is not None:
                _rewrite(loop, nest[1], rolled, _trips(loop, rolled.count), loop.results[0])
                eliminate_dead_code(function)
                changed = True
    return changed


def _polys(operand: MemoryOperand) -> list[Poly]:
    return [operand.offset, *(bound for bounds in operand.bounds for bound in bounds)]


def _loads(dot: DotOp) -> Answer[list[tuple[MemoryOperand, bool]]]:
    """Both operands as loads, and whether they are transposed."""
    found = []
    for value in (dot.a, dot.b):
        source, turned = strip_views(value)
        load = owner_of(source)
        if not isinstance(load, LoadOp) or load.parent is not dot.parent:
            return No("an operand is not loaded beside the product", load)
        answer = placed(load)
        if isinstance(answer, No):
            return answer
        found.append((answer.plan, turned))
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


def _as_loop(chain: list[DotOp]) -> Answer[_Rolled]:
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
        return No("memory may change between the products", written)
    operands = []
    for number in (0, 1):
        forms = [side[number] for side in sides]
        (first, turned), polys = forms[0], [[expanded(p) for p in _polys(form)] for form, _ in forms]
        alike = all(
            form.base is first.base and form.strides == first.strides and flipped == turned and len(p) == len(polys[0])
            for (form, flipped), p in zip(forms, polys, strict=True)
        )
        gains = [after + -before for before, after in zip(polys[0], polys[1], strict=False)]
        if not alike or any([y + -x for x, y in zip(*pair, strict=True)] != gains for pair in pairwise(polys)):
            return No("the operands of the products do not lie evenly", chain[-1])
        operands.append(_Operand(first, turned, polys[0], gains))
    return Yes(_Rolled(operands, chain[0].c, len(chain)), f"{len(chain)} products as a loop")


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


def _as_one_loop(outer: ForOp, inner: ForOp, dot: DotOp) -> Answer[_Rolled]:
    """A nest as a loop."""
    count = _inner_trips(outer, inner)
    if count is None:
        return No("the inner loop does not run equally often", inner)
    answer = _loads(dot)
    if isinstance(answer, No):
        return answer
    within, around = Trip(inner), Trip(outer)
    operands = []
    for load, turned in answer.plan:
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
            return No("it begins elsewhere in each trip", load.load)
        if any(within.gain(s) != Poly({}) or around.gain(s) != Poly({}) for s in load.strides):
            return No("a stride changes from trip to trip", load.load)
        operands.append(_Operand(load, turned, firsts, gains))
    return Yes(_Rolled(operands, outer.iter_args[0], count), "both loops as one")


def _inner_trips(outer: ForOp, inner: ForOp) -> int | None:
    """How often an inner loop runs in every trip of the outer one but the last, which may end early with that."""
    if outer.unsignedCmp is not None or inner.unsignedCmp is not None:
        return None
    bounds = [constant_of(value) for value in (inner.lb, inner.ub, inner.step)]
    if all(isinstance(bound, int) for bound in bounds) and bounds[2]:
        return len(range(*bounds)) or None  # type: ignore[arg-type]
    by, step, end = constant_of(inner.step), constant_of(outer.step), owner_of(inner.ub)
    if inner.lb is not outer.induction_var or not isinstance(by, int) or not isinstance(step, int):
        return None
    if by < 1 or step % by or not isinstance(end, MinSIOp) or outer.ub not in end.operands:
        return None
    (other,) = [value for value in end.operands if value is not outer.ub] or [outer.ub]
    behind = Poly.atom(outer.induction_var) + Poly.of(step)
    return step // by if expanded(Poly.atom(other)) == behind else None


def _trips(outer: ForOp, inner: int) -> SSAValue:
    """Products of a nest."""
    ahead = Ahead(outer, i64)
    lb, ub, step = (ahead.converted(value) for value in (outer.lb, outer.ub, outer.step))
    nested = next(op for op in outer.body.block.ops if isinstance(op, ForOp))
    room = ahead.apply(MaxSIOp, ahead.apply(SubIOp, ub, lb), 0)
    if nested.lb is outer.induction_var:  # the last trip may have fewer
        by, times = ahead.known(int(constant_of(nested.step) or 1)), 1
    else:
        by, times = step, inner
    trips = ahead.apply(DivSIOp, ahead.apply(AddIOp, room, ahead.apply(SubIOp, by, 1)), by)
    return ahead.apply(MulIOp, trips, times) if times > 1 else trips


# --- rewriting --------------------------------------------------------------------------------------------------


def _rewrite(place: Operation, dot: DotOp, rolled: _Rolled, count: SSAValue, result: SSAValue) -> None:
    """Put the loop in front of `place`; its sum stands for `result`."""
    ahead = Ahead(place, i64)
    kind = rolled.first.type
    body = Block(arg_types=[i64, kind])
    end = YieldOp.create(operands=[body.args[1]])
    body.add_op(end)
    loop = ForOp.create(
        operands=[ahead.known(0), count, ahead.known(1), rolled.first], result_types=[kind], regions=[Region(body)]
    )
    insert_before(loop, place)
    operands = []
    for operand in rolled.operands:
        here = [p + gain * Poly.atom(body.args[0]) for p, gain in zip(operand.firsts, operand.gains, strict=True)]
        rows = 1 + len(operand.load.bounds[0])
        loaded = load_at(operand.load, here[0], [here[1:rows], here[rows:]], end)
        operands.append(transposed(loaded, end) if operand.turned else loaded)
    made = DotOp.create(operands=[*operands, body.args[1]], result_types=[kind], properties=dot.properties)
    insert_before(made, end)
    made.location = dot.location
    end.operands = [made.d]
    result.replace_all_uses_with(loop.results[0])
