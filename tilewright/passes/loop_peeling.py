"""Loop peeling: what the first or the last iteration alone does is done before or after the loop.

    for %i = 0 to %n: iter_args(%x = %x0, %s = %s0)      %y = A(%x0)
      %y = if %i == 0 { A(%x) } else { %x }              %r = for %i = 0 to %n: iter_args(%s = %s0)
      %t = B(%y, %s)                               ->      yield B(%y, %s)
      %u = if %i == %n - 1 { C(%t) } else { %t }         C(%r)
      yield %y, %u

For loops that surely make an iteration: `delinearize.py` makes such. A branch in a loop hides from every planner what
the other iterations do. Either side that does something must be the one of that iteration; the other hands on what is
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import Poly, expanded
from tilewright.analysis.uniform import scalar_of
from tilewright.base.order import operands_first
from tilewright.ir.effect_traits import is_without_effects
from tilewright.ir.values import defining_op, is_inside, is_made_inside, is_tile, uses_behind
from tilewright.ir.walk import operations, walk
from tilewright.ops.broadcast import SplatOp
from tilewright.ops.control import ForOp, IfOp
from tilewright.ops.elementwise import CmpIOp, SelectOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import erase, move_before


@dataclass(slots=True)
class _Chosen:
    """A branch, or a choice of one value, that is decided by the number of the iteration.

    Args:
        op: the branch.
        does: number of the region, or operand, of the first or last iteration.
    """

    op: IfOp | SelectOp
    does: int

    @property
    def made(self) -> Sequence[SSAValue]:
        """What the branch results in, in the iteration that it is about."""
        return self._side(self.does)

    @property
    def others(self) -> Sequence[SSAValue]:
        """What it results in, in all other iterations."""
        return self._side(1 - self.does)

    @property
    def ops(self) -> list[Operation]:
        """What it does in that iteration."""
        return operations(self.op.regions[self.does].block)[:-1] if self.op.regions else []

    @property
    def is_idle(self) -> bool:
        """Whether nobody would notice, in all other iterations or in that one, what it does in the others."""
        return all(map(is_without_effects, self.idle))

    @property
    def idle(self) -> list[Operation]:
        """What it does in all other iterations."""
        other = self.op.regions[1 - self.does] if self.op.regions else None
        return operations(other.block) if other is not None and other.blocks else []

    def taken(self) -> list[SSAValue]:
        """Values from outside of the branch that its iteration uses."""
        inner = [op for part in self.ops for op in (part, *walk(part))]
        used = dict.fromkeys([*(value for op in inner for value in op.operands), *self.made])
        return [value for value in used if not is_made_inside(value, self.op)]

    def _side(self, number: int) -> Sequence[SSAValue]:
        if isinstance(self.op, SelectOp):
            return [self.op.operands[1 + number]]
        blocks = self.op.regions[number].blocks
        last = self.op.regions[number].block.last_op if blocks else None
        return list(last.operands) if last is not None else []


@dataclass(slots=True)
class Moved:
    """Values of a loop's iteration as they are elsewhere: pure arithmetic is made anew in front of `anchor`.

    Args:
        loop: whose values.
        anchor: where.
        known: values that are known there.
        read: the loop's arguments that were asked for.
        had: of values that were asked about, whether they can be had.
    """

    loop: ForOp
    anchor: Operation
    known: dict[SSAValue, SSAValue] = field(default_factory=dict)
    read: set[SSAValue] = field(default_factory=set)
    had: dict[SSAValue, bool] = field(default_factory=dict)

    def can(self, value: SSAValue) -> bool:
        """Whether a value can be had there."""
        block = self.loop.body.block

        def operands(value: SSAValue) -> Sequence[SSAValue]:
            op = defining_op(value)
            known = value in self.known or self._is_outside(value) or op is None or op.parent is not block
            return () if known or op is None else op.operands

        for part in operands_first(value, operands, self.had):
            op = defining_op(part)
            if part in self.known or self._is_outside(part):
                self.had[part] = True
            elif op is None or op.parent is not block or op.regions or not is_without_effects(op):
                self.had[part] = False
            else:
                self.had[part] = all(self.had[operand] for operand in op.operands)
        return self.had[value]

    def get(self, value: SSAValue) -> SSAValue:
        """A value there."""
        if self._is_outside(value):
            return value
        if value.owner is self.loop.body.block:
            self.read.add(value)
        if value in self.known:
            return self.known[value]
        op = defining_op(value)
        assert op is not None
        mapped = {operand: self.get(operand) for operand in op.operands}
        made = Builder(self.anchor).copy(op, mapped)
        self.known |= zip(op.results, made.results, strict=True)
        return self.known[value]

    def perform(self, chosen: _Chosen) -> list[SSAValue]:
        """Do there what a branch does; its results."""
        mapped = {value: self.get(value) for value in chosen.taken()}
        for op in chosen.ops:
            Builder(self.anchor).copy(op, mapped)
        return [mapped.get(value, value) for value in chosen.made]

    def _is_outside(self, value: SSAValue) -> bool:
        op = defining_op(value)
        if op is None:
            return value.owner is not self.loop.body.block
        return not is_inside(op, self.loop)


def peel_first(loop: ForOp, before: Poly) -> tuple[int, list[int]]:
    """Move what the first iteration of a loop alone does in front of it.

    Args:
        loop: which surely makes an iteration.
        before: how many iterations come before one, in the scalars of its body.

    Returns:
        How many branches were moved; the numbers of carried values whose first ones nobody reads any more.
    """
    moved, unread = 0, list[int]()
    for chosen in _chosen(loop, before):
        numbers = _replaced(loop, chosen)
        if numbers is None or not _may_come_first(loop, chosen):
            continue
        block = loop.body.block
        there = Moved(loop, loop, dict(zip(block.args, (loop.lb, *loop.iter_args), strict=True)))
        if not all(there.can(value) for value in chosen.taken()):
            continue
        made = there.perform(chosen)
        for value, result, number in zip(made, chosen.op.results, numbers, strict=True):
            if number is not None:
                loop.operands[3 + number] = value
                result.replace_all_uses_with(loop.carried[number])
                if loop.carried[number] not in there.read:
                    unread.append(number)
        erase(chosen.op)
        moved += 1
    return moved, unread


def peel_last(loop: ForOp, left: Poly, counter: SSAValue) -> dict[int, SSAValue] | None:
    """Move what the last iteration of a loop alone does behind it; None if there is nothing, or something cannot be
    moved.

    Args:
        loop: which surely makes an iteration.
        left: how many iterations come after one, in the scalars of its body.
        counter: the loop's counter in that iteration.

    Returns:
        By numbers of carried values, what stands after the loop for what it hands on.
    """
    last, behind = loop.body.block.last_op, loop.next_op
    chosen = _chosen(loop, left)
    if not chosen or last is None or behind is None or not _may_come_last(loop, [each.op for each in chosen]):
        return None
    before: dict[SSAValue, SSAValue] = {}  # results of branches, in all other iterations
    for each in chosen:
        before |= {r: before.get(o, o) for r, o in zip(each.op.results, each.others, strict=True)}
    ends = {before.get(value, value): result for value, result in zip(last.operands, loop.results, strict=True)}
    there = Moved(loop, behind, {**ends, loop.induction_var: counter})
    results = {result for each in chosen for result in each.op.results}
    if not all(value in results or there.can(value) for each in chosen for value in each.taken()):
        return None
    for each in chosen:
        there.known |= zip(each.op.results, there.perform(each), strict=True)
    out = {number: there.known[value] for number, value in enumerate(last.operands) if value in results}
    for each in reversed(chosen):
        for result in each.op.results:
            result.replace_all_uses_with(before[result])
        erase(each.op)
    return out


def _chosen(loop: ForOp, iterations: Poly) -> list[_Chosen]:
    """The branches that are decided by whether a number of iterations, which is not negative, is zero."""
    found = []
    for op in operations(loop.body.block):
        if isinstance(op, IfOp | SelectOp):
            sides = (_Chosen(op, int(negated)) for zero, negated in zero_where(op.operands[0]) if zero == iterations)
            each = next(sides, None)
            if each is not None and each.is_idle and (isinstance(op, SelectOp) or op.regions[each.does].blocks):
                for part in each.idle[:-1]:
                    move_before(part, op)
                found.append(each)
    return found


def zero_where(condition: SSAValue) -> Iterator[tuple[Poly, bool]]:
    """Numbers that are zero where a comparison holds, if none of them is negative; or, if marked, where it does not."""
    compare = defining_op(condition)
    if isinstance(compare, SplatOp):
        compare = defining_op(compare.operands[0])
    if not isinstance(compare, CmpIOp):
        return
    sides = [scalar_of(side) if is_tile(side) else side for side in compare.operands]
    left, right = (
        Poly.of(side) if isinstance(side, int) else None if side is None else expanded(Poly.atom(side))
        for side in sides
    )
    if left is None or right is None:
        return
    predicate, less, one = compare.attr_values()["predicate"], left + -right, Poly.of(1)
    numbers = {
        "eq": ((less, False), (-less, False)),
        "ne": ((less, True), (-less, True)),
        "slt": ((less + one, False), (-less, True)),
        "sle": ((less, False), (one + -less, True)),
        "sgt": ((one + -less, False), (less, True)),
        "sge": ((-less, False), (less + one, True)),
    }
    yield from numbers.get(predicate, ())


def _replaced(loop: ForOp, chosen: _Chosen) -> list[int | None] | None:
    """For each result of a branch the number of the carried value that it is in others; None if one has none."""
    carried = {argument: number for number, argument in enumerate(loop.carried)}
    numbers: list[int | None] = []
    for result, other in zip(chosen.op.results, chosen.others, strict=True):
        number = carried.get(other) if list(result.uses) else None
        if list(result.uses) and (number is None or number in numbers or not _is_for(other, chosen.op)):
            return None
        numbers.append(number)
    return numbers


def _is_for(value: SSAValue, branch: Operation) -> bool:
    """Whether nobody but a branch uses a value, or what is made of it."""

    def beside(user: Operation) -> bool:
        return user is not branch and not is_inside(user, branch)

    users = filter(beside, (use.operation for use in uses_behind([value], beside)))
    return all(not user.regions and is_removable(user) and user.parent is branch.parent for user in users)


def _may_come_first(loop: ForOp, chosen: _Chosen) -> bool:
    """Whether what a branch does may be done before what stands in front of it."""
    earlier: list[Operation] = []
    for op in loop.body.block.ops:
        if op is chosen.op:
            break
        earlier.append(op)
    inner = chosen.ops
    if all(is_without_effects(op) for op in inner):
        return True
    if all(is_removable(op) for op in inner):
        return all(is_removable(op) for op in earlier)
    return all(is_without_effects(op) for op in earlier)


def _may_come_last(loop: ForOp, branches: list[Operation]) -> bool:
    """Whether what some branches do may be done behind what follows them, and nobody there reads their results."""
    seen = False
    for op in loop.body.block.ops:
        if op in branches:
            seen = True
        elif seen and not is_without_effects(op):
            return False
    users = {use.operation for branch in branches for result in branch.results for use in result.uses}
    last = loop.body.block.last_op
    return all(user is last or any(user is branch or is_inside(user, branch) for branch in branches) for user in users)
