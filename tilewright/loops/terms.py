"""Sums of products in normal form: terms, what makes two of them one, and names of ranges that no spelling changes.

A term that is being made is *open*: its ranges are its own. A term of a finished combination is *bound*: its ranges are
called by how many ranges there are inside of theirs, so that reductions that differ by names alone are one object (as
the binders of de Bruijn, "Lambda calculus notation with nameless dummies", 1972, counted from the inside).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from xdsl.ir import Operation

from tilewright.loops.arithmetic import FALSE, at_least_zero, begins_with, conjunction, implies, negation, reaches
from tilewright.loops.nest import (
    ALWAYS,
    ONE,
    Below,
    Every,
    Load,
    Node,
    Number,
    Opaque,
    Poly,
    Range,
    Substitution,
    ranges_in,
    ranges_of,
)
from tilewright.loops.products import SUMS, Combination, Term, fingerprint, is_plain
from tilewright.loops.ranges import coefficients_of, replaced, settled
from tilewright.ops.elementwise import AddFOp
from tilewright.ops.spec import spec_of

# --- open and bound terms --------------------------------------------------------------------------------------------


def bound(term: Term) -> Term:
    """A term with the names of ranges that it has in a normal form."""
    if not term.ranges:
        return term
    inside = ranges_in([term.factors, term.condition]) - {*term.ranges}
    height = max([-r.number for r in inside if r.number < 0], default=0) + len(term.ranges)
    names: dict[Range, Poly] = {}
    made: list[Range] = []
    for r in _outer_first(term):
        made.append(Range.bound(Substitution(names)(r.extent), height - len(made)))
        names[r] = Poly.atom(made[-1])
    return replaced(term, names, made)


def _outer_first(term: Term) -> list[Range]:
    """The ranges of a term, each behind those that its extent depends on."""
    strides = coefficients_of(term)
    left = sorted(term.ranges, key=lambda r: (fingerprint(r.extent), sorted(fingerprint(s) for s in strides[r])))
    found: list[Range] = []
    while left:
        r = next((r for r in left if ranges_of(r.extent).isdisjoint(left)), left[0])
        left.remove(r)
        found.append(r)
    return found


def opened(term: Term) -> Term:
    """A term with ranges of its own."""
    names: dict[Range, Poly] = {}
    made: list[Range] = []
    for r in term.ranges:
        made.append(Range.new(Substitution(names)(r.extent)))
        names[r] = Poly.atom(made[-1])
    return replaced(term, names, made) if made else term


def combination(monoid: type[Operation], terms: Iterable[Term], type_: str) -> Node:
    """The combination of terms, or what it is if it is of one plain term or of none."""
    made = collected(monoid, terms)
    if len(made) == 1 and is_plain(made[0]):
        return made[0].factors[0]
    if not made and monoid in SUMS:
        return Number.of("0.0", type_) if monoid is AddFOp else Poly.number(0)
    return Combination.rebuilt(monoid, tuple(made), type_)


def closed(terms: Sequence[Term], type_: str) -> Term:
    """A sum as one factor: what all of its terms have in common stands before it."""
    made = collected(AddFOp, terms)
    if not made:
        return Term.of(0, (), (), ALWAYS, ())
    if len(made) == 1 and not made[0].ranges:
        return made[0]
    shared = frozenset.intersection(*[term.condition.parts for term in made])
    shared = frozenset([part for part in shared if ranges_of(part).isdisjoint(r for t in made for r in t.ranges)])
    made = [term.but(condition=Every.of(term.condition.parts - shared)) for term in made]
    coefficient: float = 1
    factors: list[Node] = []
    if len(made) == 1:
        (term,) = made
        factors = [f for f in term.factors if ranges_of(f).isdisjoint(term.ranges)]
        coefficient = term.coefficient
        made = [term.but(coefficient=1, factors=tuple([f for f in term.factors if f not in factors]))]
    factors.append(combination(AddFOp, [opened(term) for term in made], type_))
    return Term.rebuilt(coefficient, tuple(factors), (), Every.of(shared), ())


# --- terms that are one ----------------------------------------------------------------------------------------------


def collected(monoid: type[Operation], terms: Iterable[Term]) -> list[Term]:
    """As few terms as there are, bound: those that differ by coefficients, by conditions, or that go on, are one."""
    todo = [bound(settled(term)) for term in terms]
    found: list[Term] = []
    images = _Images()
    while todo:
        term = todo.pop(0)
        if FALSE in term.condition.parts or (monoid in SUMS and not term.coefficient):
            continue
        for other in found:
            both = _both(monoid, other, term, images) or _both(monoid, term, other, images)
            if both is not None:
                found.remove(other)
                todo.insert(0, bound(settled(opened(both))))
                break
        else:
            found.append(term)
    return sorted(found, key=fingerprint)


def _both(monoid: type[Operation], one: Term, other: Term, images: _Images) -> Term | None:
    """Two terms as one."""
    if one.attributes != other.attributes or len(one.ranges) != len(other.ranges):
        return None
    known = spec_of(monoid).monoid
    if one.factors == other.factors and one.ranges == other.ranges:
        if one.condition is other.condition and monoid in SUMS:
            return one.but(coefficient=one.coefficient + other.coefficient)
        if one.condition is other.condition:
            return one if known is not None and known.idempotent else None
        return _either_way(one, other) if one.coefficient == other.coefficient else None
    if one.coefficient != other.coefficient:
        return None
    return _gone_on(one, other, images) or _interleaved(one, other)


def _either_way(one: Term, other: Term) -> Term | None:
    """`x where p` and `x where q but not p`, of which p implies q, are `x where q`."""
    alone = one.condition.parts - other.condition.parts
    if len(alone) != 1:
        return None
    (first,) = alone
    opposite = negation(first)
    if opposite not in other.condition.parts:
        return None
    rest = other.condition.parts - {opposite}
    if all(part in one.condition.parts or implies(first, part) for part in rest):
        return other.but(condition=Every.of(rest))
    return None


class _Images:
    """Terms as they look from where one of their ranges ends, and with another name for a range; each is found once."""

    def __init__(self) -> None:
        self._ends: dict[Poly, Range] = {}
        self._known: dict[tuple[Term, Range, Poly], tuple[Counter[Node], Node]] = {}

    def end(self, extent: Poly) -> Poly:
        """How far a place is behind the end of a range, for as much as another range goes on from there."""
        if extent not in self._ends:
            self._ends[extent] = Range.new(extent)
        return Poly.atom(self._ends[extent])

    def at(self, term: Term, r: Range, place: Poly) -> tuple[Counter[Node], Node]:
        """The factors and the condition of a term at a place of a range."""
        key = (term, r, place)
        if key not in self._known:
            image = Substitution({r: place})
            self._known[key] = Counter(image(term.factors)), conjunction(image(term.condition).parts)
        return self._known[key]


def _gone_on(one: Term, other: Term, images: _Images) -> Term | None:
    """A reduction that goes on where another ends."""
    for number, (r, s) in enumerate(zip(one.ranges, other.ranges, strict=True)):
        if ranges_in([r.extent, s.extent]):
            continue
        others = [(p, q) for n, (p, q) in enumerate(zip(one.ranges, other.ranges, strict=True)) if n != number]
        rest = Substitution({q: Poly.atom(p) for p, q in others})
        if any(p is not q and rest(q) is not p for p, q in others):
            continue
        extent = at_least_zero(r.extent)
        if begins_with(other.condition, r.extent):  # nothing goes on from an end below 0
            extent = r.extent
        place = extent + images.end(s.extent)
        factors, condition = images.at(other, s, images.end(s.extent))
        if images.at(one, r, place)[0] != factors:
            continue
        back = Substitution({s: Poly.atom(r) - extent})
        both = conjunction([*one.condition.parts, *[back(c) for c in other.condition.parts if _holds(back(c), r)]])
        if conjunction(Substitution({r: place})(both).parts) is condition:
            longer = Range.new(extent + at_least_zero(s.extent))
            whole = one.but(condition=both)
            return replaced(whole, {r: Poly.atom(longer)}, [longer if q is r else q for q in one.ranges])
    return None


def _holds(condition: Node, r: Range) -> bool:
    """Whether a condition that a range must end for holds in all of the range."""
    if not isinstance(condition, Below) or condition.poly.coefficient(r) is not ONE:
        return False
    return reaches(r.extent, Poly.atom(r) - condition.poly)


def _interleaved(one: Term, other: Term) -> Term | None:
    """Two reductions, of every second element and of those between: one of all."""
    if one.ranges != other.ranges or not one.ranges:
        return None
    turn = Range.new(Poly.number(2))
    both = _between((one.factors, one.condition), (other.factors, other.condition), Poly.atom(turn))
    if both is None:
        return None
    factors, condition = both
    made = settled(opened(one.but(factors=factors, condition=conjunction([condition]), ranges=(*one.ranges, turn))))
    return made if len(made.ranges) == len(one.ranges) else None


def _between(one: Any, other: Any, turn: Poly) -> Any:
    """What is one expression in the first turn and another in the next; None if more than offsets differ."""
    if one is other:
        return one
    if isinstance(one, Poly) and isinstance(other, Poly):
        return None if ranges_of(other - one) else one + (other - one) * turn
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        parts = [_between(x, y, turn) for x, y in zip(one, other, strict=True)]
        return None if any(part is None for part in parts) else tuple(parts)
    if isinstance(one, Opaque) and isinstance(other, Opaque):
        operands = _between(one.operands, other.operands, turn)
        if operands is None or Opaque.of(one.op, one.attributes, other.operands, one.index, one.number) is not other:
            return None
        return Opaque.of(one.op, one.attributes, operands, one.index, one.number)
    if isinstance(one, Load) and isinstance(other, Load):
        offset = _between(one.offset, other.offset, turn)
        made = None if offset is None else Load.of(one.base, offset, one.condition, one.other, one.type, one.epoch)
        rest = Load.of(one.base, other.offset, one.condition, one.other, one.type, one.epoch)
        return made if rest is other else None
    return None
