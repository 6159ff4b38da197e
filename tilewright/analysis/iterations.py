"""How many iterations a loop has, and what holds in each of them, as polynomials.

    for i = 0 to n step 1        n - 1 - i >= 0
      n = ceil(d / s)            d - 1 - s i >= 0

Loops count their iterations (`passes/unit_loops.py`), from 0 by 1: how far the counter of the program still goes is
read back from what computes their number, as a distance in steps. `tl.cdiv` is such a number, too.
"""

from __future__ import annotations

from typing import NamedTuple

from xdsl.ir import SSAValue

from tilewright.analysis.affine import Atom, Poly, expanded
from tilewright.analysis.constants import constant_of
from tilewright.analysis.flow import carried_by
from tilewright.analysis.scalar_evolution import replaced
from tilewright.ir.values import defining_op, is_made_inside, operands_of, users_of
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddIOp, CmpIOp, DivSIOp, DivUIOp, MinUIOp, MulIOp, SelectOp

_ONE = Poly.of(1)


def is_unit(loop: ForOp) -> bool:
    """Whether a loop counts its iterations: all do behind `passes/unit_loops.py`, but those that planners make."""
    return (constant_of(loop.lb), constant_of(loop.step)) == (0, 1) and loop.unsignedCmp is None


class Way(NamedTuple):
    """How far a loop goes: it has ``ceil(distance / step)`` iterations, or none if that is negative.

    Args:
        distance, step: in scalars from outside of the loop; the step is positive.
    """

    distance: Poly
    step: Poly

    def left(self, loop: ForOp) -> Poly:
        """How far an iteration is from the end, at least one: the distance less the steps before it."""
        return self.distance + -(self.step * Poly.atom(loop.induction_var))

    @property
    def fits(self) -> bool:
        """Whether the distance is a number of the counter's type: a scalar, less a start that is not below zero."""
        terms = [number for monomial, number in self.distance.terms.items() if monomial]
        return not terms or (terms == [1] and self.distance.terms.get((), 0) <= 0)


def way_of(loop: ForOp) -> Way:
    """How far a loop goes that counts from 0 by 1, in the terms of what computes its number of iterations."""
    made, found = defining_op(loop.ub), way_to(loop.ub)
    if isinstance(made, DivSIOp):
        step = _positive(made.operands[1])
        found = None if step is None else Way(expanded(Poly.atom(made.operands[0])) + -step + _ONE, step)
    return found or Way(expanded(Poly.atom(loop.ub)), _ONE)


def way_to(count: SSAValue) -> Way | None:
    """The way of which `count` is the number of iterations, as `passes/unit_loops.py` computes it: 0 if there is none.

    None for other values. Between its ends, numbers with a sign, the way is no longer than they are apart.
    """
    made = defining_op(count)
    if not isinstance(made, SelectOp) or constant_of(made.operands[2]) != 0:
        return None
    ends = defining_op(made.operands[0])
    found = _counted(made.operands[1]) if ends is not None and _is_of_numbers_with_sign(made.operands[0]) else None
    if found is None or ends is None:
        return None
    low, high = (expanded(Poly.atom(end)) for end in operands_of(ends))
    return found if found.distance == high + -low else None


def _is_of_numbers_with_sign(condition: SSAValue) -> bool:
    compare = defining_op(condition)
    return isinstance(compare, CmpIOp) and compare.attr_values()["predicate"] == "slt"


def _counted(count: SSAValue) -> Way | None:
    """The way of which `count` is the number of iterations, if there is one: the last one's number and one more."""
    more = defining_op(count)
    last = more.operands[0] if isinstance(more, AddIOp) and constant_of(more.operands[1]) == 1 else None
    op = None if last is None else defining_op(last)
    if isinstance(op, MinUIOp) and constant_of(op.operands[1]) is not None:  # that it is not too large
        last, op = op.operands[0], defining_op(op.operands[0])
    if last is not None and isinstance(op, DivUIOp):
        step = _positive(op.operands[1])
        return None if step is None else Way(expanded(Poly.atom(op.operands[0])) + _ONE, step)
    return Way(expanded(Poly.atom(count if last is None else last)) + (Poly.of(0) if last is None else _ONE), _ONE)


def _positive(value: SSAValue) -> Poly | None:
    number = constant_of(value)
    return expanded(Poly.atom(value)) if number is None or number > 0 else None


def in_counters(poly: Poly) -> Poly:
    """A polynomial in the counters of loops, for what loops carry and add the same to in every iteration, and in other
    scalars that are not sums or products."""
    poly = expanded(poly)
    for value in poly.atoms():
        made = _as_counted(value)
        if made is not None and not any(atom == Atom(value, True) for monomial in poly.terms for atom in monomial):
            return in_counters(replaced(poly, {value: made}))
    return poly


def _as_counted(value: SSAValue) -> Poly | None:
    """What a loop carries, as its first value and what iterations add to it."""
    loop, number = carried_by(value) or (None, 0)
    if loop is None or not is_unit(loop):
        return None
    gain = expanded(Poly.atom(loop.yielded[number])) + -Poly.atom(value)
    if any(is_made_inside(atom, loop) for atom in gain.atoms()):
        return None
    return Poly.atom(loop.iter_args[number]) + gain * Poly.atom(loop.induction_var)


class Counter(NamedTuple):
    """What goes from a number to an end by a step while a loop counts its iterations.

    Args:
        first, end: values, or numbers.
        step: positive.
        values: that are the counter, in the loop's body.
        alone: whether nothing there looks at the number of the iteration itself.
    """

    first: SSAValue | int
    end: SSAValue | int
    step: int
    values: list[SSAValue]
    alone: bool


def counter_of(loop: ForOp) -> Counter | None:
    """The counter that the program has for the number of an iteration, if the body makes it and its end is known.

    Who emits code lets it count: what is compared with the end is then what addresses are made of.
    """
    for (first, step), values in _progressions(loop).items() if is_unit(loop) else ():
        end = _end(loop, first, step)
        if end is not None:
            owners = {value.owner for value in values}
            parts = users_of(loop.induction_var)
            alone = all(op in owners or all(use.operation in owners for use in op.results[0].uses) for op in parts)
            return Counter(first, end, step, values, alone and all(isinstance(op, AddIOp | MulIOp) for op in parts))
    return None


def _progressions(loop: ForOp) -> dict[tuple[SSAValue | int, int], list[SSAValue]]:
    """What the body makes of the number of an iteration by one product and one sum: first number, step and values."""
    body, index = loop.body.block, loop.induction_var
    found: dict[tuple[SSAValue | int, int], list[SSAValue]] = {}
    steps: dict[SSAValue, int] = {index: 1}
    for use in index.uses:
        op = use.operation
        by = constant_of(op.operands[1]) if isinstance(op, MulIOp) and op.parent is body else None
        if isinstance(by, int) and by > 1:
            steps[op.results[0]] = by
    for value, step in steps.items():
        for use in value.uses:
            op = use.operation
            if isinstance(op, AddIOp) and op.parent is body:
                other = op.operands[1 - use.index]
                known = constant_of(other)
                if known is not None or not is_made_inside(other, loop):
                    first = int(known) if known is not None else other
                    found.setdefault((first, step), []).append(op.results[0])
    for value, step in steps.items():
        if value is not index:
            found.setdefault((0, step), []).append(value)
    return found


def _end(loop: ForOp, first: SSAValue | int, step: int) -> SSAValue | int | None:
    """Where a counter ends; None if that is not known, or may be no number of 32 bits."""
    count, made = constant_of(loop.ub), defining_op(loop.ub)
    if isinstance(count, int):
        end = first + count * step if isinstance(first, int) else None
        return end if end is not None and count > 0 and abs(end) < 1 << 31 else None
    if not isinstance(made, SelectOp) or not _is_of_numbers_with_sign(made.operands[0]):
        return None
    way = _counted(made.operands[1])
    low, high = made.operands[0].owner.operands  # type: ignore[union-attr]
    same = constant_of(low) == first if isinstance(first, int) else low is first
    return high if same and way is not None and way.step == Poly.of(step) else None
