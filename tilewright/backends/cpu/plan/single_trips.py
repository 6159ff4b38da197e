"""Loop versioning: loops over the same range that compute the same are straight-line code where they run once.

    for %i = 0 to %n { .. exp (tt.load ..) .. }           if %n == 1 {
    for %i = 0 to %n { .. exp (tt.load ..) .. }    ->       .. exp (tt.load ..) .. ..    computed once
                                                          } else { both loops }

What a loop computes for an element is gone when the next one wants it; what passes of one block compute is kept in
scratch (`reuse.py`). A row that fits a block of the kernel is one trip of each of its loops. Which loops these are is
not known by their form: both versions are made, and the first stays if it computes less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu import tuning
from tilewright.backends.cpu.plan.recompute import cost_of, is_lazy
from tilewright.backends.cpu.plan.subjects import SINGLE_TRIPS
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import reached
from tilewright.ir.decisions import Decisions
from tilewright.ir.types import shape_of
from tilewright.ir.values import defining_op, is_inside, is_tile, operands_of
from tilewright.ir.walk import among, contains, every, operations, walk
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.ops.dot import DotOp
from tilewright.ops.function import FuncOp
from tilewright.ops.memory import LoadOp, is_volatile
from tilewright.ops.reduce import ReduceOp
from tilewright.passes.building import Builder
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import eliminate_common_subexpressions
from tilewright.passes.dce import eliminate_dead_code
from tilewright.passes.placed_loads import first_write
from tilewright.passes.rewriting import insert_before, move_before, replace, splice


def version_single_trips(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite all such loops of a function; says whether there were any."""
    all_loops, changed, seen = every(function, ForOp), False, set[Operation]()
    if not _may_repeat(all_loops):
        return False
    eliminate_common_subexpressions(function)  # equal ends are one value
    for loop in all_loops:
        loops = _over_the_same(loop) if loop not in seen else []
        seen.update(loops)
        if _may_repeat(loops):
            changed |= decisions.note(SINGLE_TRIPS, loop, _version(loops)) is not None
    return changed


def version_long_rows(function: FuncOp, decisions: Decisions) -> bool:
    """Rewrite loops through pieces of a row, in a loop over rows: of the only piece all bounds are known before both.

    Says whether there were any.
    """
    loops = [loop for loop in every(function, ForOp) if _is_of_pieces(loop)]
    for loop in loops:
        decisions.note(SINGLE_TRIPS, loop, Yes(_branched([loop]), "a row that is one piece has the bounds of all rows"))
    return bool(loops)


def _is_of_pieces(loop: ForOp) -> bool:
    """Whether a loop does nothing but to reduce a long piece of a row, in a loop around it."""
    around = among([loop.parent_op()], ForOp)
    if not around or not _over_the_same(loop):
        return False
    made_of = reached([loop.ub], lambda value: operands_of(op) if (op := defining_op(value)) is not None else ())
    made = (LoadOp, ForOp, IfOp)
    if any(value in around[0].body.block.args or isinstance(defining_op(value), made) for value in made_of):
        return False
    reduced = [shape_of(op.operands[0].type) for op in among(loop.body.block.ops, ReduceOp)]
    return bool(reduced) and all(shape == (tuning.LONG_ROW,) for shape in reduced)


def _may_repeat(loops: list[ForOp]) -> bool:
    """Whether something costly may be computed in two of some loops."""
    return len(loops) > 1 and max(_costly(loops).values(), default=0) > 1


def _over_the_same(loop: ForOp) -> list[ForOp]:
    """A loop and those behind it in its block that go through the same range, from 0 by 1 to a number of the launch."""
    block = loop.parent_block()
    assert block is not None
    from_0_by_1 = constant_of(loop.lb) == 0 and constant_of(loop.step) == 1 and constant_of(loop.ub) is None
    same = [other for other in among(block.ops, ForOp) if other.operands[:3] == loop.operands[:3]]
    return same if from_0_by_1 and not any(contains(other, DotOp) for other in same) else []


def _costly(roots: Iterable[Operation]) -> Counter[Hashable]:
    """How often what costs more than keeping it is computed, of each operation on tiles."""
    ops = [op for root in roots for op in walk(root)]
    made = [op for op in ops if is_lazy(op) and is_tile(op.results[0]) and cost_of(op) > tuning.SHARED_COST]
    return Counter([(type(op), tuple(op.properties.items()), op.results[0].type) for op in made])


def _version(loops: list[ForOp]) -> Answer[IfOp]:
    """Put a branch in front of loops, and them into its other side, if its first side computes less."""
    before = _costly(_span(loops)).total()
    branch = _branched(loops)
    once, again = (region.block for region in branch.regions)
    if _costly(once.ops).total() < before:
        return Yes(branch, "what they compute of a row that is one trip is computed once")
    end = again.last_op
    assert end is not None
    values = list(end.operands)
    splice(again, branch)
    replace(branch, values)
    return No("they compute nothing that costs much twice", loops[0])


def _branched(loops: list[ForOp]) -> IfOp:
    """The branch: what loops do in their only trip, and the loops, with what stands between them."""
    first, span = loops[0], _span(loops)
    left = [r for op in span for r in op.results if any(not _is_within(use.operation, span) for use in r.uses)]
    branch = _branch(first, [value.type for value in left])
    once, again = (region.block for region in branch.regions)
    end, other_end = once.last_op, again.last_op
    assert end is not None and other_end is not None
    b = Builder(end)
    known: dict[SSAValue, SSAValue] = {first.ub: b.number(1, first.ub.type)}
    for op in span:
        b.copy(op, known)
    end.operands = [known[value] for value in left]
    for value, result in zip(left, branch.results, strict=True):
        value.replace_uses_with_if(result, lambda use: not _is_within(use.operation, [*span, branch]))
    for op in span:
        move_before(op, other_end)
    other_end.operands = left
    _simplify(branch, once)
    return branch


def _simplify(branch: IfOp, once: Block) -> None:
    canonicalize(branch)
    eliminate_common_subexpressions(branch)
    _load_once(once)
    eliminate_common_subexpressions(branch)
    eliminate_dead_code(branch)


def _span(loops: list[ForOp]) -> list[Operation]:
    """The operations of a block from one loop to a later one."""
    ops: list[Operation] = [loops[0]]
    while ops[-1] is not loops[-1] and (following := ops[-1].next_op) is not None:
        ops.append(following)
    return ops


def _is_within(op: Operation, roots: Collection[Operation]) -> bool:
    return any(op is root or is_inside(op, root) for root in roots)


def _branch(anchor: ForOp, kinds: list[Attribute]) -> IfOp:
    """A branch in front of a loop on whether it makes one trip, with nothing in it."""
    b = Builder(anchor)
    condition = b.compare("eq", anchor.ub, b.number(1, anchor.ub.type))
    ends = [YieldOp.create(operands=[]) for _ in range(2)]
    for end in ends:
        end.location = anchor.location
    branch = IfOp.create(operands=[condition], result_types=kinds, regions=[Region(Block([end])) for end in ends])
    insert_before(branch, anchor)
    return branch


def _load_once(block: Block) -> None:
    """Let what is loaded again be what was loaded; where masks leave elements out of a load without `other`, it may be
    anything.
    """
    known = dict[tuple[SSAValue, ...], LoadOp]()
    for load in among(operations(block), LoadOp):
        if is_volatile(load):
            continue
        earlier = known.setdefault((load.ptr, *load.operands[1:2]), load)
        same = earlier is not load and (load.other is None or load.other is earlier.other)
        if same and first_write(earlier, load) is None:
            replace(load, earlier.results)
