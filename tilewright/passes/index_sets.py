"""Index-set splitting: iterations that take one side of a branch, and those that take the other, are two loops.

    for %i = %lo to %n step %s {                      for %i = %lo to min(%n, %m) step %s {
      if (cmpi slt, %i, %m) { B }            ->         B
    }                                                 }

    for %i = %lo to %n step %s {                      for %i = %lo to min(%n, %m) step %s { B }
      if (cmpi ne, %i, %m) { B }             ->       for %i = (the first behind %m) to %n step %s { B }
    }

The condition is a conjunction of comparisons of the counter with what the loop does not change, or the contrary of one:
it holds between two numbers, or outside of them. Iterations stay in their order, so it may always be done ("index-set
splitting"; Wolfe, "High Performance Compilers for Parallel Computing", 1996, 9.3). It is, where iterations that take
one of the sides change nothing, and, if two loops are left of it, only for work on tiles, which planners look for in
the body of a loop. A `continue` under a condition is such a branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.ir.types import i64
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import among, every, operations, walk
from tilewright.ops.control import ForOp, IfOp
from tilewright.ops.elementwise import AddIOp, CmpIOp, DivSIOp, MaxSIOp, MinSIOp, MulIOp, SubIOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import replace, splice
from tilewright.passes.trip_count import COUNTS, Bound, CountedBlock, Preheader, conjuncts, end_of, least_end

_LARGEST = 200  # operations of a loop of which two are made


@dataclass(frozen=True, slots=True)
class _Between:
    """Where a condition holds: from the first number that `below` does not bound on, as far as `above` do.

    Args:
        below: bounds of the counter that do not hold; one at most.
        above: bounds that hold.
    """

    below: list[Bound] = field(default_factory=list)
    above: list[Bound] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Split:
    """A branch of a loop, taken by iterations between two numbers.

    Args:
        loop: the loop.
        branch: the branch.
        side: number of its region that is taken between the numbers.
        between: these numbers.
        idle: number of its region that changes nothing, if iterations take it.
    """

    loop: ForOp
    branch: IfOp
    side: int
    between: _Between
    idle: int


def split_index_sets(root: Operation) -> bool:
    """Rewrite every such `scf.for` below `root`, in place; says whether there was one."""
    changed, todo = False, every(root, ForOp)
    while todo:
        loop = todo.pop()
        split = _split(loop)
        if split is not None:
            todo += _narrow(split) if split.idle != split.side else _leave_out(split)
            changed = True
    return changed


# --- what is split ---------------------------------------------------------------------------------------------------


def _split(loop: ForOp) -> _Split | None:
    """The branch around the body of a loop, if it is taken between two numbers, and one side of it is idle."""
    if loop.lb.type not in COUNTS or loop.unsignedCmp is not None:
        return None
    branches = among(loop.body.block.ops, IfOp)
    if len(branches) != 1 or not _is_all(branches[0]):
        return None
    (branch,) = branches
    idle = next((side for side in (1, 0) if _is_idle(loop, branch, side)), None)
    if idle is None or not branch.regions[1 - idle].blocks:
        return None
    for side in (0, 1):
        between = _between(loop, branch.cond, negated=side == 1)
        if between is None or not (between.below or between.above):
            continue
        step = constant_of(loop.step)
        aligned = isinstance(step, int) and step > 0
        if (between.below or side == idle) and not aligned:
            continue
        if side != idle or _is_worth_two(loop, branch.regions[1 - idle].block):
            return _Split(loop, branch, side, between, idle)
    return None


def _is_worth_two(loop: ForOp, block: Block) -> bool:
    """Whether a loop is short, and works on tiles where a condition holds."""
    works = any(is_tile(value) for op in walk(block) for value in (*op.operands, *op.results))
    return works and sum(1 for _ in walk(loop)) <= _LARGEST


def _is_all(branch: IfOp) -> bool:
    """Whether nobody could tell whether what stands around a branch is done."""
    block = branch.parent_block()
    assert block is not None
    return all(op is branch or is_removable(op) for op in operations(block)[:-1])


def _is_idle(loop: ForOp, branch: IfOp, side: int) -> bool:
    """Whether an iteration that takes a side of the branch changes nothing."""
    region = branch.regions[side]
    ops = operations(region.block) if region.blocks else []
    if not all(map(is_removable, ops[:-1])):
        return False
    handed: dict[SSAValue, SSAValue] = dict(zip(branch.results, ops[-1].operands if ops else (), strict=True))
    return all(handed.get(v, v) is a for v, a in zip(loop.yielded, loop.carried, strict=True))


def _between(loop: ForOp, condition: SSAValue, *, negated: bool) -> _Between | None:
    """Where a condition holds; None if it says something else, too."""
    counter, found = loop.induction_var, _Between()
    counted = CountedBlock(loop.body.block, counter, {counter: Poly.atom(counter)})
    for value, wrong in conjuncts(condition, negated=negated):
        compare = defining_op(value)
        if not isinstance(compare, CmpIOp):
            return None
        below, above = _sides(counted, compare, negated=wrong)
        if below is None and above is None:
            return None
        found.below.extend([] if below is None else [below])
        found.above.extend([] if above is None else [above])
    return found if len(found.below) <= 1 else None


def _sides(counted: CountedBlock, compare: Operation, *, negated: bool) -> tuple[Bound | None, Bound | None]:
    """The bound that does not hold, and the one that does, where a comparison holds."""
    predicate = compare.attr_values()["predicate"]  # type: ignore[attr-defined]
    if predicate in ("eq", "ne"):
        if (predicate == "ne") is not negated:
            return None, None
        ends = [[counted.bound(compare, predicate=p, behind=False) for p in pair] for pair in _EQUAL]
        return next(((less, most) for less, most in ends if less is not None and most is not None), (None, None))
    above = counted.bound(compare, negated=negated, behind=False)
    return (None, above) if above is not None else (counted.bound(compare, negated=not negated, behind=False), None)


_EQUAL = (("slt", "sle"), ("sgt", "sge"))  # a sum in the counter before an end, or behind it, and there


# --- what is made of it ----------------------------------------------------------------------------------------------


def _narrow(split: _Split) -> list[ForOp]:
    """Let the loop go between the numbers only, and take the branch out."""
    loop, between = split.loop, split.between
    start = _start(loop, between.below, []) if between.below else loop.lb
    loop.operands[1] = end_of([_last(loop), *between.above], loop, loop.lb, loop.step)
    loop.operands[0] = start
    _take(split.branch, split.side)
    return [loop]


def _leave_out(split: _Split) -> list[ForOp]:
    """A loop before the numbers, and one behind them, instead of the loop."""
    loop, between, made = split.loop, split.between, list[ForOp]()
    values = tuple(loop.iter_args)
    ends = [(loop.lb, end_of([_last(loop), *between.below], loop, loop.lb, loop.step))] if between.below else []
    ends += [(_start(loop, between.below, between.above), loop.ub)] if between.above else []
    number = operations(loop.body.block).index(split.branch)
    for start, end in ends:
        copy = Builder(loop).copy(loop, {})
        for position, value in enumerate((start, end, loop.step, *values)):
            copy.operands[position] = value
        branch = operations(copy.body.block)[number]
        assert isinstance(branch, IfOp)
        _take(branch, 1 - split.side)
        values = tuple(copy.results)
        made.append(copy)
    replace(loop, values)
    return made


def _last(loop: ForOp) -> Bound:
    end = constant_of(loop.ub)
    return Bound(Poly.of(end) if isinstance(end, int) else Poly.atom(loop.ub))


def _start(loop: ForOp, below: list[Bound], above: list[Bound]) -> SSAValue:
    """The first number of the counter behind bounds, at most the end of the loop."""
    wide, step = Preheader(loop, i64, loop.lb.type), constant_of(loop.step)
    first, last = wide.converted(loop.lb), wide.converted(loop.ub)
    start = first
    if above:
        start = wide.apply(MaxSIOp, start, least_end(wide, above, first, 1))
    for bound in below:
        start = wide.apply(MaxSIOp, start, wide.end(bound, first, 1))
    if isinstance(step, int) and step > 1:
        way = wide.apply(AddIOp, wide.apply(SubIOp, start, first), step - 1)
        start = wide.apply(AddIOp, first, wide.apply(MulIOp, wide.apply(DivSIOp, way, step), step))
    start = wide.apply(MinSIOp, start, wide.apply(MaxSIOp, last, first))
    return Preheader(loop, loop.lb.type).converted(start)


def _take(branch: IfOp, side: int) -> None:
    """Do what a side of a branch does in its place."""
    block = branch.regions[side].block
    splice(block, branch)
    assert block.last_op is not None
    replace(branch, list(block.last_op.operands))
