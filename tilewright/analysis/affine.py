"""Affine forms of integer and pointer tiles: constant + sum of coordinate * stride + what is not affine.

Strides and the constant are polynomials in scalar SSA values with integer coefficients, so that "is this stride
one element" and "do these two addresses agree" are comparisons of dictionaries. Forms are taken at an index
(`index.py`), hence see through every change of shape. Index arithmetic inside a tile is taken not to wrap: an i32
offset that overflowed would address memory 8 GiB away from the tensor.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from xdsl.ir import Operation, SSAValue

from tilewright.analysis.axis import ElementFacts
from tilewright.analysis.constants import constant_of
from tilewright.analysis.elements import At, operand_indices, side_bit
from tilewright.analysis.index import CONST, Coord, Field, Index, bits_of, cut, is_power_of_two, joined, normal, shifted
from tilewright.base.order import operands_first
from tilewright.ir.traits import is_view
from tilewright.ir.types import bit_width, element_type, is_pointer, pointee_bytes
from tilewright.ir.values import defining_op, is_tile, operands_of, property_int
from tilewright.ops.casts import ArithBitcastOp, BitcastOp, ExtSIOp, ExtUIOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import (
    AddIOp,
    AndIOp,
    DivSIOp,
    DivUIOp,
    MulIOp,
    RemSIOp,
    RemUIOp,
    ShLIOp,
    ShRSIOp,
    SubIOp,
    XOrIOp,
)
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.shape import JoinOp
from tilewright.ops.signs import never_negative
from tilewright.ops.spec import ring_of


class Atom(NamedTuple):
    """A scalar of the program; `unsigned` when it is to be widened with zeros."""

    value: SSAValue
    unsigned: bool = False


Monomial = tuple[Atom, ...]
# Orders the atoms of a product, by who was multiplied first: addresses of objects would make code differ between runs.
_ranks: weakref.WeakKeyDictionary[SSAValue, int] = weakref.WeakKeyDictionary()
_next_rank = itertools.count()


def _rank(atom: Atom) -> tuple[int, bool]:
    found = _ranks.get(atom.value)
    if found is None:
        found = _ranks.setdefault(atom.value, next(_next_rank))
    return found, atom.unsigned


def _widened(atom: Atom) -> Atom:
    return atom if never_negative(atom.value) else Atom(atom.value, True)


class Poly:
    """A polynomial in atoms: monomial -> coefficient, zero coefficients left out. It never changes."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = {m: c for m, c in terms.items() if c} if 0 in terms.values() else terms
        self._hash: int | None = None

    @staticmethod
    def of(value: int) -> Poly:
        return Poly({(): value} if value else {})

    @staticmethod
    def atom(value: SSAValue) -> Poly:
        return Poly({(Atom(value),): 1})

    @property
    def constant(self) -> int | None:
        """The value, if no atom occurs."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    def __add__(self, other: Poly) -> Poly:
        if not other.terms:
            return self
        if not self.terms:
            return other
        out = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            out[monomial] = out.get(monomial, 0) + coefficient
        return Poly(out)

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        if other.terms == _ONE or not self.terms:
            return self
        if self.terms == _ONE or not other.terms:
            return other
        out: dict[Monomial, int] = {}
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                product = tuple(sorted((*a, *b), key=_rank)) if a and b else a or b
                out[product] = out.get(product, 0) + x * y
        return Poly(out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def without_number(self) -> Poly:
        """The terms that have atoms."""
        return Poly({m: c for m, c in self.terms.items() if m})

    def over(self, number: int) -> Poly:
        """The quotient by a number, coefficients rounded down."""
        return Poly({m: c // number for m, c in self.terms.items()})

    def at(self, value: Callable[[Atom], Poly]) -> Poly:
        """The polynomial with others in the places of its atoms."""
        total = ZERO
        for monomial, coefficient in self.terms.items():
            term = Poly.of(coefficient)
            for atom in monomial:
                term = term * value(atom)
            total = total + term
        return total

    def atoms(self) -> list[SSAValue]:
        """Scalars on which the value depends, in the order of the terms: code is made in it."""
        return list(dict.fromkeys([atom.value for monomial in self.terms for atom in monomial]))

    def unsigned(self) -> Poly:
        """The same with atoms widened by zeros, which only changes those that may be negative."""
        return Poly({tuple(_widened(a) for a in m): c for m, c in self.terms.items()})

    @property
    def never_negative(self) -> bool:
        """Whether that is known for all values that the atoms can have."""
        return all(c > 0 for c in self.terms.values()) and all(
            atom.unsigned or never_negative(atom.value) for monomial in self.terms for atom in monomial
        )


_ONE: dict[Monomial, int] = {(): 1}
ZERO = Poly({})
_DEEP, _MOST_BITS = 40, 63  # rules that wait for each other before a chain is derived from its start; of a coordinate
Residual = tuple[SSAValue, Index, Poly]
_F = TypeVar("_F")
_Maker = Callable[[SSAValue, Index], _F]


@dataclass(slots=True)
class Form:
    """constant + sum over `coords` of coordinate * stride + sum over `residual` of (tile value at index) * scale."""

    constant: Poly = ZERO
    coords: dict[Coord, Poly] = field(default_factory=dict)
    residual: list[Residual] = field(default_factory=list)

    def plus(self, other: Form, scale: Poly | None = None) -> Form:
        """`self + scale * other`."""
        if scale is not None:
            other = other.times(scale)
        coords = dict(self.coords)
        for coord, stride in other.coords.items():
            total = coords.get(coord, ZERO) + stride
            if total.terms:
                coords[coord] = total
            else:
                coords.pop(coord, None)
        if other.coords and len(coords) > 1:
            coords = joined(coords, lambda small, large, by: small * Poly.of(1 << by) == large)
        return Form(self.constant + other.constant, coords, self.residual + other.residual)

    def times(self, scale: Poly) -> Form:
        """`scale * self`, where `scale` is not zero."""
        coords = {coord: stride * scale for coord, stride in self.coords.items()}
        residual = [(v, i, s * scale) for v, i, s in self.residual]
        return Form(self.constant * scale, coords, residual)

    @property
    def uniform(self) -> bool:
        """Whether the form is one scalar for the whole tile."""
        return not self.coords and not self.residual


@dataclass(slots=True)
class PointerForm:
    """An address: scalar pointer `base` (or the pointer tile `tile` at an index) plus `offset` bytes."""

    base: SSAValue | None
    offset: Form
    tile: tuple[SSAValue, Index] | None = None


def scalar_poly(value: SSAValue) -> Poly:
    """A scalar as the number that it is, or as itself."""
    known = constant_of(value)
    return Poly.of(known) if isinstance(known, int) else Poly.atom(value)


def expanded(poly: Poly) -> Poly:
    """A polynomial in the scalars from which sums and products make its atoms."""
    known: dict[SSAValue, Poly] = {}

    def operands(value: SSAValue) -> Sequence[SSAValue]:
        op = defining_op(value)
        return operands_of(op) if op is not None and ring_of(op) is not None else ()

    def made_of(value: SSAValue) -> Poly:
        number, compute = constant_of(value), ring_of(defining_op(value))
        if isinstance(number, int):
            return Poly.of(number)
        parts = operands(value)
        return Poly.atom(value) if compute is None else compute(*[known[part] for part in parts])

    def value_of(atom: Atom) -> Poly:
        if atom.unsigned:
            return Poly({(atom,): 1})
        for value in operands_first(atom.value, operands, known):
            known[value] = made_of(value)
        return known[atom.value]

    return poly.at(value_of)


class AffineAnalysis:
    """Forms of values at indices.

    Args:
        opaque: says of a tile whether it lives in scratch, where it must be read, not recomputed; by default none does.
        facts: of the function; without them nothing is known of what is not affine.

    Attributes:
        taken_for: values that have other forms where whoever asks is (`as_operand`, for one).
    """

    def __init__(self, opaque: Callable[[SSAValue], bool] = lambda _: False, facts: ElementFacts | None = None) -> None:
        self._opaque, self.facts = opaque, facts
        self.taken_for: dict[SSAValue, Rule] = {}
        self._ints: dict[At, Form] = {}
        self._pointers: dict[At, PointerForm] = {}
        self._looked_at, self._deep = set[SSAValue](), 0  # rules that wait for others

    def is_opaque(self, value: SSAValue) -> bool:
        """Whether a value is read from scratch; told when it is `moved`."""
        self._looked_at.add(value)
        return self._opaque(value)

    def forget(self) -> None:
        """Drop what was derived: the IR has changed."""
        self._ints.clear()
        self._pointers.clear()
        self._looked_at.clear()

    def moved(self, values: Collection[SSAValue]) -> bool:
        """Told that these became opaque, or ceased to be; drops what was derived, and says so, if it looked at one."""
        if self._looked_at.isdisjoint(values):
            return False
        self.forget()
        return True

    def integer(self, value: SSAValue, index: Index) -> Form:
        """The form of an integer tile (or scalar, with the empty index)."""
        return self._derived(self._ints, (value, index), self._summands, self._integer)

    def _summands(self, key: At) -> list[At]:
        """What the form of an integer is made of."""
        value, _ = key
        if self._rule(value) is None or constant_of(value) is not None:
            return []
        return operand_indices(*key)

    def _rule(self, value: SSAValue) -> Rule | None:
        """How the form of a tile follows from those of its operands."""
        op = defining_op(value)
        if op is None or not is_tile(value) or self._opaque(value):
            return None
        rule = self.taken_for.get(value) or _RULES.get(type(op)) or (_view if is_view(op) else None)
        return rule if rule is not None and bit_width(element_type(value.type)) >= 32 else None

    def _integer(self, value: SSAValue, index: Index) -> Form:
        if not is_tile(value) or isinstance(constant_of(value), int):
            return Form(scalar_poly(value))
        rule = self._rule(value)
        found = rule(self, value, index) if rule is not None else None
        return self._in_runs(value, index) if found is None else found

    def _in_runs(self, value: SSAValue, index: Index) -> Form:
        """The element with which a run of equal elements, or of ascending ones, begins, plus the place in such a run.

        So `e // 768` is one scalar for 256 elements of a block, and `e % 768` a scalar plus the place in it.
        """
        facts = None if self.facts is None else self.facts[value]
        if facts is None or facts.rank != len(index):
            return Form(residual=[(value, index, Poly.of(1))])
        starts, coords = list(index), dict[Coord, Poly]()
        counts = bit_width(element_type(value.type)) >= 32  # narrower sums may wrap
        for dim, coord in enumerate(index):
            equal, ascending = facts.constancy[dim], facts.contiguity[dim] if counts else 1
            if not (bits := bits_of(max(equal, ascending))):
                continue
            starts[dim] = normal(shifted(cut(coord, bits, _MOST_BITS), bits))
            if ascending > equal and (place := normal(cut(coord, 0, bits))):
                coords[place] = coords.get(place, ZERO) + Poly.of(1)
        return Form(coords=coords, residual=[(value, tuple(starts), Poly.of(1))])

    def positive(self, value: SSAValue) -> bool:
        """Whether the first operand of the operation behind a value is known not to be negative anywhere."""
        return self.facts is not None and self.facts[value.owner.operands[0]].nonnegative  # type: ignore[union-attr]

    def operands(self, result: SSAValue, index: Index) -> list[Form]:
        """Forms of the operands of the operation whose result is wanted at `index`."""
        return [self.integer(value, at) for value, at in operand_indices(result, index)]

    def pointer(self, value: SSAValue, index: Index) -> PointerForm:
        """The form of a pointer tile, or of a scalar pointer with the empty index."""
        return self._derived(self._pointers, (value, index), self._bases, self._pointer)

    def _derived(self, known: dict[At, _F], key: At, parts: Callable[[At], list[At]], make: _Maker[_F]) -> _F:
        """What is known of a value at an index. Rules ask for what it is made of; in long chains it is known before."""
        if key not in known:
            for part in operands_first(key, parts, known) if self._deep >= _DEEP else (key,):
                self._deep += 1
                self._looked_at.add(part[0])
                known[part] = make(*part)
                self._deep -= 1
        return known[key]

    def _bases(self, key: At) -> list[At]:
        """The pointer that another is made of by offsets or views."""
        value, _ = key
        op = defining_op(value)
        if op is None or not (isinstance(op, AddPtrOp) or _moves_pointers(op)):
            return []
        if not is_tile(value) or self._opaque(value):
            return []
        made_of = operand_indices(*key)
        made_of = made_of if isinstance(op, JoinOp) else made_of[:1]
        return [part for part in made_of if is_pointer(element_type(part[0].type))]

    def _pointer(self, value: SSAValue, index: Index) -> PointerForm:
        if not is_tile(value):
            return _scalar_pointer(value)
        op = defining_op(value)
        if op is None or self._opaque(value):
            return PointerForm(None, Form(), (value, index))
        if isinstance(op, AddPtrOp):
            (pointer, at), (offset, offset_at) = operand_indices(value, index)
            inner, size = self.pointer(pointer, at), Poly.of(pointee_bytes(value.type))
            return PointerForm(inner.base, inner.offset.plus(self.integer(offset, offset_at), size), inner.tile)
        if isinstance(op, JoinOp):
            return self._joined(op, value, index) or PointerForm(None, Form(), (value, index))
        if _moves_pointers(op):
            ((source, at),) = operand_indices(value, index)
            if is_pointer(element_type(source.type)):
                return self.pointer(source, at)
        return PointerForm(None, Form(), (value, index))

    def _joined(self, op: JoinOp, value: SSAValue, index: Index) -> PointerForm | None:
        """Two tiles side by side of which one is the other, some bytes on."""
        left, right = (self.pointer(*part) for part in operand_indices(value, index))
        further = right.offset.plus(left.offset, Poly.of(-1))
        alike = left.base is right.base and left.tile == right.tile and left.offset.residual == right.offset.residual
        if not alike or further.coords:
            return None
        (bit,) = side_bit(op, value, index)
        return PointerForm(left.base, left.offset.plus(Form(coords={bit: further.constant})), left.tile)


def _moves_pointers(op: Operation) -> bool:
    """Whether pointers that `op` gives are those that it takes, in other places or by another type."""
    return isinstance(op, BitcastOp | ArithBitcastOp) or is_view(op)


def _scalar_pointer(value: SSAValue) -> PointerForm:
    """A scalar pointer as another one, that no offset is added to, plus all offsets that are."""
    offset = ZERO
    while isinstance(op := defining_op(value), AddPtrOp):
        value, moved = operands_of(op)
        offset = offset + Poly.atom(moved) * Poly.of(pointee_bytes(value.type))
    return PointerForm(value, Form(offset))


# --- rules by operation name ----------------------------------------------------------------------

Rule = Callable[[AffineAnalysis, SSAValue, Index], Form | None]


def _range(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form:
    start = property_int(value.owner, "start")  # type: ignore[arg-type]
    return Form(Poly.of(start)).plus(_of_bits(index[0]))


def as_operand(operand: SSAValue) -> Rule:
    """The rule of an elementwise value that is its operand."""
    return lambda analysis, value, index: analysis.integer(operand, index)


def _view(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form:
    return analysis.operands(value, index)[0]


def _add(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form:
    a, b = analysis.operands(value, index)
    return a.plus(b)


def _sub(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form:
    a, b = analysis.operands(value, index)
    return a.plus(b, Poly.of(-1))


def _mul(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    a, b = analysis.operands(value, index)
    if b.uniform:
        return Form().plus(a, b.constant)
    return Form().plus(b, a.constant) if a.uniform else None


def _shl(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    a, b = analysis.operands(value, index)
    by = b.constant.constant if b.uniform else None
    return Form().plus(a, Poly.of(1 << by)) if by is not None and 0 <= by < 31 else None


def zero_extended(form: Form) -> Form | None:
    """The value of a form's bits as an unsigned number, where sums and products of those of its atoms make it."""
    if form.residual or any(c < 0 for p in (form.constant, *form.coords.values()) for c in p.terms.values()):
        return None
    return Form(form.constant.unsigned(), {c: p.unsigned() for c, p in form.coords.items()})


def _zero_extension(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    return zero_extended(analysis.operands(value, index)[0])


# --- powers of two: bits of coordinates -----------------------------------------------------------


def _bits(analysis: AffineAnalysis, form: Form, count: int) -> Coord | None:
    """The number that a form adds to multiples of 2**count, as the bits of a coordinate; None where sums may carry."""
    if analysis.facts is None or form.residual:
        return None
    size, taken, fields = 1 << count, 0, list[Field]()
    if known := form.constant.terms.get((), 0) % size:
        taken, fields = known, [Field(CONST, known, known.bit_length(), 0)]
    if divisor_of(form.constant.without_number(), analysis.facts) % size:
        return None
    for coord, stride in form.coords.items():
        step = stride.constant
        if all(coefficient % size == 0 for coefficient in stride.terms.values()):
            continue
        if step is None or not is_power_of_two(step):
            return None
        for part in shifted(coord, bits_of(step)):
            own = part.lo << part.pos if part.src == CONST else ((1 << part.width) - 1) << part.pos
            if taken & own:
                return None
            taken |= own
            fields.append(part)
    return normal(tuple(fields))


def _divisor(facts: ElementFacts, value: SSAValue) -> int:
    """A power of two that divides a scalar."""
    known = facts[value].divisibility
    return known[0] if known else 1


def divisor_of(poly: Poly, facts: ElementFacts) -> int:
    """A number that divides a polynomial for all values that its atoms can have; 0 for the polynomial that is 0."""
    terms = (c * math.prod([_divisor(facts, atom.value) for atom in m]) for m, c in poly.terms.items())
    return math.gcd(*terms)


def _power(form: Form) -> int | None:
    """The exponent of a form that is one power of two."""
    number = form.constant.constant if form.uniform else None
    return bits_of(number) if number is not None and is_power_of_two(number) else None


def _remainder(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    a, b = analysis.operands(value, index)
    count = _power(b)
    return None if count is None or not analysis.positive(value) else _lowest(analysis, a, count)


def _lowest(analysis: AffineAnalysis, form: Form, count: int) -> Form | None:
    bits = _bits(analysis, form, count)
    if bits is None:
        return None
    return _of_bits(normal(cut(bits, 0, count)))


def _of_bits(bits: Coord, stride: int = 1) -> Form:
    """So many times the number of some bits, of which those that are known make a constant."""
    known = sum(field.lo << field.pos for field in bits if field.src == CONST)
    rest = tuple([field for field in bits if field.src != CONST])
    return Form(Poly.of(stride * known), {rest: Poly.of(stride)} if rest else {})


def _quotient(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    a, b = analysis.operands(value, index)
    count = _power(b)
    return None if count is None or not analysis.positive(value) else _highest(analysis, a, count)


def _shifted_down(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    a, b = analysis.operands(value, index)
    count = b.constant.constant if b.uniform else None
    return None if count is None or not 0 <= count < 31 else _highest(analysis, a, count)


def _highest(analysis: AffineAnalysis, form: Form, count: int) -> Form | None:
    """A number without its lowest bits, divided by 2**count."""
    low = _lowest(analysis, form, count)
    if low is None:
        return None
    size = 1 << count
    whole_part = Form(expanded(form.constant + Poly.of(-(form.constant.terms.get((), 0) % size))))
    for coord, stride in form.coords.items():
        step = stride.constant
        if step is not None and step < size:
            high, up = cut(coord, count - bits_of(step), _MOST_BITS), Poly.of(size)
        else:
            high, up = coord, stride
        if high := normal(high):
            whole_part = whole_part.plus(Form(coords={high: up}))
    terms = [whole_part.constant, *whole_part.coords.values()]
    if any(coefficient % size for poly in terms for coefficient in poly.terms.values()):
        return None
    return Form(whole_part.constant.over(size), {c: p.over(size) for c, p in whole_part.coords.items()})


def _and(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    a, b = analysis.operands(value, index)
    mask = b.constant.constant if b.uniform else None
    if mask is None:
        return None
    if mask >= 0:
        return _lowest(analysis, a, bits_of(mask + 1)) if is_power_of_two(mask + 1) else None
    low = _lowest(analysis, a, bits_of(-mask)) if is_power_of_two(-mask) else None
    return None if low is None else a.plus(low, Poly.of(-1))


def _xor(analysis: AffineAnalysis, value: SSAValue, index: Index) -> Form | None:
    """`x ^ 2**i` is `x + 2**i`, less `2**(i + 1)` where the bit is there."""
    a, b = analysis.operands(value, index)
    mask = b.constant.constant if b.uniform else None
    bits = None if mask is None or mask < 0 else _bits(analysis, a, mask.bit_length())
    if bits is None or mask is None:
        return None
    out = a.plus(Form(Poly.of(mask)))
    for i in range(mask.bit_length()):
        if mask >> i & 1 and (bit := normal(cut(bits, i, 1))):
            out = out.plus(_of_bits(bit, -2 << i))
    return out


_RULES: Mapping[type, Rule] = {
    RemSIOp: _remainder,
    RemUIOp: _remainder,
    DivSIOp: _quotient,
    DivUIOp: _quotient,
    ShRSIOp: _shifted_down,
    AndIOp: _and,
    XOrIOp: _xor,
    MakeRangeOp: _range,
    AddIOp: _add,
    SubIOp: _sub,
    MulIOp: _mul,
    ShLIOp: _shl,
    ExtSIOp: _view,
    ExtUIOp: _zero_extension,
}
