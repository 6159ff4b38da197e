"""Prefetched loads sunk: tiles that a loop loads for its next iteration are loaded where they are used.

    %x = tt.load A(first)
    for ..: iter_args(%u = %x) {                   for .. {
      %v = tt.load A(next)                           %u = tt.load A(this iteration)
      %acc = tt.dot %u, ..                 ->        %acc = tt.dot %u, ..
      yield %v                                       yield
    }                                              }
    tt.dot %result, ..                             tt.dot (tt.load A(end)), ..

Loads ahead are meant for machines that wait for each load. A copy of a tile in scratch costs more here, and
hides from the product that its operands lie side by side in memory. What loads in one iteration what the next one uses
has, in all iterations, the addresses of the loads before them: those of the first load are those of the loop's, one
iteration back. A product after the loop that goes on where it ended is one iteration more. A condition under which the
loop loads for its next iteration, in a mask or in a branch, goes away if it holds wherever there is a next iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import ZERO, Poly, expanded
from tilewright.analysis.iterations import is_unit, left_in
from tilewright.analysis.matrices import MemoryOperand
from tilewright.analysis.scalar_evolution import ScalarEvolution
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import Decisions
from tilewright.ir.values import defining_op, is_made_inside, is_tile
from tilewright.ir.walk import walk
from tilewright.ops.control import ForOp, FuncOp, IfOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddIOp, MaxSIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.dce import eliminate_dead_code, is_removable
from tilewright.passes.if_conversion import facts_of, holds
from tilewright.passes.placed_loads import first_write, load_at, placed
from tilewright.passes.subjects import SUNK_LOADS
from tilewright.passes.trip_count import Preheader, conjuncts


@dataclass(slots=True)
class _PrefetchedLoad:
    """A carried tile, by its number among the iter_args, that is what was loaded an iteration before.

    Args:
        number: of the tile.
        load: in the loop.
        offset, bounds: one iteration before, in the scalars of the loop's iteration.
    """

    number: int
    load: MemoryOperand
    offset: Poly
    bounds: list[list[Poly]]


def sink_prefetched_loads(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all `scf.for` loops of a function, inner ones first; says whether anything changed."""
    changed = False
    for loop in reversed([op for op in walk(function) if isinstance(op, ForOp)]):
        asked: set[int] = set()
        while found := _found(loop, asked, decisions):  # what was loaded two iterations ahead is loaded one ahead then
            _rewrite(loop, found)
            changed = True
    if changed:
        eliminate_dead_code(function)
    return changed


def _found(loop: ForOp, asked: set[int], decisions: Decisions) -> list[_PrefetchedLoad]:
    """What a loop hands on of loads, by numbers that nobody asked about before."""
    last, found = loop.body.block.last_op, []
    assert last is not None
    for number, value in enumerate(last.operands):
        load, sure = defining_op(value), True
        if isinstance(load, IfOp) and load.parent is loop.body.block:
            load, sure = _loaded_for_more(loop, load, list(load.results).index(value))  # type: ignore[arg-type]
        elif load is not None and load.parent is not loop.body.block:
            continue
        mine = isinstance(load, LoadOp) and list(loop.carried[number].uses)
        if mine and is_tile(value) and number not in asked:
            asked.add(number)
            no = No("its branch may leave it out though another iteration follows", load.parent_op())  # type: ignore[union-attr]
            made = decisions.note(SUNK_LOADS, load, _recognise(loop, number, load) if sure else no)  # type: ignore[arg-type]
            found += [made] if made is not None else []
    return found


def _loaded_for_more(loop: ForOp, branch: IfOp, number: int) -> tuple[Operation | None, bool]:
    """What loads a result of a branch of a loop, and whether it does in all iterations but the last."""
    found: Operation | None = None
    for side, region in enumerate(branch.regions):
        last = region.block.last_op if region.blocks else None
        load = None if last is None else defining_op(last.operands[number])
        if isinstance(load, LoadOp):
            found = load
            if _holds_for_more(loop, branch.cond, negated=side == 1):
                return load, True
    return found, False


def _holds_for_more(loop: ForOp, condition: SSAValue, *, negated: bool = False) -> bool:
    """Whether a condition (or its contrary) holds in every iteration of a loop that another iteration follows."""
    facts, parts = facts_of(condition, negated=negated), list(conjuncts(condition, negated=negated))
    evolution = ScalarEvolution(loop)
    known = [poly + (evolution.gain(poly) or ZERO) for poly in left_in(loop)]  # not negative in that iteration
    return len(facts) == len(parts) > 0 and all(holds(fact, known) for fact in facts)


def _recognise(loop: ForOp, number: int, load: LoadOp) -> Answer[_PrefetchedLoad]:
    """How a loop hands on what `load` has read, if its first value has been read in the same way."""
    first, branch = defining_op(loop.iter_args[number]), load.parent_op()
    if not is_unit(loop):
        return No("the loop does not count its iterations", loop)
    if not isinstance(first, LoadOp) or first.parent is not loop.parent:
        return No("what the first iteration gets is not loaded before the loop", first)
    written = first_write(first, loop)
    if written is not None:
        return No("memory may change between the load and its use", written)
    here, before = placed(load, conditions=True), placed(first)
    if isinstance(here, No) or isinstance(before, No):
        return here if isinstance(here, No) else before  # type: ignore[return-value]
    evolution, own, other = ScalarEvolution(loop), here.plan, before.plan
    if not all(_holds_for_more(loop, condition) for condition in own.conditions):
        return No("its mask may leave it out though another iteration follows", load)
    last = loop.body.block.last_op
    assert last is not None and branch is not None
    if (own.conditions or last.operands[number] is not load.results[0]) and loop.results[number].first_use is not None:
        return No("what the last iteration did not load is used after the loop", load)
    if branch is not loop:
        outside = _outside_of(own, branch)
        if outside is None:
            return No("its addresses are made of what a branch computes", load)
        own = outside
    pairs = [(own.offset, other.offset), *zip(own.strides, other.strides, strict=True)]
    for bounds, others in zip(own.bounds, other.bounds, strict=True):
        if len(bounds) != len(others):
            return No("its mask differs from that of the first load", first)
        pairs += zip(bounds, others, strict=True)
    earlier = [evolution.before(poly) for poly, _ in pairs]
    known = [poly for poly in earlier if poly is not None]
    if own.base is not other.base or len(known) < len(pairs):
        return No("its addresses are not known to grow evenly", load)
    if any(evolution.at_first(poly) != evolution.expanded(want) for poly, (_, want) in zip(known, pairs, strict=True)):
        return No("the first load is not what the loop would have read one iteration before", first)
    of_dims: list[list[Poly]] = []
    rest = known[3:]
    for of_dim in own.bounds:
        of_dims.append(rest[: len(of_dim)])
        rest = rest[len(of_dim) :]
    return Yes(_PrefetchedLoad(number, own, known[0], of_dims), "loaded where it is used")


def _outside_of(load: MemoryOperand, branch: Operation) -> MemoryOperand | None:
    """The polynomials of a load of a branch in the scalars from outside of it; None if others are left."""
    offset, strides = expanded(load.offset), [expanded(stride) for stride in load.strides]
    bounds = [[expanded(bound) for bound in of_dim] for of_dim in load.bounds]
    atoms = [atom for poly in (offset, *strides, *(b for of_dim in bounds for b in of_dim)) for atom in poly.atoms()]
    if any(is_made_inside(value, branch) for value in (load.base, *atoms)):
        return None
    return replace(load, offset=offset, strides=strides, bounds=bounds)


def _rewrite(loop: ForOp, found: list[_PrefetchedLoad]) -> None:
    start, evolution = loop.body.block.first_op, ScalarEvolution(loop)
    assert start is not None
    follower = _follower(loop, [handed.number for handed in found])
    for handed in found:
        argument, result = loop.carried[handed.number], loop.results[handed.number]
        here = load_at(handed.load, handed.offset, handed.bounds, start)
        argument.replace_all_uses_with(here)
        if follower is None and list(result.uses):
            behind = loop.next_op
            assert behind is not None
            ends = {loop.induction_var: Poly.atom(_end(loop, behind)), **_results(loop)}
            polys = [[evolution.replaced(bound, ends) for bound in bounds] for bounds in handed.bounds]
            after = load_at(handed.load, evolution.replaced(handed.offset, ends), polys, behind)
            result.replace_all_uses_with(after)
    if follower is not None:
        follower.results[0].replace_all_uses_with(follower.operands[2])
        loop.operands[1] = Preheader(loop, loop.ub.type).apply(AddIOp, _end(loop, loop), 1)


def _results(loop: ForOp) -> dict[SSAValue, Poly]:
    return {argument: Poly.atom(result) for argument, result in zip(loop.carried, loop.results, strict=True)}


def _end(loop: ForOp, anchor: Operation) -> SSAValue:
    """What the counter would be after the last iteration; in front of `anchor`."""
    return Preheader(anchor, loop.ub.type).apply(MaxSIOp, loop.ub, 0)


def _follower(loop: ForOp, numbers: list[int]) -> Operation | None:
    """The product after the loop, of tiles that it hands on, that is what one iteration more would do."""
    users = {use.operation for number in numbers for use in loop.results[number].uses}
    if len(users) != 1:
        return None
    (after,) = users
    body, last = loop.body.block, loop.body.block.last_op
    assert last is not None
    if not isinstance(after, DotOp) or after.parent is not loop.parent:
        return None
    sums = [n for n, result in enumerate(loop.results) if after.operands[2] is result]
    inner = defining_op(last.operands[sums[0]]) if sums else None
    if not isinstance(inner, DotOp) or inner.parent is not body or inner.properties != after.properties:
        return None
    handed = dict(zip(loop.carried, loop.results, strict=True))
    if [handed.get(value) for value in inner.operands] != list(after.operands):
        return None
    read = {n for n, result in enumerate(loop.results) if list(result.uses)}
    alone = read == {*numbers, sums[0]}
    once = len(list(loop.results[sums[0]].uses)) == 1
    tiles = {n for n, result in enumerate(loop.results) if is_tile(result)}
    pure = all(op is last or is_removable(op) for op in body.ops)
    return after if alone and once and pure and tiles == read else None
