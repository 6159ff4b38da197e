"""Loops that count become `scf.for`, however they are written.

    scf.while (%i = %lo, ...) {                    scf.for %i = %lo to %n step %s {
      scf.condition (cmpi slt, %i, %n) ...    ->     ...
    } do { ...  yield %i + %s, ... }                 yield ...
                                                   }

The condition compares a carried integer, which each trip advances by one step of known sign, with something that stays
the same; `n - i > 0`, `i <= n` and loops that count down are of this kind. A loop that counts down counts its distance
from the start upward. Index arithmetic is taken not to wrap, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import is_side_effect_free

from tilewright.ir.types import i32, i64
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ConditionOp, ForOp, WhileOp, YieldOp
from tilewright.ops.elementwise import AddIOp, CmpIOp, DivSIOp, MaxSIOp, MulIOp, SubIOp
from tilewright.ops.signs import never_negative
from tilewright.passes.rewriting import replace

_MIRRORED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle"}


def count_loops(root: Operation) -> bool:
    """Rewrite every counting `scf.while` below `root`, in place; says whether there was one."""
    changed = False
    for op in list(root.walk()):
        if isinstance(op, WhileOp):
            found = _recognise(op)
            if found is not None:
                _rewrite(op, found)
                changed = True
    return changed


@dataclass(frozen=True, slots=True)
class _Sum:
    """sign * counter + the values of `plus` - those of `minus`."""

    sign: int = 0
    plus: tuple[SSAValue, ...] = ()
    minus: tuple[SSAValue, ...] = ()


@dataclass(frozen=True, slots=True)
class _Counting:
    """How a loop counts.

    Args:
        number: of the counter among the carried values.
        bound: what it is compared with.
        inclusive: whether the loop still runs where it is equal.
        step: of a trip, as a value that is known before the loop; or its number, which may be negative.
        test: operations of the first region, in their order.
    """

    number: int
    bound: _Sum
    inclusive: bool
    step: SSAValue | int
    test: list[Operation]

    @property
    def down(self) -> bool:
        return isinstance(self.step, int) and self.step < 0


def _recognise(loop: WhileOp) -> _Counting | None:
    before, after = loop.before.block, loop.after.block
    end, last = before.last_op, after.last_op
    assert isinstance(end, ConditionOp) and isinstance(last, YieldOp)
    test = [op for op in before.ops if op is not end]
    passed = list(end.operands[1:])
    if passed != list(before.args) or not all(is_side_effect_free(op) and not op.regions for op in test):
        return None
    compare = end.operands[0].owner
    if not isinstance(compare, CmpIOp) or compare.parent is not before:
        return None
    for number, counter in enumerate(before.args):
        step = _step(loop, last.operands[number], after.args[number]) if counter.type in (i32, i64) else None
        found = _counting(compare, counter, number, step, test) if step is not None else None
        if found is not None:
            return found
    return None


def _step(loop: WhileOp, value: SSAValue, counter: SSAValue) -> SSAValue | int | None:
    """What a trip adds to its counter: a number, or a value from outside of the loop that is not negative."""
    op = value.owner
    if not isinstance(op, AddIOp | SubIOp):
        return None
    sides = list(op.operands) if isinstance(op, SubIOp) or op.operands[0] is counter else list(op.operands)[::-1]
    if sides[0] is not counter:
        return None
    if isinstance(sides[1].owner, ConstantOp):
        number = int(sides[1].owner.splat_value or 0)
        return (-number if isinstance(op, SubIOp) else number) or None
    if not isinstance(op, AddIOp) or not never_negative(sides[1]):
        return None
    return sides[1] if not _is_inside(sides[1], loop) or _could_stand_before(sides[1].owner, loop) else None


def _could_stand_before(op: Operation | Block, loop: WhileOp) -> bool:
    """Whether an operation of the loop computes the same in every trip, from values that are known before."""
    pure = isinstance(op, Operation) and is_side_effect_free(op) and not op.regions
    return pure and not any(_is_inside(operand, loop) for operand in op.operands)  # type: ignore[union-attr]


def _is_inside(value: SSAValue, loop: WhileOp) -> bool:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
    while block is not None and block.parent_op() is not None:
        if block.parent_op() is loop:
            return True
        block = block.parent_op().parent_block()  # type: ignore[union-attr]
    return False


def _counting(
    compare: Operation, counter: SSAValue, number: int, step: SSAValue | int, test: list[Operation]
) -> _Counting | None:
    """The loop, if `compare` says that `counter` has not come to a bound."""
    predicate = compare.attr_values()["predicate"]  # type: ignore[attr-defined]
    left, right = (_sum(side, counter) for side in compare.operands)
    if left is None or right is None or predicate not in _MIRRORED:
        return None
    rest = _Sum(left.sign - right.sign, left.plus + right.minus, left.minus + right.plus)
    if rest.sign == 1:  # counter + rest < 0
        bound = _Sum(0, rest.minus, rest.plus)
    elif rest.sign == -1:  # rest - counter < 0
        bound, predicate = _Sum(0, rest.plus, rest.minus), _MIRRORED[predicate]
    else:
        return None
    down = isinstance(step, int) and step < 0
    if predicate not in (("sgt", "sge") if down else ("slt", "sle")):
        return None
    return _Counting(number, bound, predicate in ("sle", "sge"), step, test)


def _sum(value: SSAValue, counter: SSAValue) -> _Sum | None:
    """A value as a sum in which the counter occurs once at most; None if something else depends on the counter."""
    if value is counter:
        return _Sum(1)
    op, block = value.owner, counter.owner
    if not isinstance(op, Operation) or op.parent is not block:
        return None if value.owner is block else _Sum(0, (value,))
    if isinstance(op, AddIOp | SubIOp):
        parts = [_sum(operand, counter) for operand in op.operands]
        a, b = parts
        if a is None or b is None:
            return None
        if isinstance(op, SubIOp):
            b = _Sum(-b.sign, b.minus, b.plus)
        return _Sum(a.sign + b.sign, a.plus + b.plus, a.minus + b.minus)
    return _Sum(0, (value,)) if _stays(op, block) else None


def _stays(op: Operation, block: object) -> bool:
    """Whether an operation of the first region depends on nothing that the loop carries."""
    todo = [op]
    while todo:
        for operand in todo.pop().operands:
            if operand.owner is block:
                return False
            if isinstance(operand.owner, Operation) and operand.owner.parent is block:
                todo.append(operand.owner)
    return True


# --- rewriting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Puts integer arithmetic of one type in front of an operation."""

    anchor: Operation
    type_: Attribute

    def put(self, op: Operation) -> SSAValue:
        block = self.anchor.parent_block()
        assert block is not None
        op.location = self.anchor.location
        block.insert_op_before(op, self.anchor)
        return op.results[0]

    def apply(self, kind: type[Operation], a: SSAValue, b: SSAValue | int) -> SSAValue:
        return self.put(kind.create(operands=[a, self.known(b)], result_types=[self.type_]))

    def known(self, value: SSAValue | int) -> SSAValue:
        return value if isinstance(value, SSAValue) else self.put(ConstantOp.of(value, self.type_))

    def sum(self, of: _Sum) -> SSAValue:
        total = of.plus[0] if of.plus else self.known(0)
        for value in of.plus[1:]:
            total = self.apply(AddIOp, total, value)
        for value in of.minus:
            total = self.apply(SubIOp, total, value)
        return total


def _rewrite(loop: WhileOp, counting: _Counting) -> None:
    block, number, test = loop.parent_block(), counting.number, loop.before.block
    assert block is not None
    first = loop.operands[number]
    ahead = _Ahead(loop, first.type)
    for op in [op for op in counting.test if _stays(op, test)]:
        _move_before(op, loop)
    if isinstance(counting.step, SSAValue) and _is_inside(counting.step, loop):
        _move_before(counting.step.owner, loop)
    lower, upper = first, ahead.sum(counting.bound)
    if counting.down:
        lower, upper = ahead.known(0), ahead.apply(SubIOp, first, upper)
    if counting.inclusive:
        upper = ahead.apply(AddIOp, upper, 1)
    step = ahead.known(abs(counting.step) if isinstance(counting.step, int) else counting.step)
    others = [value for n, value in enumerate(loop.operands) if n != number]
    made = ForOp.build_op([lower, upper, step, others], [v.type for v in others], regions=[_body(loop, counting)])
    results: list[SSAValue] = list(made.results)
    made.location = loop.location
    block.insert_op_before(made, loop)
    results.insert(number, _last(ahead, counting, loop, lower, upper, step))
    replace(loop, results)


def _move_before(op: Operation | Block, loop: WhileOp) -> None:
    block = loop.parent_block()
    assert block is not None and isinstance(op, Operation)
    op.detach()  # type: ignore[no-untyped-call]
    block.insert_op_before(op, loop)


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
        start = body.first_op
        assert start is not None
        counter.replace_all_uses_with(_Ahead(start, first.type).apply(SubIOp, first, index))
    else:
        counter.replace_all_uses_with(index)
    body.erase_arg(counter)
    return region


def _last(
    ahead: _Ahead, counting: _Counting, loop: WhileOp, lower: SSAValue, upper: SSAValue, step: SSAValue
) -> SSAValue:
    """The counter behind the loop: its first value advanced by all trips."""
    first = loop.operands[counting.number]
    if not list(loop.results[counting.number].uses):
        return first
    room = ahead.apply(MaxSIOp, ahead.apply(SubIOp, upper, lower), 0)
    trips = ahead.apply(DivSIOp, ahead.apply(AddIOp, room, ahead.apply(SubIOp, step, 1)), step)
    way = ahead.apply(MulIOp, trips, step)
    return ahead.apply(SubIOp if counting.down else AddIOp, first, way)
