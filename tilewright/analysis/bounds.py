"""Masks as bounds: what a comparison of integers says of the place of an element, as a form that is negative.

    i < n            i - n < 0               2 * i < 2 * n      i - n < 0
    0 <= i           always, if i is never negative
    i < n, unsigned  i - n < 0, with both widened by zeros
    i != 0           0 - i < 0, if i is never negative

Whoever plans around masks reads them here, so that all spellings of one bound have one plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.affine import AffineAnalysis, Form, Poly, expanded, zero_extended
from tilewright.analysis.elements import is_ragged, operand_indices
from tilewright.analysis.index import Index, greatest
from tilewright.base.decision import Answer, No, Yes
from tilewright.ir.decisions import describe_op
from tilewright.ir.types import bit_width
from tilewright.ir.values import defining_op
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.elementwise import AndIOp, CmpIOp
from tilewright.ops.shape import ReshapeOp, TransOp

FAR = 1 << 48  # further than elements lie apart
_LESS = frozenset({"slt", "sle", "ult", "ule"})
_OR_EQUAL = frozenset({"sle", "sge", "ule", "uge"})


def wide_numbers(bound: Poly) -> Poly:
    """The numbers of 64 bits in a sum, which may be the largest that there are, as those that leave nothing out."""
    terms = bound.terms.items()
    return Poly({m: c for m, c in terms if c in (1, -1) and len(m) == 1 and bit_width(m[0].value.type) == 64})


def is_conjunction(op: Operation) -> bool:
    """Whether a mask is true where its operands are: it joins them by `and`, or is one of them in another shape."""
    return isinstance(op, (AndIOp, BroadcastOp, ExpandDimsOp, ReshapeOp, TransOp)) and not is_ragged(op)


def conjuncts_of(
    mask: SSAValue, index: Index, *, through: Callable[[Operation], bool] = is_conjunction
) -> Iterator[tuple[SSAValue, Index]]:
    """The parts that a mask joins by `and`, each at the index at which it is wanted; the last one first.

    Args:
        mask: a tile of truth values.
        index: at which it is wanted.
        through: of an operation, whether it is true where its operands are.
    """
    stack = [(mask, index)]
    while stack:
        value, at = stack.pop()
        op = defining_op(value)
        if op is not None and through(op):
            stack += operand_indices(value, at)
        else:
            yield value, at


def is_repeated_conjunction(op: Operation) -> bool:
    """`is_conjunction`, or a truth value for all elements."""
    return isinstance(op, SplatOp) or is_conjunction(op)


def are_bounds(mask: SSAValue, index: Index, analysis: AffineAnalysis, most: int) -> bool:
    """Whether a mask is a conjunction of at most so many bounds, which look at places of elements alone."""

    def through(op: Operation) -> bool:
        return is_conjunction(op) and not analysis.is_opaque(op.results[0])

    for number, (value, at) in enumerate(conjuncts_of(mask, index, through=through)):
        if number == most or defining_op(value) is None or analysis.is_opaque(value):
            return False
        if not isinstance(below_zero(value, at, analysis, ""), Yes):
            return False
    return True


def below_zero(
    value: SSAValue,
    index: Index,
    analysis: AffineAnalysis,
    instead: str,
    *,
    of_rows: bool = False,
    negative: Sequence[Form] = (),
) -> Answer[Form]:
    """The form that is negative where a part of a mask is true; the form -1 where it is always true.

    Args:
        value: the part, no conjunction.
        index: at which it is wanted.
        analysis: of the function.
        instead: what to write, if it is nothing of the kind.
        of_rows: whether values that are not affine may be in the form, as those that a mask has of each row.
        negative: forms that are known to be negative.
    """
    op = defining_op(value)
    assert op is not None
    if not isinstance(op, CmpIOp):
        return No(f"a part of the mask is {describe_op(op)}, no comparison of integers", op, instead)
    predicate = op.attr_values()["predicate"]
    both = [analysis.integer(v, i) for v, i in operand_indices(value, index)]
    if predicate in ("eq", "ne"):
        form = _beside(both[0], both[1], negative) if predicate == "ne" else None
        return Yes(form) if form is not None else No("the mask compares for equality", op, instead)
    sides = _sides(op, predicate, both)
    if sides is None:
        return No("the mask compares unsigned numbers that may be differences", op, instead)
    small, large = sides if predicate in _LESS else sides[::-1]
    form = small.plus(large, Poly.of(-1))
    if predicate in _OR_EQUAL:
        form = form.plus(Form(Poly.of(-1)))
    if form.residual:
        if of_rows:
            return Yes(form)
        return No("what the mask compares is not affine in the element's place", op)
    form = _scaled_down(form)
    return Yes(Form(Poly.of(-1)) if _always_negative(form) else form)


def _beside(one: Form, other: Form, negative: Sequence[Form]) -> Form | None:
    """The form that is negative where two numbers differ, of which one is never smaller than the other."""
    differences = one.plus(other, Poly.of(-1)), other.plus(one, Poly.of(-1))
    for form in differences:
        less = form.plus(Form(Poly.of(-1)))
        if any(_is_at_most(less, known) for known in negative):
            return form
        if not form.residual and _always_negative(less):
            return _scaled_down(form)
    return None


def _is_at_most(form: Form, other: Form) -> bool:
    """Whether a form is another one, less some number."""
    more = expanded(form.constant + -other.constant).constant
    return more is not None and more <= 0 and (form.coords, form.residual) == (other.coords, other.residual)


def _sides(op: Operation, predicate: str, forms: Sequence[Form]) -> Sequence[Form] | None:
    """What is compared, as signed numbers."""
    if predicate.startswith("s"):
        return forms
    widened = [zero_extended(form) for form in forms]
    found = [form for form in widened if form is not None]
    return found if len(found) == len(forms) else None


def _scaled_down(form: Form) -> Form:
    """A form that is negative at the same places, its multiples divided by what they share."""
    by = math.gcd(*(c for poly in form.coords.values() for c in poly.terms.values()))
    if by <= 1:
        return form
    total = expanded(form.constant)
    by = math.gcd(by, *(c for monomial, c in total.terms.items() if monomial))
    if by <= 1:
        return form
    # by * x + c < 0 where x < -c / by: x - ceil(-c / by) < 0, and that is x + floor(c / by).
    return Form(total.over(by), {coord: stride.over(by) for coord, stride in form.coords.items()})


def _always_negative(form: Form) -> bool:
    """Whether the largest value of a form is below zero."""
    largest = expanded(form.constant)
    for coord, stride in form.coords.items():
        by = stride.constant
        if by is None:
            return False
        if by > 0:
            largest = largest + Poly.of(by * greatest(coord))
    return (Poly.of(-1) + -largest).never_negative
