"""Index sets: the iterations of a loop, from its first on or up to its last, in which a mask that selects elements is
true everywhere.

    select(row >= i * 128 + column, scores, -inf)      row, column: a scalar and a range
    select(i * 128 + row >= column, scores, -inf)      the last iterations

A comparison of sums of scalars and ranges, of which the loop's counter makes one side larger, holds for every element
while the least element of the other side is as large as the largest of that one: up to a counter that is computed
before the loop. Until there the selection is its first choice; from there on, where the counter makes the larger side
larger. Sums are taken in 64 bits; where one of the program
might leave 32, no iteration counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Atom, Monomial, Poly, scalar_poly
from tilewright.analysis.constants import constant_of
from tilewright.analysis.index import greatest, identity
from tilewright.analysis.scalar_evolution import replaced
from tilewright.backends.nvidia.plan.building import Builder
from tilewright.ir.traits import is_view
from tilewright.ir.types import element_type, i1, i32, i64, shape_of
from tilewright.ir.values import defining_op, is_made_inside, is_tile
from tilewright.ir.walk import among
from tilewright.ops.casts import ExtSIOp, TruncIOp
from tilewright.ops.control import ForOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import AndIOp, CmpIOp, DivUIOp, SelectOp
from tilewright.ops.spec import ring_of

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
# Of a comparison that holds, whether its sides change places to read "first >= second", and how much larger it must be.
_ORDERS = {"sge": (False, 0), "sgt": (False, 1), "sle": (True, 0), "slt": (True, 1)}


@dataclass(frozen=True, slots=True)
class Sum:
    """What the elements of a tile of i32 are.

    Args:
        terms: scalars that are known before the loop, each with a factor.
        counter: factor of the loop's counter.
        least, most: of the rest, over all elements.
    """

    terms: tuple[tuple[SSAValue, int], ...]
    counter: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Unmasked:
    """Selections that are their first choice in the first iterations of a loop, or in the last ones.

    Args:
        selections: these.
        pairs: sides of the comparisons: the first must be as large as the second, by so much more at least.
        last: whether the last iterations are meant.
    """

    selections: tuple[SelectOp, ...]
    pairs: tuple[tuple[Sum, Sum, int], ...]
    last: bool = False


def unmasked(loop: ForOp, *, last: bool = False) -> Unmasked | None:
    """The selections of a loop's body that need no mask at first; None if there are none.

    Args:
        loop: that counts its iterations by one.
        last: those that need none in the end.
    """
    body = loop.body.block
    if constant_of(loop.step) != 1 or loop.unsignedCmp is not None or loop.lb.type != i32:
        return None
    selections: list[SelectOp] = []
    pairs: list[tuple[Sum, Sum, int]] = []
    analysis = AffineAnalysis(_is_more)
    for op in among(body.ops, SelectOp):
        if shape_of(op.condition.type):
            found = [_sides(each, loop, last, analysis) for each in _comparisons(op.condition)]
            if None not in found:
                selections.append(op)
                pairs += [pair for pair in found if pair is not None and pair not in pairs]
    return Unmasked(tuple(selections), tuple(pairs), last) if selections else None


def _comparisons(condition: SSAValue) -> Iterator[Operation]:
    """What a condition is a conjunction of; operations that are no comparisons too."""
    op = condition.owner
    if isinstance(op, Operation) and (isinstance(op, AndIOp) or is_view(op)):
        for operand in op.operands:
            yield from _comparisons(operand)
    elif isinstance(op, Operation):
        yield op


def _sides(op: Operation, loop: ForOp, last: bool, analysis: AffineAnalysis) -> tuple[Sum, Sum, int] | None:
    """The sides of a comparison of which the second grows with the counter (the first, for `last`), or neither does."""
    if not isinstance(op, CmpIOp) or str(op.attr_values()["predicate"]) not in _ORDERS:
        return None
    turned, more = _ORDERS[str(op.attr_values()["predicate"])]
    first, second = (_sum(value, loop, analysis) for value in (op.operands[::-1] if turned else op.operands))
    if first is None or second is None:
        return None
    if first.counter < second.counter if last else second.counter < first.counter:
        return None
    return first, second, more


def _is_more(value: SSAValue) -> bool:
    """Whether a tile is more than sums and products of i32, which are what they are without wrapping if they fit."""
    op = defining_op(value)
    plain = op is not None and (ring_of(op) is not None or is_view(op) or isinstance(op, MakeRangeOp))
    return is_tile(value) and not (plain and element_type(value.type) == i32)


def _sum(value: SSAValue, loop: ForOp, analysis: AffineAnalysis) -> Sum | None:
    """What the elements of a value are, if it is a sum of scalars and ranges."""
    form = analysis.integer(value, identity(shape_of(value.type)))
    strides = [(stride.constant, greatest(coord)) for coord, stride in form.coords.items()]
    terms, counter = dict(_before(form.constant, loop).terms), Atom(loop.induction_var)
    factor, number = terms.pop((counter,), 0), terms.pop((), 0)
    if element_type(value.type) != i32 or form.residual or not all(_is_known(monomial, loop) for monomial in terms):
        return None
    ends = [stride * most for stride, most in strides if stride is not None]
    if len(ends) < len(strides):
        return None
    least, most = (number + sum(choose(end, 0) for end in ends) for choose in (min, max))
    return Sum(tuple((atom.value, n) for (atom,), n in terms.items()), factor, least, most)


def _is_known(monomial: Monomial, loop: ForOp) -> bool:
    """Whether a product is one scalar of i32 that is known before a loop."""
    if len(monomial) != 1 or monomial[0].unsigned:
        return False
    value = monomial[0].value
    return value.type == i32 and not is_made_inside(value, loop)


def _before(poly: Poly, loop: ForOp) -> Poly:
    """A polynomial in the scalars from which sums and products in a loop make its atoms."""
    for value in poly.atoms():
        op = defining_op(value)
        compute = ring_of(op) if is_made_inside(value, loop) else None
        if op is not None and compute is not None:
            return _before(replaced(poly, {value: compute(*map(scalar_poly, op.operands))}), loop)
    return poly


# --- code ---------------------------------------------------------------------------------------------------------


def end_of_unmasked(b: Builder, plan: Unmasked, first: SSAValue, end: SSAValue) -> SSAValue:
    """The counter up to which nothing of a plan needs a mask, between `first` and `end`, or `first` (i32).

    Of one for the last iterations, the counter from which on nothing does, or `end`.

    Args:
        b: before the loop.
        plan: for it.
        first, end: counters of its iterations, of which there may be none.
    """
    low, high = (b.make(ExtSIOp, i64, value) for value in (first, end))
    last = b.sub(high, b.number(1, i64))
    none, found = (high, low) if plan.last else (low, high)
    for one, other, more in plan.pairs:
        fits = b.number(1, i1)
        for side in (one, other):
            for counter in (low, last):
                for rest in (side.least, side.most):
                    value = _value(b, side, counter, rest)
                    inside = b.both(_at_least(b, value, _LEAST), _at_most(b, value, _MOST))
                    fits = b.both(fits, inside)
        room = b.sub(_value(b, one, None, one.least), _value(b, other, None, other.most + more))
        if plan.last and one.counter > other.counter:
            ends, holds = _starts(b, room, one.counter - other.counter, low), fits
        else:
            ends = low if plan.last else _ends(b, room, other.counter - one.counter, high)
            holds = b.both(fits, _at_least(b, room, 0))
        ends = b.choose(holds, ends, none)
        found = b.choose(b.compare("sgt" if plan.last else "slt", ends, found), ends, found)
    if plan.last:
        found = b.choose(b.compare("sgt", found, high), high, found)
    found = b.choose(b.compare("slt", found, low), low, found)
    return b.make(TruncIOp, i32, found)


def _value(b: Builder, side: Sum, counter: SSAValue | None, rest: int) -> SSAValue:
    """A sum at a counter, or without it (i64)."""
    total = b.number(rest, i64)
    terms = [(b.make(ExtSIOp, i64, value), factor) for value, factor in side.terms]
    for value, factor in [*terms, *([(counter, side.counter)] if counter is not None and side.counter else [])]:
        total = b.add(total, b.mul(value, b.number(factor, i64)))
    return total


def _ends(b: Builder, room: SSAValue, step: int, high: SSAValue) -> SSAValue:
    """The first counter at which `step` times it is more than a number that is not negative."""
    if not step:
        return high
    whole = b.op(DivUIOp, room, b.number(step, i64)) if step > 1 else room
    return b.add(whole, b.number(1, i64))


def _starts(b: Builder, room: SSAValue, step: int, low: SSAValue) -> SSAValue:
    """The first counter at which `step` times it makes up for a negative number."""
    missing = b.sub(b.number(step - 1, i64), room)
    needed = b.op(DivUIOp, missing, b.number(step, i64)) if step > 1 else missing
    return b.choose(_at_least(b, missing, 0), needed, low)


def _at_least(b: Builder, value: SSAValue, bound: int) -> SSAValue:
    return b.compare("sge", value, b.number(bound, i64))


def _at_most(b: Builder, value: SSAValue, bound: int) -> SSAValue:
    return b.compare("sle", value, b.number(bound, i64))


__all__ = ["Sum", "Unmasked", "end_of_unmasked", "unmasked"]
