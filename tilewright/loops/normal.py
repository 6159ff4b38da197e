"""The normal form of an expression: what is added up, over as few ranges as there are, and where.

    distribute   sum(a + 0.5 * b)                = sum(a) + 0.5 * sum(b)
    flatten      sum over i of sum over j        = sum over (i, j)
    lift         sum of (x where k < n, else 0)  = sum over k < n of x          conditions: `lifting.py`
    settle       ranges merged, reversed, tightened                             `ranges.py`
    collect      equal terms, terms that go on                                  `terms.py`

The algebra is that of real numbers: two kernels with one normal form compute the same but for rounding and for products
of zero with what is not finite. What a planner may do with floats is for it to ask.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.loops.arithmetic import conjunction, negation
from tilewright.loops.closed_forms import identity_of
from tilewright.loops.lifting import RSQRT, SQRT, Lifting, float_of
from tilewright.loops.nest import (
    ALWAYS,
    Apply,
    Atom,
    Every,
    Node,
    Number,
    Poly,
    Reduce,
    Select,
    Symbol,
    applied,
    polynomial,
    values_of,
)
from tilewright.loops.products import SUMS, Combination, Term, is_inverse, multiplied, plain, reduces, scaled, under
from tilewright.loops.terms import closed, combination, opened
from tilewright.ops.casts import TruncFOp
from tilewright.ops.elementwise import AddFOp, DivFOp, FmaOp, MulFOp, NegFOp, SubFOp

_OF_SUMS = (AddFOp, SubFOp, MulFOp, FmaOp, NegFOp, DivFOp)


def normalized(node: Node, known: Every = ALWAYS) -> Node:
    """The normal form of an expression where conditions are known to hold."""
    return Normal(known).of(node)


class Normal:
    """Normal forms where some conditions hold.

    Args:
        known: the conditions.
    """

    def __init__(self, known: Every = ALWAYS) -> None:
        self._lift = Lifting(known)
        self._done: dict[Node, Node] = {}
        self._known_terms: dict[tuple[type[Operation], Node], list[Term]] = {}

    def of(self, node: Node) -> Node:
        """The normal form of an expression."""
        return self._of(self._lift(node))

    def _of(self, node: Node) -> Node:
        found = self._done.get(node)
        if found is None:
            found = self._done[node] = self._made(node)
        return found

    def _made(self, node: Node) -> Node:
        if isinstance(node, Poly):
            return node.at(self._atom)
        if isinstance(node, Reduce):
            return combination(node.monoid, self._terms(node.monoid, node), node.type)
        if isinstance(node, Apply) and node.op in _OF_SUMS:
            return combination(AddFOp, self._terms(AddFOp, node), node.type)
        if isinstance(node, Select) and type_of(node).startswith(("f", "bf")):
            return combination(AddFOp, self._terms(AddFOp, node), type_of(node))
        return self._parts(node)

    def _atom(self, atom: Atom) -> Poly:
        if not isinstance(atom, Symbol):
            return Poly.atom(atom)
        return polynomial(self._of(atom.value), atom.nonnegative)

    def _parts(self, node: Node) -> Node:
        return type(node).rebuilt(*[self._part(value) for value in values_of(node)])

    def _part(self, value: object) -> object:
        if isinstance(value, Node):
            return self._of(value)
        if isinstance(value, tuple):
            return tuple([self._part(part) for part in value])
        return frozenset([self._part(part) for part in value]) if isinstance(value, frozenset) else value

    def _condition(self, condition: Node) -> Every:
        made = self._parts(condition)
        return conjunction(made.parts if isinstance(made, Every) else [made])

    # --- terms -------------------------------------------------------------------------------------------

    def _terms(self, monoid: type[Operation], node: Node) -> list[Term]:
        """What is combined to an expression; of sums as products, of other monoids as they are."""
        key = (monoid, node)
        found = self._known_terms.get(key)
        if found is None:
            made = self._sum(monoid, node) if monoid in SUMS else self._others(monoid, node)
            found = self._known_terms[key] = made
        return found

    def _sum(self, monoid: type[Operation], node: Node) -> list[Term]:
        if isinstance(node, Poly):
            return self._of_poly(monoid, node)
        value = float_of(node)
        if value is not None and abs(value) < float("inf"):
            return [Term.of(value, (), (), ALWAYS, ())] if value else []
        if isinstance(node, Reduce) and node.monoid is monoid:
            terms = [_over(term, node) for term in self._terms(monoid, node.body)]
            return terms + ([] if node.first is None else self._terms(monoid, node.first))
        if isinstance(node, Select):
            return self._of_select(monoid, node)
        if isinstance(node, Apply) and node.op in _OF_SUMS:
            return self._of_apply(monoid, node)
        return _factor(self._of(node))

    def _of_poly(self, monoid: type[Operation], poly: Poly) -> list[Term]:
        out = []
        for monomial, coefficient in poly.key:
            terms = [Term.of(coefficient, (), (), ALWAYS, ())]
            for atom in monomial:
                factor = self._terms(monoid, atom.value) if isinstance(atom, Symbol) else [plain(Poly.atom(atom))]
                terms = self._product(terms, factor, "i32")
            out += terms
        return out

    def _of_select(self, monoid: type[Operation], node: Select) -> list[Term]:
        then, otherwise = self._terms(monoid, node.then), self._terms(monoid, node.otherwise)
        opposite = None if not otherwise else negation(node.condition)
        if not isinstance(node.condition, Every) or (otherwise and opposite is None):
            return [plain(self._parts(node))]
        found = [under(term, self._condition(node.condition)) for term in then]
        if opposite is not None:
            found += [under(term, conjunction([self._of(opposite)])) for term in otherwise]
        return found

    def _of_apply(self, monoid: type[Operation], node: Apply) -> list[Term]:
        operands, element = node.operands, node.type
        if node.op is AddFOp:
            return self._terms(monoid, operands[0]) + self._terms(monoid, operands[1])
        if node.op is SubFOp:
            return self._terms(monoid, operands[0]) + [scaled(t, -1) for t in self._terms(monoid, operands[1])]
        if node.op is NegFOp:
            return [scaled(term, -1) for term in self._terms(monoid, operands[0])]
        if node.op is DivFOp:
            return self._product(self._terms(monoid, operands[0]), [self._inverse(operands[1])], element)
        product = self._product(self._terms(monoid, operands[0]), self._terms(monoid, operands[1]), element)
        return product + (self._terms(monoid, operands[2]) if node.op is FmaOp else [])

    @staticmethod
    def _product(left: list[Term], right: list[Term], element: str) -> list[Term]:
        """A product; of sums over ranges, or of several terms each, as the product of two sums."""
        if (len(left) > 1 and len(right) > 1) or (reduces(left) and reduces(right)):
            left, right = [closed(left, element)], [closed(right, element)]
        return [multiplied(x, y) for x in left for y in right]

    def _inverse(self, node: Node) -> Term:
        """One over an expression, factor by factor."""
        element = type_of(node) or "f32"
        terms = self._terms(AddFOp, node)
        whole = closed(terms, element) if terms else plain(Number.of("0.0", element))
        if whole.condition is not ALWAYS or not whole.coefficient:
            whole = plain(self._of(node))
        return Term.rebuilt(
            1 / whole.coefficient, tuple([_inverted(factor, element) for factor in whole.factors]), (), ALWAYS, ()
        )

    def _others(self, monoid: type[Operation], node: Node) -> list[Term]:
        """What another monoid than a sum combines."""
        if isinstance(node, Poly) and len(node.key) == 1 and len(node.atoms) == 1:
            (atom,) = node.atoms
            if isinstance(atom, Symbol) and node is Poly.atom(atom):
                return self._others(monoid, atom.value)
        if isinstance(node, Reduce) and node.monoid is monoid:
            terms = [_over(term, node) for term in self._terms(monoid, node.body)]
            return terms + ([] if node.first is None else self._terms(monoid, node.first))
        kind = type_of(node)
        neutral = identity_of(monoid, kind) if kind else None
        if node is neutral:
            return []
        if isinstance(node, Apply) and node.op is monoid:
            return [term for operand in node.operands for term in self._terms(monoid, operand)]
        if isinstance(node, Select) and node.otherwise is neutral and isinstance(node.condition, Every):
            condition = self._condition(node.condition)
            return [under(term, condition) for term in self._terms(monoid, node.then)]
        return [plain(self._of(node))]


def type_of(node: Node) -> str:
    """The type of an element, if the expression says it."""
    if isinstance(node, Select):
        return type_of(node.then) or type_of(node.otherwise)
    return getattr(node, "type", "")


def unrounded(node: Node, kind: str) -> Node:
    """What is stored as numbers of a kind, before it is rounded to them."""
    return node.operands[0] if isinstance(node, Apply) and node.op is TruncFOp and node.type == kind else node


def _factor(node: Node) -> list[Term]:
    if isinstance(node, Combination) and node.monoid in SUMS:
        return [opened(term) for term in node.terms]
    return [plain(node)]


def _over(term: Term, node: Reduce) -> Term:
    return term.but(ranges=(*node.ranges, *term.ranges), attributes=node.attributes or term.attributes)


def _inverted(factor: Node, element: str) -> Node:
    if isinstance(factor, Apply) and factor.op in (SQRT, RSQRT):
        return applied(RSQRT if factor.op is SQRT else SQRT, factor.operands, factor.type)
    if isinstance(factor, Apply) and is_inverse(factor):
        return factor.operands[1]
    return applied(DivFOp, (Number.of("1.0", element), factor), element)
