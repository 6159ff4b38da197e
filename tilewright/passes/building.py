"""Writes operations in front of another: arithmetic, comparisons and choices, views, reductions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.ir.op import TileOp
from tilewright.ir.types import bit_width, element_type, i1, i64, shape_of, tile_type, with_element
from tilewright.ir.values import is_tile
from tilewright.ops.broadcast import BroadcastOp, SplatOp
from tilewright.ops.casts import ExtSIOp, TruncIOp
from tilewright.ops.constant import ConstantOp, Number
from tilewright.ops.control import ForOp, YieldOp
from tilewright.ops.elementwise import AddIOp, AndIOp, CmpIOp, MulIOp, OrIOp, SelectOp, SubIOp, XOrIOp
from tilewright.ops.reduce import ReduceOp, ReduceReturnOp
from tilewright.ops.shape import ReshapeOp, TransOp, UnsplatOp
from tilewright.passes.rewriting import insert_before

Kind = TypeVar("Kind", bound=Operation)


class Builder:
    """Operations in front of `anchor`, for which they are made: they have its place in the source."""

    def __init__(self, anchor: Operation) -> None:
        self.anchor = anchor

    def put(self, op: Operation) -> SSAValue:
        """A new operation; gives its result."""
        insert_before(op, self.anchor)
        return op.results[0]

    def make(self, kind: type[TileOp], type_: Attribute, *operands: SSAValue, **attributes: object) -> SSAValue:
        """The result, of a type, of an operation on such operands."""
        return self.put(kind.build_op(operands, [type_], attributes))

    def again(self, op: Operation, type_: Attribute, *operands: SSAValue) -> SSAValue:
        """The result of `op` on other operands, with another type."""
        return self.put(type(op).create(operands=operands, result_types=[type_], properties=dict(op.properties)))

    def copy(self, op: Kind, known: dict[SSAValue, SSAValue]) -> Kind:
        """An operation once more, on what `known` has for its operands, with its own place in the source.

        `known` learns its results, and those of operations inside of it.
        """
        made, block = op.clone(known), self.anchor.parent_block()
        assert block is not None
        block.insert_op_before(made, self.anchor)
        return made

    def number(self, value: Number, type_: Attribute = i64) -> SSAValue:
        """A constant, the same in every element of a tile."""
        return self.put(ConstantOp.of(value, type_))

    # -- element by element ------------------------------------------------------------------------------

    def op(self, kind: type[Operation], *operands: SSAValue) -> SSAValue:
        """An elementwise operation of one type; a scalar beside a tile is the same in every element."""
        shaped = next(filter(is_tile, operands), operands[0])
        return self.put(kind.create(operands=[self.like(v, shaped) for v in operands], result_types=[shaped.type]))

    def like(self, value: SSAValue, other: SSAValue) -> SSAValue:
        """A scalar in the shape of a tile."""
        if is_tile(value) or not is_tile(other):
            return value
        return self.make(SplatOp, with_element(other.type, value.type), value)

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(AddIOp, a, b)

    def sub(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(SubIOp, a, b)

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(MulIOp, a, b)

    def both(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(AndIOp, a, b)

    def either(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.op(OrIOp, a, b)

    def negated(self, mask: SSAValue) -> SSAValue:
        return self.op(XOrIOp, mask, self.number(True, mask.type))

    def compare(self, predicate: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a < b` and the like, of integers."""
        a, b = self.like(a, b), self.like(b, a)
        return self.make(CmpIOp, with_element(a.type, i1), a, b, predicate=predicate)

    def choose(self, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """`a` where the condition holds, else `b`; scalars or tiles alike."""
        return self.make(SelectOp, a.type, condition, a, b)

    def cast(self, kind: type[TileOp], value: SSAValue, element: Attribute) -> SSAValue:
        """A value converted to another type of element."""
        return self.make(kind, with_element(value.type, element), value)

    def resized(self, value: SSAValue, type_: Attribute, widen: type[TileOp] = ExtSIOp) -> SSAValue:
        """A scalar integer in another width."""
        if value.type == type_:
            return value
        known = constant_of(value)
        if isinstance(known, int) and widen is ExtSIOp:
            return self.number(known, type_)
        return self.make(widen if bit_width(value.type) < bit_width(type_) else TruncIOp, type_, value)

    # -- tiles -------------------------------------------------------------------------------------------

    def viewed(self, value: SSAValue, type_: Attribute) -> SSAValue:
        """A scalar or a tile in another shape: of as many elements, or repeated along dims of one element."""
        if value.type == type_:
            return value
        number = constant_of(value)
        if number is not None:
            return self.number(number, type_)
        if not is_tile(value):
            return self.make(SplatOp, type_, value)
        if not shape_of(type_):
            return self.make(UnsplatOp, type_, value)
        repeats = math.prod(shape_of(type_)) > math.prod(shape_of(value.type))
        return self.make(BroadcastOp if repeats else ReshapeOp, type_, value)

    def transposed(self, value: SSAValue) -> SSAValue:
        """A matrix with rows and columns exchanged."""
        op, turned = value.owner, tile_type(shape_of(value.type)[::-1], element_type(value.type))
        if isinstance(op, ConstantOp) and op.splat_value is not None:
            return self.number(op.splat_value, turned)
        if isinstance(op, TransOp) and list(op.attr_values()["order"]) == [1, 0]:
            return op.src
        return self.make(TransOp, turned, value, order=(1, 0))

    def reduced(
        self, combine: type[Operation], tile: SSAValue, axis: int, properties: Mapping[str, Attribute] | None = None
    ) -> SSAValue:
        """A tile reduced along an axis by an operation on two elements, with these properties."""
        shape, element = shape_of(tile.type), element_type(tile.type)
        body = Block(arg_types=[element, element])
        both = combine.create(operands=list(body.args), result_types=[element], properties=dict(properties or {}))
        body.add_ops([both, ReduceReturnOp.create(operands=list(both.results))])
        for op in body.ops:
            op.location = self.anchor.location
        rest = tile_type(shape[:axis] + shape[axis + 1 :], element)
        return self.put(ReduceOp.build_op([[tile]], [rest], {"axis": axis}, [Region(body)]))

    def loop(self, bounds: Sequence[SSAValue], firsts: Sequence[SSAValue] = ()) -> ForOp:
        """A loop with nothing in it, from a number up to another by steps, that hands on what it carries.

        Args:
            bounds: the first number, the end and the step.
            firsts: what is carried into the first iteration.
        """
        kinds = [first.type for first in firsts]
        body = Block(arg_types=[bounds[0].type, *kinds])
        end = YieldOp.create(operands=body.args[1:])
        body.add_op(end)
        end.location = self.anchor.location
        loop = ForOp.create(operands=[*bounds, *firsts], result_types=kinds, regions=[Region(body)])
        insert_before(loop, self.anchor)
        return loop
