"""One spelling of masks: comparisons joined by `and`, without negations, selections and detours through numbers.

    xor (cmpi sge, %k, %n), true                ->  cmpi slt, %k, %n
    xor (or %a, %b), true                       ->  and (not %a), (not %b)
    select %c, true, false                      ->  %c
    select %c, %x, false                        ->  and %c, %x
    cmpi ne, (extui %c), 0                      ->  %c
    muli %a, %b                                 ->  and %a, %b

All of i1, scalars and tiles. Negations move through changes of shape to the comparisons. What is left over is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.base.order import operands_first, reached
from tilewright.ir.effect_traits import effects
from tilewright.ir.traits import is_view
from tilewright.ir.types import element_type, i1
from tilewright.ir.values import defining_op, operands_of
from tilewright.ir.walk import among, every, walk
from tilewright.ops.casts import ExtSIOp, ExtUIOp, UIToFPOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.elementwise import AndIOp, CmpIOp, MulIOp, OrIOp, SelectOp, XOrIOp
from tilewright.ops.elementwise_base import CompareOp
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import replace

INVERSE = {
    "eq": "ne", "slt": "sge", "sle": "sgt", "ult": "uge", "ule": "ugt",
    "ne": "eq", "sge": "slt", "sgt": "sle", "uge": "ult", "ugt": "ule",
}  # fmt: skip


def simplify_masks(root: Operation) -> bool:
    """Rewrite every mask below `root`, in place; says whether anything changed."""
    changed = False
    for op in list(walk(root)):
        rule = _RULES.get(type(op))
        if rule is None or len(op.results) != 1 or element_type(op.results[0].type) != i1:
            continue
        found = rule(op)
        if found is not None:
            replace(op, [found])
            changed = True
    return changed


def choose_inside(root: Operation) -> bool:
    """Turn selections over whose condition is a disjunction of comparisons; says whether there was one.

    ``select (or %a, %b), %x, %y`` is ``select (and (not %a), (not %b)), %y, %x``: what is chosen inside of bounds.
    """
    changed = False
    for op in [op for op in every(root, SelectOp) if isinstance(op.operands[0].owner, OrIOp)]:
        condition, x, y = op.operands
        if _can_negate(condition):
            op.operands = [_negated(condition, op), y, x]
            changed = True
    return changed


def count_inside(root: Operation) -> bool:
    """Turn truth values that are counted under a mask into what is chosen under it; says whether there was one.

    ``extui (and %loaded, %mask)`` is ``select %mask, (extui %loaded), 0`` for a mask that is made of places alone.
    """
    changed = False
    for op in [*among(walk(root), ExtUIOp, ExtSIOp), *among(walk(root), UIToFPOp)]:
        parts = _conjuncts(op.operands[0])
        masks = [part for part in parts if not _is_of_memory(part)] if len(parts) > 1 else []
        others = [part for part in parts if part not in masks]
        if masks and others:
            b, kind = Builder(op), op.results[0].type
            counted = b.again(op, kind, reduce(b.both, others))
            replace(op, [b.choose(reduce(b.both, masks), counted, b.number(0, kind))])
            changed = True
    return changed


def _conjuncts(value: SSAValue) -> list[SSAValue]:
    """The truth values that one joins by `and`; none of what is no truth value."""
    if element_type(value.type) != i1:
        return []
    return [part for part in reached([value], _sides) if not _sides(part)]


def _sides(value: SSAValue) -> Sequence[SSAValue]:
    """The operands of a conjunction."""
    return [side for op in among([defining_op(value)], AndIOp) for side in op.operands]


def _is_of_memory(value: SSAValue) -> bool:
    """Whether a value is made of what is loaded, or of what loops and branches give."""

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        op = defining_op(value)
        return operands_of(op) if op is not None and not op.regions else ()

    ops = [defining_op(v) for v in reached([value], made_of)]
    return any(op is not None and (op.regions or effects(op)) for op in ops)


def _number(value: SSAValue) -> int | None:
    """The number that all elements are; 1 for a true one, whatever the sign with which it is kept."""
    number = constant_of(value)
    if number is None:
        return None
    return abs(int(number)) if element_type(value.type) == i1 else int(number)


# --- negations ------------------------------------------------------------------------------------------


def _negation(op: Operation) -> SSAValue | None:
    """`xor x, true`, if the negation of `x` can be said without one."""
    for value, other in (tuple(op.operands), tuple(op.operands)[::-1]):
        if _number(other) == 1:
            return _negated(value, op) if _can_negate(value) else None
    return None


def _can_negate(value: SSAValue) -> bool:
    """Whether `_negated` leaves no negation behind."""
    todo = [value]
    while todo:
        op = todo.pop().owner
        if isinstance(op, CmpIOp | ConstantOp):
            continue
        if isinstance(op, XOrIOp) and _number(op.operands[1]) == 1:
            continue
        if not isinstance(op, Operation) or not (len(op.results) == 1 and (is_view(op) or isinstance(op, OrIOp))):
            return False
        todo += op.operands
    return True


def _negated(value: SSAValue, before: Operation) -> SSAValue:
    """The negation of a mask of which `_can_negate` holds, where `before` stands."""
    made: dict[SSAValue, SSAValue] = {}

    def parts(mask: SSAValue) -> Sequence[SSAValue]:
        op = mask.owner
        assert isinstance(op, Operation)
        return op.operands[::-1] if is_view(op) or isinstance(op, OrIOp) else ()

    for part in operands_first(value, parts, made):
        made[part] = _negated_once(part.owner, made, before)  # type: ignore[arg-type]
    return made[value]


def _negated_once(op: Operation, made: dict[SSAValue, SSAValue], before: Operation) -> SSAValue:
    """The negation of the result of `op`, from those of its operands."""
    b, kind = Builder(before), op.results[0].type
    if isinstance(op, CmpIOp):
        return b.make(CmpIOp, kind, *op.operands, predicate=INVERSE[op.attr_values()["predicate"]])
    if isinstance(op, XOrIOp):
        return op.operands[0]
    if isinstance(op, ConstantOp):
        return b.number(not op.splat_value, kind)
    operands = [made[operand] for operand in op.operands]
    return b.both(*operands) if isinstance(op, OrIOp) else b.again(op, kind, *operands)


# --- selections, comparisons of truth values, products -----------------------------------------------------


def _selection(op: SelectOp) -> SSAValue | None:
    """`select c, a, b` of truth values, one of which is known."""
    condition, a, b = op.operands
    known = _number(a), _number(b)
    if known == (1, 0):
        return Builder(op).like(condition, op.results[0])
    if known == (0, 1) and _can_negate(condition):
        return Builder(op).like(_negated(condition, op), op.results[0])
    if known[1] == 0:
        return Builder(op).both(condition, a)
    if known[0] == 1:
        return Builder(op).either(condition, b)
    return None


def _comparison(op: CompareOp) -> SSAValue | None:
    """A truth value compared with a number, be it widened to a number or not."""
    value, number = op.operands[0], _number(op.operands[1])
    wide = value.owner if isinstance(value.owner, (ExtUIOp, ExtSIOp)) else None
    source = value if wide is None else wide.operands[0]
    if number is None or element_type(source.type) != i1:
        return None
    true = -1 if isinstance(wide, ExtSIOp) else 1
    asked = op.attr_values()["predicate"], number
    positive = wide is not None and true == 1 and asked == ("sgt", 0)
    if positive or asked in {("ne", 0), ("eq", true)}:
        return source
    if asked in {("eq", 0), ("ne", true)} and _can_negate(source):
        return _negated(source, op)
    return None


def _product(op: Operation) -> SSAValue | None:
    """The product of truth values is their conjunction."""
    return Builder(op).both(*op.operands)


_RULES: dict[type[Operation], Callable[[Any], SSAValue | None]] = {
    XOrIOp: _negation,
    SelectOp: _selection,
    CmpIOp: _comparison,
    MulIOp: _product,
}
