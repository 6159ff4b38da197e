"""Rows at places that are loaded, one in each iteration of a loop: `table[ids[t], d]` for each `t`.

    arg0[256 * arg1[t] + d]  for d < 256     %id = tt.load arg1 + %t;  tt.load (splat arg0) + 256 * %id + d

The nest has no polynomial of a launch for such places, but an iteration that stands for one `t` has: what it loads are
scalars there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from tilewright.analysis import affine
from tilewright.analysis.matrices import MemoryOperand
from tilewright.base.decision import No
from tilewright.ir.types import TilePointerType, bit_width, ir_name, is_integer, pointee_bytes
from tilewright.loops.lowering import MADE, Matrix, Scalars, is_scalar, stride_along
from tilewright.loops.nest import ALWAYS, Apply, Below, Load, Node, Poly, Range, Symbol, polynomial, ranges_of
from tilewright.loops.raising import Raising
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp
from tilewright.passes.placed_loads import load_at


class Iteration(Scalars):
    """Scalars of an iteration of a new loop along a range.

    Args:
        raising: what the expressions were raised by.
        place: an operation of the loop's body.
        range_: that the loop goes along, element by element.
        number: of the iteration.
    """

    def __init__(self, raising: Raising, place: Operation, range_: Range, number: SSAValue) -> None:
        super().__init__(raising, place)
        self._counters[range_] = number

    def _made(self, node: Node) -> SSAValue | None:
        if not isinstance(node, Load):
            return super()._made(node)
        base, offset, b = self.base(node.base), self.poly(node.offset), self._preheader
        if base is None or offset is None or not isinstance(base.type, TilePointerType):
            return None
        size = pointee_bytes(base.type)
        elements = affine.Poly({monomial: number // size for monomial, number in offset.terms.items()})
        return b.make(LoadOp, base.type.pointee, b.make(AddPtrOp, base.type, base, b.sum(elements)))


def can_compute(scalars: Scalars, node: Node, range_: Range) -> bool:
    """Whether an iteration along a range can compute an integer, or a condition: it is made of scalars, the number of
    the iteration, and what it can load.

    Args:
        scalars: in front of the loop.
        node: the integer.
        range_: that the loop goes along.
    """
    if isinstance(node, Below):
        return can_compute(scalars, node.poly, range_)
    if isinstance(node, Poly):
        atoms = (atom for atom in node.atoms if atom is not range_)
        return all(
            scalars.poly(Poly.atom(atom)) is not None
            or (not isinstance(atom, Range) and can_compute(scalars, atom.value, range_))
            for atom in atoms
        )
    if isinstance(node, Load):
        base = scalars.base(node.base)
        if base is None or not isinstance(base.type, TilePointerType) or ir_name(base.type.pointee) != node.type:
            return False
        is_place = is_integer(base.type.pointee) and bit_width(base.type.pointee) >= 32 and node.condition is ALWAYS
        whole = all(number % pointee_bytes(base.type) == 0 for _, number in node.offset.key)
        return is_place and whole and can_compute(scalars, node.offset, range_)
    parts = node.operands if isinstance(node, Apply) and node.op in MADE else ()
    return bool(parts) and all(can_compute(scalars, polynomial(part), range_) for part in parts)


@dataclass(slots=True, kw_only=True)
class LoadedRow(Matrix):
    """A row of a matrix for an iteration: its columns are rows of a tile, which has one column.

    Args:
        raising: what the expressions were raised by.
        range: that the loop goes along.
    """

    raising: Raising
    range: Range

    @classmethod
    def of(cls, matrix: Matrix, raising: Raising, range_: Range) -> LoadedRow:
        """What a matrix has for an iteration along a range, the one along which it is gone."""
        own = (matrix.load, matrix.dims, (matrix.shape[0], 1), 1, matrix.conditions, False, matrix.pattern, matrix.kind)
        return cls(*own, raising=raising, range=range_)

    def _placed(self, scalars: Scalars, size: int) -> No | None:
        column, no = self.dims[0], No("an iteration cannot compute its addresses", self.pattern)
        stride = stride_along(self.load.offset, column)
        if stride is None or stride.constant not in (0, size):
            return No("its elements do not lie side by side", self.pattern)
        self._strides = [affine.Poly.of(stride.constant), affine.Poly.of(0)]
        polys = [self.load.offset - stride * column]
        for condition in self.conditions:
            poly = condition.poly if isinstance(condition, Below) else None
            along = None if poly is None else stride_along(poly, column)
            if poly is None or along is None or along.constant not in (0, 1):
                return No("a part of its mask is no upper bound of its columns", self.pattern)
            polys.append(poly - along * column)
        whole = all(number % size == 0 for _, number in polys[0].key)
        computed = all(is_scalar(p, (column,)) and can_compute(scalars, p, self.range) for p in polys)
        return None if whole and computed else no

    def hoist(self, place: Operation) -> None:
        """Nothing: all places are those of an iteration."""

    def at(self, place: affine.Poly, end: affine.Poly | None, anchor: Operation, other: float = 0) -> SSAValue:
        """The row of an iteration, in front of an operation of its body."""
        body, column = anchor.parent, self.dims[0]
        assert body is not None and self._base is not None
        own = Iteration(self.raising, anchor, self.range, body.args[0])
        bounds: list[list[affine.Poly]] = [[], []]  # of columns; and a condition of all of them, of the one row: 0 < n
        for condition in self.conditions:
            assert isinstance(condition, Below)
            along = stride_along(condition.poly, column)
            assert along is not None
            bounds[0 if along.key else 1].append(_known(own, along * column - condition.poly))
        stride = stride_along(self.load.offset, column)
        assert stride is not None
        offset = _known(own, self.load.offset - stride * column)
        form = MemoryOperand(self._base, offset, self._strides, bounds, [], self.pattern, self.load.type)
        return load_at(form, offset, bounds, anchor, self.shape, other)

    @property
    def goes_along(self) -> bool:
        """Whether it is gone along elements that lie side by side."""
        return False

    @property
    def is_dense(self) -> bool:
        """Whether it has many elements, side by side."""
        return bool(self._strides[0].terms)


def loaded_rows(matrices: Sequence[Matrix], raising: Raising, range_: Range, scalars: Scalars) -> list[LoadedRow]:
    """Rows of an iteration for each of some matrices, if the place of one of them is loaded; none if there are none."""
    if any(matrix.along != 1 for matrix in matrices) or not any(_is_loaded(matrix, range_) for matrix in matrices):
        return []
    rows = [LoadedRow.of(matrix, raising, range_) for matrix in matrices]
    return rows if all(row.find(scalars) is None for row in rows) and any(row.is_dense for row in rows) else []


def _is_loaded(matrix: Matrix, range_: Range) -> bool:
    """Whether the place of each row is made of something that is loaded for it."""
    return any(isinstance(atom, Symbol) and range_ in ranges_of(atom.value) for atom in matrix.load.offset.atoms)


def _known(own: Scalars, poly: Poly) -> affine.Poly:
    """A polynomial in values, which there are."""
    found = own.poly(poly)
    assert found is not None
    return found
