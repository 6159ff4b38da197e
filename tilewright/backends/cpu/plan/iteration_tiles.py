"""Values of a loop for several iterations at once: tiles with a first dim of iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.backends.cpu.plan.recompute import cast_name, table_name
from tilewright.ir.attrs import I32
from tilewright.ir.types import element_type, i32, shape_of, tile_type
from tilewright.ir.values import defining_op, is_made_inside, property_int
from tilewright.ops.broadcast import BroadcastOp, ExpandDimsOp, SplatOp
from tilewright.ops.casts import ExtSIOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.control import ForOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import AddIOp, MulIOp
from tilewright.ops.elementwise_pointer import AddPtrOp
from tilewright.ops.memory import LoadOp
from tilewright.ops.reduce import ReduceOp, ReduceReturnOp
from tilewright.passes.rewriting import insert_before, value_before


def has_tile(op: Operation) -> bool:
    """Whether it is known what an operation is for several iterations."""
    if "isVolatile" in op.properties:
        return False
    if isinstance(op, LoadOp | AddPtrOp | SplatOp | ExpandDimsOp | BroadcastOp | ConstantOp | MakeRangeOp):
        return True
    return len(op.results) == 1 and not op.regions and (cast_name(op) or table_name(op)) is not None


class IterationTiles:
    """Makes the values of a loop for each of several iterations, along a first dim.

    Args:
        loop: the loop.
        iterations: how many.

    Attributes:
        last: the operation in front of which new ones are put.
        known: what stands for values of the loop, each with a first dim.
    """

    def __init__(self, loop: ForOp, iterations: int) -> None:
        self.loop, self.iterations = loop, iterations
        self.last: Operation = loop
        self.known: dict[SSAValue, SSAValue] = {}

    def block(self, value: SSAValue) -> SSAValue:
        """A value of the loop for each iteration of a block."""
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self.made(value)
        return found

    def made(self, value: SSAValue) -> SSAValue:
        """Makes what stands for a value of the loop."""
        shape, op = shape_of(value.type), defining_op(value)
        kind = tile_type((self.iterations, *shape), element_type(value.type))
        number = constant_of(value)
        if number is not None:
            return value_before(ConstantOp.of(number, kind), self.last)
        if op is None or not is_made_inside(value, self.loop) or isinstance(op, MakeRangeOp | ConstantOp):
            return self.repeated(self.outside(value), kind)
        operands = [self.block(operand) for operand in op.operands]
        if isinstance(op, ExpandDimsOp):
            axis = property_int(op, "axis")
            return self.expanded(operands[0], axis + 1 if axis >= 0 else len(shape) + axis + 1)
        if isinstance(op, SplatOp | BroadcastOp):
            return self.spread(operands[0], shape)
        operands = [self.spread(operand, shape) for operand in operands]
        return self.make(type(op), operands, kind, properties=dict(op.properties), attributes=dict(op.attributes))

    def outside(self, value: SSAValue) -> SSAValue:
        """What every iteration makes alike, made in the block's iteration too."""
        op = defining_op(value)
        if op is None or not is_made_inside(value, self.loop):
            return value
        made = op.clone()
        insert_before(made, self.last)
        return made.results[0]

    def repeated(self, value: SSAValue, kind: Attribute) -> SSAValue:
        """What does not depend on the iteration, for each iteration."""
        if not shape_of(value.type):
            return self.make(SplatOp, [value], kind)
        return self.make(BroadcastOp, [self.expanded(value, 0)], kind)

    def spread(self, value: SSAValue, shape: tuple[int, ...]) -> SSAValue:
        """What has one number, or fewer elements, for each iteration, as a tile of `shape` for each."""
        while len(shape_of(value.type)) < len(shape) + 1:
            value = self.expanded(value, len(shape_of(value.type)))
        kind = tile_type((self.iterations, *shape), element_type(value.type))
        return value if value.type == kind else self.make(BroadcastOp, [value], kind)

    def expanded(self, value: SSAValue, axis: int) -> SSAValue:
        """A tile with one more dim, of one element."""
        shape = shape_of(value.type)
        kind = tile_type((*shape[:axis], 1, *shape[axis:]), element_type(value.type))
        return self.make(ExpandDimsOp, [value], kind, properties={"axis": I32.encode(axis)})

    def range(self, kind: Attribute) -> SSAValue:
        """The number of each iteration of a block."""
        return self.numbers(self.iterations, kind)

    def numbers(self, count: int, kind: Attribute) -> SSAValue:
        """The first numbers, from zero."""
        ends = {"start": I32.encode(0), "end": I32.encode(count)}
        place = self.make(MakeRangeOp, [], tile_type((count,), i32), properties=ends)
        wanted = tile_type((count,), kind)
        return place if wanted == place.type else self.make(ExtSIOp, [place], wanted)

    def grown(self, value: SSAValue, place: SSAValue, gain: SSAValue, kind: type[Operation] = AddIOp) -> SSAValue:
        """``value + place * gain`` for each iteration, or ``value - place * gain``."""
        grown = self.times(place, gain)
        return self.binary(kind, self.repeated(value, place.type), grown)

    def times(self, place: SSAValue, gain: SSAValue) -> SSAValue:
        """A row of numbers times a number."""
        return place if constant_of(gain) == 1 else self.binary(MulIOp, place, self.repeated(gain, place.type))

    def added_up(self, combine: type[Operation], value: SSAValue, kind: Attribute) -> SSAValue:
        """A tile combined over its first dim."""
        element = element_type(value.type)
        body = Block(arg_types=[element, element])
        both = combine.create(operands=list(body.args), result_types=[element])
        body.add_ops([both, ReduceReturnOp.create(operands=list(both.results))])
        for op in body.ops:
            op.location = self.loop.location
        return self.make(ReduceOp, [value], kind, properties={"axis": I32.encode(0)}, regions=[Region(body)])

    # -- operations ------------------------------------------------------------------------------------

    def binary(self, op: type[Operation], left: SSAValue, right: SSAValue) -> SSAValue:
        return self.make(op, [left, right], left.type)

    def make(self, op: type[Operation], operands: Sequence[SSAValue], kind: Attribute, **more: Any) -> SSAValue:
        return value_before(op.create(operands=operands, result_types=[kind], **more), self.last)
