"""Bounds, quotients and conditions of polynomials over ranges.

(4 * i + j) // 4 = i, (4 * i + j) % 4 = j     for j < 4
2 * k < 2 * n                                 is k < n
k < n implies k < n + 1                       and k % n = k
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable

from tilewright.loops.nest import (
    ALWAYS,
    ONE,
    ZERO,
    Apply,
    Below,
    Every,
    Node,
    Number,
    Poly,
    Range,
    Symbol,
    Unless,
    applied,
)
from tilewright.ops.elementwise import DivSIOp, MaxSIOp, MinSIOp

TRUE, FALSE = Number.of("True", "i1"), Number.of("False", "i1")


def never_negative(poly: Poly) -> bool:
    """Whether no value of a polynomial is negative, by the signs of its terms."""
    return all(c > 0 and all(isinstance(a, Range) or a.nonnegative for a in m) for m, c in poly.key)


def _extreme(poly: Poly, largest: bool) -> Poly | None:
    """The polynomial with each range at the end that makes it largest (or smallest); None if that is not known."""
    found = poly
    for atom in sorted((a for a in poly.atoms if isinstance(a, Range)), key=lambda r: (r.number > 0, -r.number)):
        by = found.coefficient(atom)
        if by is None:
            return None
        if never_negative(by):
            up = True
        elif never_negative(-by):
            up = False
        else:
            return None
        rest = found - by * Poly.atom(atom)
        found = rest + by * (atom.extent - ONE) if up == largest else rest
    return found


def always_negative(poly: Poly) -> bool:
    """Whether every value of a polynomial is below 0."""
    most = _extreme(poly, largest=True)
    return most is not None and never_negative(-most - ONE)


def always_nonnegative(poly: Poly) -> bool:
    """Whether no value of a polynomial is below 0."""
    least = _extreme(poly, largest=False)
    return least is not None and never_negative(least)


def quotient(poly: Poly, by: Poly) -> tuple[Poly, Poly] | None:
    """Quotient and remainder of a multiple, or of a number that is not negative; None where they are no polynomials."""
    number = by.constant
    if number is None or number <= 0:
        small = always_negative(poly - by) and always_nonnegative(poly)
        return (ZERO, poly) if small else None
    whole = Poly.of_terms({m: c - c % number for m, c in poly.key})
    rest = poly - whole
    exact = rest is ZERO  # then there is nothing to round, whatever the sign
    if not exact and not (always_nonnegative(rest) and always_negative(rest - by) and always_nonnegative(whole)):
        return None
    divided = whole.divided(number)
    return None if divided is None else (divided, rest)


def below(poly: Poly) -> Node:
    """The condition that a polynomial is negative, in lowest terms."""
    by = math.gcd(*[c for m, c in poly.key if m])
    if by > 1:  # by * x + c < 0 where x + floor(c / by) < 0
        poly = Poly.of_terms({m: c // by for m, c in poly.key})
    if always_negative(poly):
        return ALWAYS
    return FALSE if always_nonnegative(poly) else Below.of(poly)


def conjunction(conditions: Iterable[Node]) -> Every:
    """All of these conditions together."""
    parts: set[Node] = set()
    for condition in conditions:
        parts |= condition.parts if isinstance(condition, Every) else {condition}
    parts.discard(TRUE)
    bounds = [part for part in parts if isinstance(part, Below)]
    return Every.of(frozenset([p for p in parts if not any(q is not p and implies(q, p) for q in bounds)]))


_IMPLIED: weakref.WeakKeyDictionary[Node, weakref.WeakKeyDictionary[Node, bool]] = weakref.WeakKeyDictionary()


def implies(one: Node, other: Node) -> bool:
    """Whether a bound holds wherever another does."""
    if one is other:
        return True
    if not (isinstance(one, Below) and isinstance(other, Below)):
        return False
    known = _IMPLIED.get(one)
    if known is None:
        known = _IMPLIED[one] = weakref.WeakKeyDictionary()
    found = known.get(other)
    if found is None:
        found = known[other] = always_negative(other.poly - one.poly - ONE)
    return found


def negation(condition: Node) -> Node | None:
    """Where a condition does not hold; None where that is no condition of this kind."""
    if isinstance(condition, Every) and len(condition.parts) == 1:
        (condition,) = condition.parts
    if isinstance(condition, Unless):
        return condition.conditions
    if isinstance(condition, Every) and condition.parts:
        return FALSE if FALSE in condition.parts else Unless.of(condition)
    if isinstance(condition, Below):
        return below(-condition.poly - ONE)
    if condition in (TRUE, ALWAYS):
        return FALSE
    return ALWAYS if condition is FALSE else None


def divided(poly: Poly, by: Poly) -> tuple[Poly, Poly]:
    """Quotient and remainder of a number that is not negative, as operations where they are no polynomials."""
    found = quotient(poly, by)
    if found is not None:
        return found
    positive = always_nonnegative(poly + by - ONE)  # quotients are rounded towards 0
    over = Poly.atom(Symbol.of(applied(DivSIOp, (poly, by), "i32"), positive))
    return over, poly - over * by


def rounded_up(poly: Poly, by: int) -> Poly:
    """How many times `by` covers a number."""
    return divided(poly + Poly.number(by - 1), Poly.number(by))[0]


def before_end(extent: Poly, place: Poly) -> list[Node]:
    """What is known where a place is below an extent; if that is a quotient, multiples are below what it is of."""
    known = [below(place - extent)]
    for atom in extent.atoms if len(extent.key) == 1 else ():
        if isinstance(atom, Symbol) and isinstance(atom.value, Apply) and atom.value.op is DivSIOp:
            number, by = atom.value.operands
            if isinstance(number, Poly) and isinstance(by, Poly) and extent is Poly.atom(atom):
                known.append(below((place + ONE) * by - number - ONE))
    return known


def covers(extent: Poly, bound: Poly) -> bool:
    """Whether a range ends no earlier than a bound that is not negative: it is the bound, rounded up to multiples.

    by * (number // by) is at least number + 1 - by.
    """
    if always_nonnegative(extent - bound):
        return True
    for atom in extent.atoms:
        if isinstance(atom, Symbol) and isinstance(atom.value, Apply) and atom.value.op is DivSIOp:
            number, by = atom.value.operands
            factor = extent.coefficient(atom)
            if isinstance(number, Poly) and factor is by:
                least = extent - factor * Poly.atom(atom) + number + ONE - factor
                return always_nonnegative(least - bound)
    return False


def _quotients(poly: Poly) -> list[tuple[Poly, Poly, Poly]]:
    """The terms by * (number // by) of a polynomial: each whole, and its parts `number` and `by`."""
    found = []
    for atom in poly.atoms:
        if isinstance(atom, Symbol) and isinstance(atom.value, Apply) and atom.value.op is DivSIOp:
            number, by = atom.value.operands
            if isinstance(number, Poly) and isinstance(by, Poly) and poly.coefficient(atom) is by and by.constant:
                found.append((by * Poly.atom(atom), number, by))
    return found


def begins_with(condition: Node, end: Poly) -> bool:
    """Whether a condition holds nowhere if `end` is negative.

    A remainder has the sign of what is divided: number - by * (number // by) > 0 implies number // by >= 0.
    """
    bounds = [part for part in getattr(condition, "parts", ()) if isinstance(part, Below)]
    return any(
        end is whole and always_nonnegative(part.poly - whole + number)
        for whole, number, _ in _quotients(end)
        for part in bounds
    )


def reaches(end: Poly, bound: Poly) -> bool:
    """Whether a range ends no later than a bound, or has no elements.

    by * (number // by) is at most a number that is not negative.
    """
    if always_nonnegative(bound - end):
        return True
    return any(always_nonnegative(bound - end + whole - number) for whole, number, _ in _quotients(end) if end is whole)


def shorter_of(extent: Poly) -> tuple[Poly, Poly, int] | None:
    """A number of iterations, at most that of another bound: r < the first, and `number` * r < the second.

    None for one that is not made of the smaller one of two numbers, of which the first is a constant.
    """
    by, bound = 1, extent
    atoms = [atom for atom in extent.atoms if isinstance(atom, Symbol)]
    rounded = atoms[0].value if len(atoms) == 1 and extent is Poly.atom(atoms[0]) else None
    if isinstance(rounded, Apply) and rounded.op is DivSIOp:
        number, divisor = rounded.operands
        if not isinstance(number, Poly) or not isinstance(divisor, Poly) or not divisor.constant:
            return None
        by, bound = divisor.constant, number + ONE - divisor
    for atom in bound.atoms:
        if isinstance(atom, Symbol) and isinstance(atom.value, Apply) and atom.value.op is MinSIOp:
            rest = bound - Poly.atom(atom)
            sides = [side + rest for side in atom.value.operands if isinstance(side, Poly)]
            whole = [side for side in sides if side.constant is not None and side.constant > 0]
            if len(sides) == 2 and whole and atom not in rest.atoms:
                return rounded_up(whole[0], by), sides[1 - sides.index(whole[0])], by
    return None


def at_least_zero(poly: Poly) -> Poly:
    """How many there are of a number of things that may be negative."""
    if always_nonnegative(poly):
        return poly
    by = math.gcd(*[c for _, c in poly.key])
    lowest = Poly.of_terms({m: c // by for m, c in poly.key})
    return Poly.number(by) * Poly.atom(Symbol.of(applied(MaxSIOp, (lowest, ZERO), "i32"), True))


def extent_of(poly: Poly) -> Poly:
    """A number of iterations in simplest form: one below 0 is as good as 0."""
    if len(poly.key) == 1 and len(poly.atoms) == 1:
        (atom,) = poly.atoms
        if isinstance(atom, Symbol) and isinstance(atom.value, Apply) and poly is Poly.atom(atom):
            return _simplest(atom.value) or poly
    return poly


def _simplest(node: Apply) -> Poly | None:
    if node.op is MaxSIOp and ZERO in node.operands:
        (other,) = [operand for operand in node.operands if operand is not ZERO] or [ZERO]
        return extent_of(other) if isinstance(other, Poly) else None
    if node.op is MinSIOp:  # min(x, max(x, y)) is x
        for one, other in (node.operands, node.operands[::-1]):
            larger = other.atoms if isinstance(other, Poly) else set()
            values = [a.value for a in larger if isinstance(a, Symbol)]
            if isinstance(one, Poly) and any(
                isinstance(v, Apply) and v.op is MaxSIOp and one in v.operands for v in values
            ):
                return one
    if node.op is DivSIOp:
        number, by = node.operands
        if isinstance(number, Poly) and isinstance(by, Poly) and by.constant and by.constant > 0:
            rest = by - ONE
            inner = extent_of(number - rest)
            exact = inner.divided(by.constant)
            if exact is not None:  # n * by, rounded up: n, or both are below 1
                return exact
            return divided(inner + rest, by)[0] if inner is not number - rest else None
    return None
