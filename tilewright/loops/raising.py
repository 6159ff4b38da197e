"""Tile IR to expressions at an index: every tile is asked for its element, so views and shapes vanish.

    value(%t, (i, j))   the element (i, j) of tile %t as an expression of `nest.py`
    address(%p, (i,))   base and offset of a pointer

Index arithmetic is taken not to wrap, as in `analysis/affine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.types import bit_width, element_type, ir_name, is_integer, is_pointer, pointee_bytes, shape_of
from tilewright.ir.values import defining_op, is_tile, operands_of, property_int, result_number
from tilewright.loops.arithmetic import FALSE, TRUE, always_nonnegative, below, conjunction, divided, implies, negation
from tilewright.loops.attributes import attributes_of, region_text
from tilewright.loops.closed_forms import LoopValues
from tilewright.loops.epochs import Epochs
from tilewright.loops.nest import (
    ALWAYS,
    ONE,
    ZERO,
    Element,
    Every,
    Index,
    Load,
    Named,
    Node,
    Number,
    Opaque,
    Poly,
    Range,
    Reduce,
    Select,
    Symbol,
    Tile,
    applied,
    as_element,
    polynomial,
    range_of,
    ranges_of,
)
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.casts import ArithBitcastOp, BitcastOp, ExtSIOp, ExtUIOp, TruncIOp
from tilewright.ops.control import ForOp, IfOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.dot import DotOp
from tilewright.ops.elementwise import (
    AddFOp,
    AddIOp,
    AndIOp,
    CmpIOp,
    DivSIOp,
    DivUIOp,
    MaxSIOp,
    MinSIOp,
    MulFOp,
    MulIOp,
    OrIOp,
    RemSIOp,
    RemUIOp,
    SelectOp,
    ShLIOp,
    ShRSIOp,
    ShRUIOp,
    SubIOp,
    XOrIOp,
)
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.function import FuncOp
from tilewright.ops.gather import GatherOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.program import GetNumProgramsOp, GetProgramIdOp
from tilewright.ops.reduce import ReduceOp, single_operation
from tilewright.ops.shape import CatOp, JoinOp, ReshapeOp, SplitOp, TransOp, UnsplatOp
from tilewright.ops.signs import never_negative
from tilewright.ops.spec import spec_of

_PLACES = 24  # elements of one tile that are written out


class Raising:
    """Expressions of the values of a function.

    Args:
        function: in tile IR, its calls inlined.
    """

    def __init__(self, function: FuncOp) -> None:
        self.function = function
        self._arguments = {argument: number for number, argument in enumerate(function.body.blocks[0].args)}
        self._known: dict[tuple[SSAValue, Index], Node] = {}
        self._epochs = Epochs(function)
        self._asked: dict[SSAValue, int] = {}
        self._places: dict[Operation, int] = {}
        self._dims: dict[object, Index] = {}
        self.loops = LoopValues(self)

    # --- values --------------------------------------------------------------------------------------

    def value(self, value: SSAValue, index: Index = ()) -> Node:
        """The element of a value at an index."""
        key = (value, index)
        found = self._known.get(key)
        if found is None:
            if index and self._is_often_asked(value):
                found = _polynomial_if_index(value, Element.of(self._tile(value), index))
            else:
                found = self._value(value, index)
            self._known[key] = found
        return found

    def _is_often_asked(self, value: SSAValue) -> bool:
        """Whether many elements of a tile were asked for: a network that sorts would be written out as a tree."""
        if constant_of(value) is not None or isinstance(defining_op(value), MakeRangeOp):
            return False
        asked = self._asked[value] = self._asked.get(value, 0) + 1
        return asked > _PLACES and not is_pointer(element_type(value.type)) and type(defining_op(value)) not in VIEWS

    def _tile(self, value: SSAValue) -> Tile:
        """A whole tile."""
        dims = self.dims((value, "whole"), shape_of(value.type))
        found = self._known.get((value, dims))
        if found is None:
            found = self._known[value, dims] = self._value(value, dims)
        return Tile.of(dims, found)

    def scalars(self) -> list[tuple[SSAValue, Node]]:
        """The scalars whose expressions are known, each with what it is as an atom of polynomials."""
        known = [(value, node) for (value, _), node in self._known.items()]
        known += [(argument, self.value(argument)) for argument in self._arguments]
        return [(value, as_element(node)) for value, node in known if not is_tile(value)]

    def forget(self, iteration: Range) -> None:
        """Drop what is made of what a loop carries: more of the loop is known now than when it was found."""
        self._known = {key: node for key, node in self._known.items() if iteration not in ranges_of(node)}
        self._asked.clear()

    def dims(self, key: object, shape: Sequence[int]) -> Index:
        """A range for each dimension, 0 for those of one element; the same ones whenever `key` is the same."""
        found = self._dims.get(key)
        if found is None:
            found = self._dims[key] = tuple([ZERO if n == 1 else Poly.atom(Range.new(Poly.number(n))) for n in shape])
        return found

    def poly(self, value: SSAValue, index: Index = ()) -> Poly:
        """An integer as a polynomial."""
        return polynomial(self.value(value, index), never_negative(value))

    def _value(self, value: SSAValue, index: Index) -> Node:
        known = constant_of(value)
        element = element_type(value.type)
        if known is not None and not is_pointer(element):
            if isinstance(known, int) and is_integer(element) and bit_width(element) > 1:
                return Poly.number(known)
            return _number(known, element)
        op = defining_op(value)
        if op is None:
            assert isinstance(value, BlockArgument)
            return self._argument(value, index)
        rule = _RULES.get(type(op))
        made = rule(self, op, value, index) if rule is not None else None
        return self._applied(op, value, index) if made is None else made

    def _argument(self, value: BlockArgument, index: Index) -> Node:
        number = self._arguments.get(value)
        if number is not None:
            named = Named.of(f"arg{number}")
            return polynomial(named, never_negative(value)) if _is_index(element_type(value.type)) else named
        loop = value.block.parent_op()
        if isinstance(loop, ForOp):
            return self.loops.argument(loop, value.index, index)
        return Named.of(f"block{self._place(loop)}.{value.index}") if loop is not None else Named.of("?")

    def _applied(self, op: Operation, value: SSAValue, index: Index) -> Node:
        """An elementwise operation, or one of which nothing is known here."""
        spec = spec_of(op)
        element = element_type(value.type)
        if spec.elementwise and not op.regions:
            operands = [self.value(o, index if is_tile(o) else ()) for o in operands_of(op)]
            types = tuple([ir_name(element_type(o.type)) for o in operands_of(op)])
            made = applied(type(op), operands, ir_name(element), attributes_of(op), types)
            return polynomial(made, never_negative(value)) if _is_index(element) else made
        return self._opaque(op, value, index)

    def _opaque(self, op: Operation, value: SSAValue, index: Index) -> Node:
        """What is known of any operation: its operands, each as a whole, and its place if it is more than they say."""
        operands = [self._tile(o) if is_tile(o) else self.value(o) for o in operands_of(op)]
        attributes = attributes_of(op)
        if op.regions or not operands:
            does = region_text(op) if operands else None
            attributes = (*attributes, ("does", self._place(op) if does is None else does))
        number = result_number(value)
        made = Opaque.of(type(op), attributes, tuple(operands), index, number)
        return polynomial(made, never_negative(value)) if _is_index(element_type(value.type)) else made

    def _place(self, op: Operation) -> int:
        return self._places.setdefault(op, len(self._places))

    # --- addresses and conditions -----------------------------------------------------------------------

    def address(self, value: SSAValue, index: Index = ()) -> tuple[Node, Poly]:
        """The pointer that offsets are added to, and their sum in bytes."""
        op = defining_op(value)
        if isinstance(op, AddPtrOp):
            pointer, moved = operands_of(op)
            base, offset = self.address(pointer, index if is_tile(pointer) else ())
            return base, offset + self.poly(moved, index if is_tile(moved) else ()) * Poly.number(
                pointee_bytes(value.type)
            )
        if isinstance(op, (BitcastOp, ArithBitcastOp)):
            return self.address(operands_of(op)[0], index)
        if type(op) in VIEWS:
            (source, at), *_ = view(self, op, value, index)  # type: ignore[arg-type]
            return self.address(source, at)
        if op is None and value not in self._arguments:
            assert isinstance(value, BlockArgument)
            loop = value.block.parent_op()
            inside = self.loops.moved_pointer(loop, value.index, index) if isinstance(loop, ForOp) else None
            if inside is not None:
                return inside
        if isinstance(op, ForOp):
            behind = self.loops.pointer_behind(op, result_number(value), index)
            if behind is not None:
                return behind
        return self.value(value, index), ZERO

    def condition(self, value: SSAValue, index: Index = ()) -> Every:
        """A mask as a conjunction."""
        return conjunction([self.value(value, index if is_tile(value) else ())])

    def load(self, op: LoadOp, index: Index) -> Node:
        """The element that a load reads."""
        base, offset = self.address(op.ptr, index if is_tile(op.ptr) else ())
        condition = ALWAYS if op.mask is None else self.condition(op.mask, index)
        other = None if op.other is None else self.value(op.other, index if is_tile(op.other) else ())
        element = element_type(op.result.type)
        made = Load.of(base, offset, condition, other, ir_name(element), self._epochs.of(op))
        return polynomial(made) if _is_index(element) else made


def _is_index(element: Attribute) -> bool:
    return is_integer(element) and bit_width(element) > 1


def _number(known: int | float | bool, element: Attribute) -> Node:
    name = ir_name(element)
    if name == "i1":
        return TRUE if known else FALSE
    return Number.of(repr(float(known)), name)


def flat(index: Index, shape: Sequence[int]) -> Poly:
    """The number of an element in row-major order."""
    total = ZERO
    for place, n in zip(index, shape, strict=True):
        total = total * Poly.number(n) + place
    return total


# --- views -----------------------------------------------------------------------------------------------------

Parts = list[tuple[SSAValue, Index]]


def view(raising: Raising, op: Operation, value: SSAValue, index: Index) -> Parts:
    """The elements of the operands that an element of a view may be."""
    return VIEWS[type(op)](op, value, index)


def _splat(op: Operation, value: SSAValue, index: Index) -> Parts:
    return [(operands_of(op)[0], ())]


def _unsplat(op: Operation, value: SSAValue, index: Index) -> Parts:
    return [(operands_of(op)[0], (ZERO,) * len(shape_of(operands_of(op)[0].type)))]


def _expand_dims(op: Operation, value: SSAValue, index: Index) -> Parts:
    axis = property_int(op, "axis")
    return [(operands_of(op)[0], index[:axis] + index[axis + 1 :])]


def _broadcast(op: Operation, value: SSAValue, index: Index) -> Parts:
    source = operands_of(op)[0]
    return [(source, tuple([ZERO if n == 1 else place for n, place in zip(shape_of(source.type), index, strict=True)]))]


def _trans(op: Operation, value: SSAValue, index: Index) -> Parts:
    order = [int(dim) for dim in op.properties["order"].get_values()]  # type: ignore[attr-defined]
    source = [ZERO] * len(order)
    for position, dim in enumerate(order):
        source[dim] = index[position]
    return [(operands_of(op)[0], tuple(source))]


def _reshape(op: Operation, value: SSAValue, index: Index) -> Parts:
    source = operands_of(op)[0]
    rest, places = flat(index, shape_of(value.type)), list[Poly]()
    for n in reversed(shape_of(source.type)[1:]):
        rest, place = divided(rest, Poly.number(n))
        places.append(place)
    places.append(rest)
    return [(source, tuple(reversed(places))[: len(shape_of(source.type))])]


def _split(op: Operation, value: SSAValue, index: Index) -> Parts:
    return [(operands_of(op)[0], (*index, ONE if value is op.results[1] else ZERO))]


VIEWS: dict[type[Operation], Callable[[Operation, SSAValue, Index], Parts]] = {
    SplatOp: _splat,
    UnsplatOp: _unsplat,
    ExpandDimsOp: _expand_dims,
    BroadcastOp: _broadcast,
    TransOp: _trans,
    ReshapeOp: _reshape,
    SplitOp: _split,
}


# --- rules -----------------------------------------------------------------------------------------------------

Rule = Callable[[Raising, Operation, SSAValue, Index], Node | None]


def _view(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    ((source, at),) = view(r, op, value, index)
    return r.value(source, at)


def _join(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    left, right = operands_of(op)
    if isinstance(op, CatOp):
        n = Poly.number(shape_of(left.type)[0])
        side, here = index[0] - n, (index[0] - n, *index[1:])
        return _either(below(side), r.value(left, index), r.value(right, here))
    return _either(below(index[-1] - ONE), r.value(left, index[:-1]), r.value(right, index[:-1]))


def _either(condition: Node, then: Node, otherwise: Node) -> Node:
    condition = conjunction([condition])
    if condition is ALWAYS or then is otherwise:
        return then
    return otherwise if FALSE in condition.parts else Select.of(condition, then, otherwise)


def _make_range(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    return index[0] + Poly.number(property_int(op, "start"))


def _operand_polys(r: Raising, op: Operation, index: Index) -> list[Poly]:
    return [r.poly(o, index if is_tile(o) else ()) for o in operands_of(op)]


def _arithmetic(combine: Callable[[Poly, Poly], Poly | None]) -> Rule:
    def rule(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
        if bit_width(element_type(value.type)) < 32:
            return None
        return combine(*_operand_polys(r, op, index))

    return rule


def _shifted(a: Poly, b: Poly) -> Poly | None:
    by = b.constant
    return None if by is None or not 0 <= by < 31 else a * Poly.number(1 << by)


def _division(which: int) -> Rule:
    """Quotient, or what is left of the number behind it: the same whatever the signs."""

    def rule(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
        if bit_width(element_type(value.type)) < 32:
            return None
        number, by = _operand_polys(r, op, index)
        if by is ZERO:  # of which nothing is left
            return None
        positive = all(never_negative(operand) for operand in operands_of(op))
        if positive:
            return divided(number, by)[which]
        if isinstance(op, (DivUIOp, RemUIOp)):
            return None
        over = Poly.atom(Symbol.of(applied(DivSIOp, (number, by), "i32"), False))
        return (over, number - over * by)[which]

    return rule


def _shifted_down(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    number, by = operands_of(op)
    bits = constant_of(by)
    if not isinstance(bits, int) or not 0 <= bits < 31 or not _counts(number):
        return None
    return divided(r.poly(number, index if is_tile(number) else ()), Poly.number(1 << bits))[0]


def _counts(value: SSAValue) -> bool:
    """Whether a value is an integer of 32 bits or more that is not negative."""
    return bit_width(element_type(value.type)) >= 32 and never_negative(value)


def _masked(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    """The lower bits of a number that is not negative are what is left behind a division."""
    number, mask = operands_of(op)
    bits = constant_of(mask)
    if not isinstance(bits, int) or bits < 0 or bits & (bits + 1) or not _counts(number):
        return None
    return divided(r.poly(number, index if is_tile(number) else ()), Poly.number(bits + 1))[1]


def _extreme(kind: type[Operation], known: Callable[[Iterable[bool]], bool]) -> Rule:
    """The larger or smaller one of two numbers, the same in 32 and 64 bits."""
    return _arithmetic(
        lambda x, y: polynomial(applied(kind, (x, y), "i32"), known(always_nonnegative(side) for side in (x, y)))
    )


def _widened(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    source = operands_of(op)[0]
    if bit_width(element_type(source.type)) < 32 or (isinstance(op, ExtUIOp) and not never_negative(source)):
        return None
    return r.value(source, index if is_tile(source) else ())


def _compare(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    predicate = op.attr_values()["predicate"]  # type: ignore[attr-defined]
    a, b = operands_of(op)
    if predicate in ("eq", "ne") or bit_width(element_type(a.type)) < 32:
        return None
    if predicate.startswith("u") and not (never_negative(a) and never_negative(b)):
        return None
    x, y = _operand_polys(r, op, index)
    if predicate[1] == "g":
        x, y = y, x
    return conjunction([below(x - y - (ONE if predicate[2] == "e" else ZERO))])


def _and(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    if ir_name(element_type(value.type)) != "i1":
        return _masked(r, op, value, index)
    return conjunction([r.value(o, index if is_tile(o) else ()) for o in operands_of(op)])


def _or(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    """Not neither of both."""
    if ir_name(element_type(value.type)) != "i1":
        return None
    sides = [conjunction([r.value(o, index if is_tile(o) else ())]) for o in operands_of(op)]
    for one, other in (sides, sides[::-1]):
        if len(one.parts) == len(other.parts) == 1 and implies(*one.parts, *other.parts):
            return other
    opposites = [negation(side) for side in sides]
    if None in opposites:
        return None
    return conjunction([negation(conjunction([o for o in opposites if o is not None])) or FALSE])


def _exclusive(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    """`x ^ true` is how a negation is written."""
    for operand, other in zip(operands_of(op), reversed(operands_of(op)), strict=True):
        if constant_of(operand) is True:
            return negation(r.value(other, index if is_tile(other) else ()))
    return None


def _select(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    counted = None if is_tile(value) else r.loops.counted(value)
    if counted is not None:
        return counted
    condition, a, b = (r.value(o, index if is_tile(o) else ()) for o in operands_of(op))
    return _polynomial_if_index(value, _either(condition, a, b))


def _polynomial_if_index(value: SSAValue, node: Node) -> Node:
    return polynomial(node, never_negative(value)) if _is_index(element_type(value.type)) else node


def _if(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    assert isinstance(op, IfOp)
    number = result_number(value)
    sides = [_last(region.block).operands[number] for region in (op.then_region, op.else_region)]
    condition = r.value(op.cond)
    return _polynomial_if_index(value, _either(condition, r.value(sides[0], index), r.value(sides[1], index)))


def _last(block: Block) -> Operation:
    assert block.last_op is not None
    return block.last_op


def _for(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    assert isinstance(op, ForOp)
    return r.loops.result(op, result_number(value), index)


def _load(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    assert isinstance(op, LoadOp)
    return r.load(op, index)


def _programs(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    return polynomial(Named.of(f"programs{property_int(op, 'axis')}"), nonnegative=True)


def _program_id(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    return polynomial(Named.of(f"program{property_int(op, 'axis')}"), nonnegative=True)


def _reduce(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    single = single_operation(op.regions[0].block)
    if single is None or spec_of(single).monoid is None:
        return None
    (source,), axis = operands_of(op), property_int(op, "axis")
    (at,) = r.dims((op, index), shape_of(source.type)[axis : axis + 1])
    body = r.value(source, (*index[:axis], at, *index[axis:]))
    if at is ZERO:
        return body
    if is_integer(element_type(value.type)) and bit_width(element_type(value.type)) < 32 and isinstance(single, AddIOp):
        return None
    kind = ir_name(element_type(value.type))
    return _polynomial_if_index(value, Reduce.of(type(single), (), (range_of(at),), body, None, kind))


def _dot(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    assert isinstance(op, DotOp)
    *batch, i, j = index
    (k,) = r.dims((op, index), shape_of(op.a.type)[-1:])
    a, b = r.value(op.a, (*batch, i, k)), r.value(op.b, (*batch, k, j))
    first, element = r.value(op.c, index), ir_name(element_type(value.type))
    if element not in ("f32", "f64") or k is ZERO:
        return None
    kinds = {ir_name(element_type(operand.type)) for operand in (op.a, op.b)}
    if not all(kind.startswith(("f", "bf")) for kind in kinds):
        return None
    product = applied(MulFOp, (a, b), element)
    exact = op.attr_values() == {"inputPrecision": "ieee", "maxNumImpreciseAcc": 0} or kinds != {"f32"}
    return Reduce.of(AddFOp, () if exact else attributes_of(op), (range_of(k),), product, first, element)


def _gather(r: Raising, op: Operation, value: SSAValue, index: Index) -> Node | None:
    source, places = operands_of(op)
    axis = property_int(op, "axis")
    return r.value(source, (*index[:axis], r.poly(places, index), *index[axis + 1 :]))


_RULES: dict[type[Operation], Rule] = {
    **dict.fromkeys(VIEWS, _view),
    JoinOp: _join,
    CatOp: _join,
    MakeRangeOp: _make_range,
    AddIOp: _arithmetic(Poly.__add__),
    SubIOp: _arithmetic(Poly.__sub__),
    MulIOp: _arithmetic(Poly.__mul__),
    ShLIOp: _arithmetic(_shifted),
    DivSIOp: _division(0),
    DivUIOp: _division(0),
    RemSIOp: _division(1),
    RemUIOp: _division(1),
    MaxSIOp: _extreme(MaxSIOp, any),
    MinSIOp: _extreme(MinSIOp, all),
    ExtSIOp: _widened,
    ExtUIOp: _widened,
    TruncIOp: _widened,
    CmpIOp: _compare,
    AndIOp: _and,
    OrIOp: _or,
    ShRSIOp: _shifted_down,
    ShRUIOp: _shifted_down,
    XOrIOp: _exclusive,
    SelectOp: _select,
    IfOp: _if,
    ForOp: _for,
    LoadOp: _load,
    GetProgramIdOp: _program_id,
    GetNumProgramsOp: _programs,
    ReduceOp: _reduce,
    DotOp: _dot,
    GatherOp: _gather,
}
