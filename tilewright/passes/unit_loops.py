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
from tilewright.ir.types import bit_width, i32
from tilewright.ir.values import defining_op, users_of
from tilewright.ir.walk import every
from tilewright.ops.casts import ExtSIOp, ExtUIOp
from tilewright.ops.control import ANY_STEP, ForOp
from tilewright.ops.elementwise import AddIOp, DivUIOp, MaxUIOp, MinUIOp, SubIOp
from tilewright.ops.signs import always_positive, never_negative
from tilewright.passes.building import Builder
from tilewright.passes.rewriting import erase

_NEVER_TOO_MANY = 3  # by such a step no two numbers of a type have more iterations between them than it can count


def count_marked_loops(module: Operation) -> bool:
    """Rewrite the loops below `module` that may count down, in place; says whether there was a marked one."""
    marked = [op for op in every(module, ForOp) if ANY_STEP in op.attributes]
    for loop in marked:
        del loop.attributes[ANY_STEP]
        if not always_positive(loop.step):
            _normalize(loop, rises=False)
    return bool(marked)


def normalize_loops(module: Operation) -> bool:
    """Rewrite all loops below `module`, in place; says whether there was one to rewrite."""
    changed = False
    for loop in every(module, ForOp):
        if not is_unit(loop) or bit_width(loop.lb.type) < bit_width(i32):
            _normalize(loop, rises=True)
            changed = True
    return changed


def _number(loop: ForOp) -> Attribute:
    """The type of a number of iterations: 8 bits hold the bounds, not how many lie between them."""
    return i32 if bit_width(loop.lb.type) < bit_width(i32) else loop.lb.type


def _normalize(loop: ForOp, *, rises: bool) -> None:
    """Have a loop count its iterations; `rises` if its step is positive."""
    b, signed, counter, kind = Builder(loop), loop.unsignedCmp is None, loop.lb.type, _number(loop)
    widen = ExtSIOp if signed else ExtUIOp
    lower, upper = (b.resized(bound, kind, widen) for bound in (loop.lb, loop.ub))
    step = b.resized(loop.step, kind, widen if rises else ExtSIOp)
    count = _known(loop, rises) if signed else None
    if count is not None:
        iterations = b.number(count, kind)
    elif rises:
        iterations = _iterations_up(b, (lower, upper, step), signed=signed)
    else:
        iterations = _iterations(b, (lower, upper, step), "slt" if signed else "ult")
    old, new = loop.induction_var, loop.body.block.insert_arg(kind, 0)
    inside = Builder(_first_behind(new, loop))
    way = new if constant_of(step) == 1 else inside.mul(new, step)
    narrow_way = inside.resized(way, counter)
    _count_down(old, loop.lb, narrow_way)
    inside.anchor = _first_behind(narrow_way, loop)  # what stood there before may be gone
    if old.first_use is not None:
        place = inside.resized(way if constant_of(lower) == 0 else inside.add(lower, way), counter)
        if place is not new:
            place.name_hint = old.name_hint
        old.replace_all_uses_with(place)
    loop.body.block.erase_arg(loop.body.block.args[1])
    for operand, value in enumerate((b.number(0, kind), iterations, b.number(1, kind))):
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
                place = Builder(inner).sub(distance.operands[0], way)
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


def _iterations_up(b: Builder, limits: tuple[SSAValue, SSAValue, SSAValue], *, signed: bool) -> SSAValue:
    """How many numbers lie on the way from the first up to the second, which is not among them, by steps of the third:
    the last one's number and one more, if there is a way.

    The distance is a number without a sign.
    """
    lower, upper, step = limits
    start, by = (constant_of(value) for value in (lower, step))
    distance = _less(b, upper, start) if isinstance(start, int) else b.sub(upper, lower)
    fits = signed and never_negative(lower, proven=True)
    if by == 1 and fits:
        count = distance
    else:
        last = _less(b, distance, 1)
        last = last if by == 1 else b.op(DivUIOp, last, step)
        if not fits and not (isinstance(by, int) and by >= _NEVER_TOO_MANY):
            last = b.op(MinUIOp, last, _last(b, upper.type))
        count = b.add(last, b.number(1, upper.type))
    some = b.compare("slt" if signed else "ult", lower, upper)
    return b.choose(some, count, b.number(0, upper.type))


def _less(b: Builder, value: SSAValue, by: int) -> SSAValue:
    """A value less a number."""
    if by == 0:
        return value
    return b.op(SubIOp if by > 0 else AddIOp, value, b.number(abs(by), value.type))


def _last(b: Builder, kind: Attribute) -> SSAValue:
    """The number of the last iteration of the most that a type counts."""
    return b.number((1 << bit_width(kind) - 1) - 2, kind)


def _iterations(b: Builder, limits: tuple[SSAValue, SSAValue, SSAValue], less: str) -> SSAValue:
    """How many numbers lie on the way from the first to the second by steps of the third, whatever its sign."""
    lower, upper, step = limits
    zero, one = b.number(0, upper.type), b.number(1, upper.type)
    rises, falls = b.compare("sgt", step, zero), b.compare("slt", step, zero)
    distance = b.choose(rises, b.sub(upper, lower), b.sub(lower, upper))
    size = b.choose(rises, step, b.sub(zero, step))
    down = b.both(falls, b.compare(less, upper, lower))
    some = b.choose(rises, b.compare(less, lower, upper), down)
    last = b.op(DivUIOp, b.sub(distance, one), b.op(MaxUIOp, size, one))
    return b.choose(some, b.add(b.op(MinUIOp, last, _last(b, upper.type)), one), zero)
