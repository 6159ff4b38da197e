"""What dots and reductions are made of, as factors of a nest: elements of memory, or what is computed of them.

    tt.load A                                        A[i, k]
    (arith.sitofp (tt.load A)) * %scales             computed(A[i, k])      scales, the same along K, are kept

What is computed is one opaque factor, so the normal form need not know it: it merges, turns around and ends ranges in
the addresses of the leaves, and the operations are put on top of leaves loaded elsewhere: as they are for an operand of
a dot (`Computed.made`), in the shape of a row for what is reduced (`Computed.in_rows`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.base.decision import Answer, No, Yes
from tilewright.base.order import reached
from tilewright.ir.decisions import describe_op
from tilewright.ir.types import element_type, ir_name, shape_of, tile_type
from tilewright.ir.values import defining_op, is_tile, operands_of
from tilewright.ir.walk import among
from tilewright.loops.arithmetic import conjunction
from tilewright.loops.attributes import attributes_of
from tilewright.loops.lifting import Lifting, float_of
from tilewright.loops.lowering import is_before
from tilewright.loops.nest import ALWAYS, ZERO, Every, Index, Load, Node, Opaque, Poly, Select, as_element, ranges_of
from tilewright.loops.raising import VIEWS, Raising
from tilewright.ops.casts import ExtFOp, SIToFPOp, TruncFOp, UIToFPOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import AddFOp, AddIOp, FmaOp, MulFOp, MulIOp, NegFOp, SelectOp, SubFOp, SubIOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.spec import spec_of
from tilewright.passes.building import Builder
from tilewright.passes.dce import is_removable

# Of what is finite they make what is finite.
FINITE = frozenset(
    {AddFOp, AddIOp, FmaOp, MulFOp, MulIOp, NegFOp, SelectOp, SubFOp, SubIOp}
    | {ExtFOp, SIToFPOp, TruncFOp, UIToFPOp, ConstantOp, LoadOp, *VIEWS}
)


@dataclass(slots=True)
class Leaf:
    """A tile that is loaded.

    Args:
        value: the tile, a view of what the load gives.
        index: of the element that the factor has of it.
        load: the load.
        is_part: whether more is made of it.
        other: what stands where it is masked.
    """

    value: SSAValue
    index: Index
    load: LoadOp
    is_part: bool
    other: float = 0


@dataclass(slots=True)
class Computed:
    """An operand: leaves, and elementwise operations on them.

    Args:
        value: the operand.
        leaves: what is loaded.
        nodes: the element of each leaf, chosen where it is not zero.
        kept: what is the same in all iterations.
        lines: what the operations are, as a text that has the leaves by their numbers.
        places: the line of each value at an index, operands first.
        factors: what is multiplied, if it is more than the value.
    """

    value: SSAValue
    leaves: list[Leaf] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    kept: set[SSAValue] = field(default_factory=set)
    lines: list[Hashable] = field(default_factory=list)
    places: dict[tuple[SSAValue, Index], int] = field(default_factory=dict)
    factors: list[tuple[SSAValue, Index]] = field(default_factory=list)

    @property
    def is_load(self) -> bool:
        """Whether nothing is computed."""
        return len(self.leaves) == 1 and not self.leaves[0].is_part

    def is_finite(self) -> bool:
        """Whether leaves of zeros make something finite."""
        return all(type(defining_op(value)) in FINITE for value, _ in self.places if value not in self.kept)

    def factor(self, side: int) -> Node:
        """What the nest says of it."""
        return Opaque.of(DotOp, (("side", side), ("does", tuple(self.lines))), tuple(self.nodes), (), 0)

    def made(self, tiles: Sequence[SSAValue], anchor: Operation) -> SSAValue:
        """The operand in front of `anchor`, of other leaves."""
        b, known = Builder(anchor), dict(zip([leaf.value for leaf in self.leaves], tiles, strict=True))
        for value, _ in self.places:
            op, constant = defining_op(value), constant_of(value)
            if value in known or value in self.kept:
                continue
            if constant is not None:
                known[value] = b.number(constant, value.type)
            elif op is not None:
                b.copy(op, known)
        return known.get(self.value, self.value)

    def in_rows(self, tiles: Sequence[SSAValue], anchor: Operation) -> SSAValue:
        """What is reduced, in front of `anchor`, of leaves that all are rows of one shape."""
        shape, b, made = shape_of(tiles[0].type), Builder(anchor), dict[tuple[SSAValue, Index], SSAValue]()
        leaves = {(leaf.value, leaf.index): tile for leaf, tile in zip(self.leaves, tiles, strict=True)}
        for value, index in self.places:
            op, kind = defining_op(value), tile_type(shape, element_type(value.type))
            number = constant_of(value)
            if (value, index) in leaves:
                made[value, index] = leaves[value, index]
            elif number is not None:
                made[value, index] = b.number(number, kind)
            elif value in self.kept:
                made[value, index] = _repeated(value, kind, b)
            elif op is not None and type(op) in VIEWS:
                made[value, index] = made[VIEWS[type(op)](op, value, index)[0]]
            else:
                assert op is not None
                operands = [made[part, index if is_tile(part) else ()] for part in operands_of(op)]
                new = type(op).create(operands=operands, result_types=[kind], properties=dict(op.properties))
                made[value, index] = b.put(new)
                new.location = op.location
        tile, *more = [made[factor] for factor in self.factors]
        for other in more:
            tile = b.op(MulFOp, tile, other)
        return tile


class Operands:
    """What operands of dots are made of.

    Args:
        raising: what gives the expressions of elements.
        early: the first operation of the sum; what is known before it, and is the same along K, is kept.
    """

    def __init__(self, raising: Raising, early: Operation) -> None:
        self._raising, self._early = raising, early
        self._numbers: dict[SSAValue, int] = {}

    def of(self, value: SSAValue, index: Index, k: Poly) -> Answer[Computed]:
        """An operand, at the index of an element in which `k` is the range of the contraction."""
        made = Computed(value)
        answer = self._take(made, value, index, k)
        return answer if isinstance(answer, No) else Yes(made)

    def _take(self, made: Computed, value: SSAValue, index: Index, k: Poly) -> Answer[int]:
        """Takes in a value at an index; the number of the line that says what it is."""
        found = made.places.get((value, index))
        if found is not None:
            return Yes(found)
        answer = self._line(made, value, index, k)
        if isinstance(answer, No):
            return answer
        number = made.places[value, index] = len(made.lines)
        made.lines.append(answer.plan)
        return Yes(number)

    def _line(self, made: Computed, value: SSAValue, index: Index, k: Poly) -> Answer[tuple[Hashable, ...]]:
        op, kind = defining_op(value), str(value.type)
        constant = constant_of(value)
        if constant is not None:
            return Yes(("constant", repr(constant), kind))
        if is_before(value, self._early) and self._is_same(value, index, k):
            made.kept.add(value)
            at = tuple([ZERO if ranges_of(k) <= ranges_of(place) else place for place in index])
            return Yes(("kept", self._numbers.setdefault(value, len(self._numbers)), at, kind))
        if op is None:
            return No("an operand is made of what a loop carries or counts")
        load = load_of(value)
        if load is not None and self._is_leaf(load):
            return self._leaf(made, Leaf(value, index, load, value is not made.value)) or Yes(
                ("leaf", len(made.leaves), kind)
            )
        if type(op) in VIEWS:
            parts: Sequence[tuple[SSAValue, Index]] = VIEWS[type(op)](op, value, index)
        elif spec_of(op).elementwise and not op.regions and is_removable(op):
            parts = [(operand, index if is_tile(operand) else ()) for operand in operands_of(op)]
        else:
            return No(f"an operand is made by {describe_op(op)}", op)
        numbers = list[int]()
        for part, at in parts:
            answer = self._take(made, part, at, k)
            if isinstance(answer, No):
                return answer
            numbers.append(answer.plan)
        return Yes((op.name, attributes_of(op), kind, *numbers))

    def _is_leaf(self, load: LoadOp) -> bool:
        """Whether a view of a load is a leaf, whatever of it is seen."""
        return True

    def _is_same(self, value: SSAValue, index: Index, k: Poly) -> bool:
        """Whether a value is the same all along K."""
        if not index:
            return True
        return k is not ZERO and ranges_of(self._raising.value(value, index)).isdisjoint(ranges_of(k))

    def _leaf(self, made: Computed, leaf: Leaf) -> No | None:
        node = as_element(Lifting()(self._raising.value(leaf.value, leaf.index)))
        _, element = choice(node)
        if not isinstance(element, Load) or element.type != ir_name(element_type(leaf.value.type)):
            return No("what its mask leaves out is not known to be zero", leaf.load, "other=0")
        if len(leaf.index) not in (1, 2) or any(place is not ZERO and len(place.key) > 1 for place in leaf.index):
            return No("an operand is loaded piece by piece", leaf.load)
        if any(other.value is leaf.value for other in made.leaves):
            return No("an operand has a tile and its transpose", leaf.load)
        made.leaves.append(leaf)
        made.nodes.append(node)
        return None


class Elements(Operands):
    """What reductions are made of, element by element: a tile may be loaded in pieces, and chosen by masks.

    Args:
        raising: what gives the expressions of elements.
        early: the first operation of the reduction; what is known before it is kept.
        row: the place along a row of the result; 0 if it is a scalar.
    """

    def __init__(self, raising: Raising, early: Operation, row: Poly) -> None:
        super().__init__(raising, early)
        self._row = row

    def product(self, factors: list[tuple[SSAValue, Index]], k: Poly) -> Answer[Computed]:
        """What is reduced, a product of values at indices in which `k` is the sum of the ranges that are reduced."""
        made, numbers = Computed(factors[0][0], factors=factors), list[int]()
        for value, index in factors:
            answer = self._take(made, value, index, k)
            if isinstance(answer, No):
                return answer
            numbers.append(answer.plan)
        made.lines.append(("product", *numbers))
        return Yes(made)

    def _line(self, made: Computed, value: SSAValue, index: Index, k: Poly) -> Answer[tuple[Hashable, ...]]:
        op, kind = defining_op(value), str(value.type)
        if constant_of(value) is None and type(op) not in VIEWS:
            if is_before(value, self._early) and self._is_of_row(value, index):
                made.kept.add(value)
                return Yes(("kept", self._numbers.setdefault(value, len(self._numbers)), kind))
            load = load_of(op.operands[1] if isinstance(op, SelectOp) else value)
            if load is not None and self._leaf(made, Leaf(value, index, load, value is not made.value)) is None:
                return Yes(("leaf", len(made.leaves), made.leaves[-1].other))
        answer = super()._line(made, value, index, k)
        if isinstance(answer, No) or op is None or constant_of(value) is not None:
            return answer
        name, attributes, _, *numbers = answer.plan
        return Yes((name, attributes, ir_name(element_type(value.type)), *numbers))

    def _is_of_row(self, value: SSAValue, index: Index) -> bool:
        """Whether an element is known by its row alone, and stands in a column or a scalar."""
        kept = [n for n, place in zip(shape_of(value.type), index, strict=True) if place is not self._row or n == 1]
        return all(n == 1 for n in kept)

    def _is_leaf(self, load: LoadOp) -> bool:
        return not is_before(load.result, self._early)

    def _is_same(self, value: SSAValue, index: Index, k: Poly) -> bool:
        return False

    def _leaf(self, made: Computed, leaf: Leaf) -> No | None:
        node = as_element(Lifting()(self._raising.value(leaf.value, leaf.index)))
        if isinstance(node, Select) and isinstance(node.condition, Every) and float_of(node.otherwise) is not None:
            leaf.other = float_of(node.otherwise) or 0
            node = Select.of(node.condition, as_element(node.then), ZERO)
        _, element = choice(node)
        if not isinstance(element, Load) or element.type != ir_name(element_type(leaf.value.type)):
            return No("what its mask leaves out is no number", leaf.load, "other=0")
        made.leaves.append(leaf)
        made.nodes.append(node)
        return None


def _repeated(value: SSAValue, kind: Attribute, b: Builder) -> SSAValue:
    """A scalar, or one for each row, all along rows."""
    if is_tile(value):
        rows, count = shape_of(kind)[:-1], math.prod(shape_of(value.type))
        value = b.viewed(value, tile_type((*((count,) if rows else ()), 1), element_type(value.type)))
    return b.viewed(value, kind)


def shared_choice(nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Conditions under which none of some factors is zero by its own choice, and the factors without them.

    What one factor alone is masked by stays with it: zero times an infinity of the other is no zero.
    """
    chosen = [choice(node) for node in nodes]
    shared = frozenset.intersection(*[condition.parts for condition, _ in chosen])
    left = [(conjunction(condition.parts - shared), element) for condition, element in chosen]
    return [*shared], [
        element if condition is ALWAYS else Select.of(condition, element, ZERO) for condition, element in left
    ]


def load_of(value: SSAValue) -> LoadOp | None:
    """The load that a matrix is a view of; None for what is computed, or loaded anew each time."""
    op = defining_op(value)
    while op is not None and type(op) in VIEWS:
        op = defining_op(op.operands[0])
    return op if isinstance(op, LoadOp) and "isVolatile" not in op.properties else None


def loads_of(value: SSAValue) -> list[LoadOp]:
    """The loads that an operand is made of, by operations without regions."""

    def made_of(value: SSAValue) -> Sequence[SSAValue]:
        op = defining_op(value)
        return operands_of(op) if op is not None and not isinstance(op, LoadOp) and not op.regions else ()

    return among(map(defining_op, reached([value], made_of)), LoadOp)


def choice(node: Node) -> tuple[Every, Node]:
    """An element, and the condition under which it is not zero."""
    if isinstance(node, Select) and isinstance(node.condition, Every):
        is_zero = float_of(node.otherwise) == 0 or node.otherwise is ZERO
        return (node.condition, as_element(node.then)) if is_zero else (ALWAYS, node)
    return ALWAYS, node
