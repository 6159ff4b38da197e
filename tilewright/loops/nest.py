"""The loop nest of a kernel: pure expressions at an index, over ranges that all begin at 0 and count by 1.

    Range        a tile dimension, a reduced dimension or the iterations of a loop: one kind of index
    Poly         an integer: a polynomial in ranges and in symbols, scalars that no arithmetic here computes
    Load         base + offset in bytes, under a condition
    Reduce       a monoid over ranges, of a body at each index
    Recurrence   what a loop carries from iteration to iteration and no closed form is known of

Equal expressions are one object (hash-consing, as in Filliâtre and Conchon, "Type-safe modular hash-consing", 2006), so
equality is identity and every map over expressions remembers what it has seen.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

from xdsl.ir import Operation

_TABLE: weakref.WeakValueDictionary[tuple[Hashable, ...], Any] = weakref.WeakValueDictionary()
_COUNT = itertools.count()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Node:
    """An expression; made by `of`, which gives one object for equal fields."""

    @classmethod
    def of(cls, *values: Any) -> Self:
        """The node with these fields."""
        key = (cls, *values)
        found = _TABLE.get(key)
        if found is None:
            found = _TABLE[key] = cls(*values)
        return found

    @classmethod
    def rebuilt(cls, *values: Any) -> Self:
        """The node with these fields, in the order that it keeps its parts in."""
        return cls.of(*values)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Range:
    """The numbers 0 ... extent - 1.

    Args:
        extent: how many, none where it is negative; may depend on ranges around this one.
        number: tells ranges apart, in the order in which they were made; negative for ranges of normal forms, which
            are told apart by how many ranges there are inside of theirs.
    """

    extent: Poly
    number: int

    @staticmethod
    def new(extent: Poly) -> Range:
        """A range that no expression names yet."""
        return Range(extent, next(_COUNT))

    @staticmethod
    def bound(extent: Poly, height: int) -> Range:
        """The range of this extent of all reductions in normal form with `height - 1` ranges inside of it."""
        key = (Range, extent, height)
        found = _TABLE.get(key)
        if found is None:
            found = _TABLE[key] = Range(extent, -height)
        return found


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Symbol(Node):
    """A scalar or an element that is an atom of polynomials.

    Args:
        value: what it is.
        nonnegative: whether it is known not to be negative.
    """

    value: Node
    nonnegative: bool


Atom = Range | Symbol
Monomial = tuple[Atom, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Poly(Node):
    """A polynomial with integer coefficients; made by `of_terms`, `number` and `atom`.

    Args:
        key: (monomial, coefficient) pairs, none of them 0.
    """

    key: frozenset[tuple[Monomial, int]]

    @staticmethod
    def of_terms(terms: Mapping[Monomial, int]) -> Poly:
        return Poly.of(frozenset([(m, c) for m, c in terms.items() if c]))

    @staticmethod
    def number(value: int) -> Poly:
        return Poly.of_terms({(): value})

    @staticmethod
    def atom(atom: Atom) -> Poly:
        return Poly.of_terms({(atom,): 1})

    @property
    def terms(self) -> dict[Monomial, int]:
        return dict(self.key)

    @property
    def constant(self) -> int | None:
        """The value, if no atom occurs."""
        if not self.key:
            return 0
        return self.terms.get(()) if len(self.key) == 1 else None

    @property
    def atoms(self) -> set[Atom]:
        return {atom for monomial, _ in self.key for atom in monomial}

    def __add__(self, other: Poly) -> Poly:
        out = self.terms
        for monomial, coefficient in other.key:
            out[monomial] = out.get(monomial, 0) + coefficient
        return Poly.of_terms(out)

    def __mul__(self, other: Poly) -> Poly:
        if self is ONE or not other.key:
            return other
        if other is ONE or not self.key:
            return self
        out: dict[Monomial, int] = {}
        for a, x in self.key:
            for b, y in other.key:
                monomial = tuple(sorted((*a, *b), key=id))  # atoms live as long as the polynomials in which they are
                out[monomial] = out.get(monomial, 0) + x * y
        return Poly.of_terms(out)

    def __neg__(self) -> Poly:
        return Poly.of(frozenset([(m, -c) for m, c in self.key]))

    def __sub__(self, other: Poly) -> Poly:
        out = self.terms
        for monomial, coefficient in other.key:
            out[monomial] = out.get(monomial, 0) - coefficient
        return Poly.of_terms(out)

    def at(self, value: Callable[[Atom], Poly]) -> Poly:
        """The polynomial with others in the places of its atoms."""
        total = ZERO
        for monomial, coefficient in self.key:
            term = Poly.number(coefficient)
            for atom in monomial:
                term = term * value(atom)
            total = total + term
        return total

    def coefficient(self, atom: Atom) -> Poly | None:
        """What an atom is multiplied by; None where it occurs as a square or more."""
        out: dict[Monomial, int] = {}
        for monomial, c in self.key:
            count = monomial.count(atom)
            if count > 1:
                return None
            if count:
                out[tuple(a for a in monomial if a is not atom)] = c
        return Poly.of_terms(out)

    def divided(self, by: int) -> Poly | None:
        """A polynomial of which this one is `by` times; None if there is none."""
        if any(c % by for _, c in self.key):
            return None
        return Poly.of_terms({m: c // by for m, c in self.key})

    def over(self, monomial: Poly) -> Poly | None:
        """A polynomial of which this one is `monomial`, of one term, times; None if there is none."""
        ((by, divisor),) = monomial.key
        out: dict[Monomial, int] = {}
        for atoms, coefficient in self.key:
            rest = list(atoms)
            for atom in by:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if coefficient % divisor:
                return None
            out[tuple(rest)] = coefficient // divisor
        return Poly.of_terms(out)


ZERO, ONE = Poly.number(0), Poly.number(1)
Index = tuple[Poly, ...]
Attributes = tuple[tuple[str, Hashable], ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Number(Node):
    """A constant that is no integer of an index.

    Args:
        text: of the number, so that the zeros and NaNs of floats are told apart.
        type: of it.
    """

    text: str
    type: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Named(Node):
    """A scalar of the program: an argument, a program id."""

    name: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Below(Node):
    """A condition: the polynomial is negative."""

    poly: Poly


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Every(Node):
    """A condition: all of these hold; none for one that always does."""

    parts: frozenset[Node]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Unless(Node):
    """A condition: not all of these hold."""

    conditions: Every


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Apply(Node):
    """An operation on elements.

    Args:
        op: the class of the operation, which knows what it means.
        attributes: of it.
        operands: of it.
        type: of the result.
        types: of the operands; none where all have the type of the result.
    """

    op: type[Operation]
    attributes: Attributes
    operands: tuple[Node, ...]
    type: str
    types: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Select(Node):
    """One of two values."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Load(Node):
    """An element of memory.

    Args:
        base: the address that offsets are added to.
        offset: in bytes.
        condition: under which it is read.
        other: the value where it is not read; None if that is left open.
        type: of the element.
        epoch: tells states of the memory apart: which stores came before.
    """

    base: Node
    offset: Poly
    condition: Every
    other: Node | None
    type: str
    epoch: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Reduce(Node):
    """A monoid over ranges.

    Args:
        monoid: the class of its operation.
        attributes: what else belongs to the operation.
        ranges: that are reduced.
        body: what is combined.
        first: what it is combined with; None for nothing.
        type: of the elements.
    """

    monoid: type[Operation]
    attributes: Attributes
    ranges: tuple[Range, ...]
    body: Node
    first: Node | None
    type: str


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Carried(Node):
    """What a loop carries, as it is at the start of an iteration.

    Args:
        iteration: range of the loop.
        number: among what the loop carries.
        index: of the element.
    """

    iteration: Range
    number: int
    index: Index


Parts = tuple[tuple[int, Index, Node, Node], ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Recurrence(Node):
    """What a loop carries, as it is after the loop.

    Args:
        iteration: range of the loop.
        number: among the values that it carries.
        index: of the element.
        parts: (number, dims, first value, next value) of each value of the recurrence, at the ranges `dims`; 0 stands
            among them for dimensions of one element.
    """

    iteration: Range
    number: int
    index: Index
    parts: Parts


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Opaque(Node):
    """An element of a result of an operation of which only the operands are known.

    Args:
        op: its class.
        attributes: what tells it from others: properties and what its regions do.
        operands: scalars, and whole tiles.
        index: of the element; `number` of the result.
        number: among the results.
    """

    op: type[Operation]
    attributes: Attributes
    operands: tuple[Node, ...]
    index: Index
    number: int


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Tile(Node):
    """A whole tile.

    Args:
        dims: a range for each dimension; 0 for one of one element.
        body: the element at the ranges.
    """

    dims: Index
    body: Node


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Element(Node):
    """An element of a tile that is asked for so many of them that it is not written out for each."""

    tile: Tile
    index: Index


def range_of(place: Poly) -> Range:
    """The range that a place is."""
    (atom,) = place.atoms
    assert isinstance(atom, Range)
    return atom


ALWAYS: Every = Every.of(frozenset())
T = TypeVar("T")


def polynomial(node: Node, nonnegative: bool = False) -> Poly:
    """An expression of an integer as a polynomial."""
    return node if isinstance(node, Poly) else Poly.atom(Symbol.of(node, nonnegative))


def as_element(node: Node) -> Node:
    """An expression that is the one atom of a polynomial, without the polynomial."""
    if isinstance(node, Poly) and len(node.key) == 1:
        ((monomial, coefficient),) = node.key
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
            return monomial[0].value
    return node


_FIELDS: dict[type, tuple[str, ...]] = {}


def field_names(kind: type[Node] | type[Range]) -> tuple[str, ...]:
    """The fields of a class of nodes, in order; `dataclasses.fields` looks for them each time."""
    found = _FIELDS.get(kind)
    if found is None:
        found = _FIELDS[kind] = tuple([field.name for field in fields(kind)])
    return found


def values_of(node: Node | Range) -> list[Any]:
    """What stands in the fields of a node, in order."""
    return [getattr(node, name) for name in field_names(type(node))]


def parts_of(node: object) -> Iterator[Any]:
    """The nodes, ranges and atoms that stand in the fields of a node."""
    if isinstance(node, Poly):
        yield from (atom for monomial, _ in node.key for atom in monomial)
    elif isinstance(node, (tuple, frozenset)):
        yield from (part for part in node if isinstance(part, (Node, Range, tuple, frozenset)))
    elif isinstance(node, (Node, Range)):
        yield from (value for value in values_of(node) if isinstance(value, (Node, Range, tuple, frozenset)))


def applied(
    op: type[Operation], operands: Sequence[Node], type_: str, attributes: Attributes = (), types: tuple[str, ...] = ()
) -> Apply:
    """An operation on elements, the types of its operands said only where they are not that of the result."""
    return Apply.of(op, attributes, tuple(operands), type_, () if set(types) <= {type_} else types)


def walk(root: object) -> Iterator[Any]:
    """Everything that an expression is made of, each thing once."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, (Node, Range)):
            yield node
        todo += parts_of(node)


class Substitution:
    """An expression with polynomials in the places of some ranges.

    Args:
        values: by range.
        rules: called with each rebuilt node; gives what stands for it.
    """

    def __init__(self, values: Mapping[Range, Poly], rule: Callable[[Any], Any] | None = None) -> None:
        self._values, self._rule, self._only_ranges = values, rule, rule is None
        self._known: dict[int, tuple[Any, Any]] = {}  # the key is kept alive beside its image

    def __call__(self, node: T) -> T:
        found = self._known.get(id(node))
        if found is None:
            found = self._known[id(node)] = (node, self._image(node))
        return found[1]  # type: ignore[no-any-return]

    def _image(self, node: Any) -> Any:
        if self._only_ranges and self._values.keys().isdisjoint(ranges_of(node)):
            return node
        if isinstance(node, Poly):
            return node.at(self._atom)
        if isinstance(node, tuple):
            return tuple([self(part) for part in node])
        if isinstance(node, frozenset):
            return frozenset([self(part) for part in node])
        if isinstance(node, Node):
            made = type(node).rebuilt(*[self(value) for value in values_of(node)])
            return made if self._rule is None else self._rule(made)
        if isinstance(node, Range) and (extent := self(node.extent)) is not node.extent:
            return Range.bound(extent, -node.number) if node.number < 0 else Range(extent, node.number)
        return node

    def _atom(self, atom: Atom) -> Poly:
        if isinstance(atom, Range):
            return self._values.get(atom) or Poly.atom(self(atom))
        value = self(atom.value)
        return value if isinstance(value, Poly) else Poly.atom(Symbol.of(value, atom.nonnegative))


_RANGES: weakref.WeakKeyDictionary[Any, frozenset[Range]] = weakref.WeakKeyDictionary()
_NONE: frozenset[Range] = frozenset()


def ranges_of(node: Any) -> frozenset[Range]:
    """The ranges that occur in an expression, those of its reductions among them."""
    if isinstance(node, (tuple, frozenset)):
        return _NONE.union(*[ranges_of(part) for part in node])
    if not isinstance(node, (Node, Range)):
        return _NONE
    found = _RANGES.get(node)
    if found is None:
        found = _RANGES[node] = _NONE.union(*[ranges_of(part) for part in parts_of(node)])
    return found | {node} if isinstance(node, Range) else found  # what is remembered must not keep its own key alive


def ranges_in(nodes: Iterable[object]) -> set[Range]:
    """The ranges that occur in expressions."""
    return {r for node in nodes for r in ranges_of(node)}


def is_apart(node: object, *dims: Poly) -> bool:
    """Whether an expression is the same wherever it is along dims."""
    return ranges_of(tuple(dims)).isdisjoint(ranges_of(node))
