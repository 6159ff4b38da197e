"""Loop exits: loops that an iteration leaves at once, or at its end, say so in their condition.

    while %c and %go {                              while %c and not %d {
      %go1 = if %d { yield false }          ->        B
             else { B; yield true }                 }
    }

    while %c and %go {                              while %c and %go {
      B                                               B
      %go1, %j1 = if %d { yield false, %j }   ->      %j1 = %j + 1
                  else { yield true, %j + 1 }         %go1 = not %d
    }                                               }

A `break` and an early `return` are of the first kind where nothing that others could notice comes before them in the
iteration; what such an iteration does before it leaves is done after the loop. In the second kind nobody looks at `%j`
behind the loop. `while_to_for.py` then sees conditions on a counter, wherever they were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue, Use

from tilewright.analysis.constants import constant_of
from tilewright.base.order import operands_first
from tilewright.ir.types import i1
from tilewright.ir.values import defining_op, is_tile
from tilewright.ir.walk import operations, walk
from tilewright.ops.control import ConditionOp, IfOp, WhileOp, YieldOp
from tilewright.passes.building import Builder
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import erase, replace, splice
from tilewright.passes.trip_count import conjuncts, is_free


def move_exits_to_tests(root: Operation) -> bool:
    """Rewrite every `scf.while` below `root` that an iteration leaves so, in place; says whether there was one."""
    changed = False
    for op in list(walk(root)):
        loop = op if isinstance(op, WhileOp) else None
        while loop is not None:
            following = _moved(loop)
            changed |= following is not None
            loop = following
    return changed


@dataclass(frozen=True, slots=True)
class _Exit:
    """A branch of an iteration that leaves the loop on one side.

    Args:
        loop: the loop.
        flag: number of the carried truth value that says whether it goes on.
        branch: the branch.
        side: number of the region that leaves.
    """

    loop: WhileOp
    flag: int
    branch: IfOp
    side: int

    @property
    def body(self) -> Block:
        return self.loop.after.block

    @property
    def following(self) -> Sequence[SSAValue]:
        """What an iteration hands on."""
        assert self.body.last_op is not None
        return self.body.last_op.operands

    def yielded(self, side: int) -> dict[SSAValue, SSAValue]:
        """What the results of the branch are on a side."""
        region = self.branch.regions[side]
        last = region.block.last_op if region.blocks else None
        return dict(zip(self.branch.results, last.operands if last is not None else (), strict=True))


def _moved(loop: WhileOp) -> WhileOp | None:
    """The loop without one of its ways out, if that can be."""
    before = loop.before.block
    end = before.last_op
    assert isinstance(end, ConditionOp)
    if list(end.operands[1:]) != list(before.args) or not all(is_free(op) for op in before.ops if op is not end):
        return None
    for value, negated in conjuncts(end.cond):
        if value.owner is before and not negated:
            assert isinstance(value, BlockArgument)
            found = _exit(loop, value.index) if constant_of(loop.operands[value.index]) else None
            if found is not None and _comes_first(found):
                return _tested_first(found)
            if found is not None and _comes_last(found):
                return _tested_last(found)
    return None


def _exit(loop: WhileOp, flag: int) -> _Exit | None:
    """The branch that clears a flag, with nothing but free operations behind it."""
    last = loop.after.block.last_op
    assert isinstance(last, YieldOp)
    value = last.operands[flag]
    branch = defining_op(value)
    if not isinstance(branch, IfOp) or branch.parent is not loop.after.block:
        return None
    op = last.prev_op
    while op is not branch:
        if op is None or not is_free(op):
            return None
        op = op.prev_op
    for side in (0, 1):
        found = _Exit(loop, flag, branch, side)
        ways = [constant_of(found.yielded(s)[value]) for s in (side, 1 - side)]
        if ways[0] is not None and not ways[0] and (ways[1] is None or ways[1]):
            return found
    return None


# --- at once ----------------------------------------------------------------------------------------------------


def _comes_first(found: _Exit) -> bool:
    """Whether nothing happens before the branch, and what is computed there and is wanted is made of scalars alone."""
    op = found.branch.prev_op
    while op is not None:
        if not is_removable(op):
            return False
        op = op.prev_op
    wanted = [found.branch.cond, *_wanted_behind(found)]
    return all(is_free(op) and not any(map(is_tile, (*op.operands, *op.results))) for op in _ahead(found, wanted))


def _ahead(found: _Exit, roots: Sequence[SSAValue]) -> list[Operation]:
    """What computes some values in an iteration, without the branch and what is behind it; operands first."""
    known: set[SSAValue] = set()
    needed: dict[Operation, None] = {}
    behind = set(_behind(found))

    def operands(value: SSAValue) -> Sequence[SSAValue]:
        op = defining_op(value)
        return op.operands if op is not None and op.parent is found.body else ()

    for root in roots:
        for value in operands_first(root, operands, known):
            known.add(value)
            op = defining_op(value)
            if op is not None and op.parent is found.body and op is not found.branch and op not in behind:
                needed[op] = None
    return list(needed)


def _acts(found: _Exit) -> list[Operation]:
    """What the side of the branch does that leaves."""
    region = found.branch.regions[found.side]
    return operations(region.block)[:-1] if region.blocks else []


def _behind(found: _Exit) -> list[Operation]:
    """What an iteration computes behind the branch."""
    ops = operations(found.body)
    return ops[ops.index(found.branch) + 1 : -1]


def _changed(found: _Exit) -> list[int]:
    """Which results of the loop are wanted and are not what they were before the iteration that leaves."""
    handed, arguments = found.yielded(found.side), found.body.args
    changed = [n for n, argument in enumerate(arguments) if _resolved(found.following[n], handed) is not argument]
    return [n for n in changed if found.loop.results[n].first_use is not None]


def _wanted_behind(found: _Exit) -> list[SSAValue]:
    """Values from before the branch that are wanted where the loop has been left."""
    acts, handed = _acts(found), found.yielded(found.side)
    wanted = [_resolved(found.following[n], handed) for n in _changed(found)]
    if wanted or not all(is_removable(op) for op in acts):
        wanted += [operand for op in acts for inner in walk(op) for operand in inner.operands]
        wanted += [operand for op in _behind(found) for operand in op.operands]
    return wanted


def _tested_first(found: _Exit) -> WhileOp:
    """The loop without the branch: its condition asks."""
    loop, before = found.loop, found.loop.before.block
    end = before.last_op
    assert isinstance(end, ConditionOp)
    _do_behind(found)
    values: dict[SSAValue, SSAValue] = dict(zip(found.body.args, before.args, strict=True))
    for op in _ahead(found, [found.branch.cond]):
        before.insert_op_before(op.clone(values), end)
    end.operands[0] = Builder(end).both(end.cond, _goes_on(found, _resolved(found.branch.cond, values), end))
    stays = found.yielded(1 - found.side)
    _splice(found, 1 - found.side)
    replace(found.branch, [stays[result] for result in found.branch.results])
    return _without_flag(loop, found.flag)


def _do_behind(found: _Exit) -> None:
    """Put after the loop what an iteration does that leaves it, if anybody could tell.

    %r = scf.while ..    ->    %r = scf.while ..;  %left = the condition of %r;  %r1 = scf.if %left { .. } else { %r }
    """
    loop, acts, results = found.loop, _acts(found), _changed(found)
    if not results and all(is_removable(op) for op in acts):
        return
    uses: list[list[Use]] = [list(loop.results[n].uses) for n in results]
    values: dict[SSAValue, SSAValue] = dict(zip(found.body.args, loop.results, strict=True))
    then, otherwise = Block(), Block([YieldOp.create(operands=[loop.results[n] for n in results])])
    then.add_ops(op.clone(values) for op in (*_ahead(found, _wanted_behind(found)), *acts))
    values |= {result: values.get(value, value) for result, value in found.yielded(found.side).items()}
    then.add_ops(op.clone(values) for op in _behind(found))
    then.add_op(YieldOp.create(operands=[_resolved(found.following[n], values) for n in results]))
    types = [loop.results[n].type for n in results]
    test, left = _test_behind(loop)
    made = IfOp.create(operands=[left], result_types=types, regions=[Region(then), Region(otherwise)])
    _insert_behind(loop, [*test, made])
    for result, places in zip(made.results, uses, strict=True):
        for use in places:
            use.operation.operands[use.index] = result


def _test_behind(loop: WhileOp) -> tuple[list[Operation], SSAValue]:
    """The condition of a loop, asked of its results: operations that compute it, and the condition."""
    before = loop.before.block
    end = before.last_op
    assert isinstance(end, ConditionOp)
    values: dict[SSAValue, SSAValue] = dict(zip(before.args, loop.results, strict=True))
    test = [op.clone(values) for op in before.ops if op is not end]
    return test, _resolved(end.cond, values)


def _resolved(value: SSAValue, values: Mapping[SSAValue, SSAValue]) -> SSAValue:
    return values.get(value, value)


def _insert_behind(loop: Operation, ops: Sequence[Operation]) -> None:
    block = loop.parent_block()
    assert block is not None
    for op in reversed(ops):
        op.location = op.location if op.results and op.location is not None else loop.location
        block.insert_op_after(op, loop)


def _without_flag(loop: WhileOp, flag: int) -> WhileOp:
    """The loop without a truth value that it carries, if that is always true."""
    before, after = loop.before.block, loop.after.block
    assert before.last_op is not None and after.last_op is not None
    if not constant_of(after.last_op.operands[flag]):
        return loop
    for block in (before, after):
        assert block.first_op is not None
        block.args[flag].replace_all_uses_with(Builder(block.first_op).number(True, i1))
    loop.results[flag].replace_all_uses_with(Builder(loop).number(True, i1))
    before.last_op.operands = _but(before.last_op.operands, flag + 1)
    after.last_op.operands = _but(after.last_op.operands, flag)
    before.erase_arg(before.args[flag])
    after.erase_arg(after.args[flag])
    results = _but(loop.results, flag)
    made = WhileOp.create(
        operands=_but(loop.operands, flag),
        result_types=[result.type for result in results],
        attributes=loop.attributes.copy(),
        regions=[loop.detach_region(0), loop.detach_region(0)],
    )
    made.location = loop.location
    _insert_behind(loop, [made])
    for old, new in zip(results, made.results, strict=True):
        old.replace_all_uses_with(new)
    erase(loop)
    return made


def _but(values: Sequence[SSAValue], index: int) -> list[SSAValue]:
    return [value for n, value in enumerate(values) if n != index]


# --- at the end ------------------------------------------------------------------------------------------------


def _comes_last(found: _Exit) -> bool:
    """Whether the branch can do without being one: it chooses scalars, and what nobody looks at who leaves."""
    for region in found.branch.regions:
        if not all(map(is_free, region.block.ops if region.blocks else ())):
            return False
    leaves, stays = found.yielded(found.side), found.yielded(1 - found.side)
    return all(
        leaves[result] is stays[result] or not is_tile(result) or _is_unread(found, result)
        for result in found.branch.results
    )


def _is_unread(found: _Exit, result: SSAValue) -> bool:
    """Whether nobody looks at a result of the branch once the loop is left."""
    last, results = found.body.last_op, found.loop.results
    return all(use.operation is last and results[use.index].first_use is None for use in result.uses)


def _tested_last(found: _Exit) -> WhileOp:
    """The loop with the sides of the branch in its place."""
    leaves, stays = found.yielded(found.side), found.yielded(1 - found.side)
    branch, flag = found.branch, found.following[found.flag]
    _splice(found, 0, 1)
    values: dict[SSAValue, SSAValue] = {}
    for result in branch.results:
        if result is flag:
            values[result] = Builder(branch).both(stays[result], _goes_on(found, branch.cond, branch))
        elif leaves[result] is stays[result] or _is_unread(found, result):
            values[result] = stays[result]
        else:
            sides = [leaves[result], stays[result]]
            values[result] = Builder(branch).choose(branch.cond, *(sides[::-1] if found.side else sides))
    replace(branch, [values[result] for result in branch.results])
    return found.loop


# --- pieces ----------------------------------------------------------------------------------------------------


def _splice(found: _Exit, *sides: int) -> None:
    """Move what the sides of the branch do in front of it."""
    for region in (found.branch.regions[side] for side in sides):
        if region.blocks:
            splice(region.block, found.branch)


def _goes_on(found: _Exit, leaves: SSAValue, before: Operation) -> SSAValue:
    """Whether the loop goes on, of the condition of the branch."""
    return leaves if found.side else Builder(before).negated(leaves)
