"""Ranges of a term: as few as there are, each counting up to its bound.

drop         ranges of one element
merge        stride of i = extent of j * stride of j everywhere: i and j are one range
reverse      a range that everything counts down along counts up
unclamp      a range of min(a, b - i) is one of a, as far as b goes
tighten      a range that reaches a bound, and no further, ends there
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.loops.arithmetic import always_nonnegative, below, conjunction, covers, rounded_up, shorter_of
from tilewright.loops.lifting import Lifting, bounds_of
from tilewright.loops.nest import ALWAYS, ONE, ZERO, Below, Every, Node, Poly, Range, parts_of, ranges_in
from tilewright.loops.products import Term


def settled(term: Term) -> Term:
    """A term over as few ranges as there are, each counting up to its bound."""
    changed = bool(term.ranges)
    while changed:
        before = term
        for rule in (_without_units, _unclamped, _merged, _reversed, _tightened):
            term = rule(term)
        changed = term is not before
    lift = Lifting(term.condition, {})
    if any(lift.holds(condition) for condition in bounds_of(term.factors)):
        return term.but(factors=lift(term.factors))
    return term


def replaced(term: Term, values: Mapping[Range, Poly], ranges: Iterable[Range]) -> Term:
    """A term with polynomials in the places of some ranges, over other ranges."""
    image = Lifting(ALWAYS, values)
    condition = conjunction([image(term.condition)])
    return term.but(factors=image(term.factors), ranges=tuple([image(r) for r in ranges]), condition=condition)


_POLYS: weakref.WeakKeyDictionary[Any, frozenset[Poly]] = weakref.WeakKeyDictionary()


def polys_of(node: Any) -> frozenset[Poly]:
    """The polynomials in an expression, those with ranges."""
    if isinstance(node, (tuple, frozenset)):
        return frozenset().union(*[polys_of(part) for part in node])
    if not isinstance(node, (Node, Range)):
        return frozenset()
    found = _POLYS.get(node)
    if found is None:
        found = _POLYS[node] = frozenset[Poly]().union(*[polys_of(part) for part in parts_of(node)])
    if isinstance(node, Poly) and any(isinstance(atom, Range) for atom in node.atoms):
        return found | {node}  # what is remembered must not keep its own key alive
    return found


def _polys(term: Term) -> frozenset[Poly]:
    return polys_of((term.factors, term.condition))


def coefficients_of(term: Term) -> dict[Range, list[Poly]]:
    """What the ranges of a term are multiplied by in the polynomials of the term."""
    found: dict[Range, list[Poly]] = {}
    polys = _polys(term)
    for r in term.ranges:
        strides = [poly.coefficient(r) for poly in polys]
        found[r] = [stride for stride in strides if stride is not None and stride is not ZERO]
    return found


def _without_units(term: Term) -> Term:
    units = {r: ZERO for r in term.ranges if r.extent is ONE}
    return replaced(term, units, [r for r in term.ranges if r not in units]) if units else term


def _merged(term: Term) -> Term:
    """Of two ranges, one of which goes on where the other ends, one."""
    if len(term.ranges) < 2:
        return term
    polys = _polys(term)
    for outer in term.ranges:
        for inner in term.ranges:
            if outer is inner or {outer, inner} & ranges_in([r.extent for r in term.ranges if r is not outer]):
                continue
            if outer in ranges_in([inner.extent]) or inner in ranges_in([outer.extent]):
                continue
            if not (always_nonnegative(outer.extent) or always_nonnegative(inner.extent)):
                continue  # two that are shorter than none are no long one
            if _goes_on(polys, outer, inner):
                both = Range.new(outer.extent * inner.extent)
                ranges = [both if r is inner else r for r in term.ranges if r is not outer]
                return replaced(term, {inner: Poly.atom(both), outer: ZERO}, ranges)
    return term


def _goes_on(polys: Iterable[Poly], outer: Range, inner: Range) -> bool:
    found = False
    for poly in polys:
        large, small = poly.coefficient(outer), poly.coefficient(inner)
        if large is None or small is None or large is not small * inner.extent:
            return False
        found |= small is not ZERO
    return found


def _reversed(term: Term) -> Term:
    """Ranges along which all of what is multiplied counts down count up instead."""
    for r in term.ranges:
        strides = [poly.coefficient(r) for poly in _polys(term)]
        known = [stride for stride in strides if stride is not None and stride is not ZERO]
        if r in ranges_in([s.extent for s in term.ranges if s is not r]):
            continue
        if known and len(known) == len([s for s in strides if s is not ZERO]) and all(_is_down(s) for s in known):
            return replaced(term, {r: r.extent - ONE - Poly.atom(r)}, term.ranges)
    return term


def _unclamped(term: Term) -> Term:
    """A range that ends early in some iterations of another one has one number of iterations, under a condition."""
    for r in term.ranges:
        found = shorter_of(r.extent) if ranges_in([r.extent]) else None
        if found is not None and found[0].constant:
            whole = Range.new(found[0])
            left = below(Poly.number(found[2]) * Poly.atom(whole) - found[1])
            ranges = [whole if s is r else s for s in term.ranges]
            made = replaced(term, {r: Poly.atom(whole)}, ranges)
            return made.but(condition=conjunction([made.condition, left]))
    return term


def _is_down(stride: Poly) -> bool:
    return stride is not ZERO and all(c < 0 for _, c in stride.key)


def _tightened(term: Term) -> Term:
    """A range whose bound is a condition, and whose extent is that bound, rounded up."""
    for condition in term.condition.parts:
        if not isinstance(condition, Below):
            continue
        for r in term.ranges:
            by = condition.poly.coefficient(r)
            if by is None or not (by is ONE or _in_blocks(r, by)):
                continue
            bound = by * Poly.atom(r) - condition.poly
            if ranges_in([bound]) & set(term.ranges) or not covers(r.extent * by, bound):
                continue
            ended = Range.new(bound if by is ONE else rounded_up(bound, by.constant or 1))
            rest = Every.of(term.condition.parts - {condition})
            ranges = [ended if s is r else s for s in term.ranges]
            return replaced(term.but(condition=rest), {r: Poly.atom(ended)}, ranges)
    return term


def _in_blocks(r: Range, by: Poly) -> bool:
    """Whether a range goes through blocks, the last of which may end early; other conditions may meet an opposite."""
    return by.constant is not None and by.constant > 1 and all(abs(c) > 1 for _, c in r.extent.key)
