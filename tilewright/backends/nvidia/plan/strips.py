"""One tile of a strip-mined loop: what stands for values of large tiles, a strip of one dim at a time.

    %i = tt.make_range 0..65536              %i = splat %offset + tt.make_range 0..4096
    %p = tt.addptr (tt.splat %x), %i    ->   %p = tt.addptr (tt.splat %x), %i
    %v = tt.load %p                          %v = tt.load %p

Values are made anew from what they are computed from, loads included; those without the dim stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.analysis.constants import constant_of
from tilewright.base.errors import InternalError
from tilewright.base.order import operands_first
from tilewright.ir.attrs import I32
from tilewright.ir.traits import is_collective
from tilewright.ir.types import element_type, i32, shape_of, tile_type
from tilewright.ir.values import defining_op, property_int, result_number
from tilewright.ops.broadcast import ExpandDimsOp, SplatOp
from tilewright.ops.constant import ConstantOp
from tilewright.ops.creation import MakeRangeOp
from tilewright.ops.elementwise import AddIOp
from tilewright.ops.memory import is_volatile
from tilewright.ops.reduce import ReduceOp
from tilewright.ops.spec import dims_of
from tilewright.passes.dce import is_removable
from tilewright.passes.rewriting import insert_before

Part = tuple[SSAValue, int]
"""A tile and the dim of which a strip is taken."""


def parts_of(value: SSAValue, axis: int) -> Sequence[int | None] | None:
    """Of every operand of the operation that makes a tile the dim of which a strip of the tile takes a strip.

    Args:
        value: the tile.
        axis: its dim.

    Returns:
        None for operands that are taken whole; None in all if it is not known how to make a strip.
    """
    op = defining_op(value)
    if op is None or not is_removable(op) or is_volatile(op) or (is_collective(op) and not isinstance(op, ReduceOp)):
        return None
    dims = dims_of(op)
    name = None if dims is None else dims.results[result_number(value)][axis]
    if dims is None or name in dims.met or (isinstance(op, ExpandDimsOp) and name not in dims.operands[0]):
        return None
    return [names.index(name) if name in names else None for names in dims.operands]


@dataclass(slots=True)
class Strip:
    """Makes strips in front of an operation.

    Args:
        start: the first coordinate of the strip (i32).
        width: its coordinates.
        anchor: operations are put in front of this one.
        known: the strips that are there.
    """

    start: SSAValue
    width: int
    anchor: Operation
    known: dict[Part, SSAValue]

    def of(self, value: SSAValue, axis: int) -> SSAValue:
        """The strip of a tile along a dim, of which `parts_of` knows all that it is made of."""
        for part in operands_first((value, axis), strips_of, self.known):
            self.known[part] = self._made(part)
        return self.known[value, axis]

    def _made(self, part: Part) -> SSAValue:
        value, axis = part
        op, shape, constant = defining_op(value), list(shape_of(value.type)), constant_of(value)
        assert op is not None
        shape[axis] = self.width
        kind = tile_type(tuple(shape), element_type(value.type))
        if constant is not None:
            return self._put(ConstantOp.of(constant, kind), op)
        if isinstance(op, MakeRangeOp):
            first = property_int(op, "start")
            made = MakeRangeOp.create(result_types=[kind], properties=dict(op.properties))
            made.properties["end"] = _number(first + self.width)
            here = self._put(made, op)
            start = self._put(SplatOp.create(operands=[self.start], result_types=[tile_type(tuple(shape), i32)]), op)
            return self._put(AddIOp.create(operands=[start, here], result_types=[kind]), op)
        axes = parts_of(value, axis)
        if axes is None:
            raise InternalError(f"no strip of {op.name}")
        operands = [v if at is None else self.known[v, at] for v, at in zip(op.operands, axes, strict=True)]
        return self.remade(op, operands, [kind])

    def remade(self, op: Operation, operands: Sequence[SSAValue], types: Sequence[Attribute]) -> SSAValue:
        """The first result of an operation on other operands."""
        made = type(op).create(
            operands=list(operands),
            result_types=list(types),
            properties=dict(op.properties),
            attributes=dict(op.attributes),
            regions=[region.clone() for region in op.regions],
        )
        return self._put(made, op)

    def effect(self, op: Operation, operands: Sequence[SSAValue]) -> None:
        """An operation without results on other operands."""
        made = type(op).create(operands=list(operands), properties=dict(op.properties), attributes=dict(op.attributes))
        insert_before(made, self.anchor)
        made.location = op.location

    def _put(self, made: Operation, like: Operation) -> SSAValue:
        insert_before(made, self.anchor)
        made.location = like.location
        return made.results[0]


def _number(value: int) -> Attribute:
    encoded = I32.encode(value)
    assert encoded is not None
    return encoded


def strips_of(part: Part) -> list[Part]:
    """The strips that a strip is made of, those of the last operand first."""
    value, axis = part
    op, axes = defining_op(value), parts_of(value, axis)
    if op is None or axes is None or constant_of(value) is not None:
        return []
    return [(v, at) for v, at in zip(op.operands, axes) if at is not None][::-1]
