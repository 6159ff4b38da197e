"""Expressions of a nest back to tile IR: scalars in front of an operation, and loads of matrices from polynomials.

    arg5 - 64 * t                              %0 = muli %t, 64; %1 = subi %arg5, %0
    arg0[arg5 * i + k]  for i < 32, k < 16     tt.load (splat %arg0) + i * (splat %arg5) + k

A scalar that the program has computed where it can be used is taken from there, as are remainders, which a nest has as
differences (`a - b * (a / b)`): what is addressed by them alone is the same in all iterations in which they are. Sums,
products and quotients are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.analysis import affine
from tilewright.analysis.iterations import is_unit
from tilewright.analysis.matrices import MemoryOperand
from tilewright.base.decision import No
from tilewright.ir.types import (
    TilePointerType,
    bit_width,
    element_type,
    i64,
    ir_name,
    is_integer,
    pointee_bytes,
    with_element,
)
from tilewright.ir.values import defining_op
from tilewright.ir.walk import ancestors
from tilewright.loops.nest import Apply, Atom, Below, Index, Load, Node, Poly, Range, Symbol, polynomial, ranges_of
from tilewright.loops.products import fingerprint
from tilewright.loops.raising import Raising
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import DivSIOp, MaxSIOp, MinSIOp, RemSIOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.building import Builder
from tilewright.passes.placed_loads import load_at
from tilewright.passes.trip_count import Preheader

MADE = (
    DivSIOp,
    MaxSIOp,
    MinSIOp,
    RemSIOp,
)  # what scalars may be made by: wider numbers give the same, where narrower ones do not wrap


class Scalars:
    """Scalars of a nest as values that can be used in front of an operation.

    Args:
        raising: what the expressions were raised by.
        place: the operation.
    """

    def __init__(self, raising: Raising, place: Operation) -> None:
        self._raising, self._preheader, self._place = raising, Preheader(place, i64), place
        self._known: dict[Node, SSAValue | None] = {}
        self._counters: dict[Range, SSAValue] = {}
        for parent in ancestors(place):
            if isinstance(parent, ForOp) and is_unit(parent):
                self._counters[raising.loops.of(parent).iteration] = parent.induction_var
        self._values = {node: value for value, node in reversed(raising.scalars()) if is_before(value, place)}
        integers = [(node, value) for node, value in self._values.items() if isinstance(node, Poly)]
        quotients = [(node, _quotient_of(node), value) for node, value in integers if bit_width(value.type) >= 32]
        self._remainders = [(node, quotient, value) for node, quotient, value in quotients if quotient is not None]

    def base(self, node: Node) -> SSAValue | None:
        """A pointer; None if there is no value for it."""
        return self._values.get(node)

    def poly(self, poly: Poly) -> affine.Poly | None:
        """A polynomial in values; None if an atom has no value."""
        total = affine.Poly({})
        for remainder, quotient, found in self._remainders:
            times = _times_in(remainder, quotient, poly)
            count = None if times is None else self.poly(times)
            if times is not None and count is not None:
                total, poly = total + count * affine.Poly.atom(found), poly - times * remainder
        for monomial, coefficient in sorted(poly.key, key=_order):
            term = affine.Poly.of(coefficient)
            for atom in sorted(monomial, key=fingerprint):
                value = self._atom(atom)
                if value is None:
                    return None
                term = term * affine.Poly.atom(value)
            total = total + term
        return total

    def _atom(self, atom: Atom) -> SSAValue | None:
        if isinstance(atom, Range):
            return self._counters.get(atom)
        if atom.value not in self._known:
            found = self._values.get(atom.value)
            is_number = found is not None and is_integer(found.type) and bit_width(found.type) >= 32
            self._known[atom.value] = found if is_number else self._made(atom.value)
        return self._known[atom.value]

    def _made(self, node: Node) -> SSAValue | None:
        if not isinstance(node, Apply) or node.op not in MADE:
            return None
        operands = [self.poly(operand) if isinstance(operand, Poly) else None for operand in node.operands]
        left, right = operands
        if left is None or right is None:
            return None
        return self._preheader.apply(node.op, self._preheader.sum(left), self._preheader.sum(right))


def _order(term: tuple[tuple[Atom, ...], int]) -> tuple[list[int], int]:
    return sorted([fingerprint(atom) for atom in term[0]]), term[1]


def is_before(value: SSAValue, place: Operation) -> bool:
    """Whether a value can be used in front of an operation."""
    op, here = defining_op(value), place
    block = value.owner if isinstance(value.owner, Block) else op.parent if op is not None else None
    while here.parent is not block:
        around = here.parent_op()
        if around is None:
            return False
        here = around
    return op is None or (op is not here and op.is_before_in_block(here))


@dataclass(slots=True)
class Matrix:
    """A matrix in memory, by the polynomials of its elements.

    Args:
        load: of an element.
        dims: the ranges of rows and columns; 0 for a single one, or for many alike.
        shape: how many of them are loaded for a tile.
        along: which of them is gone along; None for neither.
        conditions: under which an element counts, else it is zero.
        is_transposed: whether a tile of it is loaded with rows and columns exchanged.
        pattern: a load of the program that reads some of it.
        kind: type of a tile of it, which has its elements in row-major order, or repeats them.
    """

    load: Load
    dims: Index
    shape: tuple[int, int]
    along: int | None
    conditions: Sequence[Node]
    is_transposed: bool
    pattern: Operation
    kind: Attribute
    _base: SSAValue | None = None
    _strides: list[affine.Poly] = field(default_factory=list)
    _offset: affine.Poly = field(default_factory=lambda: affine.Poly({}))
    _bounds: list[list[affine.Poly]] = field(default_factory=lambda: [[], []])

    def find(self, scalars: Scalars) -> No | None:
        """Finds values for all that its loads are made of; or why there are none."""
        self._base = scalars.base(self.load.base)
        if self._base is None or not isinstance(self._base.type, TilePointerType):
            return No("it begins elsewhere in each iteration", self.pattern)
        if ir_name(self._base.type.pointee) != self.load.type:
            return No("its addresses are cast", self.pattern)
        return self._placed(scalars, pointee_bytes(self._base.type))

    def _placed(self, scalars: Scalars, size: int) -> No | None:
        """Finds values for places and conditions; or why there are none."""
        rest = self.load.offset
        for dim in self.dims:
            stride = stride_along(self.load.offset, dim)
            made = None if stride is None or not is_scalar(stride, self.dims) else scalars.poly(stride)
            if stride is None or made is None:
                return No("its strides are no scalars", self.pattern)
            rest = rest - stride * dim
            self._strides.append(made)
        offset = scalars.poly(rest) if is_scalar(rest, self.dims) else None
        if offset is None:
            return No("its addresses are made of what the loop computes", self.pattern)
        self._offset = offset
        if any(number % size for poly in (offset, *self._strides) for number in poly.terms.values()):
            return No("its addresses are no multiples of its elements", self.pattern)
        return next((no for c in self.conditions if (no := self._bound(c, scalars)) is not None), None)

    def _bound(self, condition: Node, scalars: Scalars) -> No | None:
        """Takes in a condition as an upper bound of a row or a column."""
        poly = condition.poly if isinstance(condition, Below) else None
        own = [] if poly is None else [n for n, dim in enumerate(self.dims) if not is_scalar(poly, (dim,))]
        if poly is None or len(own) > 1:
            return No("a part of its mask does not compare one place", self.pattern)
        number = own[0] if own else 1 if self.along == 0 else 0  # `0 < n` is no bound that moves with the tile
        stride = stride_along(poly, self.dims[number])
        rest = None if stride is None else scalars.poly(stride * self.dims[number] - poly)
        if rest is None or stride is None or (own and stride.constant != 1):
            return No("a part of its mask is no upper bound of rows or columns", self.pattern)
        self._bounds[number].append(rest if own else rest * affine.Poly.of(self.shape[number]))
        return None

    def hoist(self, place: Operation) -> None:
        """Computes the bounds that do not change on the way in front of an operation."""
        preheader = Preheader(place, i64)
        for dim, bounds in enumerate(self._bounds):
            if dim != self.along:
                self._bounds[dim] = [affine.Poly.atom(preheader.bound(bound)) for bound in bounds]

    def at(self, place: affine.Poly, end: affine.Poly | None, anchor: Operation, other: float = 0) -> SSAValue:
        """A tile of it from a row or column on, in front of `anchor`; `other` in place of those from `end` on."""
        assert self._base is not None
        offset, bounds, dim = self._offset, [list(bound) for bound in self._bounds], self.along
        if dim is not None:
            bounds[dim] = [bound + -place for bound in (*bounds[dim], *([] if end is None else [end]))]
            offset = offset + self._strides[dim] * place
        strides, shape = list(self._strides), self.shape
        if self.is_transposed:
            strides, bounds, shape = strides[::-1], bounds[::-1], (shape[1], shape[0])
        form = MemoryOperand(self._base, offset, strides, bounds, [], self.pattern, self.load.type)
        loaded = load_at(form, offset, bounds, anchor, shape, other)
        return self._viewed(Builder(anchor).transposed(loaded) if self.is_transposed else loaded, anchor)

    def inside(self, place: affine.Poly, end: affine.Poly | None, anchor: Operation) -> SSAValue | None:
        """Which elements of such a tile count, of a matrix as it lies; None if all do."""
        load = defining_op(self.at(place, end, anchor))
        while not isinstance(load, LoadOp):
            assert load is not None
            load = defining_op(load.operands[0])
        return None if load.mask is None else self._viewed(load.mask, anchor)

    def _viewed(self, tile: SSAValue, anchor: Operation) -> SSAValue:
        return Builder(anchor).viewed(tile, with_element(self.kind, element_type(tile.type)))

    @property
    def goes_along(self) -> bool:
        """Whether columns lie side by side or few elements apart, and rows do not."""
        assert self._base is not None
        size = pointee_bytes(self._base.type)
        row, column = (stride.constant for stride in self._strides)
        return column in (size, 2 * size, 4 * size) and row != size

    @property
    def is_dense(self) -> bool:
        """Whether columns or rows lie side by side."""
        assert self._base is not None
        return affine.Poly.of(pointee_bytes(self._base.type)) in self._strides


def _quotient_of(poly: Poly) -> Symbol | None:
    """The quotient of which a polynomial is the remainder, `a - b * (a / b)`; None if it is none."""
    for atom in poly.atoms:
        if isinstance(atom, Symbol) and isinstance(atom.value, Apply) and atom.value.op is DivSIOp:
            number, by = map(polynomial, atom.value.operands)
            if number - Poly.atom(atom) * by is poly:
                return atom
    return None


def _times_in(remainder: Poly, quotient: Symbol, poly: Poly) -> Poly | None:
    """How often a remainder is in a polynomial that is shorter without it; None if it is not."""
    by, present = remainder.coefficient(quotient), poly.coefficient(quotient)
    times = None if by is None or present is None or len(by.key) != 1 else present.over(by)
    if times is None or not times.key or len((poly - times * remainder).key) + len(times.key) >= len(poly.key):
        return None
    return times


def stride_along(poly: Poly, dim: Poly) -> Poly | None:
    """What a place along a dim is multiplied by."""
    (atom,) = dim.atoms or (None,)
    return Poly.number(0) if atom is None else poly.coefficient(atom)


def is_scalar(poly: Poly, dims: Sequence[Poly]) -> bool:
    """Whether a polynomial is the same all along dims."""
    return ranges_of(poly).isdisjoint(ranges_of(tuple(dims)))
