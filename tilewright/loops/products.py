"""Products over ranges, and what combines them: the nodes of normal forms, in an order that no spelling changes."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from xdsl.ir import Operation

from tilewright.loops.arithmetic import conjunction
from tilewright.loops.nest import ALWAYS, Apply, Attributes, Every, Node, Number, Poly, Range, field_names, values_of
from tilewright.ops.elementwise import AddFOp, AddIOp, DivFOp

SUMS = (AddFOp, AddIOp)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Term(Node):
    """A product over ranges.

    Args:
        coefficient: number that it is multiplied by.
        factors: what is multiplied; a factor 1 / x divides, after what is multiplied (see `quotient`).
        ranges: that are reduced, those first that extents of others depend on.
        condition: under which an element counts.
        attributes: how products are computed, if not exactly.
    """

    coefficient: float
    factors: tuple[Node, ...] = ()
    ranges: tuple[Range, ...] = ()
    condition: Every = ALWAYS
    attributes: Attributes = ()

    @classmethod
    def rebuilt(cls, *values: Any) -> Self:
        """The term with the factors in their order."""
        coefficient, factors, *rest = values
        return cls.of(coefficient, tuple(sorted(factors, key=fingerprint)), *rest)

    def but(self, **changes: object) -> Term:
        """The term with other fields."""
        return Term.rebuilt(*[changes.get(name, getattr(self, name)) for name in field_names(Term)])


def quotient(term: Term) -> tuple[list[Node], list[Node]]:
    """What the factors of a term multiply, and what they divide by: x / s is a number where 1 / s is infinite."""
    divisors = {
        factor: factor.operands[1] for factor in term.factors if isinstance(factor, Apply) and is_inverse(factor)
    }
    return [factor for factor in term.factors if factor not in divisors], list(divisors.values())


def is_inverse(node: Apply) -> bool:
    """Whether an operation is one over something."""
    one = node.operands[0] if node.op is DivFOp else None
    return isinstance(one, Number) and one.type != "i1" and float(one.text) == 1


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Combination(Node):
    """Terms that a monoid combines.

    Args:
        monoid: class of the operation.
        terms: what is combined.
        type: of the elements.
    """

    monoid: type[Operation]
    terms: tuple[Term, ...]
    type: str

    @classmethod
    def rebuilt(cls, *values: Any) -> Self:
        """The combination with the terms in their order."""
        monoid, terms, type_ = values
        return cls.of(monoid, tuple(sorted(terms, key=fingerprint)), type_)


def plain(node: Node) -> Term:
    """An expression as a term."""
    return Term.of(1, (node,), (), ALWAYS, ())


def is_plain(term: Term) -> bool:
    """Whether a term is an expression by itself."""
    return term.coefficient == 1 and len(term.factors) == 1 and not term.ranges and term.condition is ALWAYS


def scaled(term: Term, by: float) -> Term:
    """A multiple of a term."""
    return term.but(coefficient=term.coefficient * by)


def under(term: Term, condition: Node) -> Term:
    """A term that counts under another condition, too."""
    return term.but(condition=conjunction([term.condition, condition]))


def multiplied(x: Term, y: Term) -> Term:
    """The product of two terms, of which one is over ranges at most."""
    condition = conjunction([x.condition, y.condition])
    coefficient = x.coefficient * y.coefficient
    return Term.rebuilt(
        coefficient, x.factors + y.factors, (*x.ranges, *y.ranges), condition, x.attributes or y.attributes
    )


def reduces(terms: Sequence[Term]) -> bool:
    """Whether one of these terms is over a range."""
    return any(term.ranges for term in terms)


# --- orders that do not depend on a spelling -------------------------------------------------------------------------

_PRINTS: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def fingerprint(node: Any) -> int:
    """A number that is the same for the same expression in any process, whatever its ranges are called."""
    if isinstance(node, (Node, Range)):
        found = _PRINTS.get(node)
        if found is None:
            found = _PRINTS[node] = _printed(node)
        return found
    if isinstance(node, tuple):
        return hash(tuple([fingerprint(part) for part in node]))
    if isinstance(node, frozenset):
        return hash(tuple(sorted([fingerprint(part) for part in node])))
    return zlib.crc32((node.__name__ if isinstance(node, type) else repr(node)).encode())


def _printed(node: Any) -> int:
    if isinstance(node, Range):
        return hash((min(node.number, 0), fingerprint(node.extent)))
    if isinstance(node, Poly):
        return hash(tuple(sorted([(tuple(sorted([fingerprint(a) for a in m])), c) for m, c in node.key])))
    values = [fingerprint(value) for value in values_of(node)]
    return hash((fingerprint(type(node)), *values))
