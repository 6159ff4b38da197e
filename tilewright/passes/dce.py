"""Dead code elimination: erase operations whose results nobody uses and that change nothing.

Effects are asked of the operation (its traits), never decided by its class. Loop-carried
values are dropped when they only feed themselves and nobody reads the result, results of branches when nobody does.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, Region, SSAValue, Use
from xdsl.traits import IsTerminator, MemoryEffectKind, RecursiveMemoryEffect

from tilewright.ir.effect_traits import effects
from tilewright.ir.values import uses_behind
from tilewright.ir.walk import among
from tilewright.ops.control import ForOp, IfOp
from tilewright.passes.rewriting import erase, insert_before, loop_carrying


def is_removable(op: Operation) -> bool:
    """Whether erasing `op` can be noticed only through its results: it writes nothing and ends no block."""
    return not op.has_trait(IsTerminator) and _changes_nothing(op, {})


EffectCache = dict[Operation, bool]
"""Whether an operation with regions changes nothing. What is erased changes nothing, so an answer stays true."""


def _changes_nothing(op: Operation, known: EffectCache) -> bool:
    if op.regions and op.has_trait(RecursiveMemoryEffect):
        found = known.get(op)
        if found is None:
            inner = (child for region in op.regions for block in region.blocks for child in block.ops)
            found = known[op] = all(_changes_nothing(child, known) for child in inner)
        return found
    done = effects(op)
    if not done:
        return done is not None
    return all(effect.kind in (MemoryEffectKind.READ, MemoryEffectKind.ALLOC) for effect in done)


def eliminate_dead_code(root: Operation) -> bool:
    """Erase dead operations below `root`, innermost and last first; says whether anything changed."""
    return _sweep_inside(root, {})


def _sweep_inside(root: Operation, known: EffectCache) -> bool:
    changed = False
    for region in root.regions:
        for block in region.blocks:
            changed |= _sweep(block, known)
    return changed


def _sweep(block: Block, known: EffectCache) -> bool:
    changed = False
    op = block.last_op
    while op is not None:
        before = op.prev_op
        if _is_dead(op, known):
            erase(op)
            changed = True
        elif op.regions:
            if isinstance(op, ForOp):
                changed |= _drop_dead_carried(op)
            for branch in among([op], IfOp):
                op = _without_dead_results(branch)
                changed |= op is not branch
            changed |= _sweep_inside(op, known)
        op = before
    return changed


def _is_dead(op: Operation, known: EffectCache) -> bool:
    for result in op.results:
        if result.first_use is not None:
            return False
    if op.has_trait(IsTerminator):
        return False
    return _changes_nothing(op, known)


def _drop_dead_carried(loop: ForOp) -> bool:
    """Remove carried values whose result is unused and whose argument feeds only its own next value."""
    body = loop.body.block
    terminator = body.last_op
    assert terminator is not None
    dead = [
        index
        for index, result in enumerate(loop.results)
        if result.first_use is None and _feeds_only(body.args[index + 1], terminator, index)
    ]
    if not dead:
        return False
    _rebuild_without(loop, dead)
    return True


def _without_dead_results(branch: IfOp) -> IfOp:
    """A branch without the results that nobody reads, in the place of one that has some."""
    kept = [n for n, result in enumerate(branch.results) if result.first_use is not None]
    if len(kept) == len(branch.results):
        return branch
    for region in branch.regions:
        end = region.block.last_op
        assert end is not None
        end.operands = [end.operands[n] for n in kept]
    regions = [branch.detach_region(0), branch.detach_region(0)]
    if not kept and regions[1].block.first_op is regions[1].block.last_op:
        regions[1] = Region()
    made = IfOp.create(
        operands=[branch.cond],
        result_types=[branch.results[n].type for n in kept],
        properties=dict(branch.properties),
        attributes=dict(branch.attributes),
        regions=regions,
    )
    insert_before(made, branch)
    for n, result in zip(kept, made.results, strict=True):
        branch.results[n].replace_all_uses_with(result)
    erase(branch)
    return made


def _rebuild_without(loop: ForOp, dead: Sequence[int]) -> None:
    """Replace `loop` by one that does not carry the values at the indices `dead`."""
    body = loop.body.block
    terminator = body.last_op
    assert terminator is not None
    terminator.operands = [o for i, o in enumerate(terminator.operands) if i not in dead]
    kept = [r for i, r in enumerate(loop.results) if i not in dead]
    initial = [o for i, o in enumerate(loop.operands[3:]) if i not in dead]
    eliminate_dead_code(loop)  # what fed the dropped values, so that their arguments lose their last uses
    for index in reversed(dead):
        body.erase_arg(body.args[index + 1])
    made = loop_carrying(loop, initial)
    for old, new in zip(kept, made.results, strict=True):
        old.replace_all_uses_with(new)
    erase(loop)


def _feeds_only(value: SSAValue, terminator: Operation, index: int) -> bool:
    """Whether every use of `value` ends, through removable operations, in operand `index` of `terminator`."""

    def feeds(use: Use) -> bool:
        user = use.operation
        if user is terminator:
            return use.index == index
        return user.parent is terminator.parent and not user.regions and is_removable(user)

    return all(map(feeds, uses_behind([value], lambda user: user is not terminator)))
