"""Tightened bounds: loops of which only the first iterations do anything end where that ends.

    for %i = %lo to %n step %s {                      for %i = %lo to min(%n, %m) step %s {
      if (cmpi slt, %i, %m) { B }            ->         B
    }                                                 }

Both a `continue` under the contrary condition and an `if` around the whole body of a loop are of this kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.ir.values import defining_op
from tilewright.ir.walk import operations, walk
from tilewright.ops.control import ForOp, IfOp, YieldOp
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import replace, splice
from tilewright.passes.trip_count import COUNTS, Bound, CountedBlock, conjuncts, end_of


def tighten_loop_bounds(root: Operation) -> bool:
    """Narrow every such `scf.for` below `root`, in place; says whether there was one."""
    changed = False
    for op in list(walk(root)):
        if isinstance(op, ForOp) and op.lb.type in COUNTS and op.unsignedCmp is None:
            while (guard := _guard(op)) is not None:
                _narrow(op, guard)
                changed = True
    return changed


@dataclass(frozen=True, slots=True)
class _Guard:
    """A branch that is all that an iteration does.

    Args:
        branch: the branch.
        side: number of its region that does something.
        bounds: of the counter, under which it does.
    """

    branch: IfOp
    side: int
    bounds: list[Bound]


def _guard(loop: ForOp) -> _Guard | None:
    """The branch around the body of a loop, if only the first iterations come to one of its sides."""
    body = loop.body.block
    branches = [op for op in body.ops if isinstance(op, IfOp)]
    if len(branches) != 1 or not _is_all(branches[0]):
        return None
    branch = branches[0]
    for side in (0, 1):
        if branch.regions[side].blocks and _is_idle(loop, branch, 1 - side):
            bounds = _bounds(loop, branch.cond, negated=side == 1)
            return _Guard(branch, side, bounds) if bounds else None
    return None


def _is_all(branch: IfOp) -> bool:
    """Whether nobody could tell whether what stands around a branch is done."""
    block = branch.parent_block()
    assert block is not None
    return all(op is branch or isinstance(op, YieldOp) or is_removable(op) for op in block.ops)


def _is_idle(loop: ForOp, branch: IfOp, side: int) -> bool:
    """Whether an iteration that takes a side of the branch changes nothing."""
    region, last = branch.regions[side], loop.body.block.last_op
    ops = operations(region.block) if region.blocks else []
    if last is None or not all(is_removable(op) or isinstance(op, YieldOp) for op in ops):
        return False
    handed: dict[SSAValue, SSAValue] = dict(zip(branch.results, ops[-1].operands if ops else (), strict=True))
    return all(handed.get(v, v) is a for v, a in zip(last.operands, loop.carried, strict=True))


def _bounds(loop: ForOp, condition: SSAValue, *, negated: bool) -> list[Bound]:
    """What a condition says of the counter; nothing if it says something else, too."""
    counter = loop.induction_var
    counted = CountedBlock(loop.body.block, counter, {counter: Poly.atom(counter)})
    found: list[Bound] = []
    for value, wrong in conjuncts(condition, negated=negated):
        owner = defining_op(value)
        bound = None if owner is None else counted.bound(owner, negated=wrong, behind=False)
        if bound is None:
            return []
        found.append(bound)
    return found


def _narrow(loop: ForOp, guard: _Guard) -> None:
    """End the loop where its guard no longer holds, and take that out."""
    branch, body = guard.branch, guard.branch.regions[guard.side].block
    end = constant_of(loop.ub)
    last = Bound(Poly.of(end) if isinstance(end, int) else Poly.atom(loop.ub))
    loop.operands[1] = end_of([last, *guard.bounds], loop, loop.lb, loop.step)
    splice(body, branch)
    assert body.last_op is not None
    replace(branch, list(body.last_op.operands))
