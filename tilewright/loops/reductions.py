"""Reductions as they are written: what loops and reductions combine to a value, piece by piece.

    for ..: %s' = addf %s, (tt.reduce (axis = 1) (mulf %a, %b))    ->    pieces %a * %b over iterations and dim 1

A piece is a product of values at an index (`raising.py`), with the ranges that are reduced and the conditions under
which it counts. What is made of them is for `reduction_loops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.analysis.iterations import is_unit
from tilewright.base.decision import No
from tilewright.ir.types import bit_width, element_type, is_float, shape_of, tile_type
from tilewright.ir.values import defining_op, is_tile, property_int, result_number
from tilewright.loops.nest import ZERO, Index, Node, Poly, Range, range_of
from tilewright.loops.raising import VIEWS, Raising
from tilewright.ops.control import ForOp
from tilewright.ops.elementwise import AddFOp, FmaOp, MulFOp, SelectOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.spec import REGISTRY, Monoid, spec_of


@dataclass(slots=True)
class Piece:
    """What is combined: the product of some values, at their indices, over ranges, where conditions hold."""

    factors: list[tuple[SSAValue, Index]]
    ranges: tuple[Range, ...]
    conditions: list[Node]


@dataclass(slots=True)
class Reduction:
    """What is combined to a value.

    Args:
        root: the operation that gives it.
        result: the value.
        combine, properties: the operation by which elements are combined.
        monoid: that this is.
        dims: its ranges.
        place: in front of which it will stand.
        first: what is combined with it, in its shape; None for nothing.
        begin: a number that is combined with it.
        taken: results of loops that it is made of.
        reduces, loops, pieces: that it is made of.
    """

    root: Operation
    result: SSAValue
    combine: type[Operation]
    properties: Mapping[str, Attribute]
    monoid: Monoid
    dims: Index
    place: Operation
    first: SSAValue | None = None
    begin: float | None = None
    taken: set[SSAValue] = field(default_factory=set)
    reduces: list[ReduceOp] = field(default_factory=list)
    loops: list[ForOp] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    @property
    def early(self) -> Operation:
        """The first operation of it."""
        return self.loops[0] if self.loops else self.root

    @property
    def neutral(self) -> float:
        """The neutral element."""
        return self.monoid.identity(bit_width(element_type(self.result.type)))

    @property
    def outside(self) -> list[ForOp]:
        """The outermost loops."""
        return [loop for loop in self.loops if loop.parent is self.root.parent]

    @property
    def places(self) -> list[Poly]:
        """The places along the dims of the result."""
        return [dim for dim in self.dims if dim is not ZERO]

    @property
    def row(self) -> Poly:
        """The place along the one dim of the result; 0 if there is none."""
        return self.places[0] if self.places else ZERO

    @property
    def kind(self) -> Attribute:
        """The type of the result, without dims of one element."""
        shape = tuple([n for n in shape_of(self.result.type) if n > 1])
        return tile_type(shape, element_type(self.result.type)) if shape else element_type(self.result.type)


def reductions_at(raising: Raising, root: Operation) -> list[Reduction] | No | None:
    """The reduction that ends at an operation, first, and others that its loop combines beside it."""
    used = [result for result in root.results if result.first_use is not None]
    found = _found(raising, root, used[0]) if used else None
    if not isinstance(found, Reduction):
        return found
    group, results = [found], found.outside[0].results if len(found.outside) == 1 else ()
    for result in results:
        if result.first_use is None or any(result in other.taken for other in group):
            continue
        other = _found(raising, *_end(found.outside[0], result))
        if not isinstance(other, Reduction):
            return other or No("the loop carries more than reductions", found.root)
        group.append(other)
    place = min((other.root for other in group), key=root.parent.get_operation_index)  # type: ignore[union-attr]
    for other in group:
        other.place = place
    return group


def ends_reductions(op: Operation) -> bool:
    """Whether an operation may give what loops and reductions combine: it is one, or combines the results of some."""
    if op.regions:
        return isinstance(op, (ForOp, ReduceOp))
    return _combines_reductions(op)


def _combines_reductions(op: Operation) -> bool:
    spec = REGISTRY.get(op.name)
    return spec is not None and spec.monoid is not None and all(_is_part(v, type(op)) for v in op.operands)


def _is_part(value: SSAValue, combine: type[Operation]) -> bool:
    """Whether a value that nobody else wants is the result of a loop or a reduction, or of several combined."""
    op = defining_op(value)
    while value.has_one_use() and op is not None and type(op) in VIEWS:
        value = op.operands[0]
        op = defining_op(value)
    if op is None or not value.has_one_use():
        return False
    return ends_reductions(op) and (bool(op.regions) or type(op) is combine)


def _end(root: Operation, result: SSAValue) -> tuple[Operation, SSAValue]:
    """Where a reduction ends that a loop's result is a part of."""
    value = result
    while value.has_one_use():
        (use,) = value.uses
        op = use.operation
        if op.parent is not root.parent or len(op.results) != 1 or not (isinstance(op, ReduceOp) or type(op) in VIEWS):
            break
        value = op.results[0]
        root, result = (op, value) if isinstance(op, ReduceOp) else (root, result)
    return root, result


def _found(raising: Raising, root: Operation, result: SSAValue) -> Reduction | No | None:
    """The reduction of a result, if a loop or several reductions combine it."""
    combine, element = _combine_of(root, result), element_type(result.type)
    if combine is None or not (is_float(element) or bit_width(element) >= 32):
        return None
    kind, properties, monoid = combine
    dims = raising.dims((result, "reduced"), shape_of(result.type))
    found = Reduction(root, result, kind, properties, monoid, dims, root)
    no = _Reader(raising, found).take(result, dims, (), [], None)
    if not found.loops and len(found.reduces) < 2:
        return None
    return no or found


def _combine_of(root: Operation, result: SSAValue) -> tuple[type[Operation], Mapping[str, Attribute], Monoid] | None:
    """By what a loop or a reduction combines, if the order does not matter."""
    if isinstance(root, ReduceOp):
        op = single_operation(root.regions[0].block)
    elif not root.regions:
        op = root
    else:
        last = root.regions[0].block.last_op
        assert last is not None
        op = defining_op(last.operands[result_number(result)])
        op = defining_op(op.operands[1]) if isinstance(op, SelectOp) else op
    if op is None or op.regions:
        return None
    kind: type[Operation] = AddFOp if isinstance(op, FmaOp) else type(op)
    monoid = spec_of(kind).monoid
    return None if monoid is None else (kind, {} if kind is AddFOp else op.properties, monoid)


class _Reader:
    """Takes in what a value is combined of."""

    def __init__(self, raising: Raising, found: Reduction) -> None:
        self._raising, self._found = raising, found
        self._carried: dict[SSAValue, tuple[Index, tuple[Range, ...], int]] = {}

    def take(
        self, value: SSAValue, index: Index, ranges: tuple[Range, ...], conditions: list[Node], kept: SSAValue | None
    ) -> No | None:
        """Takes in a value at an index; or why that is no part of the reduction.

        Args:
            value: the value.
            index: of the element.
            ranges: that are reduced.
            conditions: under which it counts.
            kept: a carried value that is handed on where the last of these does not hold.
        """
        found, op = self._found, defining_op(value)
        if value in self._carried:
            same = self._carried[value] == (index, ranges, len(conditions) - (kept is value))
            return None if same else No("what a loop carries is more than a reduction", found.root)
        if constant_of(value) == found.neutral:
            return None
        if op is not None and op is not found.root and op.parent is found.root.parent and not value.has_one_use():
            return No("something else wants a part of it, too", op)
        if isinstance(op, ForOp):
            return self._loop(op, value, index, ranges, conditions)
        if isinstance(op, ReduceOp) and self._combines(single_operation(op.regions[0].block)):
            return self._reduce(op, index, ranges, conditions)
        if isinstance(op, SelectOp) and is_tile(op.operands[0]) == is_tile(value):
            otherwise = op.operands[2]
            if otherwise in self._carried or constant_of(otherwise) == found.neutral:
                more = [*conditions, self._raising.condition(op.operands[0], index)]
                return self.take(op.operands[1], index, ranges, more, otherwise if otherwise in self._carried else None)
        if isinstance(op, (MulFOp, FmaOp)) and found.combine is AddFOp:
            (one, here), (other, there) = [self._chosen(v, index) for v in op.operands[:2]]
            if here is there and here is not None:
                found.pieces.append(Piece([(one, index), (other, index)], ranges, [*conditions, here]))
            else:
                found.pieces.append(Piece([(v, index) for v in op.operands[:2]], ranges, conditions))
            return None if isinstance(op, MulFOp) else self.take(op.operands[2], index, ranges, conditions, kept)
        if op is not None and type(op) in VIEWS:
            (part,) = VIEWS[type(op)](op, value, index)
            return self.take(*part, ranges, conditions, kept)
        if op is not None and self._combines(op):
            return next((no for v in op.operands if (no := self.take(v, index, ranges, conditions, kept))), None)
        found.pieces.append(Piece([(value, index)], ranges, conditions))
        return None

    def _loop(
        self, op: ForOp, value: SSAValue, index: Index, ranges: tuple[Range, ...], conditions: list[Node]
    ) -> No | None:
        found, number, last = self._found, result_number(value), op.body.block.last_op
        assert last is not None
        first, argument = op.iter_args[number], op.carried[number]
        if not is_unit(op):
            return No("a loop does not count its iterations", op)
        if first in self._carried or defining_op(first) in found.loops or isinstance(defining_op(first), ForOp):
            no = self.take(first, index, ranges, conditions, None)
            if no is not None:
                return no
        elif constant_of(first) != found.neutral:
            begin = constant_of(first)
            if op is not found.root and (begin is None or not found.monoid.idempotent or found.loops):
                return No("a loop begins with more than nothing", op)
            found.first, found.begin = (first, None) if op is found.root else (None, begin)
        found.taken.add(value)
        if op not in found.loops:
            found.loops.append(op)
        ranges = (*ranges, self._raising.loops.of(op).iteration)
        self._carried[argument] = index, ranges, len(conditions)
        return self.take(last.operands[number], index, ranges, conditions, None)

    def _reduce(self, op: ReduceOp, index: Index, ranges: tuple[Range, ...], conditions: list[Node]) -> No | None:
        axis, shape = property_int(op, "axis"), shape_of(op.operands[0].type)
        (k,) = self._raising.dims((op, "k"), shape[axis : axis + 1])
        self._found.reduces.append(op)
        ranges = ranges if k is ZERO else (*ranges, range_of(k))
        return self.take(op.operands[0], (*index[:axis], k, *index[axis:]), ranges, conditions, None)

    def _chosen(self, value: SSAValue, index: Index) -> tuple[SSAValue, Node | None]:
        """A value where it is not zero, and where that is."""
        op = defining_op(value)
        if isinstance(op, SelectOp) and is_tile(op.operands[0]) and constant_of(op.operands[2]) == 0:
            return op.operands[1], self._raising.condition(op.operands[0], index)
        return value, None

    def _combines(self, op: Operation | None) -> bool:
        return op is not None and type(op) is self._found.combine and op.properties == self._found.properties
