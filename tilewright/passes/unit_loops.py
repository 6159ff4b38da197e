"""Unit loops: every counted loop counts its iterations from 0 by 1, and its counter is a sum in their number.

    for %k = %lo to %hi step %s { .. %k .. }    ->    %n = number of iterations
                                                      for %i = 0 to %n step 1 { .. %lo + %i * %s .. }

Behind this pass no `scf.for` has another form, whatever was written: upwards, downwards, from anywhere, by a step of
which only a run tells the sign (those early, behind the calls that may tell it). The number of iterations is exact, and
never negative, up to the largest that the counter's type holds; a step of zero makes no iteration. What an iteration
adds is the coefficient of its number (`analysis/scalar_evolution.py`); `analysis/iterations.py` reads the bounds back.
"""

from __future__ import annotations

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit
from tilewright.ir.types import bit_width, i1, i32
from tilewright.ir.values import defining_op, users_of
from tilewright.ir.walk import every
from tilewright.ops.casts import ExtSIOp, ExtUIOp, TruncIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ANY_STEP, ForOp
from tilewright.ops.elementwise import AddIOp, AndIOp, CmpIOp, DivUIOp, MaxUIOp, MinUIOp, MulIOp, SelectOp, SubIOp
from tilewright.ops.signs import always_positive, never_negative
from tilewright.passes.rewriting import erase, value_before

_NEVER_TOO_MANY = 3  # by such a step no two numbers of a type have more iterations between them than it can count


def count_marked_loops(module: Operation) -> bool:
    """Rewrite the loops below `module` that may count down, in place; says whether there was a marked one."""
    marked = [op for op in every(module, ForOp) if ANY_STEP in op.attributes]
    for loop in marked:
        del loop.attributes[ANY_STEP]
        if not always_positive(loop.step):
            _normalize(loop, _Before(loop, _number(loop)), rises=False)
    return bool(marked)


def normalize_loops(module: Operation) -> bool:
    """Rewrite all loops below `module`, in place; says whether there was one to rewrite."""
    changed = False
    for loop in every(module, ForOp):
        if not is_unit(loop) or bit_width(loop.lb.type) < bit_width(i32):
            _normalize(loop, _Before(loop, _number(loop)), rises=True)
            changed = True
    return changed


def _number(loop: ForOp) -> Attribute:
    """The type of a number of iterations: 8 bits hold the bounds, not how many lie between them."""
    return i32 if bit_width(loop.lb.type) < bit_width(i32) else loop.lb.type


class _Before:
    """Puts arithmetic of one integer type in front of an operation; what is known is computed now.

    Args:
        anchor: the operation.
        type_: of the numbers.
    """

    def __init__(self, anchor: Operation, type_: Attribute) -> None:
        self.anchor, self.type = anchor, type_

    def number(self, value: int) -> SSAValue:
        return value_before(ConstantOp.of(value, self.type), self.anchor)

    def make(self, kind: type[Operation], *operands: SSAValue) -> SSAValue:
        return value_before(kind.create(operands=operands, result_types=[operands[-1].type]), self.anchor)

    def less(self, a: SSAValue, by: int) -> SSAValue:
        """A value less a number."""
        return a if by == 0 else self.make(SubIOp, a, self.number(by)) if by > 0 else self.more(a, -by)

    def more(self, a: SSAValue, by: int) -> SSAValue:
        """A value and a number."""
        return self.make(AddIOp, a, self.number(by))

    def compare(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        properties = {"predicate": CmpIOp.PREDICATES[predicate]}
        return value_before(CmpIOp.create(operands=[a, b], result_types=[i1], properties=properties), self.anchor)

    def cast(self, value: SSAValue, widen: type[Operation]) -> SSAValue:
        """A value in this type, widened so if it is narrower."""
        if value.type == self.type:
            return value
        known = constant_of(value)
        if isinstance(known, int) and widen is ExtSIOp:
            return self.number(known)
        kind = widen if bit_width(value.type) < bit_width(self.type) else TruncIOp
        return value_before(kind.create(operands=[value], result_types=[self.type]), self.anchor)


def _normalize(loop: ForOp, b: _Before, *, rises: bool) -> None:
    """Have a loop count its iterations; `rises` if its step is positive."""
    signed, counter = loop.unsignedCmp is None, loop.lb.type
    lower, upper = (b.cast(bound, ExtSIOp if signed else ExtUIOp) for bound in (loop.lb, loop.ub))
    step = b.cast(loop.step, ExtSIOp if signed or not rises else ExtUIOp)
    count = _known(loop, rises) if signed else None
    if count is not None:
        iterations = b.number(count)
    elif rises:
        iterations = _iterations_up(b, (lower, upper, step), signed=signed)
    else:
        iterations = _iterations(b, (lower, upper, step), "slt" if signed else "ult")
    old, new = loop.induction_var, loop.body.block.insert_arg(b.type, 0)
    inside, narrow = (_Before(_first_behind(new, loop), type_) for type_ in (b.type, counter))
    way = new if constant_of(step) == 1 else inside.make(MulIOp, new, step)
    narrow_way = narrow.cast(way, ExtSIOp)
    _count_down(old, loop.lb, narrow_way)
    inside.anchor = narrow.anchor = _first_behind(narrow_way, loop)  # what stood there before may be gone
    if old.first_use is not None:
        place = way if constant_of(lower) == 0 else inside.make(AddIOp, lower, way)
        place = narrow.cast(place, ExtSIOp)
        if place is not new:
            place.name_hint = old.name_hint
        old.replace_all_uses_with(place)
    loop.body.block.erase_arg(loop.body.block.args[1])
    for operand, value in enumerate((b.number(0), iterations, b.number(1))):
        loop.operands[operand] = value
    loop.properties.pop("unsignedCmp", None)


def _first_behind(value: SSAValue, loop: ForOp) -> Operation:
    """The operation of a loop's body that follows the one that makes a value, or the first one."""
    op = defining_op(value)
    found = loop.body.block.first_op if op is None or op.parent_block() is not loop.body.block else op.next_op
    assert found is not None
    return found


def _count_down(counter: SSAValue, lower: SSAValue, way: SSAValue) -> None:
    """Let ``x - way`` stand for ``x - counter + lower``: so loops that count down are written upwards."""
    for use in list(counter.uses):
        distance = use.operation
        if not isinstance(distance, SubIOp) or use.index != 1:
            continue
        for inner in users_of(distance.results[0]):
            if isinstance(inner, AddIOp) and _is_same(inner.operands[1], lower):
                made = SubIOp.create(operands=[distance.operands[0], way], result_types=[way.type])
                place = value_before(made, inner)
                place.name_hint = inner.results[0].name_hint
                inner.results[0].replace_all_uses_with(place)
                erase(inner)
        if distance.results[0].first_use is None:
            erase(distance)


def _is_same(a: SSAValue, b: SSAValue) -> bool:
    return a is b or (constant_of(a) is not None and constant_of(a) == constant_of(b))


def _known(loop: ForOp, rises: bool) -> int | None:
    """The number of iterations, if all that it is made of is known."""
    lower, upper, step = (constant_of(bound) for bound in loop.operands[:3])
    if not (isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int)) or step < rises:
        return None
    count = len(range(lower, upper, step)) if step else 0
    return count if count < 1 << bit_width(_number(loop)) - 1 else None


def _iterations_up(b: _Before, limits: tuple[SSAValue, SSAValue, SSAValue], *, signed: bool) -> SSAValue:
    """How many numbers lie on the way from the first up to the second, which is not among them, by steps of the third:
    the last one's number and one more, if there is a way.

    The distance is a number without a sign.
    """
    lower, upper, step = limits
    start, by = (constant_of(value) for value in (lower, step))
    distance = b.less(upper, start) if isinstance(start, int) else b.make(SubIOp, upper, lower)
    fits = signed and never_negative(lower, proven=True)
    if by == 1 and fits:
        count = distance
    else:
        last = b.less(distance, 1)
        last = last if by == 1 else b.make(DivUIOp, last, step)
        if not fits and not (isinstance(by, int) and by >= _NEVER_TOO_MANY):
            last = b.make(MinUIOp, last, b.number(_most(b) - 1))
        count = b.more(last, 1)
    some = b.compare("slt" if signed else "ult", lower, upper)
    return b.make(SelectOp, some, count, b.number(0))


def _most(b: _Before) -> int:
    return (1 << bit_width(b.type) - 1) - 1


def _iterations(b: _Before, limits: tuple[SSAValue, SSAValue, SSAValue], less: str) -> SSAValue:
    """How many numbers lie on the way from the first to the second by steps of the third, whatever its sign."""
    lower, upper, step = limits
    zero, one = b.number(0), b.number(1)
    rises, falls = b.compare("sgt", step, zero), b.compare("slt", step, zero)
    distance = b.make(SelectOp, rises, b.make(SubIOp, upper, lower), b.make(SubIOp, lower, upper))
    size = b.make(SelectOp, rises, step, b.make(SubIOp, zero, step))
    down = b.make(AndIOp, falls, b.compare(less, upper, lower))
    some = b.make(SelectOp, rises, b.compare(less, lower, upper), down)
    last = b.make(DivUIOp, b.make(SubIOp, distance, one), b.make(MaxUIOp, size, one))
    return b.make(SelectOp, some, b.make(AddIOp, b.make(MinUIOp, last, b.number(_most(b) - 1)), one), zero)
