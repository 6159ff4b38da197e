"""While to for: loops that count become `scf.for`, however they are written.

    scf.while (%i = %lo, ...) {                    scf.for %i = %lo to %n step %s {
      scf.condition (cmpi slt, %i, %n) ...    ->     ...
    } do { ...  yield %i + %s, ... }                 yield ...
                                                   }

The condition compares a carried integer, which each iteration advances by one step of known sign, with something that
stays the same; `n - i > 0`, `i <= n` and loops that count down are of this kind, and so are several such conditions,
also those that an iteration asks at its end and hands on as a flag (`trip_count.py`). A loop that counts down counts
its distance from the start upward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from tilewright.analysis.affine import Poly
from tilewright.analysis.constants import constant_of
from tilewright.base.order import operands_first
from tilewright.ir.values import defining_op
from tilewright.ir.walk import every
from tilewright.ops.control import ConditionOp, ForOp, WhileOp, YieldOp
from tilewright.ops.elementwise import AddIOp, DivSIOp, MaxSIOp, MulIOp, SubIOp
from tilewright.ops.signs import never_negative
from tilewright.passes.rewriting import insert_before, replace
from tilewright.passes.trip_count import (
    COUNTS,
    Bound,
    CountedBlock,
    Preheader,
    compute_before,
    conjuncts,
    end_of,
    is_free,
    operands_in,
    stays,
)


def convert_while_to_for(root: Operation) -> bool:
    """Rewrite every counting `scf.while` below `root`, in place; says whether there was one."""
    changed = False
    for op in every(root, WhileOp):
        found = _recognise(op)
        if found is not None:
            _rewrite(op, found)
            changed = True
    return changed


@dataclass(frozen=True, slots=True)
class _Counting:
    """How a loop counts.

    Args:
        number: of the counter among the carried values.
        step: of an iteration, as a value that is known before the loop; or its number, which may be negative.
        bounds: of the counter, or of its distance from the start.
    """

    number: int
    step: SSAValue | int
    bounds: Sequence[Bound]

    @property
    def down(self) -> bool:
        return isinstance(self.step, int) and self.step < 0


def _recognise(loop: WhileOp) -> _Counting | None:
    before, last = loop.before.block, loop.after.block.last_op
    end = before.last_op
    assert isinstance(end, ConditionOp) and isinstance(last, YieldOp)
    passed = list(end.operands[1:])
    if passed != list(before.args) or not all(is_free(op) for op in before.ops if op is not end):
        return None
    steps = {n: step for n in range(len(before.args)) if (step := _step(loop, n)) is not None}
    for number in sorted(_asked(loop) & steps.keys()):
        bounds = _bounds(loop, number, steps)
        if bounds:
            return _Counting(number, steps[number], bounds)
    return None


def _step(loop: WhileOp, number: int) -> SSAValue | int | None:
    """What an iteration adds to a carried value: a number, or a value from outside of the loop that is not negative."""
    block = loop.after.block
    assert block.last_op is not None
    counter, op = block.args[number], block.last_op.operands[number].owner
    if counter.type not in COUNTS or not isinstance(op, AddIOp | SubIOp):
        return None
    sides = list(op.operands) if isinstance(op, SubIOp) or op.operands[0] is counter else list(op.operands)[::-1]
    if sides[0] is not counter:
        return None
    by = constant_of(sides[1])
    if isinstance(by, int):
        return (-by if isinstance(op, SubIOp) else by) or None
    known = isinstance(op, AddIOp) and never_negative(sides[1]) and stays(sides[1], block)
    return sides[1] if known else None


def _asked(loop: WhileOp) -> set[int]:
    """The carried values of which the conditions are made.

    Only these may count. Any other that is advanced alike may be data, which wraps: the conditions would say nothing of
    it if it stood in for the one they ask.
    """
    before, after = loop.before.block, loop.after.block
    assert before.last_op is not None and after.last_op is not None
    asked: set[int] = set()
    for value, _ in conjuncts(before.last_op.operands[0]):
        if isinstance(value, BlockArgument) and value.owner is before:  # a flag: the last iteration asked
            asked |= _made_of(after.last_op.operands[value.index], after)
        else:
            asked |= _made_of(value, before)
    return asked


def _made_of(root: SSAValue, block: Block) -> set[int]:
    """The arguments of a block from which its operations compute a value."""

    values = operands_first(root, operands_in(block), ())
    return {value.index for value in values if isinstance(value, BlockArgument) and value.owner is block}


def _bounds(loop: WhileOp, number: int, steps: Mapping[int, SSAValue | int]) -> list[Bound]:
    """Under which conditions on the counter the loop goes on; none if there are others."""
    before, after = loop.before.block, loop.after.block
    assert before.last_op is not None and after.last_op is not None
    tested = CountedBlock(before, before.args[number], _places(loop, before, before.args[number], number, steps))
    left = CountedBlock(after, before.args[number], _places(loop, after, before.args[number], number, steps))
    bounds: list[Bound | None] = []
    for value, negated in conjuncts(before.last_op.operands[0]):
        if value.owner is not before:
            owner = defining_op(value)
            bounds.append(None if owner is None else tested.bound(owner, negated=negated, behind=False))
            continue
        assert isinstance(value, BlockArgument)
        first, following = constant_of(loop.operands[value.index]), after.last_op.operands[value.index]
        if first is None or bool(first) is negated:
            return []
        for part, wrong in conjuncts(following, negated=negated):
            owner = defining_op(part)
            bounds.append(None if owner is None else left.bound(owner, negated=wrong, behind=True))
    found = [bound for bound in bounds if bound is not None]
    return found if len(found) == len(bounds) else []


def _places(
    loop: WhileOp, block: Block, counter: SSAValue, number: int, steps: Mapping[int, SSAValue | int]
) -> dict[SSAValue, Poly]:
    """Carried integers as sums in the counter: those that an iteration advances by a multiple of its step.

    A loop that counts down has the distance from its first number as its counter.
    """
    own, first = steps[number], Poly.atom(loop.operands[number])
    down = isinstance(own, int) and own < 0
    distance = Poly.atom(counter) if down else Poly.atom(counter) + -first
    places: dict[SSAValue, Poly] = {block.args[number]: first + -distance if down else Poly.atom(counter)}
    for other, step in steps.items():
        if other != number and isinstance(own, int) and isinstance(step, int) and step % own == 0:
            places[block.args[other]] = Poly.atom(loop.operands[other]) + Poly.of(step // abs(own)) * distance
    return places


# --- rewriting ----------------------------------------------------------------------------------------------


def _rewrite(loop: WhileOp, counting: _Counting) -> None:
    number = counting.number
    first = loop.operands[number]
    preheader = Preheader(loop, first.type)
    if isinstance(counting.step, SSAValue):
        compute_before(counting.step, loop)
    size = abs(counting.step) if isinstance(counting.step, int) else counting.step
    lower = preheader.known(0) if counting.down else first
    upper = end_of(counting.bounds, loop, lower, size)
    step = preheader.known(size)
    others = [value for n, value in enumerate(loop.operands) if n != number]
    made = ForOp.create(
        operands=[lower, upper, step, *others],
        result_types=[v.type for v in others],
        attributes=loop.attributes.copy(),
        regions=[_body(loop, counting)],
    )
    results: list[SSAValue] = list(made.results)
    insert_before(made, loop)
    results.insert(number, _last(preheader, counting, loop, lower, upper, step))
    replace(loop, results)


def _body(loop: WhileOp, counting: _Counting) -> Region:
    """The second region as that of a `scf.for`, whose counter comes first."""
    region, number = loop.detach_region(1), counting.number
    body, first = region.block, loop.operands[number]
    last = body.last_op
    assert last is not None
    index, counter = body.insert_arg(first.type, 0), body.args[number + 1]
    index.name_hint = counter.name_hint
    following = [value for n, value in enumerate(last.operands) if n != number]
    last.operands = following
    if counting.down:
        place = SubIOp.create(operands=[first, index], result_types=[first.type])
        place.location = loop.location
        start = body.first_op
        assert start is not None
        body.insert_op_before(place, start)
        counter.replace_all_uses_with(place.results[0])
    else:
        counter.replace_all_uses_with(index)
    body.erase_arg(counter)
    return region


def _last(
    preheader: Preheader, counting: _Counting, loop: WhileOp, lower: SSAValue, upper: SSAValue, step: SSAValue
) -> SSAValue:
    """The counter after the loop: its first value advanced by all iterations."""
    first = loop.operands[counting.number]
    if not list(loop.results[counting.number].uses):
        return first
    room = preheader.apply(MaxSIOp, preheader.apply(SubIOp, upper, lower), 0)
    iterations = preheader.apply(DivSIOp, preheader.apply(AddIOp, room, preheader.apply(SubIOp, step, 1)), step)
    way = preheader.apply(MulIOp, iterations, step)
    return preheader.apply(SubIOp if counting.down else AddIOp, first, way)
